"""
Pack charges into few rows before the shuffle: a row per quota-id and piece, its events a blob.

A row per event through Spark's sort costs more than parsing and replaying it. So the worker that
read a piece groups its events by who shares the quota (one stable sort of codes) and hands over
one row per group: times and amounts as binary columns, and, where rows are wanted back, the whole
requests as an Arrow batch. Spark moves and sorts only these rows (DESIGN section 7; lab notes
"pack before the shuffle").
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from headgate.kernel.codes import OP_NO_CHECK, OP_UNRECORD
from headgate.pipeline import schema
from headgate.pipeline.arrays import array_of, blobs, file_hash, grouped, is_in, valid
from headgate.pipeline.charges import emptied, replayable, told_ms_of
from headgate.pipeline.filesplits import Split
from headgate.pipeline.packed import PACKED, PackOptions
from headgate.pipeline.sensors import Found, Sensors, sensor_columns
from headgate.pipeline.worker import (
    EmitRequests,
    ReadPlan,
    completed,
    pa_numbers,
    pa_table,
    read_row_group,
    stat_of,
)

__all__ = ["PACKED", "PackLogs", "PackOptions", "PackRequests"]

# Events of one row: 16 MB of blobs, far from a blob's 2 GiB. With whole requests, about as much.
MAX_EVENTS: Final = 1_000_000
MAX_EVENTS_WITH_ROWS: Final = 100_000
# Events gathered before they're grouped, so that small groups of neighbouring pieces join.
GATHER_EVENTS: Final = 400_000
# Without strings per event more fits: 3 million are about 300 MB.
GATHER_TABLE_EVENTS: Final = 3_000_000
# What packing needs of a table ``requests`` when no rows are wanted back.
NEEDED: Final = (
    "record_ms",
    "broker_id",
    "principal",
    "client_id",
    "bytes_charged",
    "bytes_exact",
    "throttle_time_ms",
    "quota_type",
    "amount",
    "is_charged",
    "is_request",
    "decided_throttle_time_ms",
    "source",
    "file",
)
_SIDE: Final = ("kind", "file", "offset", "reason", "line", "lines", "input_bytes")


@dataclass(frozen=True)
class PackLogs:
    """Read pieces and pack them in one pass. A ``mapInArrow`` function giving PACKED."""

    read: ReadPlan
    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read and pack the splits numbered in ``batches``."""
        numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
        own = [self.read.splits[n] for n in numbers]
        if self.options.rows or any(s.kind != "requests" for s in own):
            emitted = EmitRequests(self.read)(iter([pa_numbers(numbers)]))
            return PackRequests(self.options)(emitted)
        return self._tables(own)

    def _tables(self, splits: list[Split]) -> Iterator[Any]:
        """Pack row groups of tables ``requests`` as they are, dictionaries and all."""
        packer = _Packer(self.options)
        gathered: list[Any] = []
        count = 0
        for split in splits:
            table = read_row_group(split, NEEDED)
            gathered.append(completed(table))
            count += table.num_rows
            if count >= GATHER_TABLE_EVENTS:
                yield from packer.pack(gathered)
                gathered, count = [], 0
            yield stat_of(split, table)
        if gathered:
            yield from packer.pack(gathered)


@dataclass(frozen=True)
class PackRequests:
    """Pack EMITTED_REQUESTS (or REQUESTS). A ``mapInArrow`` function giving PACKED."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pack the rows of ``batches``, some hundred thousand at a time."""
        packer = _Packer(self.options)
        gathered: list[Any] = []
        count = 0
        for batch in batches:
            gathered.append(pa_table(batch))
            count += batch.num_rows
            if count >= GATHER_EVENTS:
                yield from packer.pack(gathered)
                gathered, count = [], 0
        if gathered:
            yield from packer.pack(gathered)


class _Packer:
    """Groups events by sensor."""

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self.sensors = Sensors(options)

    def pack(self, tables: list[Any]) -> Iterator[Any]:
        """Yield the PACKED rows of some tables of requests."""
        import pyarrow as pa

        table = pa.concat_tables([completed(t) for t in tables]).unify_dictionaries()
        is_row = is_in(table["kind"], ("request",))
        if not is_row.all():
            yield from _side(table.filter(pa.array(~is_row)))
            table = table.filter(pa.array(is_row))
        if not table.num_rows:
            return
        can = replayable(table)
        if self.options.rows:
            yield from _plain(table.filter(pa.array(~can)))
        if not can.all():
            table = table.filter(pa.array(can))
        if table.num_rows:
            yield self._chunks(table)

    def _chunks(self, table: Any) -> Any:
        """Return a row per key."""
        import pyarrow as pa

        table = table.combine_chunks()
        found = self.sensors.of(table)
        # Kafka's clock has whole ms; the nearest is what a log's estimate says.
        t = np.floor(array_of(table["record_ms"]) + 0.5).astype(np.int64)
        own = valid(table["own_user"]) & self.options.own
        pos = np.where(own, array_of(table["seq"]), t) if own.any() else t
        order = grouped(found.sensor, pos[found.index])
        rows, codes = found.index[order], found.sensor[order]
        most = MAX_EVENTS_WITH_ROWS if self.options.rows else MAX_EVENTS
        cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        starts = np.array([s for a, b in pairwise(cuts) for s in range(a, b, most)], np.int64)
        ends = np.append(starts[1:], len(codes))
        by_time = pos is t
        t = t[rows]
        pos = t if by_time else pos[rows]
        files = table["file"].take(pa.array(rows[starts]))
        out = sensor_columns([found.sensors[c] for c in codes[starts]])
        out |= {
            "kind": ["chunk"] * len(starts),
            "first": pos[starts],
            "tie": [file_hash(f or "") for f in files.to_pylist()],
            "n": ends - starts,
            "t": blobs(t, starts, ends),
        }
        amount, op = array_of(table["amount"]), array_of(table["op"], 0)
        taken = emptied(table)
        if taken.any():
            op = np.where(taken, OP_NO_CHECK, op)
        if op.any():
            # Requests hold what was taken back as a negative amount, the kernel as an op.
            amount = np.where(op == OP_UNRECORD, -1.0, 1.0) * amount
        amount = amount[rows]
        out["amount"] = blobs(amount, starts, ends)
        out |= _whos(table, found, rows, codes, starts, t if by_time else None)
        if op.any():
            out["op"] = blobs(op.astype(np.uint8)[rows], starts, ends)
        if own.any():
            out["pos"] = blobs(pos, starts, ends)
        if self.options.rows:
            sorted_rows = table.select(schema.REQUESTS.names).take(pa.array(rows))
            out["rows"] = [
                _serialize(sorted_rows.slice(a, b - a)) for a, b in zip(starts, ends, strict=True)
            ]
        arrays = [
            _as_array(out[f.name], f.type) if f.name in out else pa.nulls(len(starts), f.type)
            for f in PACKED.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PACKED.arrow)


def _whos(table: Any, found: Found, rows: Any, codes: Any, starts: Any, t: Any) -> dict[str, Any]:
    """
    Say who charged each group's events, under which limits, and what the log says of each.

    Args:
        table: the requests.
        found: their sensors.
        rows: row of each event, by group.
        codes: sensor of each event.
        starts: where each group starts in ``rows``.
        t: time of each event where they're in order of it by group; None: look it up.

    Returns:
        Columns who, whos, bound and sums of PACKED.
    """
    who = found.who[rows]
    names = [json.dumps([s["principal"], s["client_id"]]) for s in found.samples]
    out: dict[str, Any] = {}
    order: Any = slice(None)
    cuts, per_row = starts, np.arange(len(starts) + 1)
    if not (np.minimum.reduceat(who, starts) == np.maximum.reduceat(who, starts)).all():
        sizes = np.diff(np.append(starts, len(rows)))
        row = np.repeat(np.arange(len(starts)), sizes)
        combined = row * len(names) + who
        order = np.argsort(combined, kind="stable")
        cuts = np.flatnonzero(np.diff(combined[order], prepend=-1))
        per_row = np.searchsorted(row[order][cuts], np.arange(len(starts) + 1))
        rank = np.empty(len(rows), np.int64)
        rank[order] = np.repeat(np.arange(len(cuts)), np.diff(np.append(cuts, len(rows))))
        ranks = (rank - per_row[row]).astype(np.int32)
        out["who"] = blobs(ranks, starts, np.append(starts[1:], len(rows)))
    of_who = who[order][cuts]
    of_sensor = codes[order][cuts]
    at = [found.limits[c, w] for c, w in zip(of_sensor.tolist(), of_who.tolist(), strict=True)]
    limits = np.stack(at)
    plans = limits.shape[1]
    out["bound"] = blobs(limits.reshape(-1), per_row[:-1] * plans, per_row[1:] * plans)
    out["whos"] = [
        "[" + ",".join(names[w] for w in of_who[a:b]) + "]" for a, b in pairwise(per_row)
    ]
    ends = np.append(cuts[1:], len(rows))
    if t is None:
        t = np.floor(array_of(table["record_ms"]) + 0.5).astype(np.int64)[rows][order]
        first, last = np.minimum.reduceat(t, cuts), np.maximum.reduceat(t, cuts)
    else:
        t = t[order]
        first, last = t[cuts], t[ends - 1]
    requests, none = ends - cuts, np.zeros(len(cuts), np.int64)
    ones = array_of(table["is_request"], True)
    if not ones.all():
        requests = np.add.reduceat(ones.astype(np.int64)[rows][order], cuts)
    throttled, told_ms, most = none, none, none
    told = told_ms_of(table)
    if told.any():
        told = told[rows][order]
        throttled = np.add.reduceat((told > 0).astype(np.int64), cuts)
        told_ms, most = np.add.reduceat(told, cuts), np.maximum.reduceat(told, cuts)
    bytes_ = np.add.reduceat(array_of(table["bytes_charged"], 0)[rows][order], cuts)
    columns = [requests, bytes_, throttled, told_ms, most, first, last]
    sums = np.stack(columns, axis=1).astype(np.int64, copy=False)
    width = sums.shape[1]
    out["sums"] = blobs(sums.reshape(-1), per_row[:-1] * width, per_row[1:] * width)
    return out


def _as_array(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _side(table: Any) -> Iterator[Any]:
    """Hand bad lines and counts on."""
    import pyarrow as pa

    arrays = [
        table[f.name].combine_chunks() if f.name in _SIDE else pa.nulls(len(table), f.type)
        for f in PACKED.arrow
    ]
    yield from pa.Table.from_arrays(arrays, schema=PACKED.arrow).to_batches()


def _plain(table: Any) -> Iterator[Any]:
    """Hand over rows that can't be replayed."""
    import pyarrow as pa

    for at in range(0, table.num_rows, MAX_EVENTS_WITH_ROWS):
        part = table.slice(at, MAX_EVENTS_WITH_ROWS)
        row = {
            "kind": "plain",
            "key": f"{at}",
            "n": part.num_rows,
            "first": 0,
            "tie": file_hash(part["file"][0].as_py() or ""),
            "rows": _serialize(part.select(schema.REQUESTS.names)),
        }
        arrays = [pa.array([row.get(f.name)], f.type) for f in PACKED.arrow]
        yield pa.RecordBatch.from_arrays(arrays, schema=PACKED.arrow)


def _serialize(table: Any) -> bytes:
    """Return a table as an Arrow stream of one compressed batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue())
