"""
Every client people use works unchanged through the gateway, before 4.3 and 3.9.

Which client is tried at what is in tests/clients/matrix.py, of which docs/reference/clients.md is
made. What one client does another watches: confluent-kafka's admin client, through the gateway too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from clients import matrix
from clients.confluent import Confluent
from clients.interface import Client
from clients.java import PerformanceTools
from clients.kinds import client as client_of
from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store

from .gateway_kit import make_gateway, properties, read_all, send, set_quota, topic, wait_for

__all__ = ["make_gateway"]
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]
WATCHER = Confluent()
# What a cluster says while it makes its topic of offsets, for its first group.
FINDS_COORDINATOR = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


@pytest.fixture(scope="module")
def through(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a gateway in front of the shared Kafka of a version."""
    kafka: EmbeddedKafka = request.getfixturevalue(matrix.BROKERS[request.param])
    settings = Settings.from_properties(properties(tmp_path_factory.mktemp("gateway"), kafka))
    store = open_store(settings.store)
    with GatewayThread(lambda: Gateway(settings, store)) as gateway:
        yield gateway.bootstrap("PLAINTEXT")
    store.close()


def tried(test: str) -> pytest.MarkDecorator:
    """Parametrise a test with ``through`` and ``client``, as the matrix says."""
    return pytest.mark.parametrize(
        ("through", "client"),
        [
            pytest.param(
                broker,
                client_of(client, broker),
                id=f"{broker}-{client}",
                marks=[
                    getattr(pytest.mark, matrix.BROKERS[broker]),
                    *([pytest.mark.slow] if slow else []),
                ],
            )
            for broker, client, slow in matrix.trials(test)
        ],
        indirect=["through"],
    )


@tried(matrix.CREATE)
def test_a_client_creates_a_topic(through: str, client: Client, unique: Unique) -> None:
    name = unique("made")
    client.create(through, name, 3)
    admin = AdminClient({"bootstrap.servers": through})
    wait_for(lambda: name in admin.list_topics(timeout=60).topics, "the topic")

    def partitions() -> list[int]:
        return sorted(admin.list_topics(name, timeout=60).topics[name].partitions)

    # Another broker may be asked this time, which hears of the topic a while later.
    wait_for(lambda: partitions() == [0, 1, 2], "its partitions")


@tried(matrix.RECORDS)
def test_a_client_produces_consumes_and_resets_its_offsets(
    through: str, client: Client, unique: Unique
) -> None:
    name, group = topic(through, unique("records"), 2), unique("g")
    values = [f"v{number}" for number in range(50)]
    client.produce(through, name, values)
    assert sorted(client.consume(through, name, group, 50)) == sorted(values)
    client.reset(through, name, group, 2)
    WATCHER.produce(through, name, ["v50"])
    # The old ones again, else only the new one would come.
    assert sorted(client.consume(through, name, group, 51)) == sorted([*values, "v50"])


def assignments(bootstrap: str, group: str) -> list[list[int]]:
    """What each member of a group has, as the group's coordinator tells through the gateway."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=60)[group].result(60)
    except KafkaException as exc:
        if exc.args[0].code() in FINDS_COORDINATOR:
            return []
        raise
    return sorted(
        sorted(place.partition for place in member.assignment.topic_partitions)
        for member in described.members
    )


def spread(bootstrap: str, name: str, values: list[str]) -> None:
    """Produce values to two partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(name, value.encode(), partition=number % 2)
    assert producer.flush(120) == 0


@tried(matrix.REBALANCE)
def test_a_group_shares_partitions_out_and_takes_over(
    through: str, client: Client, unique: Unique
) -> None:
    name, group = topic(through, unique("shared"), 2), unique("g")

    def wait_until(expected: list[list[int]]) -> None:
        wait_for(lambda: assignments(through, group) == expected, f"a group with {expected}", 120)

    with client.member(through, name, group) as first:
        wait_until([[0, 1]])
        with client.member(through, name, group) as second:
            wait_until([[0], [1]])
            values = [f"v{number}" for number in range(100)]
            spread(through, name, values)
            wait_for(
                lambda: sorted(first.values + second.values) == sorted(values), "each value once"
            )
            assert first.values
            assert second.values
        wait_until([[0, 1]])
        more = [f"v{number}" for number in range(100, 200)]
        spread(through, name, more)
        wait_for(lambda: set(more) <= set(first.values), "the values of both partitions")


@tried(matrix.TRANSACTION)
def test_a_client_commits_and_aborts_transactions(
    through: str, client: Client, unique: Unique
) -> None:
    name = topic(through, unique("transaction"), 1)
    client.transact(through, name, unique("tx"), [("v1", True), ("v2", False), ("v3", True)])
    assert client.consume(through, name, unique("g"), 2) == ["v1", "v3"]
    # The aborted record is there; only a consumer with read_committed doesn't see it.
    assert offsets(through, name) >= 6  # three records, three markers


def offsets(bootstrap: str, name: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    _, end = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60)
    consumer.close()
    return int(end)


@tried(matrix.PERFORMANCE)
def test_performance_tools_produce_in_transactions_and_consume(
    through: str, client: Client, unique: Unique
) -> None:
    assert isinstance(client, PerformanceTools)
    name = topic(through, unique("perf"), 1)
    client.transact_many(through, name, unique("tx"), 500)
    # A marker at least beside the records; the last one is written after the commit's answer.
    wait_for(lambda: offsets(through, name) > 500, "a transaction's marker")
    assert client.count(through, name, unique("g"), 500) == 500


@pytest.mark.kafka3
def test_quotas_hold_before_a_3_9_cluster_in_zookeeper_mode_too(
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
        slow = unique("slow")
        set_quota(gateway, QuotaEntity.of(client_id=slow), {PRODUCER: 20_000.0})
        assert max(send(bootstrap, name, 600, **{"client.id": slow})) > 0
    store.close()


@pytest.mark.kafka4
@pytest.mark.slow
def test_a_share_group_reads_through_the_gateway(make_gateway: Make, unique: Unique) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name, group = topic(bootstrap, unique("share"), 1), unique("sg")
    configured = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name",
         group, "--add-config", "share.auto.offset.reset=earliest"],
    )  # fmt: skip
    assert configured.returncode == 0, configured.stderr
    WATCHER.produce(bootstrap, name, ["one", "two", "three"])
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        ["--bootstrap-server", bootstrap, "--topic", name, "--group", group,
         "--max-messages", "3", "--timeout-ms", "30000"],
        timeout_s=90,
    )  # fmt: skip
    assert sorted(consumed.stdout.split()) == ["one", "three", "two"], consumed.stderr
