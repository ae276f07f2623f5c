"""
Make usage by second, hour and day in the workers, with Arrow.

The first stage resolves and adds up what each of its tasks has read, and divides it by quota-id, so
that a task of the second stage has all of a quota-id's seconds, and with them its hours and days.
``usage`` has Spark's SQL move the parts; ``ReadUsage`` and ``WriteUsage`` are two stages of an
``exchange``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline import schema
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import Table, gathered, summed
from headgate.pipeline.tables.worker_files import GROUP_ROWS, Part
from headgate.pipeline.workers import activity_blobs
from headgate.pipeline.workers.emit import EmitActivity
from headgate.pipeline.workers.exchange import Key, Left, part_of
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.pipeline.workers.resolve import resolved

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
PERCENTILES: Final = (("p50_per_s", 0.5), ("p95_per_s", 0.95), ("p99_per_s", 0.99))
USAGE_KEYS: Final = ("quota_type", "quota_id", "quota_user", "quota_client_id", "broker_id")
TIME_ONLY: Final[dict[str, Any]] = {
    **dict.fromkeys(("requests", "bytes", "bytes_estimated", "amount", "handler_ns"), 0),
    **dict.fromkeys(("throttle_time_ms", "throttled_requests", "max_throttle_time_ms"), 0),
    "quota_type": "request_percentage",
    **dict.fromkeys(("quota_id", "quota_user", "quota_client_id", "quota")),
}
"""Columns of the row that charges a request's thread time beside its bytes."""
TOP: Final = 20
"""Quota-ids in the closing table."""
BUSIEST: Final = {
    "requests": ("requests", "sum"),
    "bytes": ("bytes", "sum"),
    "peak": ("amount", "max"),
    "throttled": ("throttled_requests", "sum"),
    "throttle_ms": ("throttle_time_ms", "sum"),
    "quota": ("quota", "max"),
    "source": ("quota_source", "max"),
}
"""The closing table's columns: each one's column of ``usage``, and how it is added up."""
# Rows gathered before they're added up and handed over, about 100 bytes each.
_MOST_ROWS: Final = 1_000_000
_PERIODS_MS: Final = {schema.USAGE_HOUR.name: HOUR_MS, schema.USAGE_DAY.name: DAY_MS}
_STRIDE: Final = 31
"""Factor of the broker's id in a part's number, so that (broker, day) pairs seldom collide."""
_NAMES: Final = (*USAGE_KEYS, "second_ms")
_ADDED: Final = (
    "requests",
    "bytes",
    "bytes_estimated",
    "amount",
    "request_ns",
    "handler_ns",
    "throttle_time_ms",
    "throttled_requests",
)
_LARGEST: Final = ("max_throttle_time_ms", "quota", "quota_source")


@dataclass(frozen=True)
class ReadUsage:
    """
    The first stage (``exchange.Reading``): sums by quota-id, broker and second.

    Args:
        read: what to read.
        quotas: who shares what.
        parts: into how many parts the answer goes.
    """

    read: ReadOptions
    quotas: Quotas
    parts: int

    def emit(self, numbers: Iterator[int]) -> Iterator[Any]:
        """Read pieces."""
        return EmitActivity(self.read).read(self.read.pieces[n] for n in numbers)

    def packed(self, batches: Iterator[Any]) -> Iterator[tuple[Key, Any]]:
        """Yield a blob of sums per part."""
        for activity in together(batches):
            for part, blob in blobs(activity, self.quotas, self.parts):
                yield (part,), blob


def together(batches: Iterator[Any]) -> Iterator[Any]:
    """Join ACTIVITY's columns of some batches to tables that are worth adding up."""
    rows = (batch.select(ACTIVITY.names).cast(ACTIVITY.arrow) for batch in batches)
    return gathered(rows, _MOST_ROWS)


def blobs(
    activity: Any, quotas: Quotas, parts: int, *, by_day: bool = False
) -> Iterator[tuple[int, bytes]]:
    """
    Yield what is charged, added up and packed, by part of the answer.

    Args:
        activity: an Arrow table of ACTIVITY.
        quotas: who shares what.
        parts: into how many parts the answer goes.
        by_day: a part has all of a quota-id's seconds at a broker on a day; else all of a
            quota-id's.
    """
    sums = charged(activity, quotas)
    ids = sums["quota_id"].combine_chunks().dictionary_encode()
    part_of_id = np.array([part_of(i, parts) for i in ids.dictionary.to_pylist()], int)
    part = part_of_id[ids.indices.to_numpy()]
    if by_day:
        broker = sums["broker_id"].fill_null(-1).to_numpy().astype(np.int64)
        part = (part + broker * _STRIDE + sums["second_ms"].to_numpy() // DAY_MS) % parts
    for number in np.unique(part).tolist():
        yield number, activity_blobs.written(sums.filter(pa.array(part == number)))


def rows_of(tables: Sequence[Any], table: Table) -> Any:
    """
    Return a part's rows of one table.

    Args:
        tables: what its blobs hold.
        table: USAGE, USAGE_HOUR or USAGE_DAY.
    """
    sums = _added(pa.concat_tables(tables, promote_options="default"), _NAMES)
    return rolled(usage_of(sums), table)


@dataclass(frozen=True)
class WriteUsage:
    """
    The second stage: write a part of the tables; hand over the totals and the busiest.

    Args:
        out: folder of the tables.
    """

    out: str

    def __call__(self, records: Iterator[tuple[Key, Any]]) -> Left:
        """Add up a part's blobs."""
        left = Left()
        tables = [pa.ipc.open_stream(blob).read_all() for _, blob in records]
        if not tables:
            return left
        used = rows_of(tables, schema.USAGE)
        for table in (schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY):
            part = Part(table, self.out)
            for batch in rolled(used, table).to_batches(max_chunksize=GROUP_ROWS):
                part.add(batch)
            left.close(part, table)
        totals = ("requests", "bytes", "throttle_time_ms")
        left.count(**{n: pc.sum(used[n]).as_py() or 0 for n in totals})
        left.found = busiest(used)
        return left


def charged(activity: Any, quotas: Quotas) -> Any:
    """
    Resolve and add up what is charged.

    Args:
        activity: an Arrow table of ACTIVITY.
        quotas: who shares what.

    Returns:
        A row per quota-id, broker and second; ``usage_of`` finishes it.
    """
    activity = activity.filter(activity["is_charged"])
    is_time = pc.equal(activity["quota_type"], "request_percentage")
    # Thread time is charged to the request quota whatever else a request is charged to.
    others = activity.filter(pc.and_(pc.invert(is_time), pc.greater(activity["request_ns"], 0)))
    n = others.num_rows
    for at, f in enumerate(ACTIVITY.arrow):
        if f.name in TIME_ONLY:
            value = pa.scalar(TIME_ONLY[f.name], f.type)
            others = others.set_column(at, f, pa.repeat(value, n))
    rows = resolved(pa.concat_tables([activity, others]), quotas.resolver(), "second_ms")
    return _added(rows, _NAMES)


def _added(rows: Any, keys: tuple[str, ...]) -> Any:
    """Add up sums with the same keys; the columns keep their names."""
    missing = [n for n in (*keys, *_ADDED, *_LARGEST) if n not in rows.column_names]
    for name in missing:  # a blob leaves columns out that hold nothing
        rows = rows.append_column(name, pa.nulls(len(rows), _type_of(name)))
    return summed(rows, keys, _ADDED, _LARGEST)


def _type_of(name: str) -> Any:
    arrow = ACTIVITY.arrow
    return arrow.field(name).type if name in arrow.names else schema.USAGE.arrow.field(name).type


def usage_of(sums: Any) -> Any:
    """Return an Arrow table of USAGE from what ``charged`` gives, added up."""
    is_time = pc.equal(sums["quota_type"], "request_percentage")
    thread_time = pc.divide(pc.cast(sums["request_ns"], pa.float64()), 1e7)
    made = {
        # Percent x seconds of one thread: 1e7 ns are one.
        "amount": pc.if_else(is_time, thread_time, sums["amount"]),
        "handler_ms": pc.divide(pc.cast(sums["handler_ns"], pa.float64()), 1e6),
    }
    same = {n: sums[n] for n in schema.USAGE.names if n not in made}
    return schema.USAGE.table(len(sums), same | made)


def rolled(used: Any, table: Table) -> Any:
    """
    Sum usage up by hour or day, with peaks, and percentiles over the seconds that have requests.

    Args:
        used: an Arrow table of USAGE.
        table: USAGE_HOUR or USAGE_DAY; USAGE gives what was given.
    """
    period_ms = _PERIODS_MS.get(table.name)
    if period_ms is None:
        return used
    second = used["second_ms"].to_numpy()
    rows = used.append_column("period_ms", pa.array(second // period_ms * period_ms))
    exact = {"amount": 1e7, "handler_ms": 1e6}
    for name, unit in exact.items():
        whole = pa.array(_whole(rows[name], unit), from_pandas=True)
        rows = rows.append_column(f"{name}_whole", whole.cast(pa.decimal128(38, 0)))
    summed = ("requests", "bytes", "throttle_time_ms", "throttled_requests")
    asked = [(n, "sum") for n in (*summed, *(f"{n}_whole" for n in exact))]
    asked += [("second_ms", "count"), ("amount", "max"), ("quota", "max"), ("amount", "list")]
    sums = rows.group_by([*USAGE_KEYS, "period_ms"], use_threads=False).aggregate(asked)
    made = {n: sums[f"{n}_sum"] for n in summed}
    for name, unit in exact.items():
        values = sums[f"{name}_whole_sum"].to_pylist()
        made[name] = pa.array([None if v is None else float(v) / unit for v in values])
    made["active_seconds"] = sums["second_ms_count"]
    made["peak_per_s"] = sums["amount_max"]
    made["quota"] = sums["quota_max"]
    made |= _percentiles(sums["amount_list"].combine_chunks())
    same = {n: sums[n] for n in table.names if n not in made}
    return table.table(len(sums), same | made)


def _whole(column: Any, unit: float) -> Any:
    """Return doubles as whole numbers of units, halves rounded up; NaN where null."""
    scaled = column.to_numpy() * unit
    whole = np.rint(scaled)
    return np.where(scaled - whole == 0.5, whole + 1, whole)


def _percentiles(amounts: Any) -> dict[str, Any]:
    """Return exact percentiles of lists of doubles, interpolated as Spark's are."""
    values = amounts.flatten().to_numpy(zero_copy_only=False)
    starts = amounts.offsets.to_numpy()[:-1] - amounts.offsets[0].as_py()
    sizes = amounts.value_lengths().to_numpy()
    group = np.repeat(np.arange(len(sizes)), sizes)
    values = values[np.lexsort((values, group))]  # nulls, as NaN, come last
    sizes = sizes - np.bincount(group, np.isnan(values), len(sizes)).astype(int)
    found = {}
    for name, p in PERCENTILES:
        at = np.maximum(sizes - 1, 0) * p
        low, high = np.floor(at), np.ceil(at)
        a, b = values[starts + low.astype(int)], values[starts + high.astype(int)]
        between = np.where(a == b, a, (high - at) * a + (at - low) * b)
        found[name] = pa.array(between, mask=sizes == 0)
    return found


def busiest(used: Any) -> list[dict[str, Any]]:
    """Return a part's busiest quota-ids for the closing table: at most TOP rows."""
    asked = list(BUSIEST.values())
    sums = used.group_by(["quota_type", "quota_id"], use_threads=False).aggregate(asked)
    rows = sums.rename_columns(["quota_type", "quota_id", *BUSIEST])
    return first_of(rows.filter(rows["requests"].to_numpy() > 0).to_pylist())


def first_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the busiest of some rows, in the closing table's order."""
    return sorted(
        rows, key=lambda r: (-r["bytes"], -r["requests"], r["quota_type"], r["quota_id"])
    )[:TOP]
