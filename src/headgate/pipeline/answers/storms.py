"""
Find storms: runs of seconds in which connections, producer ids or requests came too fast.

A second belongs to a storm where the source exceeds both its threshold and ``factor`` times what is
usual for it: the median of its quiet seconds, or of all seconds for requests. Storm seconds with at
most ``gap_s`` others between them are one storm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headgate.pipeline import schema
from headgate.pipeline.table import sums


@dataclass(frozen=True)
class Thresholds:
    """
    What counts as a storm.

    Args:
        connections_per_s: new connections of an address on a listener and broker.
        producer_ids_per_s: new producer ids of a user on a broker (InitProducerId, or the first
            Produce with an id).
        requests_per_s: requests of a client on a broker.
        factor: times the source's own median second.
        gap_s: storm seconds with at most this many others between them are one storm.
    """

    connections_per_s: float = 10.0
    producer_ids_per_s: float = 10.0
    requests_per_s: float = 1000.0
    factor: float = 5.0
    gap_s: int = 5


def connections_by_second(connections: DataFrame) -> DataFrame:
    """
    Count new connections per second: first sights -> one row per source and second.

    Args:
        connections: broker_id, listener, client_ip, connection, first_ms; a connection may occur
            several times (once per piece of a log), its earliest sight counts.
    """
    first = connections.groupBy("broker_id", "listener", "client_ip", "connection").agg(
        F.min("first_ms").alias("first_ms")
    )
    second = (F.floor(F.col("first_ms") / 1000.0) * 1000).alias("second_ms")
    return first.groupBy("broker_id", "listener", "client_ip", second).agg(
        F.count(F.lit(1)).alias("count")
    )


def storms(
    thresholds: Thresholds | None = None,
) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """
    Find storms: (activity, connections by second) -> STORMS.

    Args:
        thresholds: what counts as one.
    """
    limit = thresholds or Thresholds()

    def transform(activity: DataFrame, connections: DataFrame) -> DataFrame:
        every = _seconds_of(activity, connections, limit)
        return schema.STORMS.select(_held(_runs(_high(every, limit), limit), limit))

    return transform


_NAMES: Final = ("client_ip", "listener", "principal", "client_id")
_SOURCE: Final = ("kind", "broker_id", *_NAMES)
"""What tells sources apart: storms are found source by source."""


def _seconds_of(activity: DataFrame, connections: DataFrame, limit: Thresholds) -> DataFrame:
    """Return what every source made in every second, whatever its kind."""

    def of_kind(frame: DataFrame, kind: str, keys: tuple[str, ...], per_s: float) -> DataFrame:
        absent = {n: F.lit(None).cast("string") for n in _NAMES if n not in keys}
        if "ns" not in frame.columns:
            absent["ns"] = F.lit(0).cast("long")
        return frame.withColumns({"kind": F.lit(kind), "threshold": F.lit(per_s), **absent}).select(
            *_SOURCE, "second_ms", "count", "ns", "threshold"
        )

    charged = activity.where(F.col("is_charged"))
    # A journal says which ids brokers gave out (no quota type), and which new ones were charged
    # with a Produce: mostly the same, so the larger counts.
    of_quota = F.col("quota_type") == "producer_ids_rate"
    given_ids = F.sum(F.when(F.col("quota_type").isNull(), F.col("producer_ids")))
    charged_ids = F.sum(F.when(of_quota, F.col("amount"))).cast("long")
    ids = (
        activity.where(F.col("is_charged") | F.col("quota_type").isNull())
        .groupBy("broker_id", "principal", "second_ms")
        .agg(F.greatest(given_ids, charged_ids).alias("count"))
        .where(F.col("count") > 0)
    )
    client = ("principal", "client_id")
    requests = (
        charged.groupBy("broker_id", *client, "second_ms")
        .agg(*sums(count="requests", ns="handler_ns"))
        .where(F.col("count") > 0)
    )
    address = ("client_ip", "listener")
    return (
        of_kind(connections, "connection", address, limit.connections_per_s)
        .unionByName(of_kind(ids, "producer_id", ("principal",), limit.producer_ids_per_s))
        .unionByName(of_kind(requests, "request", client, limit.requests_per_s))
    )


def _high(every: DataFrame, limit: Thresholds) -> DataFrame:
    """Return the seconds that belong to storms, with what is usual for their source."""
    of_source = Window.partitionBy(*_SOURCE)
    count = F.col("count")
    quiet = F.percentile(F.when(count <= F.col("threshold"), count), F.lit(0.5))
    always = F.percentile(count, F.lit(0.5))
    # Connections and producer ids are rare by nature: the median of quiet seconds is usual.
    # A busy client sends many requests all day: the median of all its seconds is.
    usual = F.when(
        F.col("kind") == "request",
        F.when(F.count(F.lit(1)).over(of_source) >= 3, always.over(of_source)),
    ).otherwise(quiet.over(of_source))
    return (
        every.withColumn("usual", F.coalesce(usual, F.lit(0.0)))
        .where(F.col("count") > F.col("threshold"))
        .where(F.col("count") > F.col("usual") * limit.factor)
    )


def _runs(high: DataFrame, limit: Thresholds) -> DataFrame:
    """Join a source's seconds that are close to each other: a row per storm."""
    in_time = Window.partitionBy(*_SOURCE).orderBy("second_ms")
    gap = F.col("second_ms") - F.lag("second_ms").over(in_time)
    new = F.when(gap.isNull() | (gap > (limit.gap_s + 1) * 1000), 1).otherwise(0)
    numbered = high.withColumn("new", new).withColumn("number", F.sum("new").over(in_time))
    return numbered.groupBy(*_SOURCE, "number").agg(
        F.min("second_ms").alias("start_ms"),
        (F.max("second_ms") + 1000).alias("end_ms"),
        *sums("count", "ns"),
        F.max("count").cast("double").alias("peak_per_s"),
        F.first("usual").alias("usual_per_s"),
        F.first("threshold").alias("threshold"),
    )


def _held(found: DataFrame, limit: Thresholds) -> DataFrame:
    """Add the quota that would have held each storm, and why."""
    duration = (F.col("end_ms") - F.col("start_ms")) / 1000.0
    # What would have held it: the pace that isn't yet a storm.
    pace = F.ceil(F.greatest(F.col("usual_per_s") * limit.factor, F.col("threshold")))
    # The thread time of that many requests; 1e7 ns are 1 % of a thread's second.
    percent = F.ceil(pace * F.col("ns") / F.col("count") / 1e5) / 100.0
    of_time = F.when(F.col("ns") > 0, percent)

    def by_kind(connection: object, producer_id: object, request: object) -> Column:
        return (
            F.when(F.col("kind") == "connection", connection)
            .when(F.col("kind") == "producer_id", producer_id)
            .otherwise(request)
        )

    larger = f"usually %.0f/s; the larger of {limit.factor:g} times that and the threshold"
    seen = ("count", duration, "peak_per_s", "usual_per_s")
    plain = F.format_string(f"%d in %.0f s, up to %.0f/s, {larger} of %.0f/s", *seen, "threshold")
    each_ms = F.col("ns") / F.col("count") / 1e6
    of_requests = F.format_string(
        f"%d requests in %.0f s, up to %.0f/s, {larger} is %d/s, at %.3f ms of a thread each",
        *seen,
        "pace",
        each_ms,
    )
    types = ("connection_creation_rate", "producer_ids_rate", "request_percentage")
    entities = (
        F.format_string("{ip=%s}", "client_ip"),
        F.format_string("{user=%s}", "principal"),
        F.format_string("{user=%s, client-id=%s}", "principal", "client_id"),
    )
    return found.withColumn("pace", pace).withColumns(
        {
            "mean_per_s": F.col("count") / duration,
            "quota_type": by_kind(*types),
            "quota": by_kind(pace, pace, of_time),
            "entity": by_kind(*entities),
            "reason": by_kind(plain, plain, of_requests),
        }
    )
