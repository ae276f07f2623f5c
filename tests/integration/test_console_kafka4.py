"""The console in front of a real gateway and Kafka: clients are throttled, pages say so."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from confluent_kafka import Producer

from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.clock import now_ms
from headgate.console.database import Database
from headgate.console.parts import ConsoleParts
from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from kit.console import text_of
from kit.served_console import served

from .gateway_kit import make_gateway, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]

ALICE = QuotaEntity.of(user="alice")
ETL = QuotaEntity.of(user="alice", client_id="etl")


@contextlib.contextmanager
def producing(bootstrap: str, name: str, **config: object) -> Iterator[None]:
    """Let a real client produce as fast as it may, 20 kB a request, until the end."""
    ended = threading.Event()

    def run() -> None:
        producer = Producer({**config, "bootstrap.servers": bootstrap})
        while not ended.is_set():
            producer.produce(name, bytes(20_000))
            producer.poll(0.05)
        producer.purge()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_the_console_says_who_a_real_gateway_holds_and_why(
    make_gateway: Make, kafka4: EmbeddedKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("SASL")
    name = topic(kafka4.bootstrap("PLAINTEXT"), unique("console"))
    set_quota(gateway, QuotaEntity.of(user=DEFAULT), {PRODUCER: 5_000_000.0})
    set_quota(gateway, ALICE, {PRODUCER: 9_000_000.0})
    set_quota(gateway, ETL, {PRODUCER: 20_000.0})
    store = open_store(gateway.gateway.settings.store)
    live = OpenTarget(Address(gateway.bootstrap("PLAINTEXT")).checked())
    quotas = OpenTarget(Address(store=store, tool="headgate console"))
    etl = {**kafka4.sasl_config("alice"), "client.id": "etl"}
    bob = {**kafka4.sasl_config("bob"), "client.id": "shop"}
    with (
        live,
        quotas,
        contextlib.closing(store),
        contextlib.closing(Database(tmp_path)) as database,
        served(ConsoleParts(quotas, live, database, now_ms)) as url,
        httpx2.Client(base_url=url, headers={"x-test-viewer": "viewer"}, timeout=60) as viewer,
        producing(bootstrap, name, **etl),
        producing(bootstrap, name, **bob),
    ):
        page = ""

        def told() -> bool:
            nonlocal page
            page = text_of(viewer.get("/").text)
            return "alice · etl" in page and "bob" in page and "connection" in page

        try:
            wait_for(lambda: told() and "Nobody is throttled" not in page, "a throttled client")
        except AssertionError:
            pytest.fail(page)
        throttled, _, others = page.partition("Room of everyone else")
        assert "alice · etl" in throttled
        assert "of 20 kB/s" in throttled
        assert "bob" in others
        assert "Broker 2 ready" in others
        page = text_of(viewer.get("/tenant?user=alice&client-id=etl").text)
        assert "users/alice/clients/etl 20 kB/s applies" in page
        assert "9 MB/s overridden" in page and "5 MB/s overridden" in page
        assert re.search(r"etl \d+ \d+ 127\.0\.0\.1", page)
        page = text_of(viewer.get("/why?user=alice&client-id=etl").text)
        assert "because users/alice/clients/etl allows" in page
        alone = text_of(viewer.get("/why?user=alice").text)
        assert "users/alice allows 20" not in alone
    for entity in (ETL, ALICE, QuotaEntity.of(user=DEFAULT)):
        set_quota(gateway, entity, {PRODUCER: None})
