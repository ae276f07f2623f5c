"""
`headgate chargeback`, `storms` and `effective`: bills, storms, and which quota each client had.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from headgate.cli.pipeline.bill import read_bill, tell_bill, write_bill
from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, share, sized, utc
from headgate.cli.pipeline.stream import SecondSums, run_answer
from headgate.cli.results import Storms, Tables
from headgate.pipeline import schema
from headgate.pipeline.answers import chargeback, effective, storms
from headgate.quota.key import QuotaKey


def run_chargeback(arguments: argparse.Namespace) -> Tables:
    """Run `headgate chargeback`."""
    prices = chargeback.load_prices(arguments.prices) if arguments.prices else None
    given = read_bill(arguments)

    def write(on: Opened, activity: DataFrame, connections: DataFrame) -> None:
        transform = chargeback.chargeback(on.quotas, period=arguments.period, prices=prices)
        on.run.write(
            activity.transform(transform), schema.CHARGEBACK, words="reading and adding up"
        )
        total = sum(r["price"] for r in on.run.read(schema.CHARGEBACK).select("price").collect())
        on.run.figure("price", total, text=prices.currency if prices else None)
        if given:
            write_bill(on, given)

    def tell(on: Opened) -> None:
        rows = on.run.read(schema.CHARGEBACK).orderBy("period_ms", "principal").collect()
        currency = f" {prices.currency}" if prices and prices.currency else ""
        closing_table(
            f"Chargeback by {arguments.period}",
            (
                ("principal", "principal"),
                ("from (UTC)", lambda r: utc(r["period_ms"])),
                ("bytes in", lambda r: sized(r["bytes_in"], unit="B")),
                ("bytes out", lambda r: sized(r["bytes_out"], unit="B")),
                ("share", lambda r: share(r["cluster_share"])),
                ("peak of quota", _peak),
                ("throttle s", lambda r: number(r["throttle_time_ms"] / 1000)),
                ("price", lambda r: f"{r['price']:,.2f}{currency}" if prices else "-"),
            ),
            rows,
            most=100,
            table="chargeback",
        )
        if given:
            tell_bill(on, given)

    tables = ("chargeback", *(given.tables if given else ()))
    return run_answer(arguments, SecondSums("chargeback", write, tell, tables))


def _peak(row: Row) -> str:
    both = (row["peak_in_quota_share"], row["peak_out_quota_share"])
    return share(max((v for v in both if v is not None), default=None))


def run_storms(arguments: argparse.Namespace) -> Tables:
    """Run `headgate storms`."""
    transform = storms.storms(
        storms.Thresholds(
            arguments.connections_per_second,
            arguments.producer_ids_per_second,
            arguments.requests_per_second,
            arguments.factor,
        )
    )

    def write(on: Opened, activity: DataFrame, connections: DataFrame) -> None:
        seen = storms.connections_by_second(connections)
        on.run.write(transform(activity, seen), schema.STORMS, words="reading and adding up")
        on.run.figure("storms", on.run.read(schema.STORMS).count(), note="rows of table storms")

    def tell(on: Opened) -> None:
        rows = on.run.read(schema.STORMS).orderBy("start_ms", "kind").collect()
        closing_table(
            f"{len(rows)} storm{'' if len(rows) == 1 else 's'}",
            (
                ("kind", "kind"),
                ("from (UTC)", lambda r: utc(r["start_ms"])),
                ("entity", "entity"),
                ("count", lambda r: number(r["count"])),
                ("peak/s", lambda r: number(r["peak_per_s"])),
                ("quota", lambda r: "-" if r["quota"] is None else number(r["quota"])),
                ("why", "reason"),
            ),
            rows,
            most=50,
            table="storms",
        )

    made = run_answer(arguments, SecondSums("storms", write, tell, ("storms",), connections=True))
    found = {figure.name: figure.value for figure in made.figures}.get("storms")
    # With --follow it ends when it's told to: storms don't change its exit status.
    count = 0 if arguments.follow else int(found or 0)
    return Storms(made.command, made.tables, made.figures, count)


def run_effective(arguments: argparse.Namespace) -> Tables:
    """Run `headgate effective`."""

    def write(on: Opened, activity: DataFrame, connections: DataFrame) -> None:
        on.run.write(
            activity.transform(effective.effective(on.quotas)),
            schema.EFFECTIVE,
            words="reading and resolving",
        )
        dead = on.run.read(schema.EFFECTIVE).where(F.col("kind") == "dead").count()
        on.run.figure("dead_quotas", dead, note="configured quotas that nobody matched")

    def tell(on: Opened) -> None:
        table = on.run.read(schema.EFFECTIVE)
        rows = table.orderBy(
            F.desc("kind"), F.desc("bytes"), "quota_key", "principal", "client_id", "source"
        ).collect()
        dead = sum(r["kind"] == "dead" for r in rows)
        # Clients that nothing limits are in the table; here they'd hide the others.
        shown = [r for r in rows if r["source"] is not None]
        closing_table(
            f"{dead} dead quota{'' if dead == 1 else 's'}; what applied",
            (
                ("", "kind"),
                ("quota", lambda r: QuotaKey.parse(r["quota_key"]).name),
                ("principal", lambda r: r["principal"] or "-"),
                ("client-id", lambda r: r["client_id"] or "-"),
                ("limit", lambda r: sized(r["value"], r["quota_key"])),
                ("from", lambda r: r["source"] or "-"),
                ("instead of", lambda r: r["overridden"] or "-"),
                ("bytes", lambda r: sized(r["bytes"], unit="B")),
            ),
            shown,
            most=60,
            table="effective",
        )
        if len(shown) < len(rows):
            print(f"{len(rows) - len(shown)} rows of clients and types without a limit are there.")

    return run_answer(arguments, SecondSums("effective", write, tell, ("effective",)))
