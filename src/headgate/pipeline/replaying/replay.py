"""
Replay charges through Kafka's quota arithmetic: packed rows in, decisions out.

Spark brings the bundles of a key together, in order; ``ReplayPacked`` views each as arrays, puts
events in order where bundles overlap, and calls the kernel once per bundle, its state carried on.
Memory stays constant however skewed the keys are: a bundle holds at most what a worker gathers, and
only bundles that overlap in time are held back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.decisions import SUMS, RowSink, SumSink
from headgate.pipeline.replaying.packed_format import (
    CARRIED,
    GROUP_COLUMNS,
    ORDER,
    PACKED,
    GroupKind,
    PackOptions,
)
from headgate.pipeline.replaying.packer import NEEDED, PackLogs, PackRequests
from headgate.pipeline.replaying.sensor_group import SensorGroup
from headgate.pipeline.table import quoted, sums
from headgate.pipeline.workers.emit import refuse_again
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

# Columns of a packed row that stay where they are, as buffers.
_BLOBS: Final = ("t", "amount", "op", "pos", "head", "heads", "terms", "rows")
_SCALARS: Final = tuple(n for n in PACKED.names if n not in _BLOBS)


@dataclass(frozen=True)
class ReplayPacked:
    """Replay PACKED rows, sorted by ORDER. A ``mapInArrow`` function."""

    options: PackOptions

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield REPLAY rows, or SUMS rows where the options want no rows."""
        plans = len(self.options.plans)
        sink = RowSink(self.options) if self.options.rows else SumSink(plans)
        key, sensors = "", None
        seen: set[str] = set()
        for row in _rows(batches):
            if row["kind"] == "plain":
                yield from sink.plain(row)
                continue
            if sensors is None or row["key"] != key:
                yield from self._closed(sink, sensors)
                key, sensors = row["key"], _sensors_of(row, self.options)
                refuse_again(key, seen)
            events = sink.events(row, sensors)
            for ready in sensors.feed(
                events, row["first"], row["last"], (row["since"], row["tie"])
            ):
                yield from sink.decide(sensors, ready)
        yield from self._closed(sink, sensors)
        yield from sink.finish()

    @staticmethod
    def _closed(sink: RowSink | SumSink, sensors: SensorGroup | None) -> Iterator[Any]:
        if sensors is None:
            return
        for ready in sensors.rest():
            yield from sink.decide(sensors, ready)
        yield from sink.close(sensors)


def _sensors_of(row: dict[str, Any], options: PackOptions) -> SensorGroup:
    """Return the group of a packed row's sensors, which has no events yet."""
    kind, plans = GroupKind(*(row[name] for name in GROUP_COLUMNS)), len(options.plans)
    if kind.quota_type.endswith(":shares") and kind.rule is None:
        from headgate.pipeline.replaying.sensor_group import SharesGroup

        capacity = dict(options.capacities)[kind.quota_type.partition(":")[0]]
        return SharesGroup(kind, plans, capacity)
    return SensorGroup(kind, plans)


def _rows(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunk and plain rows of batches, blobs as buffers (None where null)."""
    for batch in batches:
        scalars = batch.select(list(_SCALARS)).to_pylist()
        columns = [(name, batch[name]) for name in _BLOBS]
        for i, row in enumerate(scalars):
            if row["kind"] in ("chunk", "plain"):
                yield row | {name: column[i].as_buffer() for name, column in columns}


def preload() -> None:
    """Load the kernels, and all else that replaying needs, by replaying one request."""
    request = {
        "record_ms": 0.0,
        "principal": "",
        "client_id": "",
        "bytes_charged": 1,
        "throttle_time_ms": 0,
        "quota_type": "producer_byte_rate",
        "amount": 1.0,
        "is_charged": True,
        "is_request": True,
        "source": "log",
    }
    rows = [pa.array([request.get(f.name)], f.type) for f in schema.REQUESTS.arrow]
    batch = pa.RecordBatch.from_arrays(rows, schema=schema.REQUESTS.arrow)
    options = PackOptions((Quotas.of(QuotaTable()),))
    for _ in ReplayPacked(options)(PackRequests(options)(iter([batch]))):
        pass


def pack_logs(spark: SparkSession, read: ReadOptions, options: PackOptions) -> DataFrame:
    """Return PACKED rows of logs and journals: parsed and packed in one pass of the workers."""
    from headgate.pipeline.frames import spread

    return spread(spark, read.pieces).mapInArrow(PackLogs(read, options), PACKED.struct)


def pack_requests(
    options: PackOptions, others: Sequence[str] = ()
) -> Callable[[DataFrame], DataFrame]:
    """
    Pack a frame of requests: requests -> PACKED.

    Of the frame's columns those of REQUESTS that a replay needs are taken, and ``others``. Every
    other stays in the JVM, or in the table's file.

    Args:
        options: what to pack.
        others: names of further columns that are handed back with each row's decision.
    """
    wanted = schema.REQUESTS.names if options.rows else NEEDED

    def transform(requests: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        have = set(requests.columns)
        cells = [F.col(name) for name in wanted if name in have]
        cells += [F.col(quoted(n)).alias(f"{CARRIED}{i}") for i, n in enumerate(others)]
        return requests.select(*cells).mapInArrow(PackRequests(options), PACKED.struct)

    return transform


def together(packed: DataFrame) -> DataFrame:
    """Bring each sensor's packed rows together, in their order: PACKED -> PACKED."""
    from pyspark.sql import functions as F

    from headgate.pipeline import frames

    rows = packed.where(F.col("kind").isin("chunk", "plain"))
    return frames.together(rows, ORDER[:1], ORDER[1:])


def replay_packed(
    options: PackOptions, others: Sequence[StructField] = ()
) -> Callable[[DataFrame], DataFrame]:
    """
    Bring each sensor's packed rows together and replay them: PACKED -> REPLAY or SUMS.

    Args:
        options: what was packed.
        others: further columns of the requests, which follow those of REPLAY.
    """

    def transform(packed: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        if not options.rows:
            return together(packed).mapInArrow(ReplayPacked(options), SUMS.struct)
        carried = [
            StructField(f"{CARRIED}{i}", field.dataType, True) for i, field in enumerate(others)
        ]
        struct = StructType([*schema.REPLAY.struct.fields, *carried])
        replayed = together(packed).mapInArrow(ReplayPacked(options), struct)
        if not others:
            return replayed
        names = [
            F.col(quoted(at.name)).alias(field.name, metadata=field.metadata or {})
            for at, field in zip(carried, others, strict=True)
        ]
        return replayed.select(*schema.REPLAY.names, *names)

    return transform


def agreement(replayed: DataFrame) -> list[dict[str, Any]]:
    """
    Compare replayed with logged throttle times, per quota type: REPLAY -> one row per type.

    Returns:
        quota_type, replayable requests, equal_decisions (both throttled, or both not),
        both_throttled, exact and within_1_ms (of those), logged_ms, replayed_ms (throttled).
    """
    from pyspark.sql import functions as F

    logged, ours = F.col("logged_throttle_time_ms"), F.col("replayed_throttle_time_ms")
    both = (logged > 0) & (ours > 0)
    counted = {
        "requests": F.lit(True),
        "equal_decisions": (logged > 0) == (ours > 0),
        "both_throttled": both,
        "exact": both & (logged == ours),
        "within_1_ms": both & (F.abs(logged - ours) <= 1),
    }
    counts = {name: F.when(condition, 1).otherwise(0) for name, condition in counted.items()}
    of_type = replayed.where("replayable").groupBy("quota_type")
    found = of_type.agg(*sums(**counts, logged_ms=logged, replayed_ms=ours))
    return [row.asDict() for row in found.orderBy("quota_type").collect()]
