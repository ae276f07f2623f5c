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
from pyspark.sql import functions as F

from headgate.errors import ConfigError
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
from headgate.pipeline.emitted import ACTIVITY, CONNECTIONS
from headgate.pipeline.library.reading import (
    QuotasGiven,
    activity,
    completed,
    files_of,
    named,
    pack,
    quotas_of,
)
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import (
    DEFAULT_SAMPLES,
    DEFAULT_WINDOW_MS,
    PackOptions,
)
from headgate.pipeline.replaying.replay import replay_packed
from headgate.quota.table import QuotaTable

Plans = Mapping[str, QuotasGiven] | Sequence[QuotasGiven] | QuotasGiven
"""Quotas to try: a mapping of names to quotas; or some, or one, named after their files' stems."""
_PERIODS: Final = {
    "second": schema.USAGE,
    "hour": schema.USAGE_HOUR,
    "day": schema.USAGE_DAY,
}


def usage(requests: DataFrame, quotas: QuotasGiven = None, *, by: str = "second") -> DataFrame:
    """
    Say who used what: USAGE, one row per quota-id, broker and second.

    Args:
        requests: REQUESTS or ACTIVITY.
        quotas: in force: who shares what, and the limits.
        by: ``second``; or ``hour`` or ``day``, which give USAGE_HOUR and USAGE_DAY.

    Raises:
        ConfigError: the frame holds no requests, the quotas can't be read, no period is called so.
    """
    if by not in _PERIODS:
        raise ConfigError(f"usage by={by!r}: choose {', '.join(_PERIODS)}")
    table, files, given = _PERIODS[by], files_of(requests), quotas_of(quotas)
    if files is not None:
        packed = used.packed_logs(requests.sparkSession, files, given)
    else:
        packed = activity(requests).transform(used.packed(given))
    return table.select_timed(packed.transform(used.unpacked(table)))


def effective(requests: DataFrame, quotas: QuotasGiven) -> DataFrame:
    """
    Say which quota applied to each client, and which are dead: EFFECTIVE.

    Args:
        requests: REQUESTS or ACTIVITY.
        quotas: in force.

    Raises:
        ConfigError: the frame holds no requests, or the quotas can't be read.
    """
    return activity(requests).transform(explained.effective(quotas_of(quotas)))


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
        ConfigError: as `effective`; the price file can't be read; no period is called so.
    """
    if prices is not None and not isinstance(prices, bills.Prices):
        prices = bills.load_prices(os.fspath(prices))
    bill = bills.chargeback(quotas_of(quotas), period=period, prices=prices)
    return schema.CHARGEBACK.select_timed(activity(requests).transform(bill))


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
        ConfigError: as `chargeback`; a file has mistakes; what the bill weighs isn't given.
    """
    if not isinstance(bill, Bill):
        bill = load_bill(os.fspath(bill))
    if owners is not None and not isinstance(owners, Owners):
        owners = load_owners(os.fspath(owners))
    seen: DataFrame | None = None
    if "connections" in bill.by("principal") and not set(ACTIVITY.names) <= set(requests.columns):
        seen = completed(requests).transform(shared.connections(period))
    used = chargeback(requests, period=period)
    given = {"owners": owners, "connections": seen, "log_dirs": log_dirs}
    rows = shared.share_bill(bill, used, period=period, **given)
    return requests.sparkSession.createDataFrame(rows)


def storms(requests: DataFrame, thresholds: stormy.Thresholds | None = None) -> DataFrame:
    """
    Find connections, producer ids and requests that came too fast: STORMS, one row per storm.

    Files are read twice, for the sums and for the connections.

    Args:
        requests: REQUESTS.
        thresholds: what counts as a storm.

    Raises:
        ConfigError: the frame holds no requests.
    """
    files = files_of(requests)
    if files is not None:
        options = dataclasses.replace(files, connections=True)
        emitted = frames.emit_activity(requests.sparkSession, options)
        sums, seen = frames.sums_of(emitted), frames.only(emitted, "connection", CONNECTIONS)
    else:
        whole = completed(requests)
        sums = frames.activity(whole)
        where = ("broker_id", "listener", "client_ip", "connection")
        seen = whole.select(*where, F.col("record_ms").alias("first_ms"))
    found = stormy.storms(thresholds)(sums, stormy.connections_by_second(seen))
    return schema.STORMS.select_timed(found)


def replay(
    requests: DataFrame,
    quotas: QuotasGiven = None,
    *,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """
    Say what Kafka's sensor would have decided for every request: REPLAY, a row per row.

    Args:
        requests: REQUESTS. Journals keep their own limits and order where they are read from files;
            a frame's rows don't hold these, and come under ``quotas``.
        quotas: in force.
        num_samples: quota.window.num of the broker (logs).
        window_ms: quota.window.size.seconds x 1000 of the broker (logs).

    Raises:
        ConfigError: the frame holds no requests, or the quotas can't be read.
    """
    options = PackOptions((quotas_of(quotas),), True, num_samples, window_ms)
    return schema.REPLAY.select_timed(pack(requests, options).transform(replay_packed(options)))


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
        ConfigError: the frame holds no requests, plans can't be read, or two have the same name.
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
    return schema.WHAT_IF.select_timed(pack(requests, options).transform(compare))


def demand(
    requests: DataFrame,
    plans: Plans,
    *,
    num_samples: int = DEFAULT_SAMPLES,
    window_ms: int = DEFAULT_WINDOW_MS,
) -> DataFrame:
    """
    Say what clients want, and how they'd fare under other quotas in a closed loop: DEMAND.

    Files are read twice: first for the time of each broker's last request.

    Args:
        requests: REQUESTS, with column ``connection``; best of a gateway's journal.
        plans: quotas to try, as ``what_if`` takes them; those in force show how well models fit.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.

    Raises:
        ConfigError: the frame holds no requests, quotas can't be read, plans share a name.
    """
    every = named(_plans(plans), "demand")
    tried_all = wanted.demand(every, num_samples=num_samples, window_ms=window_ms)
    return schema.DEMAND.select_timed(_charges(requests).transform(tried_all))


def _charges(requests: DataFrame) -> DataFrame:
    """Return what ``demand`` looks at; where files are read, nothing else enters the JVM."""
    files = files_of(requests)
    if files is None:
        return completed(requests)
    return wanted.charged_of(requests.sparkSession, files)


def _plans(plans: Plans) -> list[Quotas]:
    if isinstance(plans, Mapping):
        return [dataclasses.replace(quotas_of(p), name=name) for name, p in plans.items()]
    if plans is None or isinstance(plans, Quotas | QuotaTable | str | os.PathLike):
        return [quotas_of(plans)]
    return [quotas_of(plan) for plan in plans]


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

    Unlike the others it runs its jobs at once: what it proposes is what the next job tries.

    Args:
        requests: REQUESTS.
        quotas: in force.
        advice: how figures are made.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.

    Raises:
        ConfigError: the frame holds no requests, or the quotas can't be read.
    """
    transform = advised.recommend(
        quotas_of(quotas),
        lambda options: pack(requests, options),
        advice,
        requests=lambda: _charges(requests),
        num_samples=num_samples,
        window_ms=window_ms,
    )
    sums = activity(requests).persist()
    try:
        return transform(sums)
    finally:
        sums.unpersist()
