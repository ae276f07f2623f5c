"""A round of splits: written with a heartbeat, skipped where brokers or the store don't answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.errors import ConfigError, StoreError
from headgate.pipeline.splits.cluster_splits import Rounds
from headgate.pipeline.splits.split_stream import write_rounds
from headgate.pipeline.splits.split_topic import SplitWriter
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.quota.table import QuotaTable
from headgate.usage.splits import MOST_VALID_MS, Heartbeat, Split, decode, encode

TABLE = QuotaTable.of({QuotaEntity.of(user="alice"): {PRODUCER_BPS: 9000.0}})
SPLIT = Split("alice", "", PRODUCER_BPS.name, 1, 250.0, 7, 1_000, 15_000)
SEEN = {
    "quota_type": PRODUCER_BPS.name,
    "quota_user": "alice",
    "quota_client_id": "",
    "broker_id": 1,
    "slot_ms": 96_000,
    "used": 100.0,
    "requests": 1,
    "throttled": 0,
    "waited_ms": 0.0,
    "waits_from_ms": 0.0,
    "waits_until_ms": 0.0,
}


class Row:
    def __init__(self, **columns: Any) -> None:
        self.columns = columns

    def asDict(self) -> dict[str, Any]:
        return self.columns


class Batch:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = [Row(**row) for row in rows]

    def collect(self) -> list[Row]:
        return self.rows


class Kept:
    """A writer that keeps what it is given, or fails."""

    def __init__(self) -> None:
        self.epoch = 7
        self.rounds: list[tuple[list[Split], Heartbeat]] = []
        self.fails: Exception | None = None

    def write(self, splits: Iterable[Split], heartbeat: Heartbeat) -> None:
        if self.fails is not None:
            raise self.fails
        self.rounds.append((list(splits), heartbeat))


def stream(
    table: Callable[[], QuotaTable],
) -> tuple[Kept, list[str], Callable[..., None]]:
    writer: Any = Kept()
    said: list[str] = []
    write = write_rounds(Rounds(2_000, (1, 2), 0), writer, table, said.append, lambda: 98_000)
    return writer, said, lambda *rows: write(Batch(*rows), len(said))


def test_a_round_is_written_with_its_heartbeat_and_says_how_late_it_is() -> None:
    writer, said, write = stream(lambda: TABLE)
    write()
    write(SEEN)
    assert [beat for _, beat in writer.rounds] == [Heartbeat(7, 98_000, 6_000)] * 2
    assert [len(splits) for splits, _ in writer.rounds] == [0, 2]
    assert json.loads(said[0])["age_ms"] is None
    assert json.loads(said[1]) == {
        "round": 1,
        "seen": 1,
        "splits": 2,
        "age_ms": 2_000,
        "took_ms": 0,
    }


def test_without_the_store_the_last_quotas_count() -> None:
    tables: list[Any] = [TABLE, StoreError("no answer"), TABLE]

    def table() -> QuotaTable:
        found = tables.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    writer, said, write = stream(table)
    for _ in range(3):
        write(SEEN)
    assert [len(splits) for splits, _ in writer.rounds] == [2, 2, 2]
    assert "the quotas can't be read, the last ones count: no answer" in said[1]


def test_a_round_that_brokers_refuse_is_passed_over_and_a_newer_writer_ends_it() -> None:
    writer, said, write = stream(lambda: TABLE)
    writer.fails = StoreError("no leader")
    write(SEEN)
    assert "not written, splits go on expiring: no leader" in said[0]
    writer.fails = None
    write(SEEN)
    assert len(writer.rounds) == 1
    writer.fails = ConfigError("another one writes")
    with pytest.raises(ConfigError):
        write(SEEN)


class Transactions:
    """A transactional producer that keeps what was committed."""

    def __init__(self) -> None:
        self.open: list[tuple[bytes, bytes | None]] = []
        self.committed: list[tuple[bytes, bytes | None]] = []
        self.fails: KafkaError | None = None

    def begin_transaction(self) -> None:
        self.open = []

    def produce(self, topic: str, value: bytes | None, key: bytes) -> None:
        self.open.append((key, value))

    def commit_transaction(self, timeout: float) -> None:
        if self.fails is not None:
            raise KafkaException(self.fails)
        self.committed += self.open

    def abort_transaction(self, timeout: float) -> None:
        self.open = []


def writer_on(producer: Transactions) -> SplitWriter:
    writer = SplitWriter.__new__(SplitWriter)
    writer.topic = "splits"
    writer._producer = producer
    writer._valid_until_ms = {}
    return writer


def test_splits_that_nobody_renews_are_taken_out_of_the_topic_in_the_end() -> None:
    producer = Transactions()
    writer = writer_on(producer)
    other = SPLIT._replace(user="bob")
    writer.write([SPLIT, other], Heartbeat(7, 1_000, 15_000))
    later = SPLIT._replace(computed_ms=1_000 + MOST_VALID_MS)
    writer.write([later], Heartbeat(7, later.computed_ms, 15_000))
    assert [key for key, value in producer.committed if value is None] == []
    last = SPLIT._replace(computed_ms=1_001 + MOST_VALID_MS)
    writer.write([last])
    assert [key for key, value in producer.committed if value is None] == [encode(other)[0]]
    writer.write([last])
    assert len([1 for _, value in producer.committed if value is None]) == 1
    assert decode(*producer.committed[0]) == SPLIT


def test_only_being_fenced_ends_a_writer() -> None:
    producer = Transactions()
    writer = writer_on(producer)
    producer.fails = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(StoreError, match="splits"):
        writer.write([SPLIT])
    producer.fails = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
    with pytest.raises(ConfigError, match="another `headgate splits`"):
        writer.write([SPLIT])
    assert producer.committed == []
