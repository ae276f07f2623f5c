"""
Who used how much in a period, and waited how long, summed from a directory's journals.

The sums of a closed file never change, so they are kept: a long period is read once, part by part,
and after that only what was written since.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
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
"""Rows of sums that are kept, of some 80 bytes each: those of the files that were written last."""
MOST_S: Final = 5.0
"""A reading that has taken this long begins no further file whose sums aren't known."""

WHO: Final = ("quota-id", "user", "tenant")
"""What a row stands for."""
FIGURES: Final = ("produced_bytes", "fetched_bytes", "request_ms", "throttled", "waited_ms")
"""What is summed, and what rows are sorted by."""

_BYTES: Final = {
    "produced_bytes": (PRODUCER, PRODUCER_BPS, PRODUCER_SHARES),
    "fetched_bytes": (CONSUMER, CONSUMER_BPS, CONSUMER_SHARES),
}
"""The keys that limit the same bytes. A gateway notes all bytes under the first, whether a quota of
it applies or not, and those that another one limits under that one, too."""
_KEYS: Final = (*(key.name for keys in _BYTES.values() for key in keys), REQUEST.name)
_SUMS: Final = (*_KEYS, *_BYTES, "throttled", "waited_ms", "held", "held_ms")
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
    What was used in a period.

    Request time is known where somebody has a quota of it: else a gateway records none.

    Args:
        since_ms: when the period begins, or the journal, if that is later; epoch ms.
        read: how many files of the journal were read, the latest first.
        files: how many there are of the period.
        rows: a row for each quota-id and principal, with ``FIGURES``.
    """

    since_ms: float
    read: int
    files: int
    rows: pa.Table

    @property
    def is_whole(self) -> bool:
        """Whether the whole period was read."""
        return self.read == self.files


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
        waited_ms: the sum of these waits, each from the moment its request had been passed on; of a
            fetch that was held for its quota-id's turn, until then.
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

    def are_since(self, since_ms: float) -> bool:
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
        # By a file's path and when it was written: a journal that begins again has the same names.
        self._kept: dict[tuple[Path, float], _FileSums] = {}

    def since(self, since_ms: float, most_s: float = MOST_S) -> PeriodUse:
        """
        Return what was used since a time.

        Args:
            since_ms: epoch ms.
            most_s: a reading that has taken this long begins no file whose sums aren't known.

        Returns:
            The sums, of as many files as were read; the next call reads on.

        Raises:
            OSError: the journal can't be read; names the file.
        """
        there = [(file, written_ms) for written_ms, file in latest_files(self._journal, 0.0)]
        self._forget({(file.path, written_ms) for file, written_ms in there})
        wanted = [(file, written_ms) for file, written_ms in there if written_ms >= since_ms]
        found: list[_FileSums] = []
        ends = time.monotonic() + most_s
        for file, written_ms in wanted:
            sums = self._kept.get((file.path, written_ms))
            if sums is None or not sums.are_since(since_ms):
                if time.monotonic() > ends:
                    break
                sums = _summed(file, since_ms)
                self._keep(file, written_ms, sums)
            found.append(sums)
        first_ms = min((sums.first_ms for sums in found), default=since_ms)
        begins_ms = max(since_ms, first_ms if first_ms < math.inf else since_ms)
        rows = _figures(_added([sums.rows for sums in found]))
        return PeriodUse(begins_ms, len(found), len(wanted), rows)

    def _forget(self, there: set[tuple[Path, float]]) -> None:
        """Forget the sums of files that aren't there any more."""
        self._kept = {key: sums for key, sums in self._kept.items() if key in there}

    def _keep(self, file: files.JournalFile, written_ms: float, sums: _FileSums) -> None:
        """Keep the sums of a closed file, if they are of all its events."""
        if file.suffix == files.OPEN or sums.first_ms < sums.since_ms:
            return
        self._kept[file.path, written_ms] = sums
        kept_rows = sum(kept.rows.num_rows for kept in self._kept.values())
        while kept_rows > MOST_ROWS:
            oldest = min(self._kept, key=lambda key: key[1])
            kept_rows -= self._kept.pop(oldest).rows.num_rows


def _summed(file: files.JournalFile, since_ms: float) -> _FileSums:
    """
    Sum a file's events since a time; a file that was removed meanwhile has none.

    Raises:
        OSError: it can't be read; names it.
    """
    first_ms, parts = math.inf, []
    try:
        for batch in read_file(file):
            if batch.num_rows:
                part = batch.select(_READ)
                first_ms = min(first_ms, pc.min(part["t_ms"]).as_py())
                parts.append(_charges(part.filter(pc.greater_equal(part["t_ms"], since_ms))))
    except (OSError, pa.ArrowException) as error:
        raise OSError(f"{file.path.name}: {error}") from error
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
    said = pc.fill_null(events["amount"], 0.0)
    unlimited, held = pc.equal(kind, "norecord"), pc.equal(kind, "held")

    def only(wanted: pa.Array, value: pa.Array) -> pa.Array:
        return pc.if_else(pc.fill_null(wanted, False), value.cast(pa.float64()), 0.0)

    sums = {name: only(pc.equal(key, name), amount) for name in _KEYS}
    for name, (first, *_) in _BYTES.items():
        sums[name] = only(pc.equal(key, first.name), pc.if_else(unlimited, said, amount))
    sums["throttled"] = only(throttled, throttled)
    sums["waited_ms"] = only(throttled, told)
    sums["held"], sums["held_ms"] = only(held, held), only(held, said)
    table = pa.table({n: pc.fill_null(events[n], "") for n in _NAMES} | sums)
    counts = pc.is_in(kind, pa.array(["record", "norecord", "unrecord", "strict", "told", "held"]))
    return _added([table.filter(counts)])


def _added(parts: list[pa.Table]) -> pa.Table:
    """Add rows of the same names up."""
    return _grouped(pa.concat_tables(parts) if parts else _NOTHING, _NAMES, _SUMS)


def _grouped(table: pa.Table, names: Sequence[str], sums: Sequence[str]) -> pa.Table:
    found = table.group_by([*names], use_threads=False).aggregate([(n, "sum") for n in sums])
    return found.select([*names, *(f"{n}_sum" for n in sums)]).rename_columns([*names, *sums])


def _figures(rows: pa.Table) -> pa.Table:
    """
    Return rows with ``FIGURES``, each request counted once.

    Of the keys that limit the same bytes, a principal's is the one that charged it most; bytes that
    none charges are in a row without a quota-id. A held fetch names no quota-id: it counts where
    the principal fetched most.
    """
    rows = rows.combine_chunks()
    users = _grouped(rows, ["principal"], _SUMS).combine_chunks()
    of_user = pc.index_in(rows["principal"], users["principal"].combine_chunks())
    figures, rest = {}, {}
    for name, (first, *others) in _BYTES.items():
        most, value = users[first.name], rows[first.name]
        for key in others:
            is_more = pc.greater(users[key.name], most)
            value = pc.if_else(is_more.take(of_user), rows[key.name], value)
            most = pc.if_else(is_more, users[key.name], most)
        figures[name] = value
        rest[name] = pc.subtract(pc.max_element_wise(users[name], most), most)
    figures["request_ms"] = pc.multiply(rows[REQUEST.name], _MS_OF_PERCENT)
    figures |= {name: rows[name] for name in ("throttled", "waited_ms")}
    nothing = pa.array([0.0] * users.num_rows, pa.float64())
    nobody = pa.array([""] * users.num_rows, pa.string())
    unlimited = {_NAMES[0]: nobody, _NAMES[1]: nobody, _NAMES[2]: users["principal"], **rest}
    unlimited |= {name: nothing for name in FIGURES if name not in rest}
    table = pa.table({n: rows[n] for n in _NAMES} | figures)
    table = _grouped(pa.concat_tables([table, pa.table(unlimited)]), _NAMES, FIGURES)
    by_use = table.sort_by([("principal", "ascending"), ("fetched_bytes", "descending")])
    by_use = by_use.combine_chunks()
    who = by_use["principal"].combine_chunks()
    is_first = pa.concat_arrays(
        [pa.array([True][: len(who)], pa.bool_()), pc.not_equal(who[1:], who[:-1])]
    )
    user = pc.index_in(who, users["principal"].combine_chunks())
    for figure, held in (("throttled", "held"), ("waited_ms", "held_ms")):
        more = pc.if_else(is_first, users[held].take(user), 0.0)
        at = by_use.column_names.index(figure)
        by_use = by_use.set_column(at, figure, pc.add(by_use[figure], more))
    return _used(by_use)


def _used(rows: pa.Table) -> pa.Table:
    """Leave out rows in which nothing was used."""
    nothing = [pc.equal(rows[name], 0.0) for name in FIGURES]
    return rows.filter(pc.invert(reduce(pc.and_, nothing)))


class Ranking:
    """
    Who used most.

    Args:
        rows: a period's (``PeriodUse.rows``).
        who: what a row stands for, one of ``WHO``.
        tenants: each tenant's principals; others belong to no tenant. A principal of several counts
            for each of them.
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
        self.whole = UseRow("", "", *(pc.sum(rows[n]).as_py() or 0.0 for n in FIGURES))
        if who == "quota-id":
            table = _grouped(rows, _NAMES[:2], FIGURES)
        else:
            named = rows if who == "user" else _by_tenant(rows, tenants)
            table = _grouped(
                named.rename_columns([*_NAMES[:2], "name", *FIGURES]), ["name"], FIGURES
            )
            table = table.add_column(1, "client_id", pa.array([""] * table.num_rows, pa.string()))
        self._table = table.rename_columns(["name", "client_id", *FIGURES])

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


def _by_tenant(rows: pa.Table, tenants: Mapping[str, Collection[str]]) -> pa.Table:
    """Return rows with the tenant in place of the principal; "" for those of none."""
    pairs = [(name, tenant) for tenant, names in tenants.items() for name in names]
    known = pa.table(
        {"principal": pa.array([name for name, _ in pairs], pa.string()),
         "tenant": pa.array([tenant for _, tenant in pairs], pa.string())}
    )  # fmt: skip
    joined = rows.join(known, "principal", join_type="left outer", use_threads=False)
    tenant = pc.fill_null(joined["tenant"], "")
    return joined.select([*_NAMES, *FIGURES]).set_column(2, "principal", tenant)
