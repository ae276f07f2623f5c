"""The journal in a topic, when the cluster refuses what it is given."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.errors import ConfigError
from headgate.usage import topic
from headgate.usage.format import Event, Origin
from headgate.usage.topic import LastRun, TopicWriter, decode
from kit.journals import read_topic

ORIGIN = Origin("record", "producer_byte_rate", 1, "L", "alice", "", "alice:", "alice", "etl")


class Cluster:
    """What a producer of confluent-kafka's would send to; it answers as it is told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.headers: list[dict[str, bytes] | None] = []
        self.producers = 0
        self.judge: Callable[[bytes], KafkaError | None] = lambda _: None
        self.ends: KafkaError | None = None  # what a flush raises

    def producer(self, config: dict[str, Any]) -> Any:
        self.producers += 1
        return SimpleNamespace(produce=self.produce, flush=self.flush)

    def flush(self, timeout: float) -> int:
        if self.ends is not None:
            raise KafkaException(self.ends)
        return 0

    def produce(
        self, name: str, *, key: bytes, value: bytes, headers: Any, on_delivery: Any
    ) -> None:
        error = self.judge(value)
        if error is None:
            self.sent.append(value)
            self.headers.append(headers)
        on_delivery(error, None)

    @property
    def seqs(self) -> list[int]:
        return [n for raw in self.sent for b in decode(raw) for n in b.column("seq").to_pylist()]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(topic, "Producer", made.producer)
    monkeypatch.setattr(topic, "last_run", lambda *_: None)
    return made


def journal(count: int, **more: Any) -> TopicWriter:
    writer = TopicWriter("usage", "w", {"bootstrap.servers": "kafka:9092"}, **more)
    for n in range(count):
        writer.append(tuple(Event(ORIGIN, float(n), 1.0)))
    return writer


def test_a_topic_that_takes_only_small_messages_gets_small_ones(cluster: Cluster) -> None:
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    cluster.judge = lambda raw: too_large if len(raw) > 12_000 else None
    writer = journal(500)
    assert writer.flush()
    assert cluster.seqs == list(range(1, 501))
    asked: list[int] = []
    cluster.judge = lambda raw: asked.append(len(raw))
    for n in range(500):
        writer.append(tuple(Event(ORIGIN, float(n), 1.0)))
    assert writer.flush()
    assert max(asked) <= 12_000  # it isn't found out again
    assert cluster.seqs == list(range(1, 1_001))
    writer.close()


def test_a_topic_that_takes_not_even_one_event_is_said_so(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.judge = lambda raw: KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    writer = journal(4)
    assert not writer.flush()
    assert "takes not even one event" in caplog.text
    assert writer.waiting == 4


def test_after_a_fatal_error_another_producer_goes_on(cluster: Cluster) -> None:
    fatal = KafkaError(KafkaError._FATAL, "out of order", True)
    cluster.judge = lambda raw: fatal
    writer = journal(3)
    assert cluster.producers == 1
    assert not writer.flush()
    assert cluster.producers == 2
    cluster.judge = lambda raw: KafkaError(KafkaError._MSG_TIMED_OUT)
    assert not writer.flush()
    assert cluster.producers == 2
    cluster.judge = lambda raw: None
    assert writer.flush()
    assert cluster.seqs == [1, 2, 3]
    writer.close()


def test_an_error_that_a_flush_raises_is_one_of_the_message(cluster: Cluster) -> None:
    """As librdkafka does where it may not have an idempotent producer's id."""
    writer = journal(3)
    cluster.judge = lambda raw: KafkaError(KafkaError._MSG_TIMED_OUT)
    cluster.ends = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no id", True)
    assert not writer.flush()
    assert cluster.producers == 2
    cluster.ends, cluster.judge = None, lambda raw: None
    assert writer.flush()
    assert cluster.seqs == [1, 2, 3]
    writer.close()


def test_what_was_dropped_at_the_end_is_missed_by_the_next_run(cluster: Cluster) -> None:
    writer = journal(12, max_pending=10)
    writer.close()
    assert cluster.headers[-1] == {"closed": b"12"}


def test_messages_of_others_in_the_topic_are_passed_over_and_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = journal(2)
    writer.close()
    monkeypatch.undo()

    def message(value: bytes | None, headers: Any = None) -> Any:
        return SimpleNamespace(
            key=lambda: b"w",
            value=lambda: value,
            headers=lambda: headers,
            topic=lambda: "usage",
            partition=lambda: 0,
            offset=lambda: 7,
        )

    found = [message(None), message(b"hello"), message(cluster.sent[0])]
    monkeypatch.setattr(topic, "_scan", lambda *_: iter(found))
    assert [b.num_rows for b in read_topic("usage", {})] == [2]
    assert topic.last_run("usage", "w", {}) == LastRun(2, False)
    assert caplog.text.count("message 7 of partition 0 isn't a journal's") == 4


def test_settings_that_a_producer_doesnt_take_are_said_so() -> None:
    with pytest.raises(ConfigError, match=r"headgate\.usage: kafka:usage can't be written: .*odd"):
        TopicWriter("usage", "w", {"odd": "1"})
