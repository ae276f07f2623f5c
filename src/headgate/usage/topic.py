"""
Keep the journal in a Kafka topic (``headgate.usage=kafka:TOPIC``) and read it back.

A message is one batch as an Arrow IPC stream, keyed by the worker's id, so that a worker's events
stay in order in one partition. The same numbers, the same gaps as in files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headgate.errors import StoreError
from headgate.usage.files import to_schema
from headgate.usage.format import SCHEMA
from headgate.usage.writer import FLUSH_MS, MAX_PENDING, EventWriter

# Below message.max.bytes, Kafka's default of 1 MiB, with room for the batch's own header.
MAX_MESSAGE_BYTES: Final = 900_000
_DELIVERY_S: Final = 10.0
_POLL_S: Final = 1.0


def encode(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(raw: bytes) -> list[pa.RecordBatch]:
    """Return the batches of a message."""
    with pa.ipc.open_stream(raw) as reader:
        return [to_schema(batch) for batch in reader]


def messages(batch: pa.RecordBatch) -> list[bytes]:
    """Cut a batch so that each message fits a broker's default limit."""
    raw = encode(batch)
    if len(raw) <= MAX_MESSAGE_BYTES or batch.num_rows == 1:
        return [raw]
    half = batch.num_rows // 2
    return messages(batch.slice(0, half)) + messages(batch.slice(half))


class TopicWriter(EventWriter):
    """
    Keep the journal in a topic.

    Args:
        topic: its name; it must exist, or the cluster create it.
        worker_id: whose journal this is.
        config: confluent-kafka's settings, with ``bootstrap.servers``; acks=all and idempotence
            are set here.
        first_seq: number of the first event, after the last in the topic (``last_seq``).
        flush_ms: longest time between batches, in ms.
        max_pending: events held at most.
    """

    def __init__(
        self,
        topic: str,
        worker_id: str,
        config: Mapping[str, Any],
        *,
        first_seq: int = 1,
        flush_ms: int = FLUSH_MS,
        max_pending: int = MAX_PENDING,
    ) -> None:
        super().__init__(worker_id, first_seq, flush_ms=flush_ms, max_pending=max_pending)
        self.topic = topic
        self._producer: Producer | None = Producer(
            {
                **config,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 0,
                "delivery.timeout.ms": int(_DELIVERY_S * 1_000),
            }
        )
        self._parts: list[bytes] = []

    def _stage(self, batch: pa.RecordBatch, first_seq: int) -> None:
        self._parts = messages(batch)

    def _commit(self) -> None:
        # One message after the other: after a failure only what isn't confirmed goes again.
        while self._parts:
            self._send(self._parts[0])
            del self._parts[0]

    def _send(self, raw: bytes) -> None:
        outcome: list[Any] = []
        assert self._producer is not None
        try:
            self._producer.produce(
                self.topic,
                key=self.worker_id.encode(),
                value=raw,
                on_delivery=lambda error, _: outcome.append(error),
            )
        except (BufferError, KafkaException) as exc:
            raise OSError(f"topic {self.topic}: {exc}") from exc
        self._producer.flush(_DELIVERY_S + 1)
        if not outcome or outcome[0] is not None:
            raise OSError(f"topic {self.topic}: {outcome[0] if outcome else 'no confirmation'}")

    def _idle(self) -> None:
        """Nothing to do: every message is confirmed by then."""

    def _finish(self) -> None:
        if self._producer is not None:
            self._producer.flush(_DELIVERY_S)
            self._producer = None  # its threads end with it


def read_topic(
    topic: str, config: Mapping[str, Any], *, timeout_s: float = 30.0
) -> Iterator[pa.RecordBatch]:
    """
    Read a topic from its beginning to where it ends now.

    Args:
        topic: its name.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        timeout_s: longest wait for the next message, in seconds.

    Yields:
        Batches of ``SCHEMA``; in order per worker. A batch sent twice (after a lost confirmation)
        is given once.

    Raises:
        StoreError: the topic can't be read.
    """
    consumer = Consumer(
        {**config, "group.id": f"headgate-journal-{topic}", "enable.auto.commit": False}
    )
    try:
        known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if known.error is not None:
            raise StoreError(f"topic {topic}: {known.error.str()}")
        ends: dict[int, int] = {}
        for number in known.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=timeout_s
            )
            if high > low:
                ends[number] = high
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        seen: dict[str, int] = {}
        quiet_since = time.monotonic()
        while ends:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() - quiet_since > timeout_s:
                    raise StoreError(f"topic {topic}: nothing for {timeout_s:g} s", retriable=True)
                continue
            quiet_since = time.monotonic()
            if message.error() is not None:
                raise StoreError(f"topic {topic}: {message.error().str()}", retriable=True)
            for batch in decode(message.value()):
                worker = batch.column("worker_id")[0].as_py()
                first = batch.column("seq")[0].as_py()
                if first > seen.get(worker, 0):
                    seen[worker] = batch.column("seq")[-1].as_py()
                    yield batch
            if message.offset() + 1 >= ends[message.partition()]:
                del ends[message.partition()]
                consumer.incremental_unassign([TopicPartition(topic, message.partition())])
    except KafkaException as exc:
        raise StoreError(f"topic {topic}: {exc}", retriable=True) from exc
    finally:
        consumer.close()


def last_seq(topic: str, worker_id: str, config: Mapping[str, Any]) -> int:
    """Return the number of a worker's last event in a topic; 0 if it has none."""
    last = 0
    for batch in read_topic(topic, config):
        if batch.column("worker_id")[0].as_py() == worker_id:
            last = batch.column("seq")[-1].as_py()
    return last
