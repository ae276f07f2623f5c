"""Every client people use works unchanged through the gateway, before 4.3 and 3.9."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic

from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.embedded.jars import KAFKA_4
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store

from .gateway_kit import (
    make_gateway,
    properties,
    read_all,
    receive,
    send,
    set_quota,
    topic,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its schemas
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PyNewTopic

__all__ = ["make_gateway"]
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]


def aiokafka_works(bootstrap: str, unique: Unique) -> None:
    """Create a topic, produce, commit a transaction, consume in a group."""
    name, group = unique("aio"), unique("g")

    async def work() -> list[bytes]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(name, 2, 1)])
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
        await producer.start()
        async with producer.transaction():
            for number in range(100):
                await producer.send_and_wait(name, str(number).encode(), partition=number % 2)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        found: list[bytes] = []
        async with asyncio.timeout(60):
            while len(found) < 100:
                batch = await consumer.getmany(timeout_ms=1_000)
                found.extend(m.value for messages in batch.values() for m in messages)
        await consumer.commit()
        await consumer.stop()
        return found

    found = asyncio.run(work())
    assert sorted(map(int, found)) == list(range(100))


def kafka_python_works(addresses: str, unique: Unique) -> None:
    """Create a topic, produce, consume in a group, reset its offsets by deleting it."""
    bootstrap = addresses.split(",")
    name, group = unique("py"), unique("g")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([PyNewTopic(name, 2, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(200):
        producer.send(name, str(number).encode())
    producer.flush(30)
    producer.close()

    def read(count: int) -> list[int]:
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=30_000,
        )
        found = []
        for message in consumer:
            found.append(int(message.value))
            if len(found) == count:
                break
        consumer.commit()
        consumer.close()
        return found

    assert sorted(read(200)) == list(range(200))
    admin.delete_groups([group])
    admin.close()
    assert sorted(read(200)) == list(range(200))


def groups_are_reset_by_kafkas_tool(bootstrap: str, unique: Unique, version: str) -> None:
    """Describe a group of confluent-kafka's with Kafka's own tool and reset its offsets."""
    name, group = topic(bootstrap, unique("java"), 1), unique("g")
    send(bootstrap, name, 50)
    assert len(receive(bootstrap, name, 50, group)) == 50

    def groups(*args: str) -> str:
        done = run_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            ["--bootstrap-server", bootstrap, "--group", group, *args],
            version=version,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert name in groups("--describe")
    reset = groups("--reset-offsets", "--to-earliest", "--topic", name, "--execute")
    assert name in reset
    assert len(receive(bootstrap, name, 50, group)) == 50


@pytest.mark.kafka4
def test_aiokafka_creates_produces_commits_a_transaction_and_consumes(
    make_gateway: Make, unique: Unique
) -> None:
    aiokafka_works(make_gateway().bootstrap("PLAINTEXT"), unique)


@pytest.mark.kafka4
def test_kafka_python_creates_produces_consumes_and_resets_offsets(
    make_gateway: Make, unique: Unique
) -> None:
    kafka_python_works(make_gateway().bootstrap("PLAINTEXT"), unique)


@pytest.mark.kafka4
def test_java_groups_are_described_and_their_offsets_reset(
    make_gateway: Make, unique: Unique
) -> None:
    groups_are_reset_by_kafkas_tool(make_gateway().bootstrap("PLAINTEXT"), unique, KAFKA_4)


@pytest.mark.kafka4
def test_the_new_group_protocol_works(make_gateway: Make, unique: Unique) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("kip848"), 2)
    send(bootstrap, name, 100)
    found = receive(bootstrap, name, 100, unique("g"), **{"group.protocol": "consumer"})
    assert sorted(map(int, found)) == list(range(100))


@pytest.mark.kafka3
def test_a_3_9_cluster_in_zookeeper_mode_is_fronted_too(
    kafka3: EmbeddedKafka, tmp_path: Path, unique: Unique
) -> None:
    settings = Settings.from_properties(properties(tmp_path, kafka3))
    store = open_store(settings.store)
    with GatewayThread(lambda: Gateway(settings, store)) as gateway:
        bootstrap = gateway.bootstrap("PLAINTEXT")
        name = topic(bootstrap, unique("old"), 2)
        assert send(bootstrap, name, 500) == []
        found = read_all(bootstrap, name, 2, 500)
        assert sorted(int(k) for keys in found.values() for k in keys) == list(range(500))
        assert len(receive(bootstrap, name, 500, unique("g"))) == 500
        slow = unique("slow")
        set_quota(gateway, QuotaEntity.of(client_id=slow), {PRODUCER: 20_000.0})
        assert max(send(bootstrap, name, 600, **{"client.id": slow})) > 0
        aiokafka_works(bootstrap, unique)
        kafka_python_works(bootstrap, unique)
        groups_are_reset_by_kafkas_tool(bootstrap, unique, kafka3.version)
    store.close()


@pytest.mark.kafka4
def test_a_share_group_reads_through_the_gateway(make_gateway: Make, unique: Unique) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name, group = topic(bootstrap, unique("share"), 1), unique("sg")
    configured = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name",
         group, "--add-config", "share.auto.offset.reset=earliest"],
    )  # fmt: skip
    assert configured.returncode == 0, configured.stderr
    produced = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", bootstrap, "--topic", name],
        input="one\ntwo\nthree\n",
    )
    assert produced.returncode == 0, produced.stderr
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        ["--bootstrap-server", bootstrap, "--topic", name, "--group", group,
         "--max-messages", "3", "--timeout-ms", "30000"],
        timeout_s=90,
    )  # fmt: skip
    assert sorted(consumed.stdout.split()) == ["one", "three", "two"], consumed.stderr
