"""
`headgate chargeback`, `storms` and `effective`: bills, storms, and which quota each client had.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.contract import Parser
from headgate.cli.pipeline.bill import add_bill, read_bill, tell_bill, write_bill
from headgate.cli.pipeline.command import command
from headgate.cli.pipeline.options import Opened, add_by_day, parser
from headgate.cli.pipeline.print import closing_table, number, share, sized, utc
from headgate.cli.pipeline.stream import Sums, add_growing, run_answer
from headgate.cli.results import Storms, Tables
from headgate.quota.key import QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def main_chargeback(argv: Sequence[str]) -> int:
    """`headgate chargeback`: what each principal used in a period, and what it costs."""
    return command(chargeback_parser(), argv, _chargeback)


def chargeback_parser() -> Parser:
    """Return the parser of `headgate chargeback`."""
    made = parser(
        "chargeback",
        "Sum up what each principal used per hour, day or month, and price it.",
        "--prices prices.yaml --period month",
    )
    made.add_argument("--prices", metavar="FILE", help="price file (see docs/reference/pipeline)")
    made.add_argument("--period", choices=("hour", "day", "month"), default="day")
    add_bill(made)
    add_growing(made)
    return made


def _chargeback(arguments: argparse.Namespace) -> Tables:
    from headgate.pipeline import schema
    from headgate.pipeline.answers import chargeback

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
    return run_answer(arguments, Sums("chargeback", write, tell, tables))


def _peak(row: Row) -> str:
    both = (row["peak_in_quota_share"], row["peak_out_quota_share"])
    return share(max((v for v in both if v is not None), default=None))


def main_storms(argv: Sequence[str]) -> int:
    """`headgate storms`: connections, producer ids or requests that came too fast."""
    return command(storms_parser(), argv, _storms)


def storms_parser() -> Parser:
    """Return the parser of `headgate storms`."""
    made = parser(
        "storms",
        "Find connection storms by address and listener, producer-id storms by user, request "
        "storms by client, with the quota that would have held them.",
        "--connections-per-second 20",
    )
    group = made.add_argument_group("what counts as a storm")
    group.add_argument("--connections-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--producer-ids-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--requests-per-second", type=float, default=1000.0, metavar="N")
    group.add_argument(
        "--factor", type=float, default=5.0, metavar="F", help="times the usual pace; default: 5"
    )
    add_growing(made)
    add_by_day(made)
    return made


def _storms(arguments: argparse.Namespace) -> Tables:
    from headgate.pipeline import schema
    from headgate.pipeline.answers import storms

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

    made = run_answer(arguments, Sums("storms", write, tell, ("storms",), connections=True))
    found = {figure.name: figure.value for figure in made.figures}.get("storms")
    # With --follow it ends when it's told to: storms don't change its exit status.
    count = 0 if arguments.follow else int(found or 0)
    return Storms(made.command, made.tables, made.figures, count)


def main_effective(argv: Sequence[str]) -> int:
    """`headgate effective`: which quota applied to which client; dead quotas."""
    return command(effective_parser(), argv, _effective)


def effective_parser() -> Parser:
    """Return the parser of `headgate effective`."""
    made = parser(
        "effective",
        "Tell which quota applied to each principal and client-id, what it overrides, and which "
        "configured quotas nobody matched.",
        "--quotas quotas.yaml",
        quotas_required=True,
    )
    add_growing(made)
    return made


def _effective(arguments: argparse.Namespace) -> Tables:
    from pyspark.sql import functions as F

    from headgate.pipeline import schema
    from headgate.pipeline.answers import effective

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

    return run_answer(arguments, Sums("effective", write, tell, ("effective",)))
