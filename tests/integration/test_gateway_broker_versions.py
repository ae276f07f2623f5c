"""Request-time and topic-creation quotas with real clients, each on a 4.3 and a 3.9 broker."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import AdminClient

from clients import matrix
from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import MUTATION, REQUEST
from headgate.store import open_store

from .gateway_kit import properties, send, set_quota, topic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its schemas
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import ThrottlingQuotaExceededError

Unique = Callable[[str], str]


@pytest.fixture(
    params=[
        pytest.param(version, marks=getattr(pytest.mark, mark))
        for version, mark in matrix.BROKERS.items()
    ]
)
def version(request: pytest.FixtureRequest) -> str:
    """The broker's version."""
    found: str = request.param
    return found


@pytest.fixture
def gateway(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[GatewayThread]:
    """A gateway in front of the shared Kafka of that version."""
    kafka: EmbeddedKafka = request.getfixturevalue(matrix.BROKERS[version])
    settings = Settings.from_properties(properties(tmp_path, kafka))
    store = open_store(settings.store)
    with GatewayThread(lambda: Gateway(settings, store)) as gateway:
        yield gateway
    store.close()


def test_request_percentage_throttles_any_request(gateway: GatewayThread, unique: Unique) -> None:
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("busy")
    name = topic(bootstrap, unique("busy"), 1)
    set_quota(gateway, QuotaEntity.of(client_id=client), {REQUEST: 0.001})
    told = send(bootstrap, name, 50, 10, **{"client.id": client, "linger.ms": 0})
    assert 500 < max(told) <= 1_000  # capped at one window; what is left of it is told
    assert send(bootstrap, name, 50, 10, **{"client.id": unique("calm")}) == []


def used_up(gateway: GatewayThread, unique: Unique) -> str:
    """
    Return a client id that has no topic creations left for many minutes: aiokafka used them up.

    All clients take them to the same broker, be it the controller or named so in KRaft.
    """
    client = unique("builder")
    set_quota(gateway, QuotaEntity.of(client_id=client), {MUTATION: 0.01})

    async def create() -> int:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=gateway.bootstrap("PLAINTEXT"), client_id=client
        )
        await admin.start()
        try:
            answer = await admin.create_topics([AioNewTopic(unique("used"), 6, 1)])
        finally:
            await admin.close()
        assert [error[1] for error in answer.topic_errors] == [0]
        return int(answer.throttle_time_ms)

    # aiokafka asks in a version that knows of no error 89: all is created, the wait is told.
    assert asyncio.run(create()) > 500_000
    return client


def exists(gateway: GatewayThread, name: str) -> bool:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap("PLAINTEXT")})
    return name in admin.list_topics(timeout=60).topics


def test_kafka_python_is_told_error_89(gateway: GatewayThread, unique: Unique) -> None:
    client, name = used_up(gateway, unique), unique("refused")
    admin = KafkaAdminClient(
        bootstrap_servers=gateway.bootstrap("PLAINTEXT").split(","), client_id=client
    )
    try:
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        admin.close()
    assert not exists(gateway, name)


def test_javas_admin_client_is_told_error_89(
    gateway: GatewayThread, version: str, unique: Unique, tmp_path: Path
) -> None:
    client, name = used_up(gateway, unique), unique("refused")
    config = tmp_path / "client.properties"
    config.write_text(f"client.id={client}\n")
    done = run_tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", gateway.bootstrap("PLAINTEXT"), "--command-config", str(config),
         "--create", "--topic", name, "--partitions", "1"],
        version=version,
    )  # fmt: skip
    # With ZooKeeper only the controller takes topics; it isn't for us to name another.
    assert gateway.gateway.discovery.clusters["PLAINTEXT"].kraft == (version == "4.3.1")
    assert done.returncode == 1
    assert "ThrottlingQuotaExceededException" in done.stderr + done.stdout
    assert not exists(gateway, name)
