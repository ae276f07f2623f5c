"""
Propose a quota per entity from what was used, and say what it would have throttled.

The figure is a percentile of the rate over the quota window (the busiest broker's, as limits hold
per broker), times growth up to a horizon, times headroom, rounded up to two digits; not below a
floor, and none where too little was seen (``advice``). Beside single
values it looks for entities better merged, split, given a default, or removed. What each would
have throttled comes from replaying the same data: all single values under one plan, and each other
kind of action under a plan of its own, all in one pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headgate.pipeline import schema
from headgate.pipeline.answers.advice import BYTES, Advice, Observed, Proposal, Wants
from headgate.pipeline.answers.demand import demand
from headgate.pipeline.answers.effective import effective
from headgate.pipeline.answers.proposals import Sharers, propose
from headgate.pipeline.answers.usage import resolve, usage
from headgate.pipeline.answers.usage_parts import DAY_MS
from headgate.pipeline.answers.what_if import options_of, what_if_packed
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.table import largest, sums
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity, parse_entity
from headgate.quota.precedence import Resolver
from headgate.throttle.java import UNLIMITED

_TAGS = ("quota_type", "quota_user", "quota_client_id")


def observe(advice: Advice) -> Callable[[DataFrame], DataFrame]:
    """
    Measure what each quota-id used: usage -> one row per (quota_type, quota-id), busiest broker.

    Returns:
        quota_type, quota_user, quota_client_id, percentile, peak (per second, over the window),
        growth_per_day (relative, from a line through the logarithm of daily use; 0 with fewer
        than three days of use), current (the limit; null = none), span_s and active_s (from the
        first to the last second with use, and how many there are, on all brokers), held (share of
        the time told to wait, 0..1): the fields of ``Observed``, in their order.
    """

    def transform(frame: DataFrame) -> DataFrame:
        mine = frame.where(F.col("quota_type").isin(*advice.types)).withColumn("used", _used())
        reach = advice.window_s * 1000 - 1
        window = (
            Window.partitionBy(*_TAGS, "broker_id").orderBy("second_ms").rangeBetween(-reach, 0)
        )
        rate = F.sum("used").over(window) / float(advice.window_s)
        # A wait that begins before an earlier one's end counts from that end on.
        ends = F.col("second_ms") + F.col("max_throttle_time_ms")
        before = Window.partitionBy(*_TAGS, "broker_id").orderBy("second_ms")
        earlier = F.max(ends).over(before.rowsBetween(Window.unboundedPreceding, -1))
        waits = F.greatest(F.lit(0), ends - F.greatest(F.col("second_ms"), earlier))
        span = F.max("second_ms") - F.min("second_ms") + 1000
        of_broker = (
            mine.withColumn("rate", rate)
            .withColumn("waits", waits)
            .groupBy(*_TAGS, "broker_id")
            .agg(
                F.percentile("rate", F.lit(advice.percentile)).alias("percentile"),
                F.max("rate").alias("peak"),
                F.max_by("quota", "second_ms").alias("quota"),
                F.least(F.lit(1.0), F.sum("waits") / span).alias("held"),
            )
        )
        busiest = of_broker.groupBy(*_TAGS).agg(*largest("percentile", "peak", "quota", "held"))
        day = F.floor(F.col("second_ms") / DAY_MS).alias("day")
        daily = mine.groupBy(*_TAGS, day).agg(*sums("used"))
        slope = F.regr_slope(F.log(F.col("used")), F.col("day"))
        grown = F.when(F.count(F.lit(1)) >= 3, F.exp(slope) - 1.0)
        growth = daily.where(F.col("used") > 0).groupBy(*_TAGS).agg(grown.alias("growth_per_day"))
        seconds = mine.where(F.col("used") > 0).groupBy(*_TAGS)
        span_ms = F.max("second_ms") - F.min("second_ms")
        history = seconds.agg(
            (F.floor(span_ms / 1000) + 1).alias("span_s"),
            F.countDistinct("second_ms").alias("active_s"),
        )
        # Without use (fetches that were all throttled, say) no figure can be given.
        joined = busiest.where(F.col("peak") > 0).join(growth, [*_TAGS], "left")
        joined = joined.join(history, [*_TAGS], "left").na.fill({"growth_per_day": 0.0})
        limit = F.when(F.col("quota") < UNLIMITED, F.col("quota")).alias("current")
        figures = ("percentile", "peak", "growth_per_day", limit, "span_s", "active_s", "held")
        return joined.select(*_TAGS, *figures)

    return transform


def _used() -> Column:
    """Return what counts as use: bytes of byte rates, else amounts."""
    return F.when(F.col("quota_type").isin(*BYTES), F.col("bytes")).otherwise(F.col("amount"))


def scaffold(current: Quotas, types: Sequence[str]) -> Quotas:
    """
    Return the quotas; each type that has none gets an unlimited quota for every user.

    Where no quota of a type is in force, Kafka tells clients apart by client-id, which anybody may
    claim. With this quota, use is seen by user.
    """
    table = current.tables[-1]
    bare = [KEY_OF_TYPE[t] for t in types if not table.for_key(KEY_OF_TYPE[t])]
    ops = tuple(Op(key, UNLIMITED) for key in bare)
    every = tuple(
        t.apply([QuotaAlteration(QuotaEntity.of(user=DEFAULT), ops)])[0] if ops else t
        for t in current.tables
    )
    return replace(current, tables=every)


def plans_of(proposals: Iterable[Proposal], current: Quotas) -> list[Quotas]:
    """
    Return the plans that proposals are tried in, each named after ``Proposal.plan``.

    Removals have no plan: the quotas that they remove bind nobody.
    """
    by_plan: dict[str, list[Proposal]] = {"recommended": []}
    for p in proposals:
        if p.action not in ("keep", "remove", "wait"):
            by_plan.setdefault(p.plan, []).append(p)
    plans = []
    for name, mine in by_plan.items():
        alterations = []
        for p in mine:
            key = KEY_OF_TYPE[p.quota_type]
            alterations += [QuotaAlteration(e, (Op(key, None),)) for e in p.instead]
            alterations.append(QuotaAlteration(p.entity, (Op(key, p.recommended),)))
        table, _ = current.tables[-1].apply(alterations)
        plans.append(Quotas.of(table, name))
    return plans


# (plan, quota type, user tag, client tag) to (requests throttled, throttle time in ms).
Throttled = Mapping[tuple[str, str, str, str], tuple[int, int]]


class Tried:
    """
    What plans throttled, looked up by proposal.

    Args:
        plans: those tried, the current quotas first.
        throttled: their sums.
        sharers: who shares each quota-id of the current ones.
    """

    def __init__(self, plans: Sequence[Quotas], throttled: Throttled, sharers: Sharers) -> None:
        self._resolvers = {p.name: Resolver(p.tables[-1]) for p in plans}
        self._throttled = throttled
        self._sharers = sharers
        self._types = {quota_type for _, quota_type, _, _ in throttled}

    def of(self, proposal: Proposal, plan: str) -> tuple[int | None, int | None]:
        """
        Return requests throttled and ms, of all clients that a proposal concerns, under a plan.

        None where the data doesn't hold what a replay of the type needs.
        """
        if not proposal.tags:
            return 0, 0
        if proposal.quota_type not in self._types:
            return None, None
        key = KEY_OF_TYPE[proposal.quota_type]
        tags = set()
        for user, client in proposal.tags:
            who = self._sharers.get((proposal.quota_type, user, client)) or [(user, client, 0.0)]
            tags |= {self._resolvers[plan](name, cid, key).tags for name, cid, _ in who}
        found = [self._throttled.get((plan, proposal.quota_type, *t), (0, 0)) for t in tags]
        return sum(n for n, _ in found), sum(ms for _, ms in found)


def rows_of(proposals: Iterable[Proposal], tried: Tried, advice: Advice) -> list[tuple[Any, ...]]:
    """Return RECOMMEND rows."""
    rows = []
    for p in proposals:
        user, client = p.entity.user, p.entity.client_id
        after: tuple[int | None, int | None] = tried.of(p, p.plan)
        if p.hides and p.action != "keep":
            after = None, None
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
                *tried.of(p, "current"),
                *after,
                p.held,
                *(p.wants[:4] if p.wants else [None] * 4),
                p.reason + p.hides,
            )
        )
    return rows


# What a client wants is inferred if it was told to wait for more than this share of its time.
_WAITS: Final = 0.05


def with_wants(
    observed: Sequence[Observed], requests: DataFrame, current: Quotas, **windows: int
) -> list[Observed]:
    """Return what was observed, with what throttled quota-ids want on their busiest broker."""
    held = [o for o in observed if o.held > _WAITS and o.quota_type in BYTES]
    if not held:
        return list(observed)
    wants: dict[tuple[str, str, str], Wants] = {}
    told = requests.transform(demand([current], **windows, only=[o.key for o in held]))
    figures = ("kind", "wanted_per_s", "wanted_least_per_s", "wanted_most_per_s", "reason")
    for *key, kind, per_s, least, most, reason in told.select(*_TAGS, *figures).collect():
        known = wants.get(tuple(key))
        if known is None or known.least < least:
            wants[tuple(key)] = Wants(kind, per_s, least, most, reason or "")
    return [replace(o, wants=wants.get(o.key)) for o in observed]


def recommend(
    quotas: Quotas,
    pack: Callable[[PackOptions], DataFrame],
    advice: Advice | None = None,
    *,
    requests: Callable[[], DataFrame] | None = None,
    **windows: int,
) -> Callable[[DataFrame], DataFrame]:
    """
    Recommend quotas: activity -> RECOMMEND.

    Args:
        quotas: in force.
        pack: gives the same charges packed for a replay (PACKED), from logs or from ``requests``.
        advice: how figures are made.
        requests: gives the same charges as rows (REQUESTS or CHARGED); read only if clients were
            throttled, to infer what they want. None: that isn't done.
        windows: ``num_samples``, quota.window.num; ``window_ms``, quota.window.size.seconds x 1000.
    """
    how = advice or Advice()

    def transform(activity: DataFrame) -> DataFrame:
        charged = activity.where(F.col("is_charged") & F.col("quota_type").isin(*how.types))
        users = charged.select("principal").distinct().limit(2).count()
        # Where nobody logs in, client-ids are all there is to tell clients apart.
        current = scaffold(quotas, how.types) if users > 1 else quotas
        current = replace(current, name="current")
        seen = activity.transform(usage(current)).transform(observe(how)).collect()
        observed = [Observed(*row) for row in seen]
        if requests is not None:
            observed = with_wants(observed, requests(), current, **windows)
        sharers: dict[tuple[str, str, str], list[tuple[str, str, float]]] = defaultdict(list)
        clients = charged.transform(resolve(current)).groupBy(*_TAGS, "principal", "client_id")
        for *key, principal, client_id, used in clients.agg(F.sum(_used())).collect():
            sharers[tuple(key)].append((principal or "", client_id or "", float(used or 0)))
        keys = {str(KEY_OF_TYPE[t]): t for t in how.types}
        dead = [
            (keys[r["quota_key"]], parse_entity(r["source"]), r["value"])
            for r in activity.transform(effective(quotas))
            .where((F.col("kind") == "dead") & F.col("quota_key").isin(*keys))
            .orderBy("quota_key", "source")
            .collect()
        ]
        proposals = propose(observed, quotas.tables[-1], sharers, dead, how)
        plans = [current, *plans_of(proposals, current)]
        options = options_of(plans, capacities={}, **windows)
        replayed = pack(options).transform(what_if_packed(options)).groupBy("plan", *_TAGS)
        waits = replayed.agg(*sums("throttled_requests", "throttle_time_ms")).collect()
        throttled = {row[:4]: row[4:] for row in waits}
        rows = rows_of(proposals, Tried(plans, throttled, sharers), how)
        return activity.sparkSession.createDataFrame(rows, schema.RECOMMEND.struct)

    return transform
