"""
Keep the journal in a Kafka topic (``headgate.usage=kafka:TOPIC``) and read it back.

A message is one batch as an Arrow IPC stream, keyed by the worker's id, so that a worker's events
stay in order in one partition. Numbers and gaps are the same as in files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headgate.errors import ConfigError, StoreError
from headgate.usage.files import decode, encode
from headgate.usage.format import SCHEMA
from headgate.usage.writer import FLUSH_MS, MAX_PENDING, EventWriter

log = logging.getLogger("headgate.usage")

# Below message.max.bytes, Kafka's default of 1 MiB, with room for the batch's own header.
MAX_MESSAGE_BYTES: Final = 900_000
_DELIVERY_S: Final = 10.0
_POLL_S: Final = 1.0
# A header of the last message of a run that ended normally; its value is the last number.
_CLOSED: Final = "closed"
# A worker that ran lately is found in its partition's last messages; it sends one a second.
_RECENT: Final = 300


def messages(batch: pa.RecordBatch, most_bytes: int) -> list[bytes]:
    """
    Divide a batch into messages that a broker accepts.

    Args:
        batch: of ``SCHEMA``.
        most_bytes: of a message.
    """
    raw = encode(batch)
    if len(raw) <= most_bytes or batch.num_rows == 1:
        return [raw]
    half = batch.num_rows // 2
    return messages(batch.slice(0, half), most_bytes) + messages(batch.slice(half), most_bytes)


def _batches_of(message: Any) -> list[pa.RecordBatch]:
    """Return the batches of a message; none, and a warning, for one that isn't the journal's."""
    try:
        return decode(message.value() or b"")
    except (pa.ArrowException, OSError) as exc:  # OSError: what LZ4 can't unpack
        log.warning(
            "topic %s: message %s of partition %s isn't a journal's: %s",
            message.topic(),
            message.offset(),
            message.partition(),
            exc,
        )
        return []


class LastRun(NamedTuple):
    """Where a worker's journal in a topic ended: its last number, and whether it was closed."""

    seq: int
    closed: bool


class TopicWriter(EventWriter):
    """
    Keep the journal in a topic.

    Numbers continue where the worker's last run ended. One is left out if that run didn't end
    normally, so that a loss shows. This is looked up on the writer's thread, before the first
    batch.

    Args:
        topic: its name; it must exist, or the cluster create it.
        worker_id: whose journal this is; one writer at a time (the worker's lease sees to it).
        config: confluent-kafka's settings, with ``bootstrap.servers``; acks=all and idempotence
            are set here.
        flush_ms: longest time between batches, in ms.
        max_pending: events held at most.

    Raises:
        ConfigError: confluent-kafka doesn't take its settings.
    """

    def __init__(
        self,
        topic: str,
        worker_id: str,
        config: Mapping[str, Any],
        *,
        flush_ms: int = FLUSH_MS,
        max_pending: int = MAX_PENDING,
    ) -> None:
        super().__init__(worker_id, 0, flush_ms=flush_ms, max_pending=max_pending)
        self.topic = topic
        self._config = dict(config)
        try:
            self._producer: Producer | None = self._make_producer()
        except KafkaException as exc:
            raise ConfigError(f"headgate.usage: kafka:{topic} can't be written: {exc}") from exc
        self._parts: list[bytes] = []
        self._most_bytes = MAX_MESSAGE_BYTES  # less where the topic refuses them

    def _make_producer(self) -> Producer:
        return Producer(
            {
                **self._config,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 0,
                "delivery.timeout.ms": int(_DELIVERY_S * 1_000),
            }
        )

    def _begin(self) -> int:
        try:
            last = last_run(self.topic, self.worker_id, self._config)
        except StoreError as exc:
            raise OSError(str(exc)) from exc
        if last is None:
            return 1
        if not last.closed:
            log.warning(
                "journal %s: its last run in topic %s ended at event %d without being closed",
                self.worker_id,
                self.topic,
                last.seq,
            )
        return last.seq + (1 if last.closed else 2)

    def _stage(self, batch: pa.RecordBatch, first_seq: int) -> None:
        self._parts = messages(batch, self._most_bytes)

    def _commit(self) -> None:
        # One message after the other: after a failure only what isn't confirmed goes again.
        while self._parts:
            try:
                self._send(self._parts[0])
            except _TooLargeError:
                self._cut()
                continue
            del self._parts[0]

    def _cut(self) -> None:
        """Make smaller messages of what the topic's ``max.message.bytes`` doesn't take."""
        first = self._parts[0]
        [batch] = decode(first)
        if batch.num_rows == 1:
            raise OSError(f"topic {self.topic}: its max.message.bytes takes not even one event")
        self._most_bytes = len(first) // 2
        self._parts[:1] = messages(batch, self._most_bytes)

    def _send(self, raw: bytes, headers: dict[str, bytes] | None = None) -> None:
        outcome: list[Any] = []
        assert self._producer is not None
        try:
            self._producer.produce(
                self.topic,
                key=self.worker_id.encode(),
                value=raw,
                headers=headers,
                on_delivery=lambda error, _: outcome.append(error),
            )
            self._producer.flush(_DELIVERY_S + 1)
        except (BufferError, KafkaException) as exc:
            refused = exc.args[0] if isinstance(exc, KafkaException) else None
            if refused is not None and refused.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise _TooLargeError(f"topic {self.topic}: {exc}") from exc
            self._renew(refused)
            raise OSError(f"topic {self.topic}: {exc}") from exc
        error = outcome[0] if outcome else None
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise _TooLargeError(f"topic {self.topic}: {error}")
        if not outcome or error is not None:
            self._renew(error)
            raise OSError(f"topic {self.topic}: {error if outcome else 'no confirmation'}")

    def _renew(self, error: KafkaError | None) -> None:
        """Replace the producer after an error that it can't recover from."""
        if error is not None and error.fatal():
            log.error("journal %s: another producer, after: %s", self.worker_id, error.str())
            self._producer = self._make_producer()

    def _idle(self) -> None:
        """Do nothing: every message was confirmed when it was sent."""

    def _end(self, lost: int) -> None:
        if self._producer is None:
            return
        try:
            if self.written and not self._staged:
                nothing = pa.RecordBatch.from_pylist([], schema=SCHEMA)
                last = self._next_seq - 1 + lost  # the next run's numbers show what is missing
                self._send(encode(nothing), {_CLOSED: str(last).encode()})
        finally:
            self._producer = None  # its threads end with it


class _TooLargeError(OSError):
    """The topic takes only smaller messages."""


def _scan(
    topic: str, config: Mapping[str, Any], timeout_s: float, last: int | None = None
) -> Iterator[Any]:
    """
    Give a topic's messages up to where it ends now.

    Args:
        topic: its name.
        config: confluent-kafka's settings.
        timeout_s: longest wait for the next message, in seconds.
        last: only this many of each partition's last offsets; None: all.
    """
    consumer = Consumer(
        {
            **config,
            "group.id": f"headgate-journal-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if known.error is not None:
            if known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise StoreError(f"topic {topic}: {known.error.str()}", retriable=True)
        begin: dict[int, int] = {}
        for number in known.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=timeout_s
            )
            if high > low:
                begin[number] = low if last is None else max(low, high - last)
        consumer.assign([TopicPartition(topic, number, at) for number, at in begin.items()])
        waiting = set(begin)
        quiet_since = time.monotonic()
        while waiting:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() - quiet_since > timeout_s:
                    raise StoreError(f"topic {topic}: nothing for {timeout_s:g} s", retriable=True)
                continue
            quiet_since = time.monotonic()
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise StoreError(f"topic {topic}: {error.str()}", retriable=True)
    except KafkaException as exc:
        raise StoreError(f"topic {topic}: {exc}", retriable=True) from exc
    finally:
        consumer.close()


def last_run(
    topic: str, worker_id: str, config: Mapping[str, Any], *, timeout_s: float = 30.0
) -> LastRun | None:
    """
    Find where a worker's journal ended.

    Looks at the last few hundred messages of each partition first, then at all of them.

    Returns:
        None if the topic has nothing of this worker.

    Raises:
        StoreError: the topic can't be read.
    """
    key = worker_id.encode()
    for last in (_RECENT, None):
        found: LastRun | None = None
        for message in _scan(topic, config, timeout_s, last):
            if message.key() != key:
                continue
            for batch in _batches_of(message):
                if batch.num_rows:
                    found = LastRun(batch.column("seq")[-1].as_py(), False)
            closed = dict(message.headers() or ()).get(_CLOSED)
            if closed is not None:
                found = LastRun(int(closed), True)
        if found is not None:
            return found
    return None
