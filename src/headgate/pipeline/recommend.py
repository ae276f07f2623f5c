"""
Propose a quota per entity from what was used, and say what it would have throttled.

The figure is a percentile of the rate over the quota window (the busiest broker's, as limits hold
per broker), times growth up to a horizon, times headroom, rounded up to two digits. What it would
have throttled comes from replaying the same data under it. Beside single values it looks for
entities better merged, split, given a default, or removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.pipeline import schema
from headgate.pipeline.advice import TYPES, Advice, Observed, Proposal
from headgate.pipeline.effective import effective
from headgate.pipeline.pack import PackOptions
from headgate.pipeline.proposals import propose
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.usage import DAY_MS, resolve, usage
from headgate.pipeline.what_if import options_of, what_if_packed
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, parse_entity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def observe(advice: Advice) -> Callable[[DataFrame], DataFrame]:
    """
    Measure what each quota-id used: usage -> one row per (quota_type, quota-id), busiest broker.

    Returns:
        quota_type, quota_user, quota_client_id, percentile, peak (bytes/s over the window), quota,
        days (with use), growth_per_day (relative, from a line through the logarithm of daily
        bytes; 0 with fewer than three days).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    tags = ("quota_type", "quota_user", "quota_client_id")

    def transform(frame: DataFrame) -> DataFrame:
        mine = frame.where(F.col("quota_type").isin(*TYPES))
        reach = advice.window_s * 1000 - 1
        window = Window.partitionBy(*tags, "broker_id").orderBy("second_ms").rangeBetween(-reach, 0)
        rate = F.sum("bytes").over(window) / float(advice.window_s)
        of_broker = (
            mine.withColumn("rate", rate)
            .groupBy(*tags, "broker_id")
            .agg(
                F.percentile("rate", F.lit(advice.percentile)).alias("percentile"),
                F.max("rate").alias("peak"),
                F.max_by("quota", "second_ms").alias("quota"),
            )
        )
        busiest = of_broker.groupBy(*tags).agg(
            F.max("percentile").alias("percentile"),
            F.max("peak").alias("peak"),
            F.max("quota").alias("quota"),
        )
        daily = mine.groupBy(*tags, F.floor(F.col("second_ms") / DAY_MS).alias("day")).agg(
            F.sum("bytes").alias("bytes")
        )
        slope = F.regr_slope(F.log(F.col("bytes")), F.col("day"))
        growth = (
            daily.where(F.col("bytes") > 0)
            .groupBy(*tags)
            .agg(F.count(F.lit(1)).alias("days"), (F.exp(slope) - 1.0).alias("growth"))
            .withColumn(
                "growth_per_day",
                F.when(F.col("days") >= 3, F.coalesce("growth", F.lit(0.0))).otherwise(0.0),
            )
            .drop("growth")
        )
        return busiest.join(growth, [*tags], "left").na.fill({"days": 0, "growth_per_day": 0.0})

    return transform


def plan_of(proposals: Iterable[Proposal], current: Quotas) -> Quotas:
    """Return the quotas with every single proposal (set) in force, named ``recommended``."""
    table, _ = current.tables[-1].apply(
        QuotaAlteration(p.entity, (Op(KEY_OF_TYPE[p.quota_type], p.recommended),))
        for p in proposals
        if p.action == "set"
    )
    return Quotas.of(table, "recommended")


def rows_of(
    proposals: Iterable[Proposal],
    throttled: Mapping[tuple[str, str, str, str], tuple[int, int]],
    advice: Advice,
) -> list[tuple[Any, ...]]:
    """
    Return RECOMMEND rows.

    Args:
        proposals: what to say.
        throttled: (plan, quota_type, user tag, client tag) to (requests throttled, ms), for plans
            ``current`` and ``recommended``.
        advice: how figures were made.
    """
    rows = []
    for p in proposals:
        user, client = p.entity.user, p.entity.client_id
        sums = {
            plan: [
                sum(throttled.get((plan, p.quota_type, *tags), (0, 0))[i] for tags in p.tags)
                for i in (0, 1)
            ]
            for plan in ("current", "recommended")
        }
        # Only single values are replayed; other proposals report what is, not what would be.
        replayed = p.action in ("set", "keep")
        would = sums["recommended"] if replayed else [None, None]
        rows.append(
            (
                p.quota_type,
                str(p.entity),
                None if user is None else str(user),
                None if client is None else str(client),
                user is DEFAULT,
                client is DEFAULT,
                p.action,
                p.current,
                p.recommended,
                p.percentile,
                p.peak,
                p.growth_per_day,
                advice.headroom,
                *sums["current"],
                *would,
                p.reason,
            )
        )
    return rows


def recommend(
    quotas: Quotas,
    pack: Callable[[PackOptions], DataFrame],
    advice: Advice | None = None,
    *,
    num_samples: int = 11,
    window_ms: int = 1000,
) -> Callable[[DataFrame], DataFrame]:
    """
    Recommend quotas: activity -> RECOMMEND.

    Args:
        quotas: in force.
        pack: gives the same charges packed for a replay (PACKED), from logs or from ``requests``.
        advice: how figures are made.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
    """
    from pyspark.sql import functions as F

    how = advice or Advice()
    tags = ("quota_type", "quota_user", "quota_client_id")

    def transform(activity: DataFrame) -> DataFrame:
        spark = activity.sparkSession
        seen = activity.transform(usage(quotas)).transform(observe(how)).collect()
        observed = [
            Observed(
                r["quota_type"],
                r["quota_user"],
                r["quota_client_id"],
                r["percentile"],
                r["peak"],
                r["growth_per_day"],
                r["days"],
                r["quota"],
            )
            for r in seen
        ]
        shares: dict[tuple[str, str, str], list[tuple[str, str, int]]] = defaultdict(list)
        sharers = (
            activity.where(F.col("is_charged") & F.col("quota_type").isin(*TYPES))
            .transform(resolve(quotas))
            .groupBy(*tags, "principal", "client_id")
            .agg(F.sum("bytes").alias("bytes"))
        )
        for r in sharers.collect():
            at = (r["quota_type"], r["quota_user"], r["quota_client_id"])
            shares[at].append((r["principal"] or "", r["client_id"] or "", r["bytes"]))
        keys = {str(KEY_OF_TYPE[t]): t for t in TYPES}
        dead = [
            (keys[r["quota_key"]], parse_entity(r["source"]), r["value"])
            for r in activity.transform(effective(quotas))
            .where((F.col("kind") == "dead") & F.col("quota_key").isin(*keys))
            .orderBy("quota_key", "source")
            .collect()
        ]
        proposals = propose(observed, quotas.tables[-1], shares, dead, how)
        current = replace(quotas, name="current")
        plans = (current, plan_of(proposals, current))
        options = options_of(plans, num_samples=num_samples, window_ms=window_ms)
        sums = (
            pack(options)
            .transform(what_if_packed(options))
            .groupBy("plan", *tags)
            .agg(F.sum("throttled_requests").alias("n"), F.sum("throttle_time_ms").alias("ms"))
            .collect()
        )
        throttled = {
            (r["plan"], r["quota_type"], r["quota_user"], r["quota_client_id"]): (r["n"], r["ms"])
            for r in sums
        }
        rows = rows_of(proposals, throttled, how)
        return spark.createDataFrame(rows, schema.RECOMMEND.struct)

    return transform
