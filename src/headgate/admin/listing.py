"""
Every quota that is configured, with its use now and its last change: for people who look for one.

The console's page *Quotas* and ``headgate quotas`` show the same rows.
"""

from __future__ import annotations

import csv
import io
import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from headgate.live.picture import Picture, QuotaUse
from headgate.quota.entity import DEFAULT, Default, QuotaEntity
from headgate.quota.key import KEYS, QuotaKey, format_value
from headgate.quota.precedence import select_limit
from headgate.quota.table import QuotaTable
from headgate.store.base import EndingQuota, HistoryEntry
from headgate.words import moment, unit_of, what_of

KINDS: Final = ("user", "client-id", "user+client-id", "ip")
"""What ``QuotaQuery.kind`` may be, beside "" and ``default``: the shapes of entities."""
ONLY: Final = ("throttled", "unmatched")
"""What ``QuotaQuery.only`` may be, beside ""."""

LastChanges = Mapping[tuple[QuotaEntity, QuotaKey], HistoryEntry]
"""The latest change of each quota."""


class QuotaNow(NamedTuple):
    """
    The use of one quota at this moment, over all brokers.

    Args:
        use: of the quota-id that has the least room, at the broker where it has it; None: nobody is
            charged to the quota.
        matched: how many quota-ids are charged to it.
        held: connections that wait by it.
        held_until_ms: when the last of them goes on; 0: none waits.
        throttled: whether one waits, or was told to within ``picture.PAUSE_MS``.
    """

    use: QuotaUse | None = None
    matched: int = 0
    held: int = 0
    held_until_ms: int = 0
    throttled: bool = False

    @property
    def utilisation(self) -> float | None:
        """Rate by limit, of the fullest quota-id; None: none is charged, or it has no limit."""
        return None if self.use is None else self.use.utilisation


class QuotaRow(NamedTuple):
    """
    A configured quota.

    Args:
        entity: what it is set for.
        key: what it limits.
        value: its value.
        now: its use; None: that isn't known.
        last: its latest change; None: no history has one.
        end: when it ends, and what returns then; None: it stays.
    """

    entity: QuotaEntity
    key: QuotaKey
    value: float
    now: QuotaNow | None
    last: HistoryEntry | None
    end: EndingQuota | None = None

    @property
    def double(self) -> float | None:
        """Twice its value; None: the key holds no such value."""
        most = KEYS[self.key].unlimited if self.key in KEYS else 0.0
        return self.value * 2 if self.value < self.value * 2 <= most else None

    @property
    def half(self) -> float | None:
        """Half its value, whole where it must be; None: there is none, or it would be 0."""
        half = self.value / 2
        if self.key in KEYS and KEYS[self.key].value_type != "DOUBLE":
            half = float(half // 1)
        return half if 0 < half < self.value else None


class QuotaQuery(NamedTuple):
    """
    Which quotas are wanted, in which order.

    Args:
        find: a text in a name, in the key, in what it limits, in who changed it or why.
        key: the name of a key; "": of all.
        kind: the types of its entity, one of ``KINDS``; ``default``: quotas of others than those
            that are named; "": all.
        only: ``throttled``: clients wait by it; ``unmatched``: nobody is charged to it; "": all.
        sort: one of ``SORTS``.
        turned: the other way round.
    """

    find: str = ""
    key: str = ""
    kind: str = ""
    only: str = ""
    sort: str = "name"
    turned: bool = False


def last_changes(history: Iterable[HistoryEntry], before: LastChanges | None = None) -> LastChanges:
    """
    Return the latest change of each quota.

    Args:
        history: oldest first.
        before: the latest changes before it.
    """
    return {**(before or {}), **{(entry.entity, entry.key): entry for entry in history}}


# --- which quota a quota-id is charged to

_MOST_KEPT: Final = 200_000
"""Quota-ids whose quota is kept; beyond that all are looked up again."""
_NOBODY: Final = -1


class Listing:
    """
    A row for each quota of a table, by name; made once for all moments.

    Args:
        table: all quotas.
        last: of ``last_changes``.
        ends: the quotas that end.
    """

    def __init__(
        self, table: QuotaTable, last: LastChanges, ends: Iterable[EndingQuota] = ()
    ) -> None:
        self._table = table
        ending = {(end.entity, end.key): end for end in ends}
        self._rows = [
            QuotaRow(entity, key, value, None, last.get((entity, key)), ending.get((entity, key)))
            for entity in sorted(table.entities, key=lambda entity: entity.sort_key)
            for key, value in sorted(table.entities[entity].items())
        ]
        self._numbers = {(row.entity, row.key.name): n for n, row in enumerate(self._rows)}
        self._addresses = {
            _address(entity.ip): entity for entity in table.entities if isinstance(entity.ip, str)
        }
        self._unknown = frozenset(
            n for n, row in enumerate(self._rows) if _is_host_name(row.entity)
        )
        self._kept: dict[tuple[str, str, str, str], int] = {}

    def at(self, picture: Picture | None) -> QuotasNow:
        """
        Return the rows at a moment.

        Args:
            picture: what goes on then, of everybody; None: that isn't known.
        """
        if len(self._kept) > _MOST_KEPT:
            self._kept.clear()
        found: dict[int, QuotaUse | list[QuotaUse]] = {}
        for broker in picture.brokers if picture is not None else ():
            for use in broker.quotas:
                quota_id = (use.key, use.user, use.client_id, use.ip)
                number = self._kept.get(quota_id)
                if number is None:
                    number = self._kept[quota_id] = self._number(use)
                if number == _NOBODY:
                    continue
                # Mostly there is one: a list for each would keep the garbage collector busy.
                other = found.get(number)
                if other is None:
                    found[number] = use
                elif isinstance(other, list):
                    other.append(use)
                else:
                    found[number] = [other, use]
        unknown = frozenset(range(len(self._rows))) if picture is None else self._unknown
        return QuotasNow(self._rows, found, unknown)

    def _number(self, use: QuotaUse) -> int:
        """Return the number of the row whose quota limits a quota-id."""
        quotas = self._table.for_key(QuotaKey.parse(use.key))
        if use.ip:
            own = self._addresses.get(_address(use.ip))
            entity = next((e for e in (own, _ANY_ADDRESS) if e in quotas), None)
        else:
            entity = select_limit(quotas, use.user, use.client_id)
        return _NOBODY if entity is None else self._numbers[entity, use.key]


_ANY_ADDRESS: Final = QuotaEntity.of(ip=DEFAULT)


def _address(text: str) -> str:
    """Return an address in its shortest form; another text as it is."""
    try:
        return ipaddress.ip_address(text).compressed
    except ValueError:
        return text


def _is_host_name(entity: QuotaEntity) -> bool:
    """Whether it is an address by a host's name, which only a gateway resolves."""
    if entity.ip is None or isinstance(entity.ip, Default):
        return False
    try:
        ipaddress.ip_address(entity.ip)
    except ValueError:
        return True
    return False


# --- at a moment


class QuotasNow:
    """
    All quotas at one moment. The use of each is put together when it is asked for.

    Args:
        rows: of all quotas, by name.
        uses: of quotas that somebody is charged to, by the row's number.
        unknown: numbers of rows whose use isn't known.
    """

    def __init__(
        self,
        rows: Sequence[QuotaRow],
        uses: Mapping[int, QuotaUse | list[QuotaUse]],
        unknown: frozenset[int],
    ) -> None:
        self._rows = rows
        self._uses = uses
        self._unknown = unknown

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> QuotaRow:
        """Return one row, with its use."""
        return self._rows[number]._replace(now=self._now(number))

    def of_users(self, users: Collection[str]) -> QuotasNow:
        """Return the quotas of some users alone, without who changed them and why."""
        numbers = [n for n, row in enumerate(self._rows) if row.entity.user in users]
        return QuotasNow(
            [_hiding(self._rows[n]) for n in numbers],
            {new: self._uses[n] for new, n in enumerate(numbers) if n in self._uses},
            frozenset(new for new, n in enumerate(numbers) if n in self._unknown),
        )

    def select(self, query: QuotaQuery) -> list[int]:
        """Return the numbers of the rows that a query wants, in its order; equal ones by name."""
        found = [n for n, row in enumerate(self._rows) if _wanted(row, query)]
        if query.only:
            found = [n for n in found if self._is_only(n, query.only)]
        order = _ORDERS.get(query.sort)
        if order is not None:
            found.sort(key=lambda n: order(self._rows[n], self._now(n)), reverse=not query.turned)
        elif query.turned:
            found.reverse()
        return found

    def _now(self, number: int) -> QuotaNow | None:
        if number in self._unknown:
            return None
        uses = self._uses.get(number)
        if isinstance(uses, list):
            return _together(uses)
        if uses is None:
            return _UNUSED
        waits = bool(uses.held or uses.held_since_ms)
        return QuotaNow(uses, 1, uses.held, uses.held_until_ms, waits)

    def _is_only(self, number: int, only: str) -> bool:
        now = self._now(number)
        if now is None:
            return False
        return now.throttled if only == "throttled" else not now.matched


_UNUSED: Final = QuotaNow()


def _together(uses: Sequence[QuotaUse]) -> QuotaNow:
    return QuotaNow(
        max(uses, key=lambda use: (bool(use.held), use.utilisation or 0.0, use.rate)),
        len({(use.user, use.client_id, use.ip) for use in uses}),
        sum(use.held for use in uses),
        max(use.held_until_ms for use in uses),
        any(use.held or use.held_since_ms for use in uses),
    )


def _hiding(row: QuotaRow) -> QuotaRow:
    """Return a row without who changed it, and why: that may name others."""
    last = row.last and replace(row.last, who="", tool="", message="", change="")
    end = row.end and row.end._replace(who="", message="", change="")
    return row._replace(last=last, end=end)


def _waits(now: QuotaNow) -> tuple[bool, int, int]:
    return now.throttled, now.held_until_ms, now.held


_ORDERS: Final[Mapping[str, Callable[[QuotaRow, QuotaNow | None], Any]]] = {
    "value": lambda row, _: row.value,
    "use": lambda _, now: -1.0 if now is None else now.utilisation or 0.0,
    "waits": lambda _, now: _waits(now or _UNUSED),
    "matched": lambda _, now: -1 if now is None else now.matched,
    "changed": lambda row, _: row.last.t_ms if row.last is not None else 0,
}
SORTS: Final = ("name", *_ORDERS)
"""How rows can be sorted: by name as they are, by the rest with the greatest first."""


def _wanted(row: QuotaRow, query: QuotaQuery) -> bool:
    entity = row.entity
    if query.key and row.key.name != query.key:
        return False
    if query.kind == "default":
        if all(name is not DEFAULT for _, name in entity):
            return False
    elif query.kind and entity.shape != query.kind:
        return False
    return not query.find or query.find.casefold() in _text(row)


def _text(row: QuotaRow) -> str:
    names = [f"default {kind}" if isinstance(n, Default) else n for kind, n in row.entity]
    last = () if row.last is None else (row.last.who, row.last.message)
    return "\n".join((*names, row.key.name, what_of(row.key.name), *last)).casefold()


# --- files

COLUMNS: Final = (
    "entity", "key", "value", "unit", "use", "limit", "waiting", "quota_ids", "changed", "who",
    "tool", "why", "until", "then",
)  # fmt: skip


def as_csv(rows: Iterable[QuotaRow]) -> str:
    """
    Return rows as CSV with a header. What isn't known is empty.

    A text that a spreadsheet would take for a formula has a ``'`` before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        use = row.now.use if row.now is not None else None
        now = ("", "") if row.now is None else (row.now.held, row.now.matched)
        last = ("", "", "", "")
        if row.last is not None:
            told = row.last
            last = (moment(told.t_ms), told.who, told.tool, told.message)
        writer.writerow(
            (
                row.entity.path, row.key.name, format_value(row.value), unit_of(row.key.name),
                "" if use is None else format_value(use.rate),
                "" if use is None or use.limit is None else format_value(use.limit),
                *now, *map(cell, last), *_end(row.end),
            )
        )  # fmt: skip
    return out.getvalue()


def _end(end: EndingQuota | None) -> tuple[str, str]:
    if end is None:
        return "", ""
    return moment(end.until_ms), "" if end.former is None else format_value(end.former)


def cell(text: str) -> str:
    """Return a text for CSV; one that a spreadsheet would take for a formula gets a ``'``."""
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text


def as_yaml(rows: Iterable[QuotaRow]) -> str:
    """Return rows as a quotas file, which ``headgate apply`` reads."""
    from headgate.quota.file import dump_quotas  # here, because yaml loads slowly

    values: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for row in rows:
        values.setdefault(row.entity, {})[row.key] = row.value
    return dump_quotas(QuotaTable(values))
