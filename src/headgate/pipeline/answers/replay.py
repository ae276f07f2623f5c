"""
Say what Kafka's sensors would have decided: requests are packed, brought together, and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headgate.pipeline import schema
from headgate.pipeline.frames import sorted_by_key, spread
from headgate.pipeline.replaying.charges import NEEDED
from headgate.pipeline.replaying.packed_format import CARRIED, ORDER, PACKED, PackOptions
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.replay import SUMS, ReplayPacked
from headgate.pipeline.table import quoted, sums
from headgate.pipeline.workers.log_reader import ReadOptions


def pack_logs(spark: SparkSession, read: ReadOptions, options: PackOptions) -> DataFrame:
    """Return PACKED rows of logs and journals: parsed and packed in one pass of the workers."""
    return spread(spark, read.pieces).mapInArrow(PackRequests(options, read), PACKED.struct)


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
        have = set(requests.columns)
        cells = [F.col(name) for name in wanted if name in have]
        cells += [F.col(quoted(n)).alias(f"{CARRIED}{i}") for i, n in enumerate(others)]
        return requests.select(*cells).mapInArrow(PackRequests(options), PACKED.struct)

    return transform


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
        bundles = packed.where(F.col("kind").isin("chunk", "plain"))
        ordered = sorted_by_key(bundles, ORDER[:1], ORDER[1:])
        if not options.rows:
            return ordered.mapInArrow(ReplayPacked(options), SUMS.struct)
        carried = [
            StructField(f"{CARRIED}{i}", field.dataType, True) for i, field in enumerate(others)
        ]
        struct = StructType([*schema.REPLAY.struct.fields, *carried])
        replayed = ordered.mapInArrow(ReplayPacked(options), struct)
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
