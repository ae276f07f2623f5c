"""
The compacted topic: read by a thread of its own, written by one fenced writer at a time.

Every writer uses the same transactional id. Taking it over (``init_transactions``) fences the
writer that had it. A writer that isn't fenced knows that no other one wrote since. So reading to
the end, deciding and committing is compare-and-set, for any number of processes.

Source: KIP-98 "Exactly Once Delivery and Transactional Messaging".
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headgate.errors import StoreError, StoreSilent
from headgate.store.deadline import LimitedLock, left_s
from headgate.store.kafka.reader import QuotaTopicReader
from headgate.store.kafka.reader import log as librdkafka_log
from headgate.store.kafka.state import Expected, Record, TopicState

log = logging.getLogger("headgate.store")
#: Time for one step: making the topic, reaching the end, committing.
STEP_TIMEOUT_S = 30.0
#: Time for one try to learn where the topic ends.
TRY_S = 5.0
#: A topic that this many looks in a row, 50 ms apart, don't find was deleted.
GONE_AFTER = 10
#: Time for a write, over fencing and brokers that come and go.
WRITE_TIMEOUT_S = 60.0
# A fenced writer is business as usual, though librdkafka calls it critical. What matters is raised.
_quiet = logging.getLogger("headgate.store.writer")
_quiet.propagate = False
_quiet.addHandler(logging.NullHandler())

Decide = Callable[[TopicState], list[Record]]


def once(decide: Decide) -> Decide:
    """
    Return a function that decides nothing more after what it decided was committed.

    A commit may have happened although its answer was lost. The state shows that if the records
    have a history entry, an audit line or a turn among them. Others may be committed twice.
    """
    made: list[Record] = []

    def decided(state: TopicState) -> list[Record]:
        nonlocal made
        made = [] if state.holds(made) else decide(state)
        return made

    return decided


class QuotaTopic:
    """
    The topic that keeps what Kafka has no place for.

    Args:
        config: librdkafka settings to connect.
        topic: its name; it is made by ``make``, never by reading.
        changed: called from the reading thread after records came in, with what Kafka must show.
    """

    def __init__(
        self,
        config: dict[str, str],
        topic: str,
        changed: Callable[[Expected], None],
    ) -> None:
        self._config: dict[str, Any] = {**config, "client.id": "headgate-store"}
        self._topic = topic
        self._changed = changed
        self.state = TopicState()
        self._moved = threading.Condition()
        self._position = 0
        self._write_lock = LimitedLock(f"topic {topic}", threading.Lock())
        self._producer: Producer | None = None
        self._admin = AdminClient(self._config, logger=librdkafka_log)
        self._partition = TopicPartition(topic, 0)
        # Held while the reader is started, or started again.
        self._start_lock = LimitedLock(f"topic {topic}", threading.Lock())
        self._reader: QuotaTopicReader | None = None

    # --- whether there is a topic

    def make(self) -> None:
        """Make the topic if it is missing, and wait until it has a leader."""
        deadline = time.monotonic() + _step_s()
        asked = False
        with self._translated("reach"):
            while True:
                known = self._admin.list_topics(timeout=_step_s())
                found = known.topics.get(self._topic)
                if found is not None and found.partitions and found.partitions[0].leader >= 0:
                    return
                if not asked and found is None:
                    self._create(replicas=min(3, len(known.brokers)))
                    asked = True
                elif time.monotonic() > deadline:
                    raise StoreError(f"topic {self._topic} has no leader", retriable=True)
                else:
                    time.sleep(0.02)

    def _create(self, replicas: int) -> None:
        config = {"cleanup.policy": "compact", "min.insync.replicas": str(max(1, replicas - 1))}
        new = NewTopic(self._topic, num_partitions=1, replication_factor=replicas, config=config)
        try:
            self._admin.create_topics([new])[self._topic].result(_step_s())
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _exists(self) -> bool:
        with self._translated("reach"):
            # Lists all topics: a broker may create a topic that is asked for by its name.
            found = self._admin.list_topics(timeout=_step_s()).topics.get(self._topic)
        return found is not None

    def check_same(self) -> None:
        """Forget what was read if the topic was deleted, or made again, since then."""
        with self._start_lock:
            reader = self._reader
            if reader is not None and self._topic_id() != reader.topic_id:
                self._forget(reader)

    def _topic_id(self) -> str:
        names = TopicCollection([self._topic])
        with self._translated("reach"):
            try:
                return str(
                    self._admin.describe_topics(names)[self._topic].result(_step_s()).topic_id
                )
            except KafkaException as exc:
                if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return ""
                raise

    def _start(self) -> bool:
        """Read from now on, if there is a topic; returns whether there is."""
        with self._start_lock:
            if self._reader is None and self._exists():
                self._reader = QuotaTopicReader(
                    self._topic, self._topic_id(), self._config, self._take
                )
            return self._reader is not None

    def _forget(self, reader: QuotaTopicReader) -> None:
        """Stop reading, and forget what was read. Under ``_start_lock``."""
        reader.close()
        self._reader = None
        with self._moved:
            version = self.state.quotas_version
            self.state = TopicState()
            self.state.quotas_version = version + 1
            self._position = 0

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            said = (
                f"Kafka {self._config['bootstrap.servers']}: couldn't {verb} topic {self._topic}: "
                f"{error.str()}"
            )
            if error.code() in _SILENT:
                raise StoreSilent(said) from exc
            raise StoreError(said, retriable=bool(error.retriable())) from exc
        except TimeoutError as exc:
            raise StoreSilent(
                f"Kafka {self._config['bootstrap.servers']}: couldn't {verb} topic {self._topic}: "
                "no answer in time"
            ) from exc

    # --- reading

    def _take(self, messages: list[Any]) -> None:
        """Take in what the reader found."""
        expected: Expected = {}
        taken = 0
        with self._moved:
            for message in messages:
                error = message.error()
                if error is None:
                    record = Record(message.key() or b"", message.value())
                    expected |= self.state.apply(record)
                    self._position = message.offset() + 1
                    taken += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Past commit markers too, which are no messages.
                    self._position = max(self._position, message.offset())
                else:
                    log.warning("reading topic %s goes on, but: %s", self._topic, error)
            self._moved.notify_all()
        if taken:
            self._changed(expected)

    def read_to_end(self) -> None:
        """
        Wait until everything committed so far has been taken in. A missing topic counts as empty.

        Raises:
            StoreError: the topic can't be reached.
        """
        while self._start():
            reader, end = self._reader, self._end()
            if end is not None and end >= self._position:
                self._wait_for(end)
                return
            # It was deleted, and perhaps made again: only another topic can be shorter.
            with self._start_lock:
                if reader is not None and self._reader is reader:
                    self._forget(reader)

    def wait_for_turn(self, taken: str, timeout_s: float) -> None:
        """Wait until a turn was given back, or renewed, or until the timeout."""
        with self._moved:
            self._moved.wait_for(lambda: not self.state.has_turn(taken), timeout_s)

    def _wait_for(self, end: int) -> None:
        wait_s = _step_s()
        with self._moved:
            if not self._moved.wait_for(lambda: self._position >= end, wait_s):
                raise StoreSilent(
                    f"topic {self._topic} couldn't be read to its end in {wait_s:.0f} s "
                    f"(offset {self._position} of {end})"
                )

    def _end(self) -> int | None:
        """Return the offset after the last record that is committed; None: there is no topic."""
        # Not the consumer's get_watermark_offsets: it never returns while a thread is polling.
        asked = {self._partition: OffsetSpec.latest()}
        deadline = time.monotonic() + _step_s()
        missed = 0
        with self._translated("read"):
            while True:
                # A leader that is gone must not cost all the time: others may lead by now.
                try_s = min(TRY_S, _step_s())
                answers = self._admin.list_offsets(
                    asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=try_s
                )
                try:
                    return int(answers[self._partition].result(try_s).offset)
                except TimeoutError:
                    if time.monotonic() > deadline:
                        raise
                    self._admin = AdminClient(self._config, logger=librdkafka_log)
                except KafkaException as exc:
                    error: KafkaError = exc.args[0]
                    passing = (
                        error.retriable() or error.code() in _NOT_YET or error.code() in _SILENT
                    )
                    if not passing or time.monotonic() > deadline:
                        raise
                    # Brokers learn about a new topic one after the other.
                    missed = 0 if self._exists() else missed + 1
                    if missed >= GONE_AFTER:
                        return None
                    # A new client, because the old one remembers former leaders.
                    time.sleep(0.05)
                    self._admin = AdminClient(self._config, logger=librdkafka_log)

    @contextmanager
    def read(self) -> Iterator[TopicState]:
        """Give the state at the topic's end, which doesn't change meanwhile."""
        self.read_to_end()
        with self.locked() as state:
            yield state

    @contextmanager
    def locked(self) -> Iterator[TopicState]:
        """Give the state as far as it was read, which doesn't change meanwhile."""
        with self._moved:
            yield self.state

    # --- writing

    def write(self, decide: Decide) -> None:
        """
        Commit what ``decide`` returns for the topic's present state, all or nothing.

        Args:
            decide: given the state at the topic's end, returns records; none: nothing is written.
                Called again when another writer came between, and when a commit's answer was
                lost, unless that commit happened (:func:`once`).

        Raises:
            StoreError: it couldn't be committed.
        """
        deadline = time.monotonic() + left_s(WRITE_TIMEOUT_S)
        attempts = 0
        decide = once(decide)
        with self._write_lock:
            while True:
                # What is written must get into the topic that was read.
                self.read_to_end()
                error = self._attempt(decide)
                if error is None:
                    return
                if error.code() in _HOPELESS or time.monotonic() > deadline:
                    with self._translated("write to"):
                        raise KafkaException(error)
                # A random pause, so that writers that fenced each other don't do so again.
                attempts += 1
                time.sleep(random.uniform(0, min(0.5, 0.01 * 2**attempts)))

    def _attempt(self, decide: Decide) -> KafkaError | None:
        """Try once; return the error after which to try again."""
        try:
            if self._producer is None:
                self._producer = Producer(
                    {
                        **self._config,
                        "transactional.id": f"{self._topic}-writer",
                        "acks": "all",
                        "linger.ms": 0,
                        "transaction.timeout.ms": 30_000,
                    },
                    logger=_quiet,
                )
                self._producer.init_transactions(_step_s())
                self.read_to_end()
            with self._moved:
                records = decide(self.state)
            if not records:
                return None
            end = self._commit(self._producer, records)
        except KafkaException as exc:
            # Fenced, or a broker failed. A new producer waits until the old one's transaction is
            # committed or aborted; then the state shows which.
            self._producer = None
            error: KafkaError = exc.args[0]
            return error
        # Kafka acknowledges a commit before it writes the marker that lets readers past it.
        self._wait_for(end)
        return None

    def _commit(self, producer: Producer, records: list[Record]) -> int:
        """Commit records; return the offset after the last one."""
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        producer.begin_transaction()
        for key, value in records:
            while True:
                try:
                    producer.produce(
                        self._topic, key=key, value=value, partition=0, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        while True:
            try:
                # Flushes first, and fails when any record wasn't delivered.
                producer.commit_transaction(_step_s())
                return max(offsets) + 1
            except KafkaException as exc:
                if not exc.args[0].retriable() or not left_s(WRITE_TIMEOUT_S):
                    raise

    def close(self) -> None:
        """Stop reading and writing."""
        with self._start_lock:
            if self._reader is not None:
                self._reader.close()
        with self._write_lock:
            self._producer = None


def _step_s() -> float:
    """Return how long one step may take; librdkafka takes no time at all for no limit."""
    return max(0.001, left_s(STEP_TIMEOUT_S))


#: No broker answers, or none did in time.
_SILENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
#: Errors after a topic was made or a leader moved, until every broker knows.
_NOT_YET = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
#: Trying again won't help: credentials or rights are wrong.
_HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
