"""Pages that need a Kafka, followed: an embedded one, the admin client, a gateway, its troubles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.pages import Reader, run_python

from .gateway_kit import make_gateway, properties, set_quota

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4


def ports(config: dict[str, str]) -> set[int]:
    """Return the ports of the brokers that a client is told."""
    told = AdminClient(config).list_topics(timeout=60).brokers.values()
    return {broker.port for broker in told}


def watches() -> set[threading.Thread]:
    """Return the threads that look at a store which is open."""
    return {thread for thread in threading.enumerate() if thread.name == "headgate-store-watch"}


def test_a_kafka_in_ones_own_tests(tmp_path: Path) -> None:
    reader = Reader("docs/howto/setup.md", tmp_path)
    names: dict[str, Any] = {}
    given: list[Any] = []
    ran: list[bool] = []
    told: list[str] = []

    def seen(value: object) -> None:
        given.append(value)
        ran.append(names["kafka"].running(2))
        told.append(names["kafka"].bootstrap())

    run_python(reader.block("EmbeddedKafka"), names, seen)
    bootstrap, alice, tool, killed, started = given
    assert len(bootstrap.split(",")) == 2
    assert alice["sasl.username"] == "alice"
    assert "SCRAM credential configs for user-principal 'alice'" in tool
    assert (killed, started) == (None, None)
    assert ran == [True, True, True, False, True]
    assert set(told) == {bootstrap}


def test_the_admin_client(
    kafka4: EmbeddedKafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    who = unique("alice")
    reader = Reader(
        "docs/reference/admin.md",
        tmp_path,
        {"localhost:9092": kafka4.bootstrap(), '"alice"': f'"{who}"'},
    )
    printed: list[dict[Any, Any]] = []
    names: dict[str, Any] = {"print": printed.append}
    run_python(reader.block("AdminClient("), names)
    [quotas] = printed
    alice, rate = QuotaEntity.of(user=who), names["rate"]
    assert quotas[alice] == {rate: 1_048_576}
    with names["AdminClient"](kafka4.bootstrap()) as admin:
        removal = names["AlterQuotasEntry"](alice, [names["Op"](rate, None)])
        admin.alter_quotas([removal]).all().result()


def test_a_gateway_as_a_library(
    kafka4: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_ports: Callable[..., list[int]],
) -> None:
    monkeypatch.chdir(tmp_path)
    listens = free_ports(3, consecutive=True)
    here = {"broker:9092": kafka4.bootstrap(), "19092": str(listens[0])}
    reader = Reader("docs/reference/gateway.md", tmp_path, here)
    printed: list[str] = []
    told: list[set[int]] = []

    def look(where: str) -> None:
        printed.append(where)
        told.append(ports({"bootstrap.servers": where}))

    before = watches()
    run_python(reader.block("GatewayThread("), {"print": look})
    assert watches() <= before
    assert printed == [",".join(f"localhost:{port}" for port in listens[:2])]
    assert told == [set(listens[:2])]


def test_what_to_do_when_a_client_is_slow_or_cannot_connect(
    make_gateway: Callable[..., GatewayThread],
    kafka4: EmbeddedKafka,
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
) -> None:
    plain, _, sasl, _ = free_ports(4, consecutive=True)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}",
        "headgate.broker.id.max": "2",
    }
    gateway = make_gateway(**listeners)
    lines = properties(tmp_path, kafka4, **listeners)
    (tmp_path / "headgate.properties").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
    set_quota(gateway, QuotaEntity.of(user="alice"), {PRODUCER: 1_000_000.0})
    reader = Reader(
        "docs/howto/troubleshooting.md", tmp_path, {"GATEWAY": gateway.bootstrap("PLAINTEXT")}
    )
    [why] = reader.run_lines("headgate why")
    assert "users/alice allows 1 MB/s" in why
    quotas, doctor = reader.run_lines("kafka-quotas")
    assert quotas == "producer_byte_rate:broker_bps=1000000 {user=alice}\n"
    assert doctor == "1 entity looked at; nothing found.\n"
    [doctor] = reader.run_lines("doctor --config")
    assert "listener PLAINTEXT (2 brokers)" in doctor
    assert doctor.endswith("nothing found.\n")
