"""
Who used how much in a period, and waited how long, summed from a directory's journals.

The sums of a closed file never change, so they are kept: a long period is read once, part by part,
and after that only what was written since.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_SHARES,
    REQUEST,
)
from headgate.usage import files
from headgate.usage.reader import latest_files, read_file

MOST_ROWS: Final = 1_000_000
"""Rows of sums that are kept, of some 80 bytes each."""
MOST_S: Final = 5.0
"""A reading that has taken this long begins no further file."""

WHO: Final = ("quota-id", "user", "tenant")
"""What a row stands for."""
FIGURES: Final = ("produced_bytes", "fetched_bytes", "request_ms", "throttled", "waited_ms")
"""What is summed, and what rows are sorted by."""

_RECORDED: Final = {
    "produced_bytes": (PRODUCER, PRODUCER_BPS, PRODUCER_SHARES),
    "fetched_bytes": (CONSUMER, CONSUMER_BPS, CONSUMER_SHARES),
    "request_ms": (REQUEST,),
}
"""A request is charged under each key that somebody has a quota of, to another quota-id each."""
_SUMS: Final = (*(k.name for keys in _RECORDED.values() for k in keys), "throttled", "waited_ms")
_NAMES: Final = ("quota_user", "quota_client_id", "principal")
_READ: Final = (
    "kind", "quota_type", "t_ms", "amount", *_NAMES, "throttle_time_ms", "told_throttle_time_ms",
)  # fmt: skip
_SHOWN: Final = ("name", "client_id")
_MS_OF_PERCENT: Final = 10.0
"""A thread's second is charged as 100 %. Source: Kafka's ``ClientRequestQuotaManager``."""
_NOTHING: Final = pa.table(
    {**{n: pa.array([], pa.string()) for n in _NAMES},
     **{n: pa.array([], pa.float64()) for n in _SUMS}}
)  # fmt: skip


class PeriodUse(NamedTuple):
    """
    What was used in a period, of each kind that somebody has a quota of.

    A gateway records nothing of a kind that nobody's quota limits.

    Args:
        since_ms: from when on events were read, epoch ms.
        is_whole: whether that is the whole period.
        rows: a row for each quota-id and principal, with ``FIGURES``.
    """

    since_ms: float
    is_whole: bool
    rows: pa.Table


class UseRow(NamedTuple):
    """
    What one quota-id, user or tenant used.

    Args:
        name: the user or tenant; "" for a quota-id that belongs to no user, and for no tenant.
        client_id: of a quota-id; "" otherwise, and for a quota-id of all client-ids.
        produced_bytes: written to brokers.
        fetched_bytes: read from them.
        request_ms: time that brokers' threads worked for it.
        throttled: requests that had to wait.
        waited_ms: how long these had to wait, since they had passed.
    """

    name: str
    client_id: str
    produced_bytes: float
    fetched_bytes: float
    request_ms: float
    throttled: float
    waited_ms: float


class _FileSums(NamedTuple):
    """The sums of a file's events since a time; its first event is from ``first_ms``."""

    first_ms: float
    since_ms: float
    rows: pa.Table

    def hold_since(self, since_ms: float) -> bool:
        """Whether these are the sums of the file's events since a time."""
        return self.first_ms >= since_ms or self.since_ms == since_ms


class JournalSums:
    """
    Sums of a directory's journals; for one thread at a time.

    Args:
        journal: the directory.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[Path, float], _FileSums] = OrderedDict()
        self._kept_rows = 0

    def since(self, since_ms: float, most_s: float = MOST_S) -> PeriodUse:
        """
        Return what was used since a time.

        Args:
            since_ms: epoch ms.
            most_s: a reading that has taken this long begins no file whose sums aren't known.

        Returns:
            The sums, of as much of the period as was read; the next call reads on.

        Raises:
            OSError: the journal can't be read.
        """
        found: list[tuple[files.JournalFile, _FileSums]] = []
        is_whole, ends = True, time.monotonic() + most_s
        for written_ms, file in latest_files(self._journal, since_ms):
            sums = self._of(file, written_ms)
            if sums is None or not sums.hold_since(since_ms):
                if time.monotonic() > ends:
                    # What is in the files left was written before this one was.
                    since_ms, is_whole = written_ms + 1, False
                    break
                sums = _summed(file, since_ms)
                self._keep(file, written_ms, sums)
            found.append((file, sums))
        # A period that was cut short begins later than some sums do.
        rows = [
            (sums if sums.hold_since(since_ms) else _summed(file, since_ms)).rows
            for file, sums in found
        ]
        return PeriodUse(since_ms, is_whole, _counted_once(_added(rows)))

    def _of(self, file: files.JournalFile, written_ms: float) -> _FileSums | None:
        key = (file.path, written_ms)  # another journal in its place has the same names
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def _keep(self, file: files.JournalFile, written_ms: float, sums: _FileSums) -> None:
        """Keep the sums of a closed file, if they are of all its events."""
        key = (file.path, written_ms)
        if file.suffix == files.OPEN or sums.first_ms < sums.since_ms or key in self._kept:
            return
        self._kept[key] = sums
        self._kept_rows += sums.rows.num_rows
        while self._kept_rows > MOST_ROWS:
            _, oldest = self._kept.popitem(last=False)
            self._kept_rows -= oldest.rows.num_rows


def _summed(file: files.JournalFile, since_ms: float) -> _FileSums:
    """Sum a file's events since a time; a file that was removed meanwhile has none."""
    first_ms, parts = math.inf, []
    for batch in read_file(file):
        if batch.num_rows:
            part = batch.select(_READ)
            first_ms = min(first_ms, pc.min(part["t_ms"]).as_py())
            parts.append(_charges(part.filter(pc.greater_equal(part["t_ms"], since_ms))))
    return _FileSums(first_ms, since_ms, _added(parts))


def charged(events: pa.RecordBatch | pa.Table) -> tuple[pa.Array, pa.Array]:
    """
    Return which events are charges, and what each event adds to what was charged.

    Args:
        events: with ``kind``, ``amount`` and ``throttle_time_ms``.
    """
    kind = events["kind"].cast(pa.string())
    waits = pc.greater(pc.fill_null(events["throttle_time_ms"], 0), 0)
    amount = pc.fill_null(events["amount"], 0.0)
    # A refused mutation was asked for, not charged.
    is_charge = pc.or_(
        pc.equal(kind, "record"), pc.and_(pc.equal(kind, "strict"), pc.invert(waits))
    )
    back = pc.if_else(pc.equal(kind, "unrecord"), pc.negate(pc.abs(amount)), 0.0)
    return is_charge, pc.if_else(is_charge, amount, back)


def _charges(events: pa.RecordBatch) -> pa.Table:
    """Return what each event adds to the sums, added up."""
    kind, key = events["kind"].cast(pa.string()), events["quota_type"].cast(pa.string())
    told, (_, amount) = pc.fill_null(events["throttle_time_ms"], 0), charged(events)
    # Of a request that several quotas throttle, the one whose wait was told is counted. Mutations
    # decide in ``strict`` and ``told``; of other quotas, ``told`` repeats what was decided before.
    decides = pc.or_(
        pc.is_in(kind, pa.array(["record", "norecord"])),
        pc.and_(pc.equal(kind, "told"), pc.equal(key, MUTATION.name)),
    )
    is_told = pc.fill_null(pc.equal(events["told_throttle_time_ms"], told), False)
    throttled = pc.and_(pc.and_(decides, is_told), pc.greater(told, 0))

    by_key = [
        pc.if_else(pc.fill_null(pc.equal(key, name), False), amount, 0.0) for name in _SUMS[:-2]
    ]
    waited = pc.if_else(throttled, told, 0).cast(pa.float64())
    names = [pc.fill_null(events[name], "") for name in _NAMES]
    sums = [*by_key, throttled.cast(pa.float64()), waited]
    table = pa.table([*names, *sums], names=[*_NAMES, *_SUMS])
    said = pc.is_in(kind, pa.array(["record", "norecord", "unrecord", "strict", "told"]))
    return _added([table.filter(said)])


def _added(parts: list[pa.Table]) -> pa.Table:
    """Add rows of the same names up."""
    return _grouped(pa.concat_tables(parts) if parts else _NOTHING, _NAMES, _SUMS)


def _grouped(table: pa.Table, names: Sequence[str], sums: Sequence[str]) -> pa.Table:
    found = table.group_by([*names], use_threads=False).aggregate([(n, "sum") for n in sums])
    return found.select([*names, *(f"{n}_sum" for n in sums)]).rename_columns([*names, *sums])


def _counted_once(rows: pa.Table) -> pa.Table:
    """Return rows with ``FIGURES``: of the keys that limit the same, the one with most counts."""
    figures = []
    for keys in _RECORDED.values():
        most = max(keys, key=lambda key: pc.sum(rows[key.name]).as_py() or 0.0)
        figures.append(rows[most.name])
    figures[-1] = pc.multiply(figures[-1], _MS_OF_PERCENT)
    columns = [*(rows[n] for n in _NAMES), *figures, rows["throttled"], rows["waited_ms"]]
    return pa.table(columns, names=[*_NAMES, *FIGURES])


class Ranking:
    """
    Who used most.

    Args:
        rows: a period's (``PeriodUse.rows``).
        who: what a row stands for, one of ``WHO``.
        tenants: each tenant's principals; others belong to no tenant.
        principals: only what these used; None: everybody's.
    """

    def __init__(
        self,
        rows: pa.Table,
        who: str = "quota-id",
        tenants: Mapping[str, Collection[str]] = MappingProxyType({}),
        principals: Collection[str] | None = None,
    ) -> None:
        if principals is not None:
            wanted = pa.array(sorted(principals), pa.string())
            rows = rows.filter(pc.is_in(rows["principal"], wanted))
        if who == "quota-id":
            table = _grouped(rows, _NAMES[:2], FIGURES)
        else:
            name = rows["principal"] if who == "user" else _tenant_of(rows["principal"], tenants)
            table = _grouped(rows.set_column(2, "name", name), ["name"], FIGURES)
            table = table.add_column(1, "client_id", pa.repeat("", table.num_rows))
        self._table = table.rename_columns(["name", "client_id", *FIGURES])
        self.whole = UseRow("", "", *(pc.sum(table[n]).as_py() or 0.0 for n in FIGURES))

    def select(self, sort: str = FIGURES[0], find: str = "") -> list[UseRow]:
        """
        Return the rows, those that used most first.

        Args:
            sort: one of ``FIGURES``.
            find: only rows that have this in a name, whatever its case.
        """
        table = self._table
        if find:
            found = [pc.match_substring(table[n], find, ignore_case=True) for n in _SHOWN]
            table = table.filter(pc.or_(*found))
        table = table.sort_by([(sort, "descending"), *((n, "ascending") for n in _SHOWN)])
        return [UseRow(*row) for row in zip(*table.to_pydict().values(), strict=True)]


def _tenant_of(principals: pa.ChunkedArray, tenants: Mapping[str, Collection[str]]) -> pa.Array:
    """Return the tenant of each principal; "" for those of none."""
    known = {name: tenant for tenant, names in tenants.items() for name in names}
    place = pc.index_in(principals, pa.array(known, pa.string()))
    return pc.fill_null(pa.chunked_array([pa.array(known.values(), pa.string())]).take(place), "")
