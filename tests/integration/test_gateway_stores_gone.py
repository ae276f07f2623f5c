"""A gateway whose store is deleted, or stands still: its quotas stay in force."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, EmbeddedZooKeeper
from headgate.store import open_store

from .gateway_kit import wait_for
from .scripted_upstream import Upstream
from .scripted_upstream import upstream as upstream
from .test_gateway_store import (
    Host,
    another_is_named,
    not_ready,
    refusal,
    set_bob,
    set_slow,
    told_ms,
    until_ready,
)


def stays_in_force(host: Host, delete: Callable[[], None]) -> None:
    """Delete a gateway's store, while it runs and before its next start; make another store."""
    with host.gateway() as gateway:
        with host.store() as store:
            set_slow(store)
            wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        until_ready(gateway)
        delete()
        assert refusal(gateway)
        wait_for(lambda: "none there" in not_ready(gateway), "not ready")
        assert told_ms(gateway) > 2_000
    with host.gateway() as gateway:
        assert gateway.call(gateway.gateway.not_ready) is not None
        assert told_ms(gateway) > 2_000
        another_is_named(host, gateway)


@pytest.mark.kafka3
def test_in_zookeeper(tmp_path: Path, upstream: Upstream, zookeeper: EmbeddedZooKeeper) -> None:
    chroot = f"/gone/{uuid.uuid4().hex}"

    def delete() -> None:
        with zookeeper.client() as client:
            for name in client.get_children(chroot):
                client.delete(f"{chroot}/{name}", recursive=True)

    stays_in_force(Host(tmp_path, upstream, f"zookeeper://{zookeeper.address}{chroot}"), delete)


@pytest.mark.kafka3
def test_a_zookeeper_that_stands_still_until_its_sessions_end(
    tmp_path: Path, upstream: Upstream, make_zookeeper: Callable[..., EmbeddedZooKeeper]
) -> None:
    zookeeper = make_zookeeper()
    host = Host(tmp_path, upstream, f"zookeeper://{zookeeper.address}/quotas")
    host.settings = Settings.from_properties(
        {**host.properties, "zookeeper.session.timeout.ms": "4000"}
    )
    with host.gateway() as gateway:
        with host.store() as store:
            set_slow(store)
            wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        until_ready(gateway)
        zookeeper.pause()
        wait_for(lambda: "doesn't answer" in not_ready(gateway), "not ready")
        time.sleep(5)  # longer than a session
        assert told_ms(gateway) > 2_000
        zookeeper.resume()
        until_ready(gateway)
        with host.store() as store:
            set_bob(store)
        wait_for(lambda: len(gateway.gateway.table) == 2, "a change made afterwards")
        assert told_ms(gateway) > 2_000


@pytest.mark.kafka4
def test_in_kafka(tmp_path: Path, upstream: Upstream, kafka4: EmbeddedKafka) -> None:
    topic = "__headgate_quotas"

    def delete() -> None:
        admin = AdminClient({"bootstrap.servers": kafka4.bootstrap()})
        admin.delete_topics([topic])[topic].result(30)
        while topic in admin.list_topics(timeout=30).topics:
            time.sleep(0.05)

    host = Host(tmp_path, upstream, f"kafka://{kafka4.bootstrap()}")
    try:
        stays_in_force(host, delete)
    finally:
        with contextlib.closing(open_store(host.url)) as store:
            set_slow(store, None)
            set_bob(store, None)
