"""
Pack charges into few rows before the shuffle: a row per quota-id and piece, its events a blob.

A row per event through Spark's sort costs more than parsing and replaying it. So the worker that
read a piece groups its events by who shares the quota (one stable sort of codes) and hands over
one row per group: times and amounts as binary columns, and, where rows are wanted back, the whole
requests as an Arrow batch. Spark moves and sorts only these rows (DESIGN section 7; lab notes
"pack before the shuffle").
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from headgate.kernel.codes import OP_NO_CHECK, OP_UNRECORD
from headgate.pipeline import schema
from headgate.pipeline.filesplits import Split
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.worker import (
    EmitRequests,
    ReadPlan,
    completed,
    pa_numbers,
    pa_table,
    read_row_group,
    stat_of,
)

# Quota types whose decisions a log holds enough for; a journal knows thread time as well. (What
# mutations are told depends on when the answer is ready, which neither knows.)
REPLAYABLE_LOG: Final = ("producer_byte_rate", "consumer_byte_rate")
REPLAYABLE_JOURNAL: Final = (*REPLAYABLE_LOG, "request_percentage")
# Events of one row: 16 MB of blobs, far from a blob's 2 GiB. With whole requests, about as much.
MAX_EVENTS: Final = 1_000_000
MAX_EVENTS_WITH_ROWS: Final = 100_000
# Distinct charges whose sensors are remembered, about 500 bytes each.
MAX_KNOWN: Final = 200_000
# Events gathered before they're grouped, so that small groups of neighbouring pieces join.
GATHER_EVENTS: Final = 400_000
# Without strings per event more fits: 3 million are about 300 MB.
GATHER_TABLE_EVENTS: Final = 3_000_000
DEFAULT_SAMPLES: Final = 11
DEFAULT_WINDOW_MS: Final = 1000

PACKED: Final = schema.Table(
    "packed",
    "One row per (who shares a quota, piece), or a bad line or count (`kind`).",
    tuple(
        schema.Column(*c)
        for c in (
            ("kind", "string", "chunk, plain (rows that can't be replayed), bad or stat"),
            ("key", "string", "quota type, worker or broker, and tags: one sensor"),
            ("quota_type", "string", "quota type"),
            ("quota_user", "string", "user tag, raw"),
            ("quota_client_id", "string", "client-id tag, raw"),
            ("broker_id", "int", "broker"),
            ("worker_id", "string", "gateway worker (journals)"),
            ("num_samples", "int", "quota.window.num"),
            ("window_ms", "int", "a window's length, ms"),
            ("first", "long", "order of the first event: its time, or a journal's seq"),
            ("tie", "long", "order of chunks with the same first: hash of the file"),
            ("n", "int", "events"),
            ("t", "binary", "int64 ms per event"),
            ("amount", "binary", "float64 per event"),
            ("op", "binary", "uint8 per event; null = all charged and checked"),
            ("pos", "binary", "int64 order per event; null = by time"),
            ("rows", "binary", "the requests themselves, an Arrow batch; null if not wanted"),
            ("who", "binary", "int32 per event: which of whos; null = the only one"),
            ("whos", "string", "JSON list of [principal, client_id]"),
            ("bound", "binary", "float64 per who and plan: the limit; NaN = not its sensor"),
            ("sums", "binary", "int64 per one of whos: what LOGGED names"),
            ("file", "string", "bad, stat: file"),
            ("offset", "long", "bad: byte offset"),
            ("reason", "string", "bad: why"),
            ("line", "string", "bad: its beginning"),
            ("lines", "long", "stat: lines read"),
            ("input_bytes", "long", "stat: bytes read"),
        )
    ),
)
# What the log says of each (principal, client-id) of a row.
LOGGED: Final = ("requests", "bytes", "throttled", "told_ms", "max_told_ms", "first_ms", "last_ms")
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
class PackOptions:
    """
    What a replay needs packed.

    Args:
        plans: quotas to replay under; one for `replay`, several for `what-if`.
        rows: keep the requests, to hand them back with the decision (one plan only).
        num_samples: quota.window.num, for logs.
        window_ms: quota.window.size.seconds x 1000, for logs.
        own: a journal's charges keep the limits that were in force, and their exact order.
    """

    plans: tuple[Quotas, ...]
    rows: bool = True
    num_samples: int = DEFAULT_SAMPLES
    window_ms: int = DEFAULT_WINDOW_MS
    own: bool = True


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
    """Groups events by key; each distinct charge is resolved once per group."""

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self.resolvers = [q.resolver() for q in options.plans]
        # Moments at which any plan's table changes; events between two resolve alike.
        starts = sorted({s for q in options.plans for s in q.starts_ms if s > float("-inf")})
        self.starts = np.array(starts, np.float64)
        self._known = _known_under(hashlib.sha256(pickle.dumps(options)).digest())

    def pack(self, tables: list[Any]) -> Iterator[Any]:
        """Yield the PACKED rows of some tables of requests."""
        import pyarrow as pa

        table = pa.concat_tables([completed(t) for t in tables]).unify_dictionaries()
        is_row = _is(table["kind"], ("request",))
        if not is_row.all():
            yield from _side(table.filter(pa.array(~is_row)))
            table = table.filter(pa.array(is_row))
        if not table.num_rows:
            return
        can = _replayable(table)
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
        found = self._sensors(table)
        # Kafka's clock has whole ms; the nearest is what a log's estimate says.
        t = np.floor(_array(table["record_ms"]) + 0.5).astype(np.int64)
        own = _valid(table["own_user"]) & self.options.own
        pos = np.where(own, _array(table["seq"]), t) if own.any() else t
        order = _grouped(found.sensor, pos[found.index])
        rows, codes = found.index[order], found.sensor[order]
        most = MAX_EVENTS_WITH_ROWS if self.options.rows else MAX_EVENTS
        cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        starts = np.array([s for a, b in pairwise(cuts) for s in range(a, b, most)], np.int64)
        ends = np.append(starts[1:], len(codes))
        by_time = pos is t
        t = t[rows]
        pos = t if by_time else pos[rows]
        files = table["file"].take(pa.array(rows[starts]))
        out = _sensor_columns([found.sensors[c] for c in codes[starts]])
        out |= {
            "kind": ["chunk"] * len(starts),
            "first": pos[starts],
            "tie": [file_hash(f or "") for f in files.to_pylist()],
            "n": ends - starts,
            "t": _blobs(t, starts, ends),
        }
        amount, op = _array(table["amount"]), _array(table["op"], 0)
        taken = emptied(table)
        if taken.any():
            op = np.where(taken, OP_NO_CHECK, op)
        if op.any():
            # Requests hold what was taken back as a negative amount, the kernel as an op.
            amount = np.where(op == OP_UNRECORD, -1.0, 1.0) * amount
        amount = amount[rows]
        out["amount"] = _blobs(amount, starts, ends)
        out |= _whos(table, found, rows, codes, starts, t if by_time else None)
        if op.any():
            out["op"] = _blobs(op.astype(np.uint8)[rows], starts, ends)
        if own.any():
            out["pos"] = _blobs(pos, starts, ends)
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

    def _sensors(self, table: Any) -> _Found:
        """Say which sensors each charge goes to."""
        import pyarrow as pa

        combined = np.zeros(table.num_rows, np.int64)
        for name in _DISTINCT:
            codes_of, names = _codes(table[name])
            if len(names) == 1:
                continue
            combined = combined * len(names) + codes_of
            if combined.max() > 1 << 20:
                combined = _dense(combined)[1]
        if len(self.starts):
            epoch = np.searchsorted(self.starts, _array(table["record_ms"]), side="right")
            combined = combined * (len(self.starts) + 1) + epoch
        first, who = _dense(combined)
        samples = table.select([*_DISTINCT, "record_ms"]).take(pa.array(first)).to_pylist()
        codes: dict[tuple[Any, ...], int] = {}
        limits: dict[tuple[int, int], Any] = {}
        each: list[list[int]] = []
        for number, sample in enumerate(samples):
            mine = []
            for sensor, limit in self._resolved(sample):
                code = codes.setdefault(sensor, len(codes))
                limits[code, number] = limit
                mine.append(code)
            each.append(mine)
        most = max(map(len, each))
        if most == 1:
            index = np.arange(table.num_rows)
            sensor_of = np.array([m[0] for m in each])[who]
            return _Found(index, sensor_of, who, list(codes), samples, limits)
        parts, sensors = [], []
        for level in range(most):
            of = np.array([m[level] if len(m) > level else -1 for m in each])[who]
            here = np.flatnonzero(of >= 0)
            parts.append(here)
            sensors.append(of[here])
        index = np.concatenate(parts)
        in_order = np.argsort(index, kind="stable")
        sensor_of = np.concatenate(sensors)[in_order]
        return _Found(index[in_order], sensor_of, who, list(codes), samples, limits)

    def _resolved(self, sample: dict[str, Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """Return ``_resolve``, remembered where the quotas don't change in time."""
        if len(self.starts):
            return list(self._resolve(sample))
        key = tuple(sample[n] for n in _DISTINCT)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = list(self._resolve(sample))
        return found

    def _resolve(self, sample: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Yield the sensors of one distinct charge, and the limit there under each plan."""
        quota_type, broker = sample["quota_type"], sample["broker_id"]
        windows = (
            sample["num_samples"] or self.options.num_samples,
            sample["window_ms"] or self.options.window_ms,
        )
        plans = len(self.resolvers)
        if self.options.own and sample["own_user"] is not None:
            tags = (sample["own_user"], sample["own_client_id"] or "")
            sensor = (quota_type, sample["worker_id"], broker, *tags, *windows)
            yield sensor, np.full(plans, sample["own_quota"], np.float64)
            return
        by_tags: dict[tuple[str, str], Any] = {}
        user, client = sample["principal"] or "", sample["client_id"] or ""
        for i, resolve in enumerate(self.resolvers):
            found = resolve(user, client, quota_type, sample["record_ms"])
            tags = (found.quota_user, found.quota_client_id)
            limits = by_tags.setdefault(tags, np.full(plans, np.nan, np.float64))
            limits[i] = np.inf if found.quota is None else found.quota
        for tags, limits in by_tags.items():
            yield (quota_type, None, broker, *tags, *windows), limits


@functools.lru_cache(maxsize=2)
def _known_under(options: bytes) -> dict[tuple[Any, ...], list[tuple[tuple[Any, ...], Any]]]:
    """Return what this worker has resolved under the same options, in earlier tasks too."""
    return {}


@dataclass(frozen=True)
class _Found:
    """
    Which sensors charges go to; a charge has several only where plans disagree on who shares.

    Attributes:
        index: row of the charge, ascending; a row occurs once per sensor it goes to.
        sensor: code of the sensor, beside ``index``.
        who: by row, number of the distinct charge it's one of.
        sensors: by code, what ``_SENSOR`` names.
        samples: by number, the distinct charge.
        limits: by (sensor code, number), the limit under each plan; NaN = not its sensor.
    """

    index: Any
    sensor: Any
    who: Any
    sensors: list[tuple[Any, ...]]
    samples: list[dict[str, Any]]
    limits: dict[tuple[int, int], Any]


_DISTINCT: Final = (
    "quota_type",
    "broker_id",
    "principal",
    "client_id",
    "worker_id",
    "own_user",
    "own_client_id",
    "own_quota",
    "num_samples",
    "window_ms",
)
_SENSOR: Final = (
    "quota_type",
    "worker_id",
    "broker_id",
    "quota_user",
    "quota_client_id",
    "num_samples",
    "window_ms",
)


def _sensor_columns(sensors: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the columns of a list of sensors, with the text that names each one."""
    out: dict[str, Any] = dict(zip(_SENSOR, zip(*sensors, strict=True), strict=True))
    out["key"] = [_sensor_text(sensor) for sensor in sensors]
    return out


@functools.lru_cache(maxsize=1 << 17)
def _sensor_text(sensor: tuple[Any, ...]) -> str:
    return "\x1f".join(map(str, sensor))


def _whos(table: Any, found: _Found, rows: Any, codes: Any, starts: Any, t: Any) -> dict[str, Any]:
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
        out["who"] = _blobs(ranks, starts, np.append(starts[1:], len(rows)))
    of_who = who[order][cuts]
    of_sensor = codes[order][cuts]
    at = [found.limits[c, w] for c, w in zip(of_sensor.tolist(), of_who.tolist(), strict=True)]
    limits = np.stack(at)
    plans = limits.shape[1]
    out["bound"] = _blobs(limits.reshape(-1), per_row[:-1] * plans, per_row[1:] * plans)
    out["whos"] = [
        "[" + ",".join(names[w] for w in of_who[a:b]) + "]" for a, b in pairwise(per_row)
    ]
    ends = np.append(cuts[1:], len(rows))
    if t is None:
        t = np.floor(_array(table["record_ms"]) + 0.5).astype(np.int64)[rows][order]
        first, last = np.minimum.reduceat(t, cuts), np.maximum.reduceat(t, cuts)
    else:
        t = t[order]
        first, last = t[cuts], t[ends - 1]
    requests, none = ends - cuts, np.zeros(len(cuts), np.int64)
    ones = _array(table["is_request"], True)
    if not ones.all():
        requests = np.add.reduceat(ones.astype(np.int64)[rows][order], cuts)
    throttled, told_ms, most = none, none, none
    told = _told(table)
    if told.any():
        told = told[rows][order]
        throttled = np.add.reduceat((told > 0).astype(np.int64), cuts)
        told_ms, most = np.add.reduceat(told, cuts), np.maximum.reduceat(told, cuts)
    bytes_ = np.add.reduceat(_array(table["bytes_charged"], 0)[rows][order], cuts)
    columns = [requests, bytes_, throttled, told_ms, most, first, last]
    sums = np.stack(columns, axis=1).astype(np.int64, copy=False)
    width = sums.shape[1]
    out["sums"] = _blobs(sums.reshape(-1), per_row[:-1] * width, per_row[1:] * width)
    return out


def emptied(table: Any) -> Any:
    """
    Say which rows are fetches that a broker throttled, as a NumPy array.

    Their size was charged and taken back at once, and isn't logged: the sensor saw two events
    whose sum is nothing, which still open and touch samples.
    """
    exact = _array(table["bytes_exact"], True)
    if exact.all():
        return ~exact
    told = ~exact & (_array(table["throttle_time_ms"], 0) > 0)
    fetch = _is(table["quota_type"], ("consumer_byte_rate",))
    return told & fetch & _is(table["source"], ("log",))


def _replayable(table: Any) -> Any:
    """Say which charges a sensor is fed with, as a NumPy array."""
    charged = _array(table["is_charged"], False)
    of_log = _is(table["quota_type"], REPLAYABLE_LOG)
    journal = _is(table["source"], ("journal",))
    if not journal.any():
        return charged & of_log
    # Where a journal says that nothing was charged, no sensor saw it.
    of_journal = _is(table["quota_type"], REPLAYABLE_JOURNAL) & _valid(table["own_user"])
    return charged & np.where(journal, of_journal, of_log)


def _codes(column: Any) -> tuple[Any, list[Any]]:
    """Return (code per row, what each code stands for); None is a value like others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), [None]
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    names = column.dictionary.to_pylist()
    if not column.indices.null_count:
        return column.indices.to_numpy(zero_copy_only=False), names
    codes = pc.fill_null(column.indices, len(names)).to_numpy(zero_copy_only=False)
    return codes, [*names, None]


def _is(column: Any, values: tuple[str, ...]) -> Any:
    """Say which rows hold one of ``values``, as a NumPy array."""
    codes, names = _codes(column)
    hits = np.array([name in values for name in names])
    if hits.all() or not hits.any():
        return np.full(len(codes), bool(hits.all()))
    return hits[codes]


def _told(table: Any) -> Any:
    """Return the throttle time of each charge's own quota, as logged or journalled."""
    import pyarrow.compute as pc

    if table["decided_throttle_time_ms"].null_count == table.num_rows:
        return _array(table["throttle_time_ms"], 0).astype(np.int64, copy=False)
    told = pc.coalesce(table["decided_throttle_time_ms"], table["throttle_time_ms"])
    return _array(told, 0).astype(np.int64)


def _dense(codes: Any) -> tuple[Any, Any]:
    """Return (first index of each distinct code, dense code per element), cheaply where small."""
    top = int(codes.max()) + 1
    if top > 1 << 24:
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return first, inverse.astype(np.int64)
    first = np.full(top, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    dense = np.empty(top, np.int64)
    dense[present] = np.arange(len(present))
    return first[present], dense[codes]


def _grouped(codes: Any, pos: Any) -> Any:
    """Return the stable order by (code, pos); cheap where a group's events are nearly in order."""
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes
    order = np.argsort(small, kind="stable")
    sorted_codes, sorted_pos = codes[order], pos[order]
    wrong = (sorted_pos[1:] < sorted_pos[:-1]) & (sorted_codes[1:] == sorted_codes[:-1])
    if not wrong.any():
        return order
    return order[np.lexsort((sorted_pos, sorted_codes))]


def _blobs(values: Any, starts: Any, ends: Any) -> Any:
    """Cut an array into one binary per group, without copying."""
    import pyarrow as pa

    size = values.dtype.itemsize
    offsets = (np.append(starts, ends[-1]) * size).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    large = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts), buffers)
    return large.cast(pa.binary())


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


def _array(column: Any, null: Any = None) -> Any:
    """Return a column as a NumPy array; nulls become ``null``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if null is not None and column.null_count == len(column):
        return np.full(len(column), null)
    if null is not None and column.null_count:
        column = pc.fill_null(column, null)
    return column.to_numpy(zero_copy_only=False)


def _valid(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.is_valid(column.combine_chunks()).to_numpy(zero_copy_only=False)


def file_hash(path: str) -> int:
    """Return a number for a file's name, the same everywhere."""
    return zlib.crc32(path.encode())
