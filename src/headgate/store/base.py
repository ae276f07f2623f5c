"""
What a quota store promises, whichever home keeps the quotas.

``tests/contract`` checks every home against this contract. A store may be used from several
threads, but not across a fork. Names of entities are raw here and sanitised only inside a home.
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

#: Principal and tool of a change that another tool made in the home directly.
UNKNOWN = "unknown"


class Origin(NamedTuple):
    """
    Where a change comes from, for the history.

    Args:
        who: the principal.
        tool: the program.
        change: id of the call of ``alter``; all keys that it changed have the same.
        message: why, as given with the change.
    """

    who: str
    tool: str
    change: str = ""
    message: str = ""

    def told(self) -> dict[str, str]:
        """Return it for JSON: ``who`` and ``tool``, and the other fields that aren't empty."""
        more = {"change": self.change, "message": self.message}
        return {"who": self.who, "tool": self.tool, **{k: v for k, v in more.items() if v}}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Origin:
        """Read what ``told`` returned; earlier releases wrote ``who`` and ``tool`` only."""
        return cls(
            str(told["who"]),
            str(told["tool"]),
            str(told.get("change", "")),
            str(told.get("message", "")),
        )


#: The origin of a change that was made without Headgate.
FOREIGN = Origin(UNKNOWN, UNKNOWN)


def new_change() -> str:
    """Return a new random id for ``Origin.change``."""
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """
    One change of one key of one entity.

    Args:
        t_ms: when it was made, epoch milliseconds; when it was noticed, if made without Headgate.
        who: the principal; ``unknown`` where the change was made without Headgate.
        tool: the program that asked, such as ``kafka-configs``.
        before: the value until then; None where the key wasn't set.
        after: the value since; None where the key was removed.
        change: id of the call of ``alter``; all keys that it changed have the same. "" for changes
            made without Headgate or by an earlier release.
        message: why, as given with the change.
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
    An audit line: an attempt that was refused, or a change of something other than a quota.

    Args:
        who: the principal that tried.
        tool: the program or listener it came by.
        action: what was tried, such as ``alter_client_quotas``.
        outcome: ``refused`` or ``done``.
        subject: what it was about, such as an entity or ``broker 1``.
        detail: one line for a reader.
        t_ms: epoch milliseconds; 0: the store puts in the time.
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
    Return a quota's value from the JSON of a history entry; None: not set.

    Raises:
        ValueError, TypeError: it is no number.
    """
    found = None if value is None else float(value)
    if found is not None and math.isnan(found):
        raise ValueError("no number")
    return found


def json_bytes(value: object) -> bytes:
    """Return JSON in UTF-8; a lone surrogate, which UTF-8 can't encode, is escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")


def read_audit(line: bytes) -> AuditEvent | None:
    """Read an audit line; None for what isn't one. Fields of newer releases are ignored."""
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
        """Extend it by its ttl; False once it was taken by another or released: it is over then."""
        ...

    def held(self) -> bool:
        """Return whether its epoch is still the store's latest, and it hasn't run out."""
        ...

    def release(self) -> None:
        """Give it up at once; does nothing if another holder has it."""
        ...


@runtime_checkable
class QuotaStore(Protocol):
    """What keeps quotas: SQLite, ZooKeeper or a KRaft cluster."""

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
            alterations: one per entity; a second one for an entity is refused, as in Kafka.
            validate_only: check, and change nothing.
            who: the principal, for the history.
            tool: the program, for the history.
            message: why, for the history.
            at_revision: the revision that the alterations are based on; None: any.

        Returns:
            One result per alteration, in their order, with Kafka's error where one was refused.

        Raises:
            StoreMovedOn: the store is at another revision.
            StoreReplaced: another store is found where this one was; it wasn't changed.
            StoreError: the home can't be reached, or refused; ``retriable``: trying again may help.
                Except in SQLite, some entities may have been changed.
        """
        ...

    def identity(self) -> StoreIdentity | None:
        """
        Return the identity that the home has now, even if it is another store's; writes nothing.

        Returns:
            None where there is none: the home was emptied, or an earlier release made it.
        """
        ...

    def identify(self) -> StoreIdentity:
        """Prepare the home for changes: make its layout, and an identity if it has none."""
        ...

    def succeed(self, previous: StoreIdentity) -> StoreIdentity:
        """Write down that this store took over from another, and at which of its revisions."""
        ...

    def accept(self, identity: StoreIdentity) -> None:
        """Regard an identity that was found as the known one from now on."""
        ...

    def trouble(self) -> str | None:
        """Return why the quotas can't be read and watched, or None if they can."""
        ...

    def watch(self, callback: QuotaCallback) -> Watch:
        """
        Call back with the table and what changed, now and after every change.

        Args:
            callback: called once before this returns, with the whole table and the delta from an
                empty one; after that from a thread of the store, in order, one call at a time.
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
        """Return the gateway's dynamic broker settings, by id; "" is the cluster's default."""
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
            ApiError: INVALID_CONFIG or INVALID_REQUEST (``broker_rules``).
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

        If its holder doesn't renew it, another owner gets it by asking repeatedly: once this store
        has seen it unchanged for as long as it lasts.

        Args:
            name: what only one may do.
            owner: the worker that asks. A worker that restarted takes its own lease over at once,
                with a new epoch, which fences the older holder.
            ttl_ms: how long it lasts unless renewed.
        """
        ...

    def close(self) -> None:
        """Stop watches and close the home. May be called twice."""
        ...


def whole(table: QuotaTable) -> TableDelta:
    """Return the delta from an empty table, with which a watch is called first."""
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
