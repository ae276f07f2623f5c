"""What the gateway's integration tests share: settings, clients, a way to set quotas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.store import open_store


def properties(tmp_path: Path, kafka: EmbeddedKafka, **more: str) -> dict[str, str]:
    """A gateway with a PLAINTEXT and a SASL listener on ports the system chooses."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "headgate.upstream": kafka.bootstrap("PLAINTEXT"),
        "listener.name.sasl.headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
        "headgate.upstream.admin.sasl.mechanism": "PLAIN",
        "headgate.upstream.admin.sasl.username": "admin",
        "headgate.upstream.admin.sasl.password": "admin-secret",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "9",
        "headgate.store": f"sqlite:{tmp_path / 'quotas.db'}",
        "headgate.data.dir": str(tmp_path),
        "headgate.usage": "none",
        "super.users": "User:admin;User:ANONYMOUS",
        **more,
    }


def topic(bootstrap: str, name: str, partitions: int = 2) -> str:
    """
    Make a topic and wait until its leaders know that they lead.

    Until then they refuse records, and a producer that isn't idempotent sends them again, after
    others: their order is lost, as Kafka allows.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    ends = {TopicPartition(name, n): OffsetSpec.latest() for n in range(partitions)}

    def led() -> bool:
        try:
            return all(f.result(60) is not None for f in admin.list_offsets(ends).values())
        except KafkaException:
            return False

    wait_for(led, f"leaders of {name}", 60)
    return name


def send(bootstrap: str, name: str, count: int, size: int = 1_000, **config: Any) -> list[int]:
    """Produce, return the throttle times the client was told (librdkafka's throttle_cb)."""
    told: list[int] = []
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "throttle_cb": lambda event: told.append(round(event.throttle_time * 1000)),
            **config,
        }
    )
    for number in range(count):
        producer.produce(
            name,
            bytes(size),
            key=str(number).encode(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(120) == 0
    producer.poll(0.3)  # flush ends with the last record: its throttle may still be on the way
    assert not failed
    return told


def receive(bootstrap: str, name: str, count: int, group: str, **config: Any) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    consumer.subscribe([name])
    found: list[bytes] = []
    until = time.monotonic() + 120
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.key())
    consumer.close()
    return found


def read_all(bootstrap: str, name: str, partitions: int, count: int) -> dict[int, list[bytes]]:
    """Read a topic from its beginning without a group: partition to keys in their order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for n in range(partitions)])
    found: dict[int, list[bytes]] = {n: [] for n in range(partitions)}
    until = time.monotonic() + 120
    while sum(map(len, found.values())) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found[message.partition()].append(message.key())
    consumer.close()
    return found


def set_quota(
    gateway: GatewayThread, entity: QuotaEntity, quotas: dict[QuotaKey, float | None]
) -> None:
    """Set quotas as another process would, and wait until the gateway has them."""
    store = open_store(gateway.gateway.settings.store)
    try:
        results = store.alter(
            [QuotaAlteration.of(entity, (Op(key, value) for key, value in quotas.items()))]
        )
        assert [result.error for result in results] == [None]
        version = store.snapshot().version
    finally:
        store.close()
    # Asked on the loop's own thread: there a table that is seen is in force in every front.
    wait_for(
        lambda: gateway.call(lambda: gateway.gateway.table.version) >= version,
        "the gateway to see the quota",
    )


def wait_for(happened: Any, what: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.01)


@pytest.fixture
def make_gateway(tmp_path: Path, kafka4: EmbeddedKafka) -> Iterator[Callable[..., GatewayThread]]:
    """``make_gateway(kafka=…, **properties)``: a started gateway in front of the shared Kafka."""
    running: list[tuple[GatewayThread, Any]] = []

    def make(kafka: EmbeddedKafka | None = None, **more: str) -> GatewayThread:
        named = {name.replace("__", "."): value for name, value in more.items()}
        settings = Settings.from_properties(properties(tmp_path, kafka or kafka4, **named))
        store = open_store(settings.store)
        thread = GatewayThread(lambda: Gateway(settings, store))
        running.append((thread, store))
        return thread.start()

    yield make
    for thread, store in running:
        thread.stop(0)
        store.close()
