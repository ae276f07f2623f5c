"""
Ask what the commands answer, of a frame of requests.

Every function takes requests (REQUESTS) as its first argument; those that need only sums by second
take ACTIVITY as well. What they return has the columns of the table of their name as it is written,
with its units and its TIMESTAMP columns (``headgate.pipeline.schema``, docs/reference/pipeline.md).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame

from headgate.errors import BadArgument
from headgate.pipeline import frames, schema
from headgate.pipeline.answers import chargeback as bills
from headgate.pipeline.answers import demand as wanted
from headgate.pipeline.answers import effective as explained
from headgate.pipeline.answers import focus as shared
from headgate.pipeline.answers import recommend as advised
from headgate.pipeline.answers import storms as stormy
from headgate.pipeline.answers import usage as used
from headgate.pipeline.answers import what_if as tried
from headgate.pipeline.answers.advice import Advice
from headgate.pipeline.answers.bill import Bill, Owners, load_bill, load_owners
from headgate.pipeline.answers.replay import pack_requests, replay_packed
from headgate.pipeline.library.arguments import (
    QuotasGiven,
    check_frame,
    named,
    own_words,
    quotas_of,
)
from headgate.pipeline.library.reading import activity, is_activity, of_requests, others_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import (
    DEFAULT_SAMPLES,
    DEFAULT_WINDOW_MS,
    PackOptions,
)
from headgate.pipeline.table import frame_of
from headgate.quota.table import QuotaTable

Plans = Mapping[str, QuotasGiven] | Sequence[QuotasGiven] | QuotasGiven
"""Quotas to try: a mapping of names to quotas; or some, or one, named after their files' stems."""
_PERIODS: Final = {
    "second": schema.USAGE,
    "hour": schema.USAGE_HOUR,
    "day": schema.USAGE_DAY,
}
_TOPIC_PERIODS: Final = {
    "second": schema.USAGE_BY_TOPIC,
    "hour": schema.USAGE_BY_TOPIC_HOUR,
    "day": schema.USAGE_BY_TOPIC_DAY,
}


@own_words
def usage(
    requests: DataFrame,
    quotas: QuotasGiven = None,
    *,
    by: str = "second",
    by_topic: bool = False,
) -> DataFrame:
    """
    Say who used what: USAGE, one row per quota-id, broker and second.

    Args:
        requests: REQUESTS or ACTIVITY.
        quotas: in force: who shares what, and the limits.
        by: ``second``; or ``hour`` or ``day``, which give USAGE_HOUR and USAGE_DAY.
        by_topic: divide bytes by topic: USAGE_BY_TOPIC, or that by hour or day. It takes REQUESTS
            only, those of ``requests(..., topics=True)``.

    Raises:
        BadArgument: the frame holds no requests, the quotas can't be read, no period is called so.
    """
    if by not in _PERIODS:
        raise BadArgument(f"usage by={by!r}: choose {', '.join(_PERIODS)}")
    if by_topic:
        topics = _TOPIC_PERIODS[by]
        parts = of_requests(requests).transform(used.by_topic(quotas_of(quotas), topics))
        return topics.select_timed(parts)
    table = _PERIODS[by]
    return table.select_timed(activity(requests).transform(used.usage(quotas_of(quotas), table)))


@own_words
def effective(requests: DataFrame, quotas: QuotasGiven) -> DataFrame:
    """
    Say which quota applied to each client, and which are dead: EFFECTIVE.

    Args:
        requests: REQUESTS or ACTIVITY.
        quotas: in force.

    Raises:
        BadArgument: the frame holds no requests, or the quotas can't be read.
    """
    found = activity(requests).transform(explained.effective(quotas_of(quotas)))
    return schema.EFFECTIVE.select_timed(found)


@own_words
def chargeback(
    requests: DataFrame,
    quotas: QuotasGiven = None,
    *,
    period: str = "day",
    prices: bills.Prices | str | os.PathLike[str] | None = None,
) -> DataFrame:
    """
    Say what each principal used, and what it costs: CHARGEBACK, one row per principal and period.

    Args:
        requests: REQUESTS or ACTIVITY.
        quotas: in force, for peaks against limits.
        period: ``hour``, ``day`` or ``month`` (UTC).
        prices: prices, or the path of a price file; None = no prices.

    Raises:
        BadArgument: as `effective`; the price file can't be read; no period is called so.
    """
    if prices is not None and not isinstance(prices, bills.Prices):
        prices = bills.load_prices(os.fspath(prices))
    bill = bills.chargeback(quotas_of(quotas), period=period, prices=prices)
    return schema.CHARGEBACK.select_timed(activity(requests).transform(bill))


@own_words
def focus(
    requests: DataFrame,
    bill: Bill | str | os.PathLike[str],
    *,
    period: str = "day",
    owners: Owners | str | os.PathLike[str] | None = None,
    log_dirs: DataFrame | None = None,
) -> DataFrame:
    """
    Share a bill out over who used what: FOCUS 1.2, whose sums equal the bill.

    Unlike the others it runs its jobs at once, and makes its rows in this process.

    Args:
        requests: REQUESTS; or ACTIVITY, where the bill doesn't weigh connections.
        bill: the bill, or its path.
        period: ``hour``, ``day`` or ``month`` (UTC): charge periods.
        owners: who owns what, or the path of an owners file; None = nobody is named.
        log_dirs: LOG_DIRS, where the bill weighs storage or partitions.

    Raises:
        BadArgument: as `chargeback`; a file has mistakes; what the bill weighs isn't given.
    """
    if not isinstance(bill, Bill):
        bill = load_bill(os.fspath(bill))
    if owners is not None and not isinstance(owners, Owners):
        owners = load_owners(os.fspath(owners))
    check_frame(requests)
    seen: DataFrame | None = None
    if "connections" in bill.by("principal") and not is_activity(requests):
        seen = of_requests(requests).transform(shared.connections(period))
    used = chargeback(requests, period=period)
    given = {"owners": owners, "connections": seen, "log_dirs": log_dirs}
    rows = shared.share_bill(bill, used, period=period, **given)
    return frame_of(requests.sparkSession, rows)


@own_words
def storms(requests: DataFrame, thresholds: stormy.Thresholds | None = None) -> DataFrame:
    """
    Find connections, producer ids and requests that came too fast: STORMS, one row per storm.

    The requests are read twice, for the sums and for the connections.

    Args:
        requests: REQUESTS.
        thresholds: what counts as a storm.

    Raises:
        BadArgument: the frame holds no requests.
    """
    whole = of_requests(requests)
    seen = stormy.connections_by_second(frames.connections(whole))
    found = stormy.storms(thresholds)(frames.activity(whole), seen)
    return schema.STORMS.select_timed(found)


@own_words
def replay(
    requests: DataFrame,
    quotas: QuotasGiven = None,
    *,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """
    Say what Kafka's sensor would have decided for every request: REPLAY, a row per row.

    Further columns of the frame follow those of REPLAY, as they are. Charges of a journal are under
    the limits that it recorded (column ``recorded``), and in its own order.

    Args:
        requests: REQUESTS.
        quotas: in force, for charges of logs.
        num_samples: quota.window.num of the broker (logs).
        window_ms: quota.window.size.seconds x 1000 of the broker (logs).

    Raises:
        BadArgument: the frame holds no requests, or the quotas can't be read.
    """
    options = PackOptions((quotas_of(quotas),), True, num_samples, window_ms)
    check_frame(requests)
    others = others_of(requests)
    names = [field.name for field in others]
    packed = of_requests(requests, names).transform(pack_requests(options, names))
    replayed = packed.transform(replay_packed(options, others))
    return schema.REPLAY.select_timed(replayed, names)


@own_words
def what_if(
    requests: DataFrame,
    plans: Plans,
    *,
    in_force: QuotasGiven = None,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
    capacities: Mapping[str, float] | None = None,
    split_period_ms: int = 5000,
) -> DataFrame:
    """
    Try other quotas on past requests, several plans side by side: WHAT_IF.

    Args:
        requests: REQUESTS.
        plans: quotas to try.
        in_force: the quotas in force when the logs were written. They become the first plan, and
            bound the throttling of fetches.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
        capacities: by byte-rate type, a broker's bytes per second, for plans with shares.
        split_period_ms: headgate.splits.period.ms, for plans with cluster-wide rates.

    Raises:
        BadArgument: the frame holds no requests, plans can't be read, or two have the same name.
    """
    every = _plans(plans)
    if in_force is not None:
        every.insert(0, quotas_of(in_force, "in_force"))
    options = tried.options_of(
        named(every, "what_if"),
        num_samples=num_samples,
        window_ms=window_ms,
        capacities=capacities,
        split_period_ms=split_period_ms,
    )
    compare = tried.what_if_packed(options, in_force=in_force is not None)
    packed = of_requests(requests).transform(pack_requests(options))
    return schema.WHAT_IF.select_timed(packed.transform(compare))


@own_words
def demand(
    requests: DataFrame,
    plans: Plans,
    *,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """
    Say what clients want, and how they'd fare under other quotas in a closed loop: DEMAND.

    The requests are read twice: first for the time of each broker's last request.

    Args:
        requests: REQUESTS, with column ``connection``; best of a gateway's journal.
        plans: quotas to try, as ``what_if`` takes them; those in force show how well models fit.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.

    Raises:
        BadArgument: the frame holds no requests, quotas can't be read, plans share a name.
    """
    every = named(_plans(plans), "demand")
    tried_all = wanted.demand(every, num_samples=num_samples, window_ms=window_ms)
    return schema.DEMAND.select_timed(of_requests(requests).transform(tried_all))


def _plans(plans: Plans) -> list[Quotas]:
    if isinstance(plans, Mapping):
        return [dataclasses.replace(quotas_of(p), name=name) for name, p in plans.items()]
    if plans is None or isinstance(plans, Quotas | QuotaTable | str | os.PathLike):
        return [quotas_of(plans)]
    return [quotas_of(plan) for plan in plans]


@own_words
def recommend(
    requests: DataFrame,
    quotas: QuotasGiven = None,
    *,
    advice: Advice | None = None,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """
    Propose quotas from use, and try them on the same requests: RECOMMEND.

    Unlike the others it runs its jobs at once: what it proposes is what the next job tries. While
    it runs the requests are persisted, so that they are read once.

    Args:
        requests: REQUESTS.
        quotas: in force.
        advice: how figures are made.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.

    Raises:
        BadArgument: the frame holds no requests, or the quotas can't be read.
    """
    whole = of_requests(requests).select(*advised.LOOKED_AT)
    transform = advised.recommend(
        quotas_of(quotas),
        lambda options: whole.transform(pack_requests(options)),
        advice,
        requests=lambda: whole,
        num_samples=num_samples,
        window_ms=window_ms,
    )
    whole.persist()  # for sums, for waits, and for the replay
    sums = frames.coalesced(frames.activity(whole)).persist()
    try:
        return transform(sums)
    finally:
        sums.unpersist()
        whole.unpersist()
