"""
The Kafka home: a KRaft cluster through its own APIs 48 and 49, and a compacted topic beside it.

Keys that Kafka knows live in Kafka, so its brokers and tools see them; the others, broker settings,
history, audit and leases in the topic. A watch describes the cluster every ``poll_ms``, and at once
when a history entry records a change made through Headgate anywhere.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headgate.client.quota_messages import Values
from headgate.clock import now_ms
from headgate.config.security import ClientSecurity
from headgate.config.settings import Settings
from headgate.errors import ApiError, StoreError, StoreSilent
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta
from headgate.store.base import FOREIGN, StoreChange, resolvable
from headgate.store.broker_rules import Told
from headgate.store.deadline import NOTHING, UNSURE, LimitedLock
from headgate.store.home import log
from headgate.store.kafka.alter import KafkaAlterer
from headgate.store.kafka.codec import by_entity, merged, two_homes
from headgate.store.kafka.home import KafkaHistory, KafkaHome
from headgate.store.kafka.lease import KafkaLeases
from headgate.store.kafka.state import (
    TURN_S,
    At,
    Expected,
    Record,
    TopicState,
    audit_record,
    broker_record,
    history_record,
    new_id,
)
from headgate.store.watched import QuotaStore
from headgate.wire.messages.quotas import DescribedEntry

TOPIC = "__headgate_quotas"
POLL_MS = 5_000
#: A change that no history entry records within this time was made without Headgate. Entries are
#: written right after Kafka's acknowledgement, so this is ample.
GRACE_S = 2.0
#: A recorded change that Kafka doesn't show within this time was undone without Headgate.
EXPECTED_S = 10.0
#: How often Kafka's quotas are read again when the topic's changed meanwhile. After that both are
#: taken as read.
MOST_PASSES = 100


class _Suspect(NamedTuple):
    """A change seen in Kafka that the history doesn't record yet."""

    due_s: float
    t_ms: int
    at: At
    before: float | None


class KafkaStore(QuotaStore):
    """
    Quotas in a KRaft cluster.

    Args:
        bootstrap: ``host:port,host:port`` of any brokers.
        create: make the topic when it is missing; without it the first change makes it.
        security: TLS and SASL; None for a plaintext listener.
        poll_ms: how often a watch asks what others changed (``headgate.store.poll.ms``).
        topic: the name of the topic that keeps what Kafka has no place for.
        clock_ms: the clock of the history.
        resolve: whether a host name of an ip entity resolves; Kafka's controller asks too.
    """

    home: KafkaHome
    history: KafkaHistory

    def __init__(
        self,
        bootstrap: str,
        *,
        create: bool = True,
        security: ClientSecurity | None = None,
        poll_ms: int = POLL_MS,
        topic: str = TOPIC,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        home = KafkaHome(bootstrap, security, topic, clock_ms, self._on_records)
        history = KafkaHistory(home)
        leases = KafkaLeases(home)
        super().__init__(home, history, self._alter_broker, leases, poll_ms / 1000, resolve)
        self._client, self._topic = home.client, home.topic
        self._alter_lock = LimitedLock(self.url, threading.Lock())
        self._expected: dict[At, tuple[float | None, float]] = {}
        self._suspects: list[_Suspect] = []
        self._described: tuple[DescribedEntry, ...] | None = None
        self._in_kafka: dict[QuotaEntity, Values] = {}
        self._quotas_version = -1
        self._alterer = KafkaAlterer(home)
        self._begin(create, lambda: home.check(home.read_identity()))

    def _on_records(self, expected: Expected) -> None:
        if self._table is None:
            return  # the past, read at the start
        until = time.monotonic() + EXPECTED_S
        with self._thread_lock:
            self._expected |= {at: (value, until) for at, value in expected.items()}
        self.home.poke.set()

    # --- reading

    def _look(self) -> None:
        self._topic.check_same()
        self._refresh()

    def _refresh(self) -> QuotaTable:
        with self.home.lock:
            for _ in range(MOST_PASSES):
                with self._topic.locked() as state:
                    version = state.quotas_version
                described = self._client.describe()
                self.home.check(self.home.read_identity())
                with self._topic.locked() as state:
                    own = dict(state.quotas)
                    own_version = state.quotas_version
                    brokers = dict(state.brokers)
                # Where the topic's quotas stayed as they were, Kafka's belong to the same moment.
                if own_version == version:
                    break
            self.broker_settings.publish(brokers)
            unchanged = described is self._described and own_version == self._quotas_version
            if self._table is not None and unchanged:
                return self._table
            if described is not self._described:
                self._in_kafka = by_entity(described)
            self._described, self._quotas_version = described, own_version
            return self._publish_whole(QuotaTable(merged(self._in_kafka, own)))

    def _publish(self, table: QuotaTable, delta: TableDelta) -> QuotaTable:
        """Publish what was read; note changes in Kafka that no history entry records."""
        with self._topic.locked() as state:
            unknown = [c for c in delta.changes if state.last.get((c.entity, c.key)) != c.new]
        due, t_ms = time.monotonic() + GRACE_S, self.home.clock_ms()
        self._suspects += [
            _Suspect(due, t_ms, (c.entity, c.key), c.old) for c in unknown if c.key.known_to_kafka
        ]
        return super()._publish(table, delta)

    # --- changing

    def _alter(self, change: StoreChange) -> list[AlterResult]:
        """Kafka's keys go to Kafka, the others to the topic."""
        results, accepted = change.checked
        errors: dict[QuotaEntity, ApiError] = {}
        in_kafka: list[QuotaAlteration] = []
        in_topic: list[QuotaAlteration] = []
        for alteration in accepted:
            theirs = tuple(op for op in alteration.ops if op.key.known_to_kafka)
            ours = tuple(op for op in alteration.ops if op.key.is_known and op not in theirs)
            if theirs and ours:
                errors[alteration.entity] = two_homes(theirs[0].key, ours[0].key)
            elif theirs:
                in_kafka.append(alteration._replace(ops=theirs))
            elif ours:
                in_topic.append(alteration._replace(ops=ours))
        with self._alter_lock:
            if change.validate_only:
                errors |= self._alterer.send(in_kafka, validate_only=True)
            elif in_kafka or in_topic:
                known = self._refresh()
                errors |= self._alterer.alter(
                    in_kafka, in_topic, known, change.origin, change.at_revision
                )
                # Made, whether or not it can be read now; a later snapshot reads it, or fails.
                with contextlib.suppress(StoreSilent):
                    self._refresh()
                self.home.poke.set()
        # Only accepted alterations were sent, so of two for one entity the first gets the error.
        return [AlterResult(entity, error or errors.get(entity)) for entity, error in results]

    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        became = NOTHING

        def decide(state: TopicState) -> list[Record]:
            nonlocal became
            now = state.brokers.get(broker, {})
            changed = {key: value for key, value in ops.items() if now.get(key) != value}
            if not changed:
                return []
            records = [broker_record(broker, key, value) for key, value in changed.items()]
            became = UNSURE
            line = audit_record(new_id(), told(now, changed))
            return [*records, line, *state.trimmed(0, 1)]

        try:
            self._alterer.between_turns(decide)
        except StoreSilent as exc:
            raise StoreSilent(exc.silence, became) from exc

    # --- the rest

    def _after_delivery(self) -> None:
        """Look again soon if Kafka lacks a recorded change; record those made without Headgate."""
        table, now = self._table, time.monotonic()
        if table is None:
            return
        with self._thread_lock:
            self._expected = {
                at: (value, until)
                for at, (value, until) in self._expected.items()
                if table.get(*at) != value and until > now
            }
            hurry = bool(self._expected)
        with self.home.lock:
            with self._topic.locked() as state:
                told = set() if state.turn is None else set(state.turn.ops)
            due = [
                s
                for s in self._suspects
                if (s.due_s <= now and s.at not in told)
                or s.due_s + TURN_S <= now
                or self.home.closed
            ]
            self._suspects = [s for s in self._suspects if s not in due]
        if due:
            try:
                self._record_unknown(due)
            except StoreSilent:
                with self.home.lock:  # later
                    self._suspects = [*due, *self._suspects]
            except StoreError as exc:
                log.warning("changes made past Headgate aren't in its history: %s", exc)
        if hurry and not self.home.closed:
            time.sleep(0.02)
            self.home.poke.set()

    def _record_unknown(self, due: Iterable[_Suspect]) -> None:
        """
        Write changes that were made without Headgate into the history.

        Kafka's quotas are read after the history. If another watcher writes an entry for a key
        after that, the quota may be older than the entry, so that key is looked at again.
        """
        first: dict[At, _Suspect] = {}
        for suspect in due:
            first.setdefault(suspect.at, suspect)
        with self._topic.read() as state:
            told = {at: state.last.get(at, suspect.before) for at, suspect in first.items()}
        table = self._refresh()
        again: list[_Suspect] = []

        def decide(state: TopicState) -> list[Record]:
            again[:] = [s for at, s in first.items() if state.last.get(at, s.before) != told[at]]
            return _unknown(state, table, [s for s in first.values() if s not in again])

        self.home.write(decide)
        if again:
            with self.home.lock:
                self._suspects += again
            self.home.poke.set()

    def _end(self) -> None:
        if self._suspects:
            self._after_delivery()


def _unknown(state: TopicState, table: QuotaTable, due: Iterable[_Suspect]) -> list[Record]:
    """
    Return entries for changes that the history still doesn't record.

    Each key gets one entry, from its last value in the history to its value now.

    Args:
        state: the topic's.
        table: what Kafka shows.
        due: one for each key.
    """
    records: list[Record] = []
    for suspect in due:
        at = suspect.at
        if state.turn is not None and at in state.turn.ops:
            continue  # the process with the turn, or the next one, records it
        now = table.get(*at)
        before = state.last.get(at, suspect.before)
        if before != now:
            change = (at[1], before, now)
            records.append(history_record(new_id(), (suspect.t_ms, FOREIGN), at[0], [change]))
    return [*records, *state.trimmed(len(records), 0)] if records else []


def open_home(place: str, settings: Settings | None, *, create: bool) -> KafkaStore:
    """Open the store at a place of this kind (``config/store_kinds.py``)."""
    return KafkaStore(
        place.strip("/"),
        create=create,
        security=settings.store_kafka if settings else None,
        poll_ms=settings.store_poll_ms if settings else POLL_MS,
    )
