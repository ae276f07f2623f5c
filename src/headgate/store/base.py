"""
The words of the contract: what stores give and take, whichever home keeps the quotas.

Names of entities are raw here and sanitised only inside a home.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from headgate.errors import MALFORMED
from headgate.quota.alteration import Validated, is_ip_literal
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable, TableChange, TableDelta

QuotaCallback = Callable[[QuotaTable, TableDelta], None]
BrokerConfigs = Mapping[str, Mapping[str, str]]
BrokerCallback = Callable[[BrokerConfigs], None]

MOST_MESSAGE_BYTES: Final = 1_000
"""Of a change: each of its entries repeats it, and stores keep 20,000 entries in memory."""


ENDING_TOOL: Final = "headgate until"
"""The program in the history of a change that ended a quota."""


class ChangeOrigin(NamedTuple):
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
    def of(cls, told: Mapping[str, Any]) -> ChangeOrigin:
        """Read what ``told`` returned; earlier releases wrote ``who`` and ``tool`` only."""
        return cls(
            str(told["who"]),
            str(told["tool"]),
            str(told.get("change", "")),
            str(told.get("message", "")),
        )


#: The origin of a change that was made without Headgate.
FOREIGN = ChangeOrigin("unknown", "unknown")


def new_change() -> str:
    """Return a new random id for ``ChangeOrigin.change``."""
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
        change: its name: one for all keys that a call of ``alter`` changed. "" for changes
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


class EndingQuota(NamedTuple):
    """
    A quota that ends: at its time the former value returns.

    Args:
        entity: what it is set for.
        key: what it limits.
        value: its value until then; None: it is removed until then.
        former: the value that returns; None: none does.
        until_ms: when, epoch ms.
        who: the principal that asked for it.
        change: the name of its change in the history.
        message: why, as given with the change.
    """

    entity: QuotaEntity
    key: QuotaKey
    value: float | None
    former: float | None
    until_ms: int
    who: str = ""
    change: str = ""
    message: str = ""

    def origin(self) -> ChangeOrigin:
        """Return where the change comes from that brings the former value back."""
        why = f"end of {self.change}" + (f": {self.message}" if self.message else "")
        cut = why.encode("utf-8", "surrogatepass")[:MOST_MESSAGE_BYTES]
        return ChangeOrigin(self.who, ENDING_TOOL, new_change(), cut.decode("utf-8", "ignore"))


class StoreChange(NamedTuple):
    """
    A change that a kind of store is to make.

    Args:
        checked: the alterations, and which of them were accepted.
        origin: where it comes from.
        validate_only: check, and change nothing.
        at_revision: the revision that it is based on; None: any.
        until_ms: when the former values return, epoch ms; None: never.
    """

    checked: Validated
    origin: ChangeOrigin
    validate_only: bool
    at_revision: int | None
    until_ms: int | None


class KeyChange(NamedTuple):
    """One key of an entity, before and after; None: not set."""

    key: QuotaKey
    before: float | None
    after: float | None


class Recorded(NamedTuple):
    """
    What is changed of one entity at once, as homes that keep their history as JSON record it.

    Args:
        t_ms: as in :class:`HistoryEntry`.
        origin: where the change comes from.
        changes: of its keys.
    """

    t_ms: int
    origin: ChangeOrigin
    changes: Sequence[KeyChange]

    def told(self, **more: str) -> dict[str, Any]:
        """Return it for JSON, with more about it."""
        changes = [[str(key), before, after] for key, before, after in self.changes]
        return {"t_ms": self.t_ms, **self.origin.told(), **more, "changes": changes}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Recorded:
        """
        Read what ``told`` returned.

        Raises:
            one of MALFORMED: it has another form.
        """
        changes = [
            KeyChange(QuotaKey.parse(key), number(before), number(after))
            for key, before, after in told["changes"]
        ]
        return cls(int(told["t_ms"]), ChangeOrigin.of(told), changes)

    def entries(self, entity: QuotaEntity) -> list[HistoryEntry]:
        """Return the entries of the history, one for each key."""
        who, tool, change, message = self.origin
        return [
            HistoryEntry(self.t_ms, who, tool, entity, *each, change, message)
            for each in self.changes
        ]


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

    def at(self, t_ms: int) -> AuditEvent:
        """Return it with a time, unless it has one."""
        return replace(self, t_ms=self.t_ms or t_ms)


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


def whole(table: QuotaTable) -> TableDelta:
    """Return the delta from an empty table, with which a watch is called first."""
    changes = tuple(
        TableChange(entity, key, None, value)
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
