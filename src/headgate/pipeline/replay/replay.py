"""
Replay charges through Kafka's quota arithmetic: packed rows in, decisions out.

Spark brings the bundles of a key together, in order; ``ReplayPacked`` views each as arrays, puts
events in order where bundles overlap, and calls the kernel once per bundle, its state carried on.
Memory stays constant however skewed the keys are: a bundle is at most what a worker gathers, and
what is held back is as many as overlap in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replay.decisions import RowSink
from headgate.pipeline.replay.packed_format import ORDER, PACKED, PackOptions
from headgate.pipeline.replay.packer import PackLogs, PackRequests
from headgate.pipeline.replay.sensor_group import GroupKind, SensorGroup, group_kind
from headgate.pipeline.replay.sums import SUMS, SumSink
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.workers.log_reader import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        sensors: SensorGroup | None = None
        for row in _rows(batches):
            if row["kind"] == "plain":
                yield from sink.plain(row)
                continue
            if sensors is None or row["key"] != sensors.kind.key:
                yield from self._closed(sink, sensors)
                sensors = _sensors_of(group_kind(row), self.options)
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


def _sensors_of(kind: GroupKind, options: PackOptions) -> SensorGroup:
    """Return an empty group of sensors of a kind."""
    plans = len(options.plans)
    if kind.quota_type.endswith(":shares") and kind.rule is None:
        from headgate.pipeline.replay.shares_group import SharesGroup

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


def pack_logs(
    spark: SparkSession,
    pieces: Sequence[FilePiece],
    options: PackOptions,
    *,
    time_zone: str = "UTC",
    default_partitions: int = 1,
) -> DataFrame:
    """Return PACKED rows of logs and journals: parsed and packed in one pass of the workers."""
    from headgate.pipeline.frames import spread

    plan = ReadOptions(tuple(pieces), time_zone, default_partitions=default_partitions)
    task = PackLogs(plan, options)
    return spread(spark, pieces).mapInArrow(task, PACKED.struct)


def pack_requests(options: PackOptions) -> Callable[[DataFrame], DataFrame]:
    """Pack a frame of requests: requests -> PACKED."""
    return lambda requests: requests.mapInArrow(PackRequests(options), PACKED.struct)


def together(packed: DataFrame) -> DataFrame:
    """Bring each sensor's packed rows together, in their order: PACKED -> PACKED."""
    from pyspark.sql import functions as F

    rows = packed.where(F.col("kind").isin("chunk", "plain"))
    return rows.repartition("key").sortWithinPartitions(*ORDER)


def replay_packed(options: PackOptions) -> Callable[[DataFrame], DataFrame]:
    """Bring each sensor's packed rows together and replay them: PACKED -> REPLAY or SUMS."""
    struct = schema.REPLAY.struct if options.rows else SUMS.struct
    return lambda packed: together(packed).mapInArrow(ReplayPacked(options), struct)


def replay(
    quotas: Quotas, *, num_samples: int = 11, window_ms: int = 1000
) -> Callable[[DataFrame], DataFrame]:
    """
    Say what Kafka's sensor decides for every request: requests -> REPLAY.

    For frames that come from elsewhere: each row goes through the JVM, and requests of the same
    millisecond are in the order that the frame's have. Files are read by ``pack_logs`` and replayed
    by ``replay_packed``, in their own order and some times as fast.

    Args:
        quotas: in force; a journal's rows keep their own limits.
        num_samples: quota.window.num of the broker (logs).
        window_ms: quota.window.size.seconds x 1000 of the broker (logs).
    """
    options = PackOptions((quotas,), True, num_samples, window_ms)
    return lambda requests: requests.transform(pack_requests(options)).transform(
        replay_packed(options)
    )


def agreement(replayed: DataFrame) -> DataFrame:
    """
    Compare replayed with logged throttle times, per quota type: REPLAY -> one row per type.

    Returns:
        quota_type, replayable requests, equal_decisions (both throttled, or both not),
        both_throttled, exact and within_1_ms (of those), logged_s, replayed_s (throttled seconds).
    """
    from pyspark.sql import functions as F

    logged, ours = F.col("logged_throttle_time_ms"), F.col("replayed_throttle_time_ms")
    both = (logged > 0) & (ours > 0)

    def count(condition: Any) -> Any:
        return F.count(F.when(condition, 1))

    frame: DataFrame = (
        replayed.where(F.col("replayable"))
        .groupBy("quota_type")
        .agg(
            F.count(F.lit(1)).alias("requests"),
            count((logged > 0) == (ours > 0)).alias("equal_decisions"),
            count(both).alias("both_throttled"),
            count(both & (logged == ours)).alias("exact"),
            count(both & (F.abs(logged - ours) <= 1)).alias("within_1_ms"),
            (F.sum(logged) / 1000.0).alias("logged_s"),
            (F.sum(ours) / 1000.0).alias("replayed_s"),
        )
        .orderBy("quota_type")
    )
    return frame
