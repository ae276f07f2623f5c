"""The ZooKeeper store beside a real Kafka 3.9.2 in ZooKeeper mode and its own tool."""

import itertools
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from contract.suite import Seen, alteration, errors, set_key
from headgate.embedded import EmbeddedKafka
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, PRODUCER_SHARES
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore, open_store

from .gateway_kit import wait_for

pytestmark = pytest.mark.kafka3

CONFIGS = "kafka.admin.ConfigCommand"
SPECIAL = "CN=a b,O=*"


@pytest.fixture
def store(kafka3: EmbeddedKafka) -> Iterator[QuotaStore]:
    url = f"zookeeper://{kafka3.zookeeper.address}"
    clean(url)  # others use this Kafka too, in any order
    store = open_store(url)
    yield store
    store.close()
    clean(url)


def clean(url: str) -> None:
    with open_store(url) as cleaner:  # type: ignore[attr-defined]
        left = cleaner.snapshot().entities.items()
        cleaner.alter([alteration(e, **{k.name: None for k in keys}) for e, keys in left])
        assert len(cleaner.snapshot()) == 0


def throttled(config: dict[str, str], topic: str, kilobytes: int | None = None) -> list[float]:
    """
    Produce as somebody, and return the throttle times the broker told, in seconds.

    Without a number of kilobytes it goes on until one is told: the broker that leads the topic may
    hear of a quota a while after the one that was asked.
    """
    told: list[float] = []
    producer = Producer(
        {**config, "throttle_cb": lambda event: told.append(event.throttle_time), "linger.ms": 5}
    )
    until = time.monotonic() + 120
    for n in itertools.count() if kilobytes is None else range(kilobytes):
        producer.produce(topic, b"x" * 1_000, partition=0)
        if n % 50 == 49:
            producer.flush(60)
        if told or time.monotonic() > until:
            break
    producer.flush(60)
    return told


def test_a_quota_set_by_headgate_throttles_a_client_of_that_broker(
    kafka3: EmbeddedKafka, store: QuotaStore
) -> None:
    alice = kafka3.sasl_config("alice")
    assert throttled(alice, "throttled-by-zookeeper", 100) == []
    results = store.alter([set_key(QuotaEntity.of(user="alice"), PRODUCER, 5_000.0)])
    assert errors(results) == [None]
    told = throttled(alice, "throttled-by-zookeeper")
    assert max(told) > 0
    assert throttled(kafka3.sasl_config("bob"), "throttled-by-zookeeper", 100) == []


@pytest.mark.short
def test_a_quota_set_by_kafka_s_tool_is_seen_and_special_principals_survive_both_ways(
    kafka3: EmbeddedKafka, store: QuotaStore
) -> None:
    special = QuotaEntity.of(user=SPECIAL)
    seen = Seen()
    store.watch(seen)
    alter = ("--alter", "--entity-type", "users", "--entity-name", SPECIAL)
    kafka3.tool(CONFIGS, *alter, "--add-config", "producer_byte_rate=4242")
    seen.until(lambda: seen.table == QuotaTable.of({special: {PRODUCER: 4242.0}}))
    store.alter([set_key(special, CONSUMER, 77.0)])
    pair = QuotaEntity.of(user=SPECIAL, client_id="cl/ient:1 *+%é")
    store.alter([set_key(pair, PRODUCER, 66_666.0)])
    described = kafka3.tool(CONFIGS, "--describe", "--entity-type", "users")
    assert described.startswith(f"Quota configs for user-principal '{SPECIAL}' are ")
    assert "producer_byte_rate=4242.0" in described
    assert "consumer_byte_rate=77.0" in described
    described = kafka3.tool(
        CONFIGS, "--describe", "--entity-type", "users", "--entity-type", "clients"
    )
    assert described == (
        f"Quota configs for user-principal '{SPECIAL}', client-id 'cl/ient:1 *+%é' are "
        "producer_byte_rate=66666.0\n"
    )
    kafka3.tool(CONFIGS, *alter, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    seen.until(lambda: seen.table == QuotaTable.of({pair: {PRODUCER: 66_666.0}}))


def test_936_10_kafka_s_tool_still_alters_an_entity_that_holds_keys_it_lacks(
    kafka3: EmbeddedKafka, store: QuotaStore
) -> None:
    carol = QuotaEntity.of(user="carol")
    seen = Seen()
    store.watch(seen)
    results = store.alter([alteration(carol, producer_ids_rate=50.0, producer_byte_rate=1_000.0)])
    assert errors(results) == [None]
    store.alter([set_key(carol, PRODUCER_SHARES, 3.0)])
    alter = ("--alter", "--entity-type", "users", "--entity-name", "carol")
    kafka3.tool(CONFIGS, *alter, "--add-config", "producer_byte_rate=2000,consumer_byte_rate=9")
    wanted = {PRODUCER: 2_000.0, CONSUMER: 9.0, PRODUCER_IDS: 50.0, PRODUCER_SHARES: 3.0}
    seen.until(lambda: dict(seen.table.entities.get(carol, {})) == wanted)
    described = kafka3.tool(CONFIGS, "--describe", "--entity-type", "users")
    assert "producer_ids_rate" not in described
    assert "SCRAM credential configs for user-principal 'carol'" in described


def test_what_kafka_s_tool_did_is_in_the_history_as_unknown(
    kafka3: EmbeddedKafka, store: QuotaStore
) -> None:
    entity = QuotaEntity.of(client_id="history-3")
    seen = Seen()
    watch = store.watch(seen)
    alter = ("--alter", "--entity-type", "clients", "--entity-name", "history-3")
    kafka3.tool(CONFIGS, *alter, "--add-config", "producer_byte_rate=1000")
    seen.until(lambda: seen.table.get(entity, PRODUCER) == 1_000.0)
    store.alter([set_key(entity, PRODUCER, 2_000.0)], who="ops", tool="console")
    kafka3.tool(CONFIGS, *alter, "--delete-config", "producer_byte_rate")
    seen.until(lambda: seen.table.get(entity, PRODUCER) is None)
    watch.close()
    store.close()
    with open_store(f"zookeeper://{kafka3.zookeeper.address}") as reader:  # type: ignore[attr-defined]
        entries = [(h.who, h.before, h.after) for h in reader.history.entries(entity=entity)]
    assert entries == [
        ("unknown", None, 1_000.0),
        ("ops", 1_000.0, 2_000.0),
        ("unknown", 2_000.0, None),
    ]


def test_612_2_broker_settings_reach_a_running_broker(
    kafka3: EmbeddedKafka, store: QuotaStore
) -> None:
    store.broker_settings.alter("1", {"max.connection.creation.rate": "5000"})
    try:
        seen = Seen()
        store.broker_settings.watch(seen)
        brokers = ("--entity-type", "brokers", "--entity-name", "1")

        def described(setting: str) -> bool:
            return setting in kafka3.tool(CONFIGS, "--describe", *brokers)

        # ZooKeeper tells the broker, a moment later.
        wait_for(lambda: described("max.connection.creation.rate=5000"), "the broker's setting")
        more = "max.connection.creation.rate=6000,log.cleaner.threads=1"
        kafka3.tool(CONFIGS, "--alter", *brokers, "--add-config", more)
        wanted = {"1": {"max.connection.creation.rate": "6000"}}
        seen.until(lambda: {b: dict(c) for b, c in seen.events[-1][0].items()} == wanted)
    finally:
        store.broker_settings.alter("1", {"max.connection.creation.rate": None})
    wait_for(lambda: described("log.cleaner.threads=1"), "the other setting to stay")
    kafka3.tool(CONFIGS, "--alter", *brokers, "--delete-config", "log.cleaner.threads")
