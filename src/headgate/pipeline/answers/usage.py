"""
Say who used what: sums per quota-id, broker and second, their peaks by hour and day, and topics.

Python workers say who shares each sum's quota (``resolve``). Everything else is Spark's SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headgate.pipeline import frames, schema
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import Table, in_order, largest, make_table, percentile, sums
from headgate.pipeline.workers.resolve import Resolve

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
PERCENTILES: Final = {"p50_per_s": 0.5, "p95_per_s": 0.95, "p99_per_s": 0.99}
USAGE_KEYS: Final = ("quota_type", "quota_id", "quota_user", "quota_client_id", "broker_id")
RESOLVED_ACTIVITY: Final = make_table(
    "resolved_activity",
    "ACTIVITY, with the quota-id of each row.",
    *ACTIVITY.columns,
    ("quota_source", "string", "entity the limit comes from"),
)
_OF_TOPIC: Final = make_table(
    "of_topic",
    "ACTIVITY of a topic.",
    *ACTIVITY.columns,
    "topic string: its name\ntopic_id string: its id",
)
_BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
# What is needed of each row to say who shares its quota, and what is added up then.
_RESOLVES: Final = (
    *("principal", "client_id", "quota_type", "quota_id", "quota_user", "quota_client_id", "quota"),
    *("broker_id", "second_ms", "topic", "requests", "bytes", "bytes_estimated"),
)
_PERIODS_MS: Final = {
    **dict.fromkeys((schema.USAGE_HOUR.name, schema.USAGE_BY_TOPIC_HOUR.name), HOUR_MS),
    **dict.fromkeys((schema.USAGE_DAY.name, schema.USAGE_BY_TOPIC_DAY.name), DAY_MS),
}
_ADDED: Final = ("requests", "bytes", "throttle_time_ms", "throttled_requests")
# By column, the parts that its unit has and that it is a whole number of: 1 % of a thread's second
# has 1e7 ns, a ms has 1e6.
_UNITS: Final = {"amount": 1e7, "handler_ms": 1e6}


def resolve(quotas: Quotas, *, thread_time: bool = False) -> Callable[[DataFrame], DataFrame]:
    """
    Say for each activity row who shares its quota: activity -> RESOLVED_ACTIVITY.

    The quota in force at the start of the second counts; rows of a journal keep their own.

    Args:
        quotas: who shares what.
        thread_time: add a row for the thread time of each row that is charged to another quota.
    """
    task = Resolve(quotas, "second_ms", RESOLVED_ACTIVITY, thread_time)
    return lambda activity: ACTIVITY.select(activity).mapInArrow(task, RESOLVED_ACTIVITY.struct)


def usage(quotas: Quotas, table: Table = schema.USAGE) -> Callable[[DataFrame], DataFrame]:
    """
    Sum activity up per quota-id, broker and period: activity -> USAGE, USAGE_HOUR or USAGE_DAY.

    Every charged request counts in the one row of the quota type it's charged to. Rows of
    request_percentage also exist for clients that only produce and fetch; there ``requests``,
    ``bytes`` and ``handler_ms`` are 0 and ``amount`` is the thread time of all their requests.

    Args:
        quotas: who shares what.
        table: USAGE, by second; USAGE_HOUR or USAGE_DAY.
    """

    def transform(activity: DataFrame) -> DataFrame:
        charged = activity.where(F.col("is_charged"))
        used = charged.transform(resolve(quotas, thread_time=True)).transform(_by_quota_id)
        return used if table is schema.USAGE else used.transform(by_period(table))

    return transform


def _by_quota_id(resolved: DataFrame) -> DataFrame:
    """Add up by quota-id, broker and second: RESOLVED_ACTIVITY -> USAGE."""
    is_time = F.col("quota_type") == "request_percentage"
    thread_time = F.sum("request_ns").cast("double") / _UNITS["amount"]
    added = resolved.groupBy(*USAGE_KEYS, "second_ms").agg(
        *sums(*_ADDED, "bytes_estimated"),
        *largest("max_throttle_time_ms", "quota", "quota_source"),
        F.when(is_time, thread_time).otherwise(F.sum("amount")).alias("amount"),
        (F.sum("handler_ns").cast("double") / _UNITS["handler_ms"]).alias("handler_ms"),
    )
    return schema.USAGE.select(added)


def by_period(table: Table) -> Callable[[DataFrame], DataFrame]:
    """
    Sum usage up by hour or day: USAGE, or USAGE_BY_TOPIC -> one of its tables by period.

    Sums are the same whatever the order of rows. Percentiles are exact, over the seconds that have
    requests, as peaks are.

    Args:
        table: USAGE_HOUR or USAGE_DAY; of USAGE_BY_TOPIC, USAGE_BY_TOPIC_HOUR or _DAY.
    """
    period_ms = _PERIODS_MS[table.name]

    def transform(used: DataFrame) -> DataFrame:
        period = (F.floor(F.col("second_ms") / period_ms) * period_ms).alias("period_ms")
        active = F.count("second_ms").alias("active_seconds")
        if "topic" in table.names:
            peak = F.max("bytes").alias("peak_bps")
            found = used.groupBy(*USAGE_KEYS, period, "topic")
            return table.select(found.agg(*sums(*_OF_TOPICS), active, peak))
        added = used.groupBy(*USAGE_KEYS, period).agg(
            *sums(*_ADDED),
            *[_exact_sum(name, unit).alias(name) for name, unit in _UNITS.items()],
            active,
            F.max("amount").alias("peak_per_s"),
            *largest("quota"),
            in_order("amount").alias("amounts"),
        )
        each = {name: percentile(F.col("amounts"), at) for name, at in PERCENTILES.items()}
        return table.select(added.withColumns(each))

    return transform


def _exact_sum(name: str, unit: float) -> Column:
    """Return the sum of doubles that are whole numbers of ``1 / unit``: one in any order."""
    whole = F.floor(name)
    rest = F.round((F.col(name) - whole) * unit).cast("long")
    wholes = F.sum(whole).cast("decimal(20,0)") * F.lit(int(unit))
    return (wholes + F.sum(rest)).cast("double") / unit


_OF_TOPICS: Final = ("requests", "bytes", "bytes_estimated")


def by_topic(
    quotas: Quotas, table: Table = schema.USAGE_BY_TOPIC
) -> Callable[[DataFrame], DataFrame]:
    """
    Sum bytes up per quota-id, broker, period and topic: REQUESTS -> USAGE_BY_TOPIC, or by period.

    Args:
        quotas: who shares what.
        table: USAGE_BY_TOPIC, by second; USAGE_BY_TOPIC_HOUR or USAGE_BY_TOPIC_DAY.
    """
    task = Resolve(quotas, "second_ms", schema.USAGE_BY_TOPIC)

    def transform(requests: DataFrame) -> DataFrame:
        in_bytes = F.col("quota_type").isin(*_BYTES)
        told = requests.where(in_bytes | F.col("bytes_by_topic").isNotNull())
        of = F.col("of")
        columns = {
            "topic": of["topic"],
            "topic_id": of["topic_id"],
            "bytes_charged": F.coalesce(of["bytes"], "bytes_charged"),
        }
        each = told.select("*", F.explode_outer("bytes_by_topic").alias("of")).withColumns(columns)
        parts = frames.activity(each, _OF_TOPIC)
        # Rows without an id need no name: their seconds keep them from being one large group.
        same_id = Window.partitionBy(
            "topic_id", F.when(F.col("topic_id").isNull(), F.col("second_ms"))
        )
        name = F.when(F.col("topic_id").isNotNull(), F.max("topic").over(same_id))
        named = parts.withColumn("topic", F.coalesce("topic", name, "topic_id"))
        named = named.where(F.col("is_charged") & in_bytes)
        resolved = named.select(*_RESOLVES).mapInArrow(task, schema.USAGE_BY_TOPIC.struct)
        added = resolved.groupBy(*USAGE_KEYS, "second_ms", "topic").agg(*sums(*_OF_TOPICS))
        used = schema.USAGE_BY_TOPIC.select(added)
        return used if table is schema.USAGE_BY_TOPIC else used.transform(by_period(table))

    return transform
