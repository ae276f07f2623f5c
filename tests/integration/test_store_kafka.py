"""The Kafka store beside a real KRaft cluster's clients and its own tool."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from contract.suite import Seen, alteration, errors, set_key
from headgate.cli.main import load
from headgate.config import load_settings
from headgate.embedded import EmbeddedKafka
from headgate.errors import StoreError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, REQUEST
from headgate.quota.table import QuotaTable
from headgate.store import open_store
from headgate.store.kafka.store import TOPIC, KafkaStore

from .gateway_kit import wait_for

store_command = load("store")

pytestmark = pytest.mark.kafka4

CONFIGS = "kafka.admin.ConfigCommand"
ALICE = QuotaEntity.of(user="alice")
SPECIAL = "CN=a b,O=*"


@pytest.fixture
def store(kafka4: EmbeddedKafka) -> Iterator[KafkaStore]:
    store = KafkaStore(kafka4.bootstrap(), topic=f"quotas-{uuid.uuid4().hex}", poll_ms=500)
    yield store
    store.close()
    with another(store) as cleaner:
        left = cleaner.snapshot().entities.items()
        ops = {e: tuple(Op(k, None) for k in v if k.known_to_kafka) for e, v in left}
        cleaner.alter([QuotaAlteration(e, o) for e, o in ops.items() if o])


def another(store: KafkaStore, **arguments: Any) -> KafkaStore:
    """Return one more store on the same home, as another process has it."""
    bootstrap = store.url.removeprefix("kafka://")
    return KafkaStore(bootstrap, topic=store._topic._topic, **arguments)


def throttled(config: dict[str, str], kilobytes: int | None = None) -> list[float]:
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
        producer.produce("throttled-by-kafka-store", b"x" * 1_000, partition=0)
        if n % 50 == 49:
            producer.flush(60)
        if told or time.monotonic() > until:
            break
    producer.flush(60)
    return told


def test_a_quota_set_by_headgate_throttles_a_client_of_that_cluster(
    kafka4: EmbeddedKafka, store: KafkaStore
) -> None:
    alice = kafka4.sasl_config("alice")
    assert throttled(alice, 100) == []
    assert errors(store.alter([set_key(ALICE, PRODUCER, 5_000.0)])) == [None]
    assert max(throttled(alice)) > 0
    assert throttled(kafka4.sasl_config("bob"), 100) == []


def test_a_quota_set_by_kafka_s_tool_is_seen_and_special_principals_survive_both_ways(
    kafka4: EmbeddedKafka, store: KafkaStore
) -> None:
    special = QuotaEntity.of(user=SPECIAL)
    seen = Seen()
    store.watch(seen)
    alter = ("--alter", "--entity-type", "users", "--entity-name", SPECIAL)
    kafka4.tool(CONFIGS, *alter, "--add-config", "producer_byte_rate=4242")
    seen.until(lambda: seen.table == QuotaTable.of({special: {PRODUCER: 4242.0}}))
    pair = QuotaEntity.of(user=SPECIAL, client_id="cl/ient:1 *+%é")
    store.alter([set_key(pair, PRODUCER, 66_666.0)])
    described = kafka4.tool(
        CONFIGS, "--describe", "--entity-type", "users", "--entity-type", "clients"
    )
    assert described == (
        f"Quota configs for user-principal '{SPECIAL}', client-id 'cl/ient:1 *+%é' are "
        "producer_byte_rate=66666.0\n"
    )
    kafka4.tool(CONFIGS, *alter, "--delete-config", "producer_byte_rate")
    seen.until(lambda: seen.table == QuotaTable.of({pair: {PRODUCER: 66_666.0}}))


def test_what_kafka_s_tool_did_is_in_the_history_once_as_unknown(
    kafka4: EmbeddedKafka, store: KafkaStore
) -> None:
    entity = QuotaEntity.of(client_id="history-4")
    seen, seen_too = Seen(), Seen()
    store.watch(seen)
    with another(store, poll_ms=500) as other:
        other.watch(seen_too)
        store.alter([set_key(entity, PRODUCER, 500.0)], who="ops", tool="console")
        alter = ("--alter", "--entity-type", "clients", "--entity-name", "history-4")
        kafka4.tool(CONFIGS, *alter, "--add-config", "producer_byte_rate=1000")
        for watching in (seen, seen_too):
            watching.until(lambda w=watching: w.table.get(entity, PRODUCER) == 1_000.0)
    # Closing writes down what was seen; the other one sees that it is written.
    with another(store) as reader:
        entries = [(h.who, h.before, h.after) for h in reader.history.entries(entity=entity)]
    assert entries == [("ops", None, 500.0), ("unknown", 500.0, 1_000.0)]
    # Both saw it and both have it to write down; the second finds it written.
    store.close()
    with another(store) as reader:
        assert len(reader.history.entries(entity=entity)) == 2


def test_changes_through_headgate_are_seen_elsewhere_without_waiting_for_a_poll(
    store: KafkaStore,
) -> None:
    seen = Seen()
    # Polling once an hour, it can only have been told by the topic.
    with another(store, poll_ms=3_600_000) as other:
        other.watch(seen)
        store.alter([alteration(ALICE, producer_byte_rate=7.0, request_percentage=12.75)])
        wanted = {PRODUCER: 7.0, REQUEST: 12.75}
        seen.until(lambda: dict(seen.table.entities.get(ALICE, {})) == wanted)
        store.alter([set_key(ALICE, PRODUCER_IDS, 3.0)])
        seen.until(lambda: seen.table.get(ALICE, PRODUCER_IDS) == 3.0)
        store.alter([alteration(ALICE, producer_byte_rate=None)])
        seen.until(lambda: seen.table.get(ALICE, PRODUCER) is None)
    assert {h.who for h in store.history.entries()} == {""}


def test_one_alteration_of_both_homes_is_refused_naming_both_keys(store: KafkaStore) -> None:
    asked = [
        alteration(ALICE, producer_byte_rate=1.0, producer_ids_rate=2.0),
        set_key(QuotaEntity.of(user="bob"), CONSUMER, 3.0),
    ]
    for validate_only in (True, False):
        results = store.alter(asked, validate_only=validate_only)
        assert errors(results) == [
            "producer_byte_rate lives in Kafka and producer_ids_rate in Headgate's own topic, so "
            "one alteration can't change both at once; send two",
            None,
        ]
    assert store.snapshot() == QuotaTable.of({QuotaEntity.of(user="bob"): {CONSUMER: 3.0}})


def test_requests_are_cut_at_what_the_controller_takes_and_reported_per_entity(
    store: KafkaStore,
) -> None:
    entities = [QuotaEntity.of(user=f"u{n}") for n in range(6_000)]
    asked = [alteration(e, producer_byte_rate=1.0, consumer_byte_rate=2.0) for e in entities]
    asked[5_500] = alteration(entities[5_500], producer_byte_rate=1.0, consumer_byte_rate=0.0)
    results = store.alter(asked)
    assert [(n, r.error.message) for n, r in enumerate(results) if r.error] == [
        (5_500, "Quota consumer_byte_rate must be greater than 0")
    ]
    assert len(store.snapshot()) == 5_999


def test_what_the_controller_alone_refuses_is_reported_for_its_entity(store: KafkaStore) -> None:
    # Headgate thinks that the name resolves, the controller doesn't.
    with another(store, resolve=lambda _host: True) as trusting:
        asked = [
            alteration(QuotaEntity.of(ip="no.such.host.invalid"), connection_creation_rate=5.0),
            set_key(ALICE, PRODUCER, 1.0),
        ]
        for validate_only in (True, False):
            results = trusting.alter(asked, validate_only=validate_only)
            assert errors(results) == [
                "no.such.host.invalid is not a valid IP or resolvable host.",
                None,
            ]
        assert trusting.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})
        assert [h.entity for h in trusting.history.entries()] == [ALICE]


def test_the_topic_is_compacted_and_read_back_by_anyone(
    kafka4: EmbeddedKafka, store: KafkaStore
) -> None:
    store.alter([set_key(ALICE, PRODUCER_IDS, 5.0)], who="ops", tool="t")
    topic = store._topic._topic
    described = kafka4.tool(
        CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    assert "cleanup.policy=compact" in described
    consumer = Consumer(
        {
            "bootstrap.servers": kafka4.bootstrap(),
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    records = {}
    while len(records) < 2:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            records[message.key()] = message.value()
    consumer.close()
    key = b'{"kind":"quota","path":"users/alice","key":"producer_ids_rate"}'
    assert records[key] == b'{"value":5.0}'


def settings(tmp_path: Path, **lines: str) -> Any:
    file = tmp_path / f"{uuid.uuid4().hex}.properties"
    needed = {"listeners": "PLAINTEXT://127.0.0.1:19092", "headgate.upstream": "embedded"}
    text = needed | {k.replace("__", "."): v for k, v in lines.items()}
    file.write_text("".join(f"{k}={v}\n" for k, v in text.items()))
    return load_settings(file)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl(kafka4: EmbeddedKafka, tmp_path: Path, mechanism: str) -> None:
    url = f"kafka://{kafka4.bootstrap('SASL_PLAINTEXT')}"
    user = {
        "headgate__store__kafka__security__protocol": "SASL_PLAINTEXT",
        "headgate__store__kafka__sasl__mechanism": mechanism,
        "headgate__store__kafka__sasl__username": "admin",
        "headgate__store__kafka__sasl__password": "admin-secret",
    }
    with open_store(url, settings(tmp_path, **user)) as store:  # type: ignore[attr-defined]
        carol = QuotaEntity.of(user="carol")
        assert errors(store.alter([set_key(carol, PRODUCER, 5.0)])) == [None]
        assert store.snapshot().get(carol, PRODUCER) == 5.0
        assert errors(store.alter([set_key(carol, PRODUCER, None)])) == [None]
        assert store._topic._topic == TOPIC


def test_an_entity_with_keys_of_both_kinds_is_copied_from_another_store(
    kafka4: EmbeddedKafka, tmp_path: Path
) -> None:
    url, old = f"kafka://{kafka4.bootstrap()}", f"sqlite:{tmp_path / 'old.db'}"
    both = {PRODUCER: 5.0, PRODUCER_IDS: 6.0}
    with open_store(old) as source:  # type: ignore[attr-defined]
        source.alter([QuotaAlteration(ALICE, tuple(Op(k, v) for k, v in both.items()))])
        known = source.home.identity()
    try:
        assert store_command(["copy", "--from", old, "--to", url]) == 0
    finally:
        with open_store(url) as new:  # type: ignore[attr-defined]
            found = new.snapshot()
            for key in both:
                new.alter([set_key(ALICE, key, None)])
            history = [h for h in new.history.entries() if h.tool == "headgate store copy"]
            succeeded = new.home.identity().succeeds[0]
    assert found == QuotaTable.of({ALICE: both})
    assert [h.after for h in history] == [5.0, 6.0]
    assert {h.message for h in history} == {f"copied from {old}, store {known}"}
    assert succeeded == (known.id, known.revision)


@pytest.mark.parametrize("brokers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_restarted_brokers_lose_nothing(
    make_kafka: Callable[..., EmbeddedKafka], brokers: int
) -> None:
    kafka = make_kafka(brokers=brokers)
    seen = Seen()
    with KafkaStore(kafka.bootstrap(), poll_ms=200) as store:
        store.watch(seen)
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)])
        for value in (11.0, 12.0):
            broker = 1 if value == 11.0 else brokers  # 1 is the controller as well
            kafka.kill(broker)
            kafka.start(broker)
            wait_for(
                lambda: store.availability.silent is None, "an answer"
            )  # changes are refused before
            assert errors(store.alter([set_key(ALICE, PRODUCER, value)])) == [None]
            assert errors(store.alter([set_key(ALICE, PRODUCER_IDS, value)])) == [None]
            wanted = QuotaTable.of({ALICE: {PRODUCER: value, PRODUCER_IDS: value}})
            assert store.snapshot() == wanted
            seen.until(lambda wanted=wanted: seen.table == wanted)
        with another(store) as other:
            assert other.snapshot() == wanted
            assert [h.after for h in other.history.entries() if h.key == PRODUCER_IDS] == [
                2.0,
                11.0,
                12.0,
            ]


def test_a_cluster_that_is_not_there_is_a_retriable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.store.kafka.topic.STEP_TIMEOUT_S", 0.5)
    with pytest.raises(StoreError, match=r"Kafka 127\.0\.0\.1:1: couldn't reach topic") as raised:
        open_store("kafka://127.0.0.1:1")
    assert raised.value.retriable
