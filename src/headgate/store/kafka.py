"""
The Kafka home: a KRaft cluster through its own APIs 48 and 49, and a compacted topic beside it.

Keys that Kafka knows live in Kafka, so its brokers and tools see them; the others, broker settings,
history, audit and leases in the topic. A watch describes the cluster every ``poll_ms``, and at once
when a history entry tells of a change made through Headgate anywhere.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headgate.config.settings import ClientSecurity
from headgate.errors import ApiError, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, Validated
from headgate.quota.entity import Default, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import (
    UNKNOWN,
    AuditEvent,
    BrokerConfigs,
    HistoryEntry,
    broker_event,
    now_ms,
    resolvable,
)
from headgate.store.kafka_client import RETRIABLE, KafkaClient
from headgate.store.kafka_codec import (
    Values,
    by_entity,
    changing,
    merged,
    parts,
    wire_entity,
    wire_to_entity,
)
from headgate.store.kafka_lease import KafkaLease, take
from headgate.store.kafka_security import librdkafka_config
from headgate.store.kafka_state import (
    Expected,
    Record,
    TopicState,
    audit_record,
    broker_record,
    history_record,
    quota_record,
)
from headgate.store.kafka_topic import QuotaTopic
from headgate.store.watched import WatchedStore, log
from headgate.wire.messages.quotas import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    AlterClientQuotasRequest,
    AlterEntry,
    AlterOp,
    Component,
    DescribedEntry,
)

TOPIC = "__headgate_quotas"
POLL_MS = 5_000
#: A broker shows what the controller acknowledged within milliseconds; longer than this, we go on.
IMAGE_TIMEOUT_S = 10.0
#: Up to so many entities are looked up one by one after an alteration; more, all at once.
FEW = 16
#: A change that no history entry tells of by then came past Headgate. Entries are written right
#: after Kafka's acknowledgement, so this is ample.
GRACE_S = 2.0


class _Suspect(NamedTuple):
    """A change seen in Kafka that the history doesn't tell of, yet."""

    due_s: float
    t_ms: int
    entity: QuotaEntity
    key: QuotaKey
    before: float | None


class KafkaStore(WatchedStore):
    """
    Quotas in a KRaft cluster.

    Args:
        bootstrap: ``host:port,host:port`` of any brokers.
        security: TLS and SASL; None for a plaintext listener.
        poll_ms: how often a watch asks what others changed (``headgate.store.poll.ms``).
        topic: where what Kafka can't hold lives.
        clock_ms: the clock of history and leases.
        resolve: whether a host name of an ip entity resolves; Kafka's controller asks too.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        security: ClientSecurity | None = None,
        poll_ms: int = POLL_MS,
        topic: str = TOPIC,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        super().__init__(f"kafka://{bootstrap}", poll_ms / 1000, clock_ms, resolve)
        self._alter_lock = threading.Lock()
        self._expected: dict[tuple[QuotaEntity, QuotaKey], tuple[float | None, float]] = {}
        self._suspects: list[_Suspect] = []
        self._described: tuple[DescribedEntry, ...] | None = None
        self._in_kafka: dict[QuotaEntity, Values] = {}
        self._quotas_version = -1
        self._client = KafkaClient(bootstrap, security)
        self._topic = QuotaTopic(librdkafka_config(bootstrap, security), topic, self._on_records)

    def _on_records(self, expected: list[Expected]) -> None:
        if self._table is None:
            return  # the past, read at the start
        until = time.monotonic() + IMAGE_TIMEOUT_S
        with self._thread_lock:
            self._expected.update({(e.entity, e.key): (e.value, until) for e in expected})
        self._poke.set()

    # --- reading

    def snapshot(self) -> QuotaTable:
        """Return every quota as of now."""
        self._check_open()
        return self._refresh()

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings, which Kafka itself doesn't get."""
        self._check_open()
        self._topic.read_to_end()
        with self._topic.locked() as state:
            return dict(state.brokers)

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        self._check_open()
        self._topic.read_to_end()
        with self._topic.locked() as state:
            return state.entries(entity, limit)

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return refused attempts and changes of broker settings, oldest first."""
        self._check_open()
        self._topic.read_to_end()
        with self._topic.locked() as state:
            return state.audit_log(limit)

    def _refresh(self) -> QuotaTable:
        with self._state_lock:
            self._topic.read_to_end()
            described = self._client.describe()
            with self._topic.locked() as state:
                own = dict(state.quotas)
                own_version = state.quotas_version
                brokers = dict(state.brokers)
            self._publish_brokers(brokers)
            old = self._table
            unchanged = described is self._described and own_version == self._quotas_version
            if old is not None and unchanged:
                return old
            if described is not self._described:
                self._in_kafka = by_entity(described)
            table = QuotaTable.of(merged(self._in_kafka, own), 1 if old is None else old.version)
            self._described, self._quotas_version = described, own_version
            if old is None:
                return self._publish(table, TableDelta((), 0, 0))
            delta = table_delta(old, table)
            if not delta.changes:
                return old
            self._suspect(delta)
            return self._publish(table.with_version(old.version + 1), delta)

    def _suspect(self, delta: TableDelta) -> None:
        """Note changes in Kafka that no history entry tells of."""
        with self._topic.locked() as state:
            last = {(c.entity, c.key): state.last.get((c.entity, c.key)) for c in delta.changes}
        due, t_ms = time.monotonic() + GRACE_S, self._clock_ms()
        self._suspects += [
            _Suspect(due, t_ms, c.entity, c.key, c.old)
            for c in delta.changes
            if c.key.known_to_kafka and last[c.entity, c.key] != c.new
        ]

    # --- changing

    def _alter(
        self, checked: Validated, *, validate_only: bool, who: str, tool: str
    ) -> list[AlterResult]:
        """Kafka's keys go to Kafka, the others to the topic."""
        results, accepted = checked
        errors: dict[QuotaEntity, ApiError] = {}
        in_kafka: list[QuotaAlteration] = []
        in_topic: list[QuotaAlteration] = []
        for alteration in accepted:
            theirs = tuple(op for op in alteration.ops if op.key.known_to_kafka)
            ours = tuple(op for op in alteration.ops if op.key.is_known and op not in theirs)
            if theirs and ours:
                errors[alteration.entity] = _two_homes(theirs[0].key, ours[0].key)
            elif theirs:
                in_kafka.append(alteration._replace(ops=theirs))
            elif ours:
                in_topic.append(alteration._replace(ops=ours))
        with self._alter_lock:
            before = self._refresh()
            todo = [a for a in (changing(a, before) for a in in_kafka) if a.ops]
            errors |= self._alter_kafka(todo, validate_only=validate_only)
            if not validate_only:
                done = [a for a in todo if a.entity not in errors]
                self._await_image(done)
                self._write(done, in_topic, before, (self._clock_ms(), who, tool))
                self._refresh()
                self._poke.set()
        # Only an accepted alteration can have met an error since; of two of one entity, the first.
        return [
            AlterResult(entity, errors.pop(entity, None) if error is None else error)
            for entity, error in results
        ]

    def _alter_kafka(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> dict[QuotaEntity, ApiError]:
        """Send alterations, at most 10,000 records at a time; return errors by entity."""
        errors: dict[QuotaEntity, ApiError] = {}
        for part in parts(alterations):
            entries = tuple(
                AlterEntry(
                    wire_entity(entity),
                    tuple(AlterOp(op.key.name, op.value or 0.0, op.value is None) for op in ops),
                )
                for entity, ops in part
            )
            answer = self._client.alter(AlterClientQuotasRequest(entries, validate_only))
            for entry in answer.entries:
                if entry.error_code in RETRIABLE:
                    raise StoreError(
                        f"{self.url}: {entry.error_message or KafkaError(entry.error_code).name}",
                        retriable=True,
                    )
                if entry.error_code:
                    error = ApiError(entry.error_code, entry.error_message)
                    errors[wire_to_entity(entry.entity)] = error
        return errors

    def _await_image(self, alterations: Sequence[QuotaAlteration]) -> None:
        """Wait until the broker we ask shows what the controller acknowledged."""
        deadline = time.monotonic() + IMAGE_TIMEOUT_S
        left = list(alterations)
        pause = 0.002
        while left:
            found = self._look_up(left)
            left = [a for a in left if any(found.get(a.entity, {}).get(k) != v for k, v in a.ops)]
            if left and time.monotonic() > deadline:
                log.warning(
                    "%s: a broker doesn't show what the controller acknowledged for %s",
                    self.url,
                    left[0].entity,
                )
                return
            if left:
                time.sleep(pause)
                pause = min(0.1, pause * 2)

    def _look_up(self, alterations: Sequence[QuotaAlteration]) -> dict[QuotaEntity, Values]:
        if len(alterations) > FEW:
            return by_entity(self._client.describe())
        found: dict[QuotaEntity, Values] = {}
        for entity, _ops in alterations:
            components = [
                Component(kind, MATCH_DEFAULT, None)
                if isinstance(name, Default)
                else Component(kind, MATCH_EXACT, name)
                for kind, name in entity
            ]
            found.update(by_entity(self._client.describe(components, strict=True)))
        return found

    def _write(
        self,
        in_kafka: Sequence[QuotaAlteration],
        in_topic: Sequence[QuotaAlteration],
        before: QuotaTable,
        stamp: tuple[int, str, str],
    ) -> None:
        """Commit quotas of the topic and the history of both homes in one transaction."""
        ids = [_id() for _ in in_kafka]

        def decide(state: TopicState) -> list[Record]:
            records: list[Record] = []
            history: list[Record] = []
            for id_, (entity, ops) in zip(ids, in_kafka, strict=True):
                changes = [(key, before.get(entity, key), value) for key, value in ops]
                if id_ not in state.history:
                    history.append(history_record(id_, stamp, entity, changes))
            for entity, ops in in_topic:
                now = state.quotas.get(entity, {})
                changes = [(k, now.get(k), v) for k, v in ops if now.get(k) != v]
                records += [quota_record(entity, key, value) for key, _, value in changes]
                if changes:
                    history.append(history_record(_id(), stamp, entity, changes))
            return [*records, *history, *state.trimmed(len(history), 0)] if history else []

        if not in_kafka and not in_topic:
            return
        try:
            self._topic.write(decide)
        except StoreError as exc:
            if in_topic:
                raise
            # Kafka has the quotas; the next to watch finds no entry and records who = unknown.
            log.error("%s: changed, but the history couldn't be written: %s", self.url, exc)

    def _alter_broker(
        self, broker: str, ops: Mapping[str, str | None], who: str, tool: str
    ) -> None:
        def decide(state: TopicState) -> list[Record]:
            now = state.brokers.get(broker, {})
            changed = {key: value for key, value in ops.items() if now.get(key) != value}
            if not changed:
                return []
            event = replace(broker_event(broker, now, changed, who, tool), t_ms=self._clock_ms())
            records = [broker_record(broker, key, value) for key, value in changed.items()]
            return [*records, audit_record(_id(), event), *state.trimmed(0, 1)]

        self._topic.write(decide)

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        self._check_open()
        stamped = replace(event, t_ms=event.t_ms or self._clock_ms())
        id_ = _id()

        def decide(state: TopicState) -> list[Record]:
            if id_ in state.audit:
                return []
            return [audit_record(id_, stamped), *state.trimmed(0, 1)]

        self._topic.write(decide)

    def lease(self, name: str, owner: str, ttl_ms: int) -> KafkaLease | None:
        """Take a lease, or None while somebody else holds it; hosts' clocks should agree."""
        self._check_open()
        return take(self._topic, self._clock_ms, name, owner, ttl_ms)

    # --- the rest

    def _after_delivery(self) -> None:
        """Look again for what must show soon; record what came past Headgate."""
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
        with self._state_lock:
            due = [s for s in self._suspects if s.due_s <= now or self._closed]
            self._suspects = [s for s in self._suspects if s not in due]
        if due:
            try:
                self._topic.write(lambda state: _unknown(state, table, due))
            except StoreError as exc:
                log.warning("changes made past Headgate aren't in its history: %s", exc)
        if hurry and not self._closed:
            time.sleep(0.02)
            self._poke.set()

    def _release(self) -> None:
        if self._thread is not None and self._suspects:
            self._after_delivery()
        self._topic.close()
        self._client.close()


def _id() -> str:
    return uuid.uuid4().hex


def _two_homes(theirs: QuotaKey, ours: QuotaKey) -> ApiError:
    return ApiError(
        KafkaError.INVALID_REQUEST,
        f"{theirs.name} lives in Kafka and {ours.name} in Headgate's own topic, so one alteration "
        "can't change both at once; send two",
    )


def _unknown(state: TopicState, table: QuotaTable, due: Iterable[_Suspect]) -> list[Record]:
    """
    Return entries for changes that, by now, nobody has told of.

    A key that changed twice since is suspect twice; it gets one entry, from what the history last
    says of it to what it is now.
    """
    records: list[Record] = []
    first: dict[tuple[QuotaEntity, QuotaKey], _Suspect] = {}
    for suspect in due:
        first.setdefault((suspect.entity, suspect.key), suspect)
    for at, suspect in first.items():
        now = table.get(*at)
        before = state.last.get(at, suspect.before)
        if before != now:
            stamp = (suspect.t_ms, UNKNOWN, UNKNOWN)
            change = (suspect.key, before, now)
            records.append(history_record(_id(), stamp, suspect.entity, [change]))
    return [*records, *state.trimmed(len(records), 0)] if records else []
