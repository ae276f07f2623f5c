"""
Propose a quota per entity from what was used, and say what it would have throttled.

The figure is a percentile of the rate over the quota window (the busiest broker's, as limits hold
per broker), times growth up to a horizon, times headroom, rounded up to two digits; not below a
floor, and none where too little was seen (``advice``). Beside single
values it looks for entities better merged, split, given a default, or removed. What each would
have throttled comes from trying it on the same data (``trial``): all single values under one plan,
and each other kind of action under a plan of its own. What would throttle more than now isn't
proposed. Limits that were in force for a part of the time are told, and never counted as those in
force. A journal's charges bear the quota-id and limit of their moment, and a history of quotas has
a table for each moment. Those in force are the last table; for a journal without any quotas given,
what each client was last charged to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headgate.pipeline import schema
from headgate.pipeline.answers.advice import (
    BYTES,
    WAITING_SHARE,
    Advice,
    Observed,
    Wants,
)
from headgate.pipeline.answers.demand import LOOKED_AT as CHARGED_AT
from headgate.pipeline.answers.demand import charged as bytes_charged
from headgate.pipeline.answers.demand import demand
from headgate.pipeline.answers.effective import keys_of_types
from headgate.pipeline.answers.proposals import Sharers, propose
from headgate.pipeline.answers.replay import replay_packed
from headgate.pipeline.answers.trial import (
    CURRENT,
    Fares,
    Key,
    Throttled,
    Tried,
    asked_of,
    harmless,
    plans_of,
)
from headgate.pipeline.answers.usage import DAY_MS, resolve, usage
from headgate.pipeline.answers.what_if import options_of
from headgate.pipeline.emitted import OWN_QUOTA
from headgate.pipeline.frames import SUMMED
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.pipeline.replaying.charges import NEEDED
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.table import frame_of, in_order, largest, percentile, sums
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.precedence import Resolver
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED

LOOKED_AT: Final = tuple(
    name for name in schema.REQUESTS.names if name in {*SUMMED, *CHARGED_AT, *NEEDED}
)
"""Columns of REQUESTS that are summed up, asked for waits, and replayed."""
_TAGS = ("quota_type", "quota_user", "quota_client_id")

_WHO: Final = ("quota_type", "principal", "client_id")


class Client(NamedTuple):
    """
    What a client was charged to a quota type.

    Attributes:
        quota_type: the type.
        principal: of the client; None: unknown.
        client_id: of the client; None: unknown.
        used: bytes of byte rates, else amounts.
        requests: charged.
        has_own: a journal tells its quota-id.
        own: (user tag, client tag, limit, second) of what it was last charged to; all None but the
            second in a log.
    """

    quota_type: str
    principal: str | None
    client_id: str | None
    used: float | None
    requests: int
    has_own: bool
    own: tuple[str | None, str | None, float | None, int]

    @property
    def names(self) -> tuple[str, str]:
        """Principal and client-id, "" where unknown."""
        return self.principal or "", self.client_id or ""


@dataclass
class Changes:
    """
    What was in force for a part of the time, and isn't now.

    Attributes:
        limits: by quota-id in force, the other limits that its clients had; None: no limit.
        gone: quota-ids of the data that nobody is charged to now.
    """

    limits: dict[Key, set[float | None]] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)


def without_own(activity: DataFrame) -> DataFrame:
    """Return ACTIVITY without journals' own quotas, so that those given are looked up."""
    nothing = {n: F.lit(None).cast(activity.schema[n].dataType) for n in OWN_QUOTA}
    return activity.withColumns(nothing)


def clients(activity: DataFrame) -> list[Client]:
    """
    Return who was charged, and what for: a row per quota type, principal and client-id.

    One query; what else is asked about clients is worked out of these rows by this process.

    Args:
        activity: ACTIVITY, with what journals say about their quotas.
    """
    charged = activity.where(F.col("is_charged") & F.col("quota_type").isin(*KEY_OF_TYPE))
    rows = charged.groupBy(*_WHO).agg(
        F.sum(used()),
        F.sum("requests"),
        F.max(F.col("quota_id").isNotNull()),
        F.max_by(F.struct(*OWN_QUOTA[1:], "second_ms"), "second_ms"),
    )
    return [Client(*row) for row in rows.collect()]


def used() -> Column:
    """Return what counts as use: bytes of byte rates, else amounts."""
    return F.when(F.col("quota_type").isin(*BYTES), F.col("bytes")).otherwise(F.col("amount"))


def in_force(quotas: Quotas, charged: Iterable[Client]) -> Quotas:
    """
    Return one table: the last of those given or, where none holds a quota, a journal's last ones.

    Args:
        quotas: those given.
        charged: clients, of the quota types that matter.
    """
    table = quotas.tables[-1]
    if len(quotas.tables) > 1 or table.entities or table.static_defaults:
        return Quotas.of(table, quotas.name)
    found: dict[tuple[str, QuotaEntity], tuple[int, float]] = {}
    for each in charged:
        user, client, limit, second_ms = each.own
        if (user or client) and limit is not None and limit < UNLIMITED:
            at = each.quota_type, QuotaEntity.of(user=user or None, client_id=client or None)
            found[at] = max(found.get(at, (0, 0.0)), (second_ms, limit))
    made = [
        QuotaAlteration(entity, (Op(KEY_OF_TYPE[quota_type], value),))
        for (quota_type, entity), (_, value) in found.items()
    ]
    return Quotas.of(QuotaTable().apply(made)[0], quotas.name)


def changes(
    quotas: Quotas, current: Quotas, activity: DataFrame, charged: Sequence[Client]
) -> Changes:
    """
    Say which clients had another limit for a part of the time.

    Args:
        quotas: those given, with their history.
        current: those in force.
        activity: ACTIVITY, with what journals say about their quotas.
        charged: its clients, of the quota types that matter.
    """
    found = Changes()
    if len(quotas.tables) == 1 and not any(each.has_own for each in charged):
        return found
    types = {each.quota_type for each in charged}
    rows = activity.where(F.col("is_charged") & F.col("quota_type").isin(*types))
    had = rows.transform(resolve(quotas)).select(*_WHO, *OWN_QUOTA[1:]).distinct().collect()
    resolver = Resolver(current.tables[-1])
    there: set[Key] = set()
    for row in had:
        now = resolver(
            row["principal"] or "", row["client_id"] or "", KEY_OF_TYPE[row["quota_type"]]
        )
        mine = (row["quota_type"], *now.tags)
        there.add(mine)
        limit, limit_now = _finite(row["quota"]), _finite(now.value)
        if limit != limit_now:
            found.limits.setdefault(mine, set()).add(limit)
            found.gone.add((row["quota_type"], row["quota_user"], row["quota_client_id"]))
    found.gone -= there
    return found


def _finite(limit: float | None) -> float | None:
    return None if limit is None or limit >= UNLIMITED else limit


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
        before = Window.partitionBy(*_TAGS, "broker_id").orderBy("second_ms")
        # A wait that begins before an earlier one's end counts from that end on.
        ends = F.col("second_ms") + F.col("max_throttle_time_ms")
        earlier = F.max(ends).over(before.rowsBetween(Window.unboundedPreceding, -1))
        measured = mine.withColumns(
            {
                "rate": F.sum("used").over(before.rangeBetween(-reach, 0)) / float(advice.window_s),
                "waits": F.greatest(F.lit(0), ends - F.greatest(F.col("second_ms"), earlier)),
                "active_ms": F.when(F.col("used") > 0, F.col("second_ms")),
            }
        )
        parts = _by_broker_and_day(measured).withColumn(
            "percentile", percentile(F.col("rates"), advice.percentile)
        )
        daily = F.when(F.col("used") > 0, F.col("used"))
        grown = F.when(F.count(daily) >= 3, F.exp(F.regr_slope(F.log(daily), F.col("day"))) - 1.0)
        found = parts.groupBy(*_TAGS).agg(
            *largest("percentile", "peak"),
            F.coalesce(grown, F.lit(0.0)).alias("growth_per_day"),
            F.max("quota").alias("quota"),
            (F.floor((F.max("last_ms") - F.min("first_ms")) / 1000) + 1).alias("span_s"),
            *sums("active_s"),
            *largest("held"),
        )
        # Without use (fetches that were all throttled, say) no figure can be given.
        limit = F.when(F.col("quota") < UNLIMITED, F.col("quota")).alias("current")
        figures = ("percentile", "peak", "growth_per_day", limit, "span_s", "active_s", "held")
        return found.where(F.col("peak") > 0).select(*_TAGS, *figures)

    return transform


def _by_broker_and_day(measured: DataFrame) -> DataFrame:
    """
    Return a row per quota-id and broker, and one per quota-id and day (of all brokers).

    Each row of use counts in both. As two queries, joined, they would add use up twice.
    """
    day = F.floor(F.col("second_ms") / DAY_MS)
    of_broker = F.col("day").isNull()
    twice = measured.withColumn("day", F.explode(F.array(F.lit(None).cast("long"), day)))
    of_brokers = {n: F.when(of_broker, F.col(n)) for n in ("broker_id", "rate", "waits", "quota")}
    of_days = {n: F.when(~of_broker, F.col(n)) for n in ("used", "active_ms")}
    span = F.max("second_ms") - F.min("second_ms") + 1000
    return (
        twice.withColumns(of_brokers | of_days)
        .groupBy(*_TAGS, "broker_id", "day")
        .agg(
            in_order("rate").alias("rates"),
            F.max("rate").alias("peak"),
            F.max_by("quota", "second_ms").alias("quota"),
            F.when(of_broker, F.least(F.lit(1.0), F.sum("waits") / span)).alias("held"),
            *sums("used"),
            F.min("active_ms").alias("first_ms"),
            F.max("active_ms").alias("last_ms"),
            F.size(F.collect_set("active_ms")).alias("active_s"),
        )
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
        found = schema.RECOMMEND.from_rows(tried.rows(proposals, how))
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
