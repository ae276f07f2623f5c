"""
What a quota store promises, whatever keeps the quotas: one contract, three homes.

``tests/contract`` holds every home to this page. A store is used from several threads; it is not
used across a fork. Names of entities are raw here and sanitised only inside a home.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, runtime_checkable

from headgate.errors import MALFORMED
from headgate.quota.alteration import AlterResult, QuotaAlteration, is_ip_literal
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import Change, QuotaTable, TableDelta
from headgate.store.identity import StoreIdentity

QuotaCallback = Callable[[QuotaTable, TableDelta], None]
BrokerConfigs = Mapping[str, Mapping[str, str]]
BrokerCallback = Callable[[BrokerConfigs], None]

#: Where a change came from when nobody told: another tool wrote to the home directly.
UNKNOWN = "unknown"


class Origin(NamedTuple):
    """
    Where a change comes from, for the history.

    Args:
        who: the principal.
        tool: the program.
        change: what the keys that one call of ``alter`` changed have in common.
        message: why, in the words of who made the change.
    """

    who: str
    tool: str
    change: str = ""
    message: str = ""

    def told(self) -> dict[str, str]:
        """Return it for JSON, without empty fields, except for ``who`` and ``tool``."""
        more = {"change": self.change, "message": self.message}
        return {"who": self.who, "tool": self.tool, **{k: v for k, v in more.items() if v}}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Origin:
        """Read what ``told`` returned; the version before wrote who and tool only."""
        return cls(
            str(told["who"]),
            str(told["tool"]),
            str(told.get("change", "")),
            str(told.get("message", "")),
        )


#: Of a change that came past Headgate.
FOREIGN = Origin(UNKNOWN, UNKNOWN)


def new_change() -> str:
    """Return the name of one more change."""
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """
    One change of one key of one entity.

    Args:
        t_ms: when the store acknowledged it, epoch milliseconds.
        who: the principal, ``unknown`` where the change came past Headgate.
        tool: the program that asked, such as ``kafka-configs``.
        before: the value until then; None where the key wasn't set.
        after: the value since; None where the key was removed.
        change: the same for all keys that one call of ``alter`` changed; "" in entries of
            versions before and of changes that came past Headgate.
        message: why, in the words of who made the change.
    """

    t_ms: int
    who: str
    tool: str
    entity: QuotaEntity
    key: QuotaKey
    before: float | None
    after: float | None
    change: str = ""
    message: str = ""


def history_entry(
    t_ms: int,
    origin: Origin,
    entity: QuotaEntity,
    key: QuotaKey,
    before: float | None,
    after: float | None,
) -> HistoryEntry:
    """Return the change of one key."""
    who, tool, change, message = origin
    return HistoryEntry(t_ms, who, tool, entity, key, before, after, change, message)


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """
    Something that was tried or done beside quotas: a refused attempt, a broker's setting changed.

    Args:
        who: the principal that tried.
        tool: the program or listener it came by.
        action: what was tried, such as ``alter_client_quotas``.
        outcome: ``refused`` or ``done``.
        subject: what it was about, such as an entity or ``broker 1``.
        detail: one line for a reader.
        t_ms: epoch milliseconds; 0 lets the store put its own clock's.
    """

    who: str
    tool: str
    action: str
    outcome: str
    subject: str = ""
    detail: str = ""
    t_ms: int = 0


def number(value: Any) -> float | None:
    """
    Return a value of a quota as the history has it, from JSON.

    Raises:
        ValueError, TypeError: it is none.
    """
    found = None if value is None else float(value)
    if found is not None and math.isnan(found):
        raise ValueError("no number")
    return found


def json_bytes(value: object) -> bytes:
    """Return JSON; half of a surrogate pair, which UTF-8 has no bytes for, is escaped in it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")


def read_audit(line: bytes) -> AuditEvent | None:
    """Read an audit line; None for what isn't one. What a newer Headgate adds is left out."""
    try:
        told = json.loads(line)
        known = {field.name: told[field.name] for field in fields(AuditEvent) if field.name in told}
        t_ms = int(known.pop("t_ms", 0))
        return AuditEvent(**{name: str(text) for name, text in known.items()}, t_ms=t_ms)
    except MALFORMED:
        return None


class Watch(Protocol):
    """A running watch; nothing is called after ``close`` has returned."""

    def close(self) -> None:
        """Stop calling back. May be called twice, and from the callback."""
        ...


class Lease(Protocol):
    """
    The right to be the only one doing something, for a while.

    ``epoch`` grows with every holder, so a former holder can be fenced: a reader that
    has seen a higher epoch ignores the lower one.
    """

    name: str
    owner: str
    epoch: int

    def renew(self) -> bool:
        """Extend by the lease's ttl; False when somebody else has it, and then for ever."""
        ...

    def held(self) -> bool:
        """Return whether this holder's epoch is still the store's latest and not run out."""
        ...

    def release(self) -> None:
        """Give it up at once; does nothing when it is no longer ours."""
        ...


@runtime_checkable
class QuotaStore(Protocol):
    """Where quotas live: SQLite, ZooKeeper or a KRaft cluster."""

    url: str

    def snapshot(self) -> QuotaTable:
        """
        Return every quota as of now; includes every change this store has acknowledged.

        Raises:
            StoreError: the home can't be reached.
        """
        ...

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
        message: str = "",
        at_revision: int | None = None,
    ) -> list[AlterResult]:
        """
        Set and clear keys, each entity all or nothing.

        Args:
            alterations: one per entity; a second one of the same entity is refused as Kafka does.
            validate_only: check, and change nothing.
            who: the principal, for the history.
            tool: the program, for the history.
            message: why, for the history.
            at_revision: the revision that the alterations are based on; None: any.

        Returns:
            One result per alteration, in their order, with Kafka's error where one was refused.

        Raises:
            StoreMovedOn: the store is at another revision.
            StoreReplaced: another store is found where this one was; nothing was changed.
            StoreError: the home can't be reached or took nothing; ``retriable`` says which.
        """
        ...

    def identity(self) -> StoreIdentity | None:
        """
        Return which store it is as of now, whatever was there before; writes nothing.

        Returns:
            None where it has no identity: emptied, or kept by the version before.
        """
        ...

    def identify(self) -> StoreIdentity:
        """Make what a home that is changed needs: its layout, and an identity if it has none."""
        ...

    def succeed(self, previous: StoreIdentity) -> StoreIdentity:
        """Write that this store took over from another one as of that one's revision."""
        ...

    def accept(self, identity: StoreIdentity) -> None:
        """Take this identity for the known one from now on, where another store was found."""
        ...

    def trouble(self) -> str | None:
        """Say what keeps the quotas from being read and watched, or None."""
        ...

    def watch(self, callback: QuotaCallback) -> Watch:
        """
        Call back with the table and what changed, now and after every change.

        Args:
            callback: called once before this returns, with the whole table and the delta from an
                empty one; after that from a thread of the store, in order, never twice at a time.
                It must not wait for another thread that uses this store.
        """
        ...

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Args:
            entity: only changes of this entity.
            limit: only this many, the latest.
        """
        ...

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings; "" is the cluster's default."""
        ...

    def alter_broker_configs(
        self,
        broker: str,
        ops: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> None:
        """
        Set or remove (None) settings of one broker, all or nothing.

        Args:
            broker: the broker's id as text, or "" for the cluster's default.
            ops: setting to its new value, or None to remove it.
            validate_only: check, and change nothing.
            who: the principal, for the audit.
            tool: the program, for the audit.

        Raises:
            ApiError: INVALID_CONFIG, naming the setting and what it takes.
        """
        ...

    def watch_broker_configs(self, callback: BrokerCallback) -> Watch:
        """Call back with all broker settings, now (before this returns) and after every change."""
        ...

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        ...

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return the kept lines, oldest first; with a limit, only the latest ones."""
        ...

    def lease(self, name: str, owner: str, ttl_ms: int) -> Lease | None:
        """
        Take a lease, or None while somebody else may hold it.

        One that isn't renewed can be taken once this store has been asked for it again and again
        for as long as it lasts, and found it unchanged each time.

        Args:
            name: what only one may do.
            owner: who asks; the same owner takes its own lease over with a new epoch (it
                restarted), which fences the older holder.
            ttl_ms: how long it lasts unless renewed.
        """
        ...

    def close(self) -> None:
        """Stop watches and close the home. May be called twice."""
        ...


def whole(table: QuotaTable) -> TableDelta:
    """Return the delta from an empty table: what a watch is given first."""
    changes = tuple(
        Change(entity, key, None, value)
        for entity, values in table.entities.items()
        for key, value in values.items()
    )
    return TableDelta(changes, 0, table.version)


def resolvable(host: str) -> bool:
    """Return whether an ip entity's name is an address or a host that resolves (InetAddress)."""
    if is_ip_literal(host):
        return True
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True
