"""
Pack charges into few rows before the shuffle: a row per bundle of quota-ids, its events in blobs.

A row per event through Spark's sort costs more than parsing and replaying it. So the worker that
read a piece groups its events by quota-id (one counting sort of codes) and hands over
a row for some hundred groups: times and amounts as binary columns, and, where rows are wanted
back, the whole requests as an Arrow batch. Spark moves and sorts only these rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.pipeline import schema
from headgate.pipeline.emitted import EMITTED_REQUESTS
from headgate.pipeline.replaying.charge_index import MAX_KNOWN, ChargeIndex
from headgate.pipeline.replaying.charges import (
    NEEDED,
    array_of,
    is_in,
    one_chunk,
    ops_and_amounts,
    recorded_throttle_ms,
    replayable,
    valid,
    with_recorded_columns,
)
from headgate.pipeline.replaying.packed_format import (
    CARRIED,
    GROUP_COLUMNS,
    LOGGED,
    PACKED,
    PackOptions,
    heads_schema,
)
from headgate.pipeline.sources.row_groups import read_row_group, stat_of
from headgate.pipeline.table import gathered, stream_of
from headgate.pipeline.workers.emit import EmitRequests, own_pieces
from headgate.pipeline.workers.log_reader import ReadOptions

# Events gathered before they're grouped, so that small groups of neighbouring pieces join: about
# 40 bytes each; and bytes of the requests themselves, where these are kept. Each group costs as
# much as some hundred events: who is charged there, by name.
GATHER_EVENTS: Final = 3_000_000
GATHER_BYTES: Final = 64 << 20
# Rows of a table that are gathered at a time where the requests are kept.
_ROWS_AT_A_TIME: Final = 200_000
# A parser's batches are small, and each one looked at costs 2 ms: this many rows go together.
TOGETHER: Final = 30_000
# Rows of one hand-over that can't be replayed.
MAX_PLAIN: Final = 100_000
# Columns of requests that bundles carry; what the bundle or its heads hold is left out.
SENT: Final = tuple(
    n
    for n in schema.REQUESTS.names
    if n not in ("principal", "client_id", "quota_type", "broker_id")
)
MOST_NAMES: Final = 64
# This many first events tell apart pieces of a file that begin at the same moment.
_BEGINNING: Final = 100
_SIDE: Final = ("kind", "file", "offset", "reason", "line", "lines", "input_bytes")


@dataclass(frozen=True)
class PackRequests:
    """
    Pack requests. A ``mapInArrow`` function giving PACKED.

    Args:
        options: what to pack.
        read: the pieces that hold the requests, if their numbers are given, and the rows are to be
            read in the same pass; None: rows of EMITTED_REQUESTS (or REQUESTS) are given.
    """

    options: PackOptions
    read: ReadOptions | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pack the rows of ``batches``, or of the pieces numbered in them."""
        packer = Packer(self.options)
        for table in self._tables(batches):
            yield from packer.add(table)
        yield from packer.end()

    def _tables(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows as tables; a row group of a table as it is, dictionaries and all."""
        if self.read is None:
            yield from gathered(batches, TOGETHER)
            return
        own = list(own_pieces(self.read, batches))
        if any(piece.kind != "requests" for piece in own):
            yield from gathered(EmitRequests(self.read).read(own), TOGETHER)
            return
        needed = schema.REQUESTS.names if self.options.rows else NEEDED
        for piece in own:
            table = read_row_group(piece, needed)
            yield table
            yield pa.Table.from_batches([stat_of(EMITTED_REQUESTS, piece, table)])


@dataclass(frozen=True)
class Gathered:
    """
    Charges of one table, in arrays; ``op`` is None if all are plain records, ``pos`` if time is the
    order.
    """

    charge: Any
    t: Any
    amount: Any
    op: Any
    pos: Any
    files: Any
    rows: Any


class Packer:
    """
    Gathers charges, and groups them by sensor.

    Args:
        options: what to pack.
    """

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self._index = ChargeIndex.take(options)
        self._gathered: list[Gathered] = []
        self._count = 0
        self._sums = np.empty((0, len(LOGGED)), np.int64)
        self._bytes = 0
        self._step = min(_ROWS_AT_A_TIME, GATHER_EVENTS) if options.rows else GATHER_EVENTS

    def add(self, table: Any) -> Iterator[Any]:
        """Take a table of EMITTED_REQUESTS, or of REQUESTS' columns; yield what's complete."""
        if "kind" in table.schema.names:
            is_row = is_in(table["kind"], ("request",))
            if not is_row.all():
                yield from _side(table.filter(pa.array(~is_row)))
                table = table.filter(pa.array(is_row))
        if not table.num_rows:
            return
        table = with_recorded_columns(table)
        can = replayable(table, own=self.options.own)
        if not can.all():
            if self.options.rows:
                yield from _plain(table.filter(pa.array(~can)))
            table = table.filter(pa.array(can))
        if not table.num_rows:
            return
        if self._count + table.num_rows > GATHER_EVENTS:
            yield from self.flush()
        # A table larger than that (one row group, as somebody wrote it) goes part by part.
        for at in range(0, table.num_rows, self._step):
            self._gather(table.slice(at, self._step))
            if self._count >= GATHER_EVENTS or self._bytes >= GATHER_BYTES:
                yield from self.flush()

    def _gather(self, table: Any) -> None:
        from headgate.kernel.grouping import add_up, no_sums

        charge = self._index.charges_of(table)
        # Kafka's clock has whole ms; the nearest is what a log's estimate says.
        t = np.floor(array_of(table["record_ms"]) + 0.5).astype(np.int64)
        op, amount = ops_and_amounts(table)
        names, pos = table.schema.names, None
        if self.options.own and "own_user" in names:
            own = valid(table["own_user"])
            if own.any():
                pos = np.where(own, array_of(table["seq"], 0), t)
        if not self.options.rows:
            if len(self._sums) < len(self._index):
                more = no_sums(len(self._index) - len(self._sums))
                self._sums = np.concatenate([self._sums, more])
            bytes_ = array_of(table["bytes_charged"], 0).astype(np.int64, copy=False)
            told = recorded_throttle_ms(table)
            ones = array_of(table["is_request"], True) if "is_request" in names else None
            if ones is not None:
                ones = None if ones.all() else ones.astype(np.bool_)
            add_up(self._sums, charge, t, bytes_, told if told.any() else None, ones)
        files = one_chunk(table["file"]) if "file" in names else None
        rows = table.select(_carried(names, SENT)) if self.options.rows else None
        self._gathered.append(Gathered(charge, t, amount, op, pos, files, rows))
        self._count += table.num_rows
        self._bytes += rows.nbytes if rows is not None else 0

    def flush(self) -> Iterator[Any]:
        """Yield a row per bundle of what was gathered."""
        if not self._count:
            return
        gathered, sums, index = self._gathered, self._sums, self._index
        self._gathered, self._count, self._bytes = [], 0, 0
        self._sums = np.empty((0, len(LOGGED)), np.int64)
        yield packed_rows_of(index, gathered, sums, self.options)
        if len(index) > MAX_KNOWN:
            self._index = ChargeIndex.take(self.options)

    def end(self) -> Iterator[Any]:
        """Yield a row per bundle of what is left; nothing is added any more."""
        yield from self.flush()
        self._index.leave()


def _carried(have: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return which of some columns a table has, and its columns that aren't of REQUESTS."""
    return [n for n in names if n in have] + [n for n in have if n.startswith(CARRIED)]


def _side(table: Any) -> Iterator[Any]:
    """Hand bad lines and counts on."""
    yield PACKED.batch(len(table), {name: table[name] for name in _SIDE})


def _plain(table: Any) -> Iterator[Any]:
    """Hand over rows that can't be replayed."""
    for at in range(0, table.num_rows, MAX_PLAIN):
        part = table.slice(at, MAX_PLAIN)
        file = part["file"][0].as_py() if "file" in part.schema.names else ""
        row = {
            "kind": "plain",
            "key": f"{at}",
            "n": part.num_rows,
            "first": 0,
            "tie": file_hash(file or ""),
            "rows": serialize(part.select(_carried(part.schema.names, schema.REQUESTS.names))),
        }
        yield PACKED.batch(1, {name: [value] for name, value in row.items()})


def packed_rows_of(
    index: ChargeIndex, gathered: list[Gathered], sums: Any, options: PackOptions
) -> Any:
    """
    Return the PACKED rows of some pieces of files.

    Args:
        index: of the pieces' charges.
        gathered: the charges of each piece.
        sums: the LOGGED columns by charge; unused if the bundles carry whole requests.
        options: what to pack.
    """
    from headgate.kernel import grouping

    charge, t, amount = (_whole(gathered, name) for name in ("charge", "t", "amount"))
    op, pos = _optional(gathered, "op", np.uint8), None
    if any(p.pos is not None for p in gathered):
        pos = np.concatenate([p.t if p.pos is None else p.pos for p in gathered])
    start, root = np.frombuffer(index.start, np.int64), np.frombuffer(index.root, np.int64)
    # Entries (who is charged under which root) that occur, by bundle and root.
    occurs = np.bincount(charge, minlength=len(index)) > 0
    entries = np.flatnonzero(occurs[np.frombuffer(index.charge, np.int64)])
    bundle = np.frombuffer(index.bundle, np.int64)
    entries = entries[np.lexsort((root[entries], bundle[root[entries]]))]
    is_new = np.diff(root[entries], prepend=-1) != 0
    group_of = np.zeros(len(root), np.int64)
    group_of[entries] = np.cumsum(is_new) - 1
    counts, order, entry = grouping.grouped(charge, start, group_of, int(is_new.sum()))
    t, t_from = _narrowed(t)
    by = grouping.taken(t if pos is None else pos, order)
    if not grouping.in_order(by, counts):
        again = grouping.sorted_within(by, counts)
        order, entry, by = order[again], entry[again], by[again]
    # Where bundles begin, in entries and in events.
    bundle_of_entry = bundle[root[entries]]
    entry_starts = np.flatnonzero(np.diff(bundle_of_entry, prepend=-1))
    entry_ends = np.append(entry_starts[1:], len(entries))
    first_groups = group_of[entries[entry_starts]]
    starts = (np.cumsum(counts) - counts)[first_groups]
    ends = np.append(starts[1:], len(order))
    if grouping.fits_uint32(amount):
        amount = amount.astype(np.uint32)
    bundles = list(index.bundles)
    keys = [bundles[b] for b in bundle_of_entry[entry_starts].tolist()]
    count = len(keys)
    first = np.minimum.reduceat(by, starts).astype(np.int64)
    pos_from = t_from if pos is None else 0
    times = by if pos is None else grouping.taken(t, order)
    stamps = [_steps(times[a:b]) for a, b in zip(starts, ends, strict=True)]
    out: dict[str, Any] = {
        "kind": ["chunk"] * count,
        "key": list(map(str, keys)),
        "first": first + pos_from,
        "last": np.maximum.reduceat(by, starts).astype(np.int64) + pos_from,
        "since": np.full(count, int(first.min()) + pos_from),
        "tie": [_tie(gathered)] * count,
        "n": ends - starts,
        "t_from": [t_from + since for since, _ in stamps],
        "t": [blob for _, blob in stamps],
        "amount": _narrow(grouping.taken(amount, order), starts, ends),
    }
    out |= _heads(index, entries, entry, sums, options, entry_starts, entry_ends)
    for name in GROUP_COLUMNS:
        out[name] = [getattr(key.kind, name) for key in keys]
    if op is not None:
        out["op"] = blobs(grouping.taken(op, order), starts, ends)
    if pos is not None:
        out["pos"] = blobs(by, starts, ends)
    if len(entries) > len(counts):
        head = np.zeros(len(root), np.uint32)
        head[entries] = np.arange(len(entries)) - np.repeat(entry_starts, entry_ends - entry_starts)
        # Where each root has one head, the number of the root's events says whose they are.
        several = entry_ends - entry_starts > np.diff(np.append(first_groups, len(counts)))
        each = _narrow(grouping.taken(head, entry), starts, ends)
        out["head"] = [blob if more else None for blob, more in zip(each, several, strict=True)]
    if options.rows:
        rows = _sent([p.rows for p in gathered]).take(pa.array(order))
        out["rows"] = [serialize(rows.slice(a, b - a)) for a, b in zip(starts, ends, strict=True)]
    return PACKED.batch(count, out)


def _sent(parts: list[Any]) -> Any:
    """
    Return requests without columns of REQUESTS that are all null; columns of few names as
    dictionaries.
    """
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    held = [n for n in rows.column_names if n.startswith(CARRIED) or rows[n].null_count < len(rows)]
    rows = rows.select(held)
    for at, field in enumerate(rows.schema):
        column = one_chunk(rows[field.name])
        # Each bundle carries its columns' dictionaries whole.
        if pa.types.is_dictionary(field.type) and len(column.dictionary) > MOST_NAMES:
            rows = rows.set_column(at, field.name, column.cast(field.type.value_type))
    return rows


def _whole(gathered: list[Gathered], name: str) -> Any:
    parts = [getattr(p, name) for p in gathered]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _optional(gathered: list[Gathered], name: str, dtype: Any) -> Any:
    """Return an array of all pieces, zero where a piece has none; None where none has."""
    if all(getattr(p, name) is None for p in gathered):
        return None
    parts = [(getattr(p, name), len(p.t)) for p in gathered]
    return np.concatenate([np.zeros(n, dtype) if a is None else a for a, n in parts])


def _narrowed(t: Any) -> tuple[Any, int]:
    """Return times after a start, and the start: uint32 after the earliest, or int64 after 0."""
    t_from = int(t.min())
    if int(t.max()) - t_from < 1 << 32:
        return (t - t_from).astype(np.uint32), t_from
    return t, 0


def _steps(t: Any) -> tuple[int, bytes]:
    """
    Return a bundle's first time, and each as ms since the one before; if one is large: 0, times.
    """
    first = int(t[0])
    if t.dtype == np.uint32 and bool((t[1:] >= t[:-1]).all()):
        steps = np.diff(t, prepend=t[:1])
        most = int(steps.max())
        if most < 1 << 16:
            return first, steps.astype(np.uint8 if most < 1 << 8 else np.uint16).tobytes()
    return 0, t.tobytes()


def _narrow(values: Any, starts: Any, ends: Any) -> list[bytes]:
    """Divide an array into one binary per bundle; uint32 becomes uint16 where all values fit."""
    out = []
    for a, b in zip(starts, ends, strict=True):
        part = values[a:b]
        if part.dtype == np.uint32 and int(part.max()) < 1 << 16:
            part = part.astype(np.uint16)
        out.append(part.tobytes())
    return out


def _tie(gathered: list[Gathered]) -> int:
    """Return a number made of file name and first events: the same whatever the plans."""
    first = gathered[0]
    name = (first.files[0].as_py() if first.files is not None else "") or ""
    return file_hash(name, first.t[:_BEGINNING].tobytes() + first.amount[:_BEGINNING].tobytes())


def _heads(
    index: ChargeIndex,
    entries: Any,
    entry: Any,
    sums: Any,
    options: PackOptions,
    starts: Any,
    ends: Any,
) -> dict[str, Any]:
    """
    Return the heads of each bundle, and their terms.

    Args:
        index: of the entries.
        entries: those that occur, by bundle and root.
        entry: of each event.
        sums: the LOGGED columns by charge; unused if the bundles carry whole requests.
        options: what to pack.
        starts: where each bundle begins in ``entries``.
        ends: where it ends.
    """
    columns = index.columns()
    charge = np.frombuffer(index.charge, np.int64)[entries]
    terms = np.frombuffer(index.terms, np.int64)[entries]
    logged = np.zeros((len(entries), len(LOGGED)), np.int64) if options.rows else sums[charge]
    of_root = pa.array(np.frombuffer(index.root, np.int64)[entries])
    of_charge = pa.array(charge)
    numbers = np.empty(len(entries), np.int32)
    written = []
    for a, b in zip(starts, ends, strict=True):
        mine, numbers[a:b] = np.unique(terms[a:b], return_inverse=True)
        written.append(columns.limits[mine].tobytes() + columns.layers[mine].tobytes())
    arrays = [
        columns.quota_user.take(of_root),
        columns.quota_client_id.take(of_root),
        columns.principal.take(of_charge),
        columns.client_id.take(of_charge),
        pa.array(np.bincount(entry, minlength=len(index.root))[entries]),
        pa.array(numbers),
        pa.FixedSizeListArray.from_arrays(pa.array(logged.reshape(-1)), len(LOGGED)),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=heads_schema())
    parts = [batch.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
    return {"heads": [part.serialize().to_pybytes() for part in parts], "terms": written}


def serialize(table: Any) -> bytes:
    """Return a table as an Arrow stream of one compressed batch."""
    return stream_of(table.combine_chunks())


def blobs(values: Any, starts: Any, ends: Any) -> Any:
    """Divide an array into one binary per group, without copying."""
    size = values.dtype.itemsize
    offsets = (np.append(starts, ends[-1:]) * size).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)


def file_hash(path: str, content: bytes = b"") -> int:
    """Return a number for a file's name, and some of what's in it; the same everywhere."""
    return zlib.crc32(content, zlib.crc32(path.encode()))
