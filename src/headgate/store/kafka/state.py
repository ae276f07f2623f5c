"""
The state that the compacted topic's records add up to. Pure.

A record's key is JSON: ``{"kind":"quota","path":"users/alice","key":"producer_ids_rate"}``, also
kinds ``broker``, ``lease``, ``history``, ``audit``, ``identity`` (which store it is) and ``turn``
(which change of Kafka's own quotas is under way). A record without a value removes its key.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from headgate.errors import MALFORMED
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import (
    AuditEvent,
    ChangeOrigin,
    HistoryEntry,
    KeyChange,
    Recorded,
    json_bytes,
    number,
    read_audit,
)
from headgate.store.identity import StoreIdentity
from headgate.store.leases import NOBODYS, LeaseRecord

#: History entries and audit lines kept; the topic is read whole at every start.
KEEP_HISTORY = 20_000
KEEP_AUDIT = 10_000
#: If a turn is neither given back nor renewed for this long, its process is taken for dead.
TURN_S: Final = 20.0
#: Ops that a turn lists: about 300 KB, which a record may have. If a larger change is interrupted,
#: the history can't say who made it.
MOST_TURN_OPS = 2_000

At = tuple[QuotaEntity, QuotaKey]
Expected = dict[At, float | None]
"""Values that Kafka must show, because history entries say that they were set."""


class Record(NamedTuple):
    """A record of the topic, as bytes."""

    key: bytes
    value: bytes | None


class PendingChange(NamedTuple):
    """
    The change of Kafka's own quotas that is under way; there is one at a time.

    Args:
        id: random.
        t_ms: since when, epoch milliseconds.
        origin: where the change comes from.
        ops: entity and key to the value before, as the process last saw it, and the new value.
    """

    id: str
    t_ms: int
    origin: ChangeOrigin
    ops: Mapping[At, tuple[float | None, float | None]]

    @classmethod
    def of(
        cls,
        id_: str,
        t_ms: int,
        origin: ChangeOrigin,
        alterations: Sequence[QuotaAlteration],
        known: QuotaTable,
    ) -> PendingChange:
        """Return the turn for alterations; without ops if there are more than ``MOST_TURN_OPS``."""
        ops = {
            (a.entity, op.key): (known.get(a.entity, op.key), op.value)
            for a in alterations
            for op in a.ops
        }
        return cls(id_, t_ms, origin, ops if len(ops) <= MOST_TURN_OPS else {})


class TopicState:
    """What the topic's records read so far say, the latest of each key."""

    def __init__(self) -> None:
        self.identity: StoreIdentity | None = None
        self.turn: PendingChange | None = None
        self.quotas: dict[QuotaEntity, dict[QuotaKey, float]] = {}
        self.brokers: dict[str, dict[str, str]] = {}
        self.leases: dict[str, LeaseRecord] = {}
        # Kept as bytes: most entries are never looked at.
        self.history: dict[str, bytes] = {}
        self.audit: dict[str, bytes] = {}
        # The latest value of each key in the history: where Kafka has another one, a change is
        # missing.
        self.last: dict[At, float | None] = {}
        self.quotas_version = 0

    def apply(self, record: Record) -> Expected:
        """
        Take in a record; a record of another form is ignored.

        Returns:
            What Kafka must show now, where the record is a history entry.
        """
        try:
            key = json.loads(record.key)
            kind = key["kind"]
            value = None if record.value is None else json.loads(record.value)
            if kind == "quota":
                self._quota(entity_from_path(key["path"]), QuotaKey.parse(key["key"]), value)
            elif kind == "broker":
                text = None if value is None else str(value)
                _put(self.brokers, str(key["broker"]), str(key["key"]), text)
            elif kind == "identity":
                self._identify(value)
            elif kind == "turn":
                self.turn = None if value is None else _turn(value)
            elif kind == "lease":
                self.leases[str(key["name"])] = _lease(value)
            elif kind == "history":
                return self._history(str(key["id"]), record.value, value)
            elif kind == "audit" and (value is None or read_audit(record.value or b"")):
                _keep(self.audit, str(key["id"]), record.value)
        except MALFORMED:
            pass
        return {}

    def _identify(self, value: Any) -> None:
        succeeds = tuple((str(id_), int(revision)) for id_, revision in value["succeeds"])
        found = StoreIdentity(str(value["id"]), int(value["revision"]), succeeds)
        if self.identity is not None and self.identity.id != found.id:
            # The topic was made again: earlier records were another store's.
            version = self.quotas_version
            self.__init__()  # type: ignore[misc]
            self.quotas_version = version + 1
        self.identity = found

    def _quota(self, entity: QuotaEntity, key: QuotaKey, value: Any) -> None:
        _put(self.quotas, entity, key, None if value is None else number(value["value"]))
        self.quotas_version += 1

    def _history(self, id_: str, data: bytes | None, value: Any) -> Expected:
        if value is None:
            _keep(self.history, id_, data)
            return {}
        told = _told(value)
        _keep(self.history, id_, data)
        after = {(entry.entity, entry.key): entry.after for entry in told}
        self.last |= after
        return {at: value for at, value in after.items() if at[1].known_to_kafka}

    def has_turn(self, id_: str) -> bool:
        """Whether the current turn is this one."""
        return self.turn is not None and self.turn.id == id_

    def holds(self, records: Sequence[Record]) -> bool:
        """Whether these were committed, by an entry, audit line or turn; each has its own id."""
        if self.turn is not None and turn_record(self.turn) in records:
            return True
        kept = {"history": self.history, "audit": self.audit}
        for key, value in records:
            told = json.loads(key)
            if value is not None and kept.get(told["kind"], {}).get(told.get("id")) == value:
                return True
        return False

    def entries(self, entity: QuotaEntity | None, limit: int | None) -> list[HistoryEntry]:
        """Return the history, oldest first."""
        path = None if entity is None else entity.path
        found: list[HistoryEntry] = []
        for data in self.history.values():
            entry = json.loads(data)
            if path is None or entry["path"] == path:
                found += _told(entry)
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def audit_log(self, limit: int | None) -> list[AuditEvent]:
        """Return the audit lines, oldest first."""
        lines = list(self.audit.values())
        if limit is not None:
            lines = lines[len(lines) - min(limit, len(lines)) :]
        return [event for line in lines if (event := read_audit(line)) is not None]

    def trimmed(self, new_history: int, new_audit: int) -> list[Record]:
        """Return the records that remove what is too old when these numbers are added."""
        records: list[Record] = []
        for kind, kept, keep in (
            ("history", self.history, KEEP_HISTORY - new_history),
            ("audit", self.audit, KEEP_AUDIT - new_audit),
        ):
            surplus = len(kept) - max(0, keep)
            if surplus > 0:
                ids = list(kept)[:surplus]
                records += [Record(_key(kind=kind, id=id_), None) for id_ in ids]
        return records


def new_id() -> str:
    """Return the id of a history entry, an audit line or a turn."""
    return uuid.uuid4().hex


def quota_record(entity: QuotaEntity, key: QuotaKey, value: float | None) -> Record:
    """Return the record that sets or clears a key Kafka lacks."""
    data = None if value is None else json_bytes({"value": value})
    return Record(_key(kind="quota", path=entity.path, key=key.name), data)


def broker_record(broker: str, key: str, value: str | None) -> Record:
    """Return the record that sets or removes a broker setting."""
    data = None if value is None else json_bytes(value)
    return Record(_key(kind="broker", broker=broker, key=key), data)


def lease_record(name: str, held: LeaseRecord) -> Record:
    """Return the record of a lease; earlier releases read its mark as the time of its end."""
    owner, epoch, mark, ttl_ms = held
    value = {"owner": owner, "epoch": epoch, "expires_ms": mark, "ttl_ms": ttl_ms}
    return Record(_key(kind="lease", name=name), json_bytes(value))


def identity_record(identity: StoreIdentity) -> Record:
    """Return the record that says which store the topic is, and its revision."""
    return Record(_key(kind="identity"), json_bytes(identity._asdict()))


def is_change(record: Record) -> bool:
    """Whether a record changes quotas or broker settings, or records such a change."""
    kind = json.loads(record.key)["kind"]
    return kind in ("quota", "broker") or (kind == "history" and record.value is not None)


def turn_record(turn: PendingChange | None) -> Record:
    """Return the record that takes the turn, or gives it back."""
    if turn is None:
        return Record(_key(kind="turn"), None)
    ops = [[e.path, str(k), before, after] for (e, k), (before, after) in turn.ops.items()]
    value = {"id": turn.id, "t_ms": turn.t_ms, **turn.origin.told(), "ops": ops}
    return Record(_key(kind="turn"), json_bytes(value))


def _told(value: Any) -> list[HistoryEntry]:
    """Return what a history entry says."""
    return Recorded.of(value).entries(entity_from_path(value["path"]))


def _lease(value: Any) -> LeaseRecord:
    if not value:
        return NOBODYS
    owner, epoch, mark = str(value["owner"]), int(value["epoch"]), int(value["expires_ms"])
    return LeaseRecord(owner, epoch, mark, int(value.get("ttl_ms", 0)))


def _turn(value: Any) -> PendingChange:
    ops = {
        (entity_from_path(path), QuotaKey.parse(key)): (number(before), number(after))
        for path, key, before, after in value["ops"]
    }
    return PendingChange(str(value["id"]), int(value["t_ms"]), ChangeOrigin.of(value), ops)


def history_record(
    id_: str,
    stamp: tuple[int, ChangeOrigin],
    entity: QuotaEntity,
    changes: Iterable[tuple[QuotaKey, float | None, float | None]],
) -> Record:
    """Return a history entry; ``stamp`` is when (epoch ms), and where it comes from."""
    recorded = Recorded(*stamp, [KeyChange(*change) for change in changes])
    return Record(_key(kind="history", id=id_), json_bytes(recorded.told(path=entity.path)))


def audit_record(id_: str, event: AuditEvent) -> Record:
    """Return an audit line."""
    return Record(_key(kind="audit", id=id_), json_bytes(asdict(event)))


def _put(table: dict[Any, dict[Any, Any]], outer: Any, inner: Any, value: Any) -> None:
    # A new dict for the outer key: tables made from the old one stay as they are.
    values = {k: v for k, v in table.get(outer, {}).items() if k != inner}
    if value is not None:
        values[inner] = value
    if values:
        table[outer] = values
    else:
        table.pop(outer, None)


def _keep(table: dict[str, bytes], id_: str, data: bytes | None) -> None:
    if data is None:
        table.pop(id_, None)
    else:
        table[id_] = data


def _key(**parts: str) -> bytes:
    return json_bytes(parts)
