"""
Share a bill out over principals and topics, as rows of FOCUS 1.2 whose sum is the bill.

A bill's amount is divided by its weights, and each weight's part by use. Both are one division, in
whole cents: every row gets its exact share rounded down, and the cents left go to the rows that
lost most (the method of largest remainders), so no row is a cent off its exact share. Where two
lost the same, the earlier row gets the cent.

Source: FinOps Open Cost and Usage Specification 1.2, "Columns" and "Attributes".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.errors import ConfigError
from headgate.pipeline import bill_tables
from headgate.pipeline.answers.bill import WEIGHTS, Bill, Owners
from headgate.pipeline.answers.chargeback import period_start

MOST_USES: Final = 500_000
"""Principals times periods, and topics: their rows are made in one process, some 2 kB each."""
_LENGTHS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Use(NamedTuple):
    """
    What was used of one weight.

    Args:
        weight: its name.
        start, end: the charge period, UTC; the end isn't part of it.
        name: principal or topic; "": nobody is known.
        amount: bytes, requests, ns, connections or partitions; above 0.
    """

    weight: str
    start: datetime
    end: datetime
    name: str
    amount: int | Fraction


def share_out(total: int, shares: Sequence[Fraction]) -> list[int]:
    """
    Divide a whole number by shares, into whole numbers that sum up to it.

    Args:
        total: to be divided; may be less than 0.
        shares: 0 or more each, one above 0.
    """
    whole = sum(shares)
    exact = [abs(total) * share / whole for share in shares]
    parts = [int(part) for part in exact]
    left = abs(total) - sum(parts)
    by_loss = sorted(range(len(exact)), key=lambda at: (parts[at] - exact[at], at))
    for at in by_loss[:left]:
        parts[at] += 1
    return [part if total >= 0 else -part for part in parts]


def focus(bill: Bill, uses: Iterable[Use], owners: Owners | None = None) -> pa.Table:
    """
    Share a bill out: FOCUS, with a row per use, and one per weight that nothing was used of.

    Args:
        bill: the bill.
        uses: of the weights that it has.
        owners: who owns what; None: rows name principals and topics only.
    """
    order = {name: at for at, name in enumerate(WEIGHTS)}
    asked = [*bill.by("principal"), *bill.by("topic")]
    kept = [use for use in uses if use.weight in asked and use.amount > 0]
    kept.sort(key=lambda use: (order[use.weight], use))
    totals: dict[str, Fraction] = defaultdict(Fraction)
    for use in kept:
        totals[use.weight] += use.amount
    unused = [Use(name, bill.start, bill.end, "", 0) for name in asked if not totals[name]]
    every = [*kept, *unused]
    shares = [
        Fraction(bill.weights[u.weight]) * (u.amount / totals[u.weight] if u.amount else 1)
        for u in every
    ]
    cents = share_out(int(bill.amount.scaleb(bill.decimals)), shares)
    same = _same(bill)
    rows = [
        same | _row(use, Decimal(cent).scaleb(-bill.decimals), owners)
        for use, cent in zip(every, cents, strict=True)
    ]
    return bill_tables.FOCUS.from_rows(rows)


def _same(bill: Bill) -> dict[str, Any]:
    """Return the columns that are the same in all rows."""
    return {
        "BillingAccountId": bill.account,
        "BillingAccountName": bill.account_name,
        "BillingCurrency": bill.currency,
        "BillingPeriodStart": bill.start,
        "BillingPeriodEnd": bill.end,
        "InvoiceId": bill.invoice,
        "InvoiceIssuerName": bill.issuer,
        "ProviderName": bill.provider,
        "PublisherName": bill.publisher,
        "ServiceCategory": "Integration",
        "ServiceName": bill.service,
        "ServiceSubcategory": "Messaging",
    }


def _row(use: Use, cost: Decimal, owners: Owners | None) -> dict[str, Any]:
    weight = WEIGHTS[use.weight]
    owner = owners.of(weight.of, use.name) if owners is not None and use.name else None
    row: dict[str, Any] = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        "ChargeCategory": "Usage" if use.amount else "Adjustment",
        "ChargeFrequency": "Usage-Based" if use.amount else "One-Time",
        "ChargePeriodStart": use.start,
        "ChargePeriodEnd": use.end,
        "x_AllocatedBy": use.weight,
        "x_IsAttributed": bool(use.name) and (owners is None or owner is not None),
    }
    if use.amount:
        used = Fraction(use.amount, weight.per_unit)
        quantity = Decimal(round(used * 10**9)).scaleb(-9)
        row |= dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity)
        row |= dict.fromkeys(("ConsumedUnit", "PricingUnit"), weight.unit)
    whose = f"{weight.of} {use.name}"
    if use.name:
        kind = "user" if weight.of == "principal" else "topic"
        row |= {"ResourceId": f"{kind}:{use.name}", "ResourceName": use.name}
        row["ResourceType"] = weight.of.capitalize()
    elif use.amount:
        whose = f"a {weight.of} that isn't known"
    else:
        whose = "nobody: none were seen in this period"
    if owner is not None:
        row |= {"SubAccountId": owner.name, "SubAccountName": owner.name, "Tags": owner.tags}
    elif owners is not None and use.name:
        whose += ", which has no owner"
    return row | {"ChargeDescription": f"{weight.words} of {whose}"}


def check(bill: Bill, period: str) -> None:
    """
    Refuse a bill that isn't of whole charge periods: use of a part of one isn't known.

    Raises:
        ConfigError: it isn't.
    """
    for moment in (bill.start, bill.end):
        whole = moment.replace(minute=0, second=0, microsecond=0)
        if period != "hour":
            whole = whole.replace(hour=0)
        if moment != (whole.replace(day=1) if period == "month" else whole):
            raise ConfigError(
                f"the bill's period begins or ends within a {period}, at {moment:%Y-%m-%d %H:%M:%S}"
                " UTC: choose a shorter --period"
            )


def share_bill(
    bill: Bill,
    used: DataFrame,
    *,
    period: str = "day",
    owners: Owners | None = None,
    connections: DataFrame | None = None,
    log_dirs: DataFrame | None = None,
) -> pa.Table:
    """
    Share a bill out by what frames say: FOCUS. Runs jobs at once.

    Args:
        bill: the bill.
        used: CHARGEBACK by ``period``; what lies outside of the bill's period isn't counted.
        period: hour, day or month: the charge periods of principals.
        owners: who owns what.
        connections: what ``connections`` gives; for a bill that weighs them.
        log_dirs: LOG_DIRS; of several snapshots the mean counts.

    Raises:
        ConfigError: a weight's frame is missing, the bill's period isn't one of whole ``period``,
            or there is too much for one process.
    """
    check(bill, period)
    asked = bill.by("principal")
    if connections is None and "connections" in asked:
        raise ConfigError("the bill weighs connections, which sums don't have: give requests")
    if log_dirs is None and bill.by("topic"):
        raise ConfigError(f"the bill weighs {', '.join(bill.by('topic'))}: give log_dirs")
    begin, end = ((moment - _EPOCH) // _MS for moment in (bill.start, bill.end))
    handler_ns = F.round(F.col("handler_ms") * 1e6).cast("long")
    rows = _rows(used.withColumn("handler_time", handler_ns), asked, begin, end)
    if connections is not None and "connections" in asked:
        rows += _rows(connections, ["connections"], begin, end)
    uses = [
        Use(weight, *_period(period, row["period_ms"]), row["principal"] or "", row[weight] or 0)
        for row in rows for weight in asked if weight in row
    ]  # fmt: skip
    if log_dirs is not None and bill.by("topic"):
        snapshots = log_dirs.select("taken_ms").distinct().count()
        held = log_dirs.groupBy("topic").agg(
            F.sum("bytes").alias("storage"),
            F.count(F.when(~F.col("is_future"), 1)).alias("partitions"),
        )
        uses += [
            Use(weight, bill.start, bill.end, row["topic"], Fraction(row[weight], snapshots))
            for row in _collect(held) for weight in bill.by("topic")
        ]  # fmt: skip
    return focus(bill, uses, owners)


def _rows(frame: DataFrame, weights: Sequence[str], begin_ms: int, end_ms: int) -> list[Any]:
    """Return what principals used in the bill's period, of those weights that the frame has."""
    have = [name for name in weights if name in frame.columns]
    inside = (F.col("period_ms") >= begin_ms) & (F.col("period_ms") < end_ms)
    return _collect(frame.where(inside).select("principal", "period_ms", *have))


def _collect(frame: DataFrame) -> list[Any]:
    rows = frame.limit(MOST_USES + 1).collect()
    if len(rows) > MOST_USES:
        raise ConfigError(f"a bill can be shared by {MOST_USES} principals and periods, or topics, "
                          "at most: choose a longer period")  # fmt: skip
    return rows


def _period(period: str, start_ms: int) -> tuple[datetime, datetime]:
    """Return where a period begins and where it ends."""
    start = _EPOCH + start_ms * _MS
    if period != "month":
        return start, start + _LENGTHS[period]
    return start, (start + timedelta(days=31)).replace(day=1)


def connections(period: str) -> Callable[[DataFrame], DataFrame]:
    """
    Count new connections: REQUESTS -> principal, period_ms, connections.

    A connection counts in the period of its first request, for that request's principal.

    Args:
        period: hour, day or month (UTC).
    """

    def transform(requests: DataFrame) -> DataFrame:
        first = (
            requests.where(F.col("is_charged") & (F.coalesce("connection", F.lit("")) != ""))
            .groupBy("broker_id", "listener", "connection")
            .agg(
                F.min("record_ms").alias("first_ms"),
                F.min_by("principal", "record_ms").alias("principal"),
            )
        )
        return (
            first.withColumn("period_ms", period_start(period, F.floor("first_ms")))
            .groupBy("principal", "period_ms")
            .agg(F.count(F.lit(1)).alias("connections"))
        )

    return transform


def write_file(rows: pa.Table, path: str, decimals: int) -> None:
    """
    Write FOCUS in the format the path ends in: .csv or .parquet.

    Args:
        rows: FOCUS.
        path: of the file.
        decimals: digits of costs after the point, in CSV.

    Raises:
        ConfigError: the path ends otherwise, or can't be written.
    """
    check_file(path)
    made = f"{path}.part"
    try:
        if path.endswith(".parquet"):
            parquet.write_table(rows, made)
        else:
            csv.write_csv(_as_text(rows, decimals), made)
        Path(made).replace(path)
    except OSError as exc:
        raise ConfigError(f"--focus {path}: can't be written: {exc.strerror or exc}") from exc


def check_file(path: str) -> None:
    """
    Refuse a file that ``write_file`` would.

    Raises:
        ConfigError: its name ends otherwise.
    """
    if not path.endswith((".csv", ".parquet")):
        raise ConfigError(f"--focus {path}: give a file that ends in .csv or .parquet")


def _as_text(rows: pa.Table, decimals: int) -> pa.Table:
    """Return rows with times as FOCUS writes them, and costs to the cent."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            seconds = column.cast(pa.timestamp("s", "UTC"))
            columns.append(pc.strftime(seconds, "%Y-%m-%dT%H:%M:%SZ"))
        elif name.endswith("Cost"):
            columns.append(column.cast(pa.decimal128(38, decimals)))
        else:
            columns.append(column)
    return pa.table(columns, names=rows.column_names)
