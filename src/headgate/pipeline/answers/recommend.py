"""
Propose a quota per entity from what was used, and say what it would have throttled.

The figure is a percentile of the rate over the quota window (the busiest broker's, as limits hold
per broker), times growth up to a horizon, times headroom, rounded up to two digits; not below a
floor, and none where too little was seen (``advice``). Beside single
values it looks for entities better merged, split, given a default, or removed. What each would
have throttled comes from trying it on the same data (``trial``): all single values under one plan,
and each other kind of action under a plan of its own. What would throttle more than now isn't
proposed. Limits that were in force for a part of the time are told, and never counted as those in
force (``in_force``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headgate.pipeline import schema
from headgate.pipeline.answers.advice import (
    BYTES,
    WAITING_SHARE,
    Advice,
    Observed,
    Proposal,
    Wants,
)
from headgate.pipeline.answers.demand import LOOKED_AT as CHARGED_AT
from headgate.pipeline.answers.demand import charged as bytes_charged
from headgate.pipeline.answers.demand import demand
from headgate.pipeline.answers.effective import keys_of_types
from headgate.pipeline.answers.in_force import (
    Changes,
    Client,
    Key,
    changes,
    clients,
    in_force,
    used,
    without_own,
)
from headgate.pipeline.answers.proposals import Sharers, propose
from headgate.pipeline.answers.replay import replay_packed
from headgate.pipeline.answers.trial import (
    CURRENT,
    Fares,
    Throttled,
    Tried,
    asked_of,
    harmless,
    plans_of,
)
from headgate.pipeline.answers.usage import DAY_MS, usage
from headgate.pipeline.answers.what_if import options_of
from headgate.pipeline.frames import SUMMED
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.replaying.charges import NEEDED
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.table import frame_of, in_order, largest, percentile, sums
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.precedence import Resolver
from headgate.throttle.java import UNLIMITED

LOOKED_AT: Final = tuple(
    name for name in schema.REQUESTS.names if name in {*SUMMED, *CHARGED_AT, *NEEDED}
)
"""Columns of REQUESTS that are summed up, asked for waits, and replayed."""
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
        mine = frame.where(F.col("quota_type").isin(*advice.types)).withColumn("used", used())
        # All of a quota-id's rows lie together: nothing below moves them again.
        mine = mine.repartition(*_TAGS)
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
                in_order("rate").alias("rates"),
                F.max("rate").alias("peak"),
                F.max_by("quota", "second_ms").alias("quota"),
                F.least(F.lit(1.0), F.sum("waits") / span).alias("held"),
            )
            .withColumn("percentile", percentile(F.col("rates"), advice.percentile))
        )
        busiest = of_broker.groupBy(*_TAGS).agg(*largest("percentile", "peak", "quota", "held"))
        # Without use (fetches that were all throttled, say) no figure can be given.
        joined = busiest.where(F.col("peak") > 0).join(_history(mine), [*_TAGS], "left")
        joined = joined.na.fill({"growth_per_day": 0.0})
        limit = F.when(F.col("quota") < UNLIMITED, F.col("quota")).alias("current")
        figures = ("percentile", "peak", "growth_per_day", limit, "span_s", "active_s", "held")
        return joined.select(*_TAGS, *figures)

    return transform


def _history(mine: DataFrame) -> DataFrame:
    """Return growth_per_day, span_s and active_s of each quota-id that used something."""
    day = F.floor(F.col("second_ms") / DAY_MS).alias("day")
    second = F.when(F.col("used") > 0, F.col("second_ms"))
    seconds = mine.groupBy(*_TAGS, day, "second_ms").agg(
        *sums("used"), F.max(second).alias("active_ms")
    )
    days = seconds.groupBy(*_TAGS, "day").agg(
        *sums("used"),
        F.min("active_ms").alias("first_ms"),
        F.max("active_ms").alias("last_ms"),
        F.count("active_ms").alias("active_s"),
    )
    daily = F.when(F.col("used") > 0, F.col("used"))
    grown = F.when(F.count(daily) >= 3, F.exp(F.regr_slope(F.log(daily), F.col("day"))) - 1.0)
    return days.groupBy(*_TAGS).agg(
        grown.alias("growth_per_day"),
        (F.floor((F.max("last_ms") - F.min("first_ms")) / 1000) + 1).alias("span_s"),
        *sums("active_s"),
    )


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


def rows_of(proposals: Iterable[Proposal], tried: Tried, advice: Advice) -> list[tuple[Any, ...]]:
    """Return RECOMMEND rows."""
    rows = []
    for p in proposals:
        user, client = p.entity.user, p.entity.client_id
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
                *tried.now(p),
                *tried.then(p),
                p.held,
                *(p.wants[:4] if p.wants else [None] * 4),
                p.reason + p.hides,
            )
        )
    return rows


def with_wants(
    observed: Sequence[Observed], requests: DataFrame, current: Quotas, **windows: int
) -> list[Observed]:
    """Return what was observed, with what throttled quota-ids want on their busiest broker."""
    held = [o for o in observed if o.held > WAITING_SHARE and o.quota_type in BYTES]
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
        known = clients(activity)
        charged = [each for each in known if each.quota_type in how.types]
        given = in_force(quotas, charged)
        # Where nobody logs in, client-ids are all there is to tell clients apart.
        several = len({each.principal for each in charged}) > 1
        current = replace(scaffold(given, how.types) if several else given, name=CURRENT)
        had = changes(quotas, given, activity, charged)
        seen = without_own(activity).transform(usage(current)).transform(observe(how)).collect()
        observed = [replace(Observed(*row), other_limits=_others(had, row[:3])) for row in seen]
        charges = bytes_charged(requests()).persist() if requests is not None else None
        try:
            if charges is not None:
                observed = with_wants(observed, charges, current, **windows)
            sharers, counts = _sharers(charged, current)
            dead = _dead(known, quotas, how)
            proposals = propose(observed, quotas.tables[-1], sharers, dead, how)
            plans = [current, *plans_of(proposals, current, how)]
            throttled = _throttled(pack, options_of(plans, capacities={}, **windows))
            tried = Tried(plans, throttled, sharers, had.limits, counts)
            if charges is not None:
                asked = asked_of(proposals, tried, how)
                played = demand(plans, **windows, only=asked)
                tried.fares = Fares(charges.transform(played).collect() if asked else ())
                proposals = harmless(proposals, tried, how)
        finally:
            if charges is not None:
                charges.unpersist()
        rows = [
            dict(zip(schema.RECOMMEND.names, row, strict=True))
            for row in rows_of(proposals, tried, how)
        ]
        found = schema.RECOMMEND.from_rows(rows)
        return frame_of(activity.sparkSession, found, schema.RECOMMEND.struct)

    return transform


def _throttled(pack: Callable[[PackOptions], DataFrame], options: PackOptions) -> Throttled:
    """Return what plans throttle by a replay: requests and ms, by plan and quota-id."""
    replayed = pack(options).transform(replay_packed(options)).where(F.col("plan") >= 0)
    waits = replayed.groupBy("plan", *_TAGS).agg(*sums("throttled_requests", "throttle_time_ms"))
    names = [plan.name for plan in options.plans]
    return {(names[n], *key): (count, ms) for n, *key, count, ms in waits.collect()}


def _others(had: Changes, key: tuple[str, str, str]) -> tuple[float | None, ...]:
    """Return the limits that a quota-id's clients had for a time, the lowest first."""
    return tuple(sorted(had.limits.get(key, ()), key=lambda v: (v is None, v or 0.0)))


def _sharers(charged: Iterable[Client], current: Quotas) -> tuple[Sharers, dict[Key, int]]:
    """Return who shares each quota-id, and how many requests it has."""
    resolver = Resolver(current.tables[-1])
    found: dict[Key, list[tuple[str, str, float]]] = defaultdict(list)
    counts: dict[Key, int] = defaultdict(int)
    for each in charged:
        tags = resolver(*each.names, KEY_OF_TYPE[each.quota_type]).tags
        found[each.quota_type, *tags].append((*each.names, float(each.used or 0)))
        counts[each.quota_type, *tags] += each.requests
    return found, counts


def _dead(
    known: Iterable[Client], quotas: Quotas, how: Advice
) -> list[tuple[str, QuotaEntity, float]]:
    """Return the quotas in force that bound nobody."""
    table, last = quotas.tables[-1], Quotas.of(quotas.tables[-1])
    keys, resolver = keys_of_types(last), Resolver(table)
    bound = {
        (key, resolver(*each.names, key).source) for each in known for key in keys[each.quota_type]
    }
    rows = [
        (str(KEY_OF_TYPE[quota_type]), str(entity), (quota_type, entity, value))
        for quota_type in how.types
        for entity, value in table.for_key(KEY_OF_TYPE[quota_type]).items()
        if (KEY_OF_TYPE[quota_type], entity) not in bound
    ]
    return [row for _, _, row in sorted(rows, key=lambda r: r[:2])]
