"""
Propose a quota per entity from what was used, and say what it would have throttled.

The figure is a percentile of the rate over the quota window (the busiest broker's, as limits hold
per broker), times growth up to a horizon, times headroom, rounded up to two digits. What it would
have throttled comes from replaying the same data under it. Beside single values it looks for
entities better merged, split, given a default, or removed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline import schema
from headgate.pipeline.effective import effective
from headgate.pipeline.pack import PackOptions
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.usage import DAY_MS, resolve, usage
from headgate.pipeline.what_if import options_of, what_if_packed
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity, parse_entity
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Types whose throttling a log can replay; only for these is a value proposed.
TYPES: Final = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Advice:
    """
    How figures are made.

    Args:
        percentile: of the rate over the quota window, 0..1.
        headroom: factor on top.
        horizon_days: how far growth is carried on.
        window_s: seconds the rate is taken over (quota.window.num - 1 whole windows).
        tolerance: a current limit this near (relative) to the figure is kept.
        default_share: entities whose figures lie within this factor can share a default.
        split_share: a client with this share of a shared quota's bytes should have its own.
    """

    percentile: float = 0.95
    headroom: float = 1.2
    horizon_days: int = 30
    window_s: int = 10
    tolerance: float = 0.2
    default_share: float = 2.0
    split_share: float = 0.8


@dataclass(frozen=True, slots=True)
class Observed:
    """What one quota-id used of one quota type, on its busiest broker."""

    quota_type: str
    user: str
    client_id: str
    percentile: float
    peak: float
    growth_per_day: float
    days: int
    current: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """One recommendation, before what it would have throttled is known."""

    quota_type: str
    entity: QuotaEntity
    action: str
    current: float | None
    recommended: float | None
    reason: str
    percentile: float | None = None
    peak: float | None = None
    growth_per_day: float = 0.0
    # quota-ids (tags) whose throttling the row reports
    tags: tuple[tuple[str, str], ...] = ()


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


def round_up(value: float) -> float:
    """Return ``value`` rounded up to two significant digits, at least 1."""
    if value <= 1:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(math.ceil(round(value / unit, 9)) * unit)


def figure(seen: Observed, advice: Advice) -> float:
    """Return the value to recommend for one quota-id; growth never lowers it."""
    growth = max(1.0, (1.0 + seen.growth_per_day) ** advice.horizon_days)
    # More than tenfold growth isn't read off a few days.
    return round_up(seen.percentile * min(growth, 10.0) * advice.headroom)


def propose(
    observed: Iterable[Observed],
    current: QuotaTable,
    shares: Mapping[tuple[str, str, str], Sequence[tuple[str, str, int]]],
    dead: Iterable[tuple[str, QuotaEntity, float]],
    advice: Advice,
) -> list[Proposal]:
    """
    Return all proposals, in order of type and entity.

    Args:
        observed: what each quota-id used.
        current: the quotas in force.
        shares: (type, user tag, client tag) to the (principal, client-id, bytes) that share it.
        dead: (type, entity, value) of quotas that nobody matched.
        advice: how figures are made.
    """
    seen = sorted(observed, key=lambda o: (o.quota_type, o.user, o.client_id))
    proposals = [_single(o, current, advice) for o in seen]
    proposals += _splits(seen, shares, advice)
    proposals += _merges(seen, current, advice)
    proposals += _defaults(seen, current, advice)
    proposals += [
        Proposal(
            quota_type,
            entity,
            "remove",
            value,
            None,
            f"nobody in this data was bound by {value:,.0f} of {entity}",
        )
        for quota_type, entity, value in dead
    ]
    return proposals


def entity_of(user: str, client_id: str) -> QuotaEntity:
    """Return the entity of a quota-id's tags."""
    return QuotaEntity.of(user=user or None, client_id=client_id or None)


def _single(seen: Observed, current: QuotaTable, advice: Advice) -> Proposal:
    entity = entity_of(seen.user, seen.client_id)
    value = figure(seen, advice)
    near = seen.current is not None and abs(value - seen.current) <= advice.tolerance * seen.current
    growth = ""
    if seen.growth_per_day > 0:
        growth = f", grown {seen.growth_per_day:.1%} a day over {advice.horizon_days} days"
    now = "no limit now" if seen.current is None else f"{seen.current:,.0f} now"
    reason = (
        f"{advice.percentile:.0%} of the time at most {seen.percentile:,.0f} B/s over "
        f"{advice.window_s} s (peak {seen.peak:,.0f}){growth}, times {advice.headroom:g}, "
        f"rounded up: {value:,.0f}; {now}"
    )
    key = KEY_OF_TYPE[seen.quota_type]
    action = "keep" if near else "set"
    if not near and seen.current is not None and current.get(entity, key) is None:
        reason += " from a less specific entity"
    return Proposal(
        seen.quota_type,
        entity,
        action,
        seen.current,
        seen.current if near else value,
        reason + (", near enough" if near else ""),
        seen.percentile,
        seen.peak,
        seen.growth_per_day,
        ((seen.user, seen.client_id),),
    )


def _splits(
    seen: Sequence[Observed],
    shares: Mapping[tuple[str, str, str], Sequence[tuple[str, str, int]]],
    advice: Advice,
) -> list[Proposal]:
    """Propose an own quota for a client that takes most of one it shares."""
    found = []
    for o in seen:
        sharers = shares.get((o.quota_type, o.user, o.client_id), ())
        total = sum(b for _, _, b in sharers)
        if len(sharers) < 2 or not total or o.current is None or o.peak <= o.current:
            continue
        principal, client_id, most = max(sharers, key=lambda s: (s[2], s[0], s[1]))
        if most / total < advice.split_share or not client_id:
            continue
        value = round_up(figure(o, advice) * most / total)
        found.append(
            Proposal(
                o.quota_type,
                QuotaEntity.of(user=principal, client_id=client_id),
                "split",
                o.current,
                value,
                f"{client_id} takes {most / total:.0%} of the bytes that {len(sharers)} clients "
                f"share under {o.current:,.0f}, and the peak exceeds it: give it its own",
                o.percentile,
                o.peak,
                o.growth_per_day,
                ((o.user, o.client_id),),
            )
        )
    return found


def _merges(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose one quota for a user whose clients' own quotas lie mostly idle."""
    by_user: dict[tuple[str, str], list[Observed]] = defaultdict(list)
    for o in seen:
        key = KEY_OF_TYPE[o.quota_type]
        if o.user and o.client_id and current.get(entity_of(o.user, o.client_id), key) is not None:
            by_user[o.quota_type, o.user].append(o)
    found = []
    for (quota_type, user), mine in sorted(by_user.items()):
        limits = [o.current or 0.0 for o in mine]
        peak = sum(o.peak for o in mine)
        if len(mine) < 2 or peak > max(limits):
            continue
        value = round_up(sum(figure(o, advice) for o in mine))
        found.append(
            Proposal(
                quota_type,
                QuotaEntity.of(user=user),
                "merge",
                sum(limits),
                value,
                f"{len(mine)} clients have quotas of {sum(limits):,.0f} together; even the sum of "
                f"their peaks ({peak:,.0f}) is within the largest one",
                sum(o.percentile for o in mine),
                peak,
                0.0,
                tuple((o.user, o.client_id) for o in mine),
            )
        )
    return found


def _defaults(seen: Sequence[Observed], current: QuotaTable, advice: Advice) -> list[Proposal]:
    """Propose a default where many entities of a shape need about the same."""
    by_shape: dict[tuple[str, bool, bool], list[tuple[float, Observed]]] = defaultdict(list)
    for o in seen:
        by_shape[o.quota_type, bool(o.user), bool(o.client_id)].append((figure(o, advice), o))
    found = []
    for (quota_type, user, client), mine in sorted(by_shape.items(), key=lambda kv: kv[0]):
        names: dict[str, EntityName] = {}
        if user:
            names["user"] = DEFAULT
        if client:
            names["client-id"] = DEFAULT
        entity = QuotaEntity(names)
        if not names or current.get(entity, KEY_OF_TYPE[quota_type]) is not None:
            continue
        values = sorted(v for v, _ in mine)
        middle = values[len(values) // 2]
        alike = [
            (v, o)
            for v, o in mine
            if middle / advice.default_share <= v <= middle * advice.default_share
        ]
        if len(alike) < 3 or len(alike) * 2 < len(mine):
            continue
        value = max(v for v, _ in alike)
        found.append(
            Proposal(
                quota_type,
                entity,
                "default",
                None,
                value,
                f"{len(alike)} of {len(mine)} need between {min(v for v, _ in alike):,.0f} and "
                f"{value:,.0f}: a default of {value:,.0f} serves them all",
                max(o.percentile for _, o in alike),
                max(o.peak for _, o in alike),
                0.0,
                tuple((o.user, o.client_id) for _, o in alike),
            )
        )
    return found


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
