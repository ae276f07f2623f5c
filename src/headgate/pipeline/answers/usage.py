"""
Say who used what: sums per quota-id, broker and second, and their peaks by hour and day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline import schema
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import largest, make_table, sums
from headgate.pipeline.workers.resolve import Resolve

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

RESOLVED_ACTIVITY: Final = make_table(
    "resolved_activity",
    "ACTIVITY, with the quota-id of each row.",
    *ACTIVITY.columns,
    ("quota_source", "string", "entity the limit comes from"),
)
PERCENTILES: Final = (("p50_per_s", 0.5), ("p95_per_s", 0.95), ("p99_per_s", 0.99))
USAGE_KEYS: Final = ("quota_type", "quota_id", "quota_user", "quota_client_id", "broker_id")
TIME_ONLY: Final[dict[str, Any]] = {
    "requests": 0,
    "bytes": 0,
    "bytes_estimated": 0,
    "amount": 0,
    "throttle_time_ms": 0,
    "throttled_requests": 0,
    "max_throttle_time_ms": 0,
    "handler_ns": 0,
    "quota_type": "request_percentage",
    "quota_id": None,
    "quota_user": None,
    "quota_client_id": None,
    "quota": None,
}
"""Columns of the row that charges a request's thread time beside its bytes."""


def resolve(quotas: Quotas) -> Callable[[DataFrame], DataFrame]:
    """
    Say for each activity row who shares its quota: activity -> RESOLVED_ACTIVITY.

    The quota in force at the start of the second counts; rows of a journal keep their own.
    """

    def transform(activity: DataFrame) -> DataFrame:
        task = Resolve(quotas, "second_ms", RESOLVED_ACTIVITY)
        return activity.mapInArrow(task, RESOLVED_ACTIVITY.struct)

    return transform


def usage(quotas: Quotas) -> Callable[[DataFrame], DataFrame]:
    """
    Sum activity up per quota-id, broker and second: activity -> USAGE.

    Every charged request counts in the one row of the quota type it's charged to. Rows of
    request_percentage also exist for clients that only produce and fetch; there ``requests``,
    ``bytes`` and ``handler_ms`` are 0 and ``amount`` is the thread time of all their requests.
    """
    from pyspark.sql import functions as F

    def transform(activity: DataFrame) -> DataFrame:
        charged = activity.where(F.col("is_charged"))
        is_request = F.col("quota_type") == "request_percentage"
        # Thread time is charged to the request quota whatever else a request is charged to.
        fixed = {
            f.name: F.lit(TIME_ONLY[f.name]).cast(f.dataType)
            for f in ACTIVITY.struct
            if f.name in TIME_ONLY
        }
        time_only = charged.where(~is_request & (F.col("request_ns") > 0)).withColumns(fixed)
        rows = ACTIVITY.select(charged).unionByName(ACTIVITY.select(time_only))
        resolved = rows.transform(resolve(quotas))
        added = resolved.groupBy(*USAGE_KEYS, "second_ms").agg(
            *sums("requests", "bytes", "bytes_estimated", "throttle_time_ms", "throttled_requests"),
            # Percent x seconds of one thread: 1e7 ns are one.
            F.when(is_request, F.sum("request_ns") / 1e7)
            .otherwise(F.sum("amount"))
            .alias("amount"),
            (F.sum("handler_ns") / 1e6).alias("handler_ms"),
            *largest("max_throttle_time_ms", "quota", "quota_source"),
        )
        frame: DataFrame = schema.USAGE.select(added)
        return frame

    return transform


def exact_sum(name: str, unit: float) -> Column:
    """
    Return a sum of doubles that doesn't depend on their order.

    Args:
        name: column of doubles that are whole multiples of 1 / unit.
        unit: 1e6 for ms with ns, 1e7 for percent seconds with ns.
    """
    from pyspark.sql import functions as F

    whole = F.round(F.col(name) * unit).cast("decimal(38,0)")
    return F.sum(whole).cast("double") / unit


def rollup(period_ms: int) -> Callable[[DataFrame], DataFrame]:
    """
    Sum usage up by hour or day, with peaks and percentiles: usage -> USAGE_HOUR / USAGE_DAY.

    Args:
        period_ms: HOUR_MS or DAY_MS.

    Percentiles are exact, over the seconds that have requests.
    """
    from pyspark.sql import functions as F

    def transform(frame: DataFrame) -> DataFrame:
        period = (F.floor(F.col("second_ms") / period_ms) * period_ms).alias("period_ms")
        added = frame.groupBy(*USAGE_KEYS, period).agg(
            *sums("requests", "bytes", "throttle_time_ms", "throttled_requests"),
            exact_sum("amount", 1e7).alias("amount"),
            exact_sum("handler_ms", 1e6).alias("handler_ms"),
            F.count(F.lit(1)).alias("active_seconds"),
            F.max("amount").alias("peak_per_s"),
            *(F.percentile("amount", F.lit(p)).alias(name) for name, p in PERCENTILES),
            *largest("quota"),
        )
        table = schema.USAGE_HOUR if period_ms == HOUR_MS else schema.USAGE_DAY
        result: DataFrame = table.select(added)
        return result

    return transform
