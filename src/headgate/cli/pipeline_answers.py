"""
`headgate chargeback`, `storms` and `effective`: bills, bursts, and which quota bound whom.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headgate.cli.pipeline_options import closing_table, command, number, opened, parser, share, utc
from headgate.cli.pipeline_reading import (
    activity_of,
    print_bad_lines,
    read_activity,
    write_bad_lines,
)


def main_chargeback(argv: Sequence[str]) -> int:
    """`headgate chargeback`: what each principal used in a period, and what it costs."""
    made = parser(
        "chargeback", "Sum up what each principal used per hour, day or month, and price it."
    )
    made.add_argument("--prices", metavar="FILE", help="price file (see docs/reference/pipeline)")
    made.add_argument("--period", choices=("hour", "day", "month"), default="day")
    return command("chargeback", _chargeback, argv, made)


def _chargeback(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import chargeback, schema

    prices = chargeback.load_prices(arguments.prices) if arguments.prices else None
    with opened(arguments, "chargeback") as on:
        run = on.run
        emitted = read_activity(on).persist()
        transform = chargeback.chargeback(on.quotas, period=arguments.period, prices=prices)
        run.write(
            activity_of(emitted).transform(transform),
            schema.CHARGEBACK,
            words="reading and adding up",
        )
        write_bad_lines(on, emitted)
        rows = run.read(schema.CHARGEBACK).orderBy("period_ms", "principal").collect()
        run.figure("price", sum(r["price"] for r in rows), text=prices.currency if prices else None)
        run.write_summary()
        currency = f" {prices.currency}" if prices and prices.currency else ""
        closing_table(
            f"Chargeback by {arguments.period}",
            ("principal", "from (UTC)", "bytes in", "bytes out", "share", "throttle s", "price"),
            [
                (
                    r["principal"],
                    utc(r["period_ms"]),
                    number(r["bytes_in"]),
                    number(r["bytes_out"]),
                    share(r["cluster_share"]),
                    number(r["throttle_time_ms"] / 1000),
                    f"{r['price']:,.2f}{currency}" if prices else "-",
                )
                for r in rows[:100]
            ],
        )
        print_bad_lines(on)


def main_storms(argv: Sequence[str]) -> int:
    """`headgate storms`: connections, producer ids or requests that came too fast."""
    made = parser(
        "storms",
        "Find connection storms by address and listener, producer-id storms by user, request "
        "storms by client, with the quota that would have held them.",
    )
    group = made.add_argument_group("what counts as a storm")
    group.add_argument("--connections-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--producer-ids-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--requests-per-second", type=float, default=1000.0, metavar="N")
    group.add_argument(
        "--factor", type=float, default=5.0, metavar="F", help="times the usual pace; default: 5"
    )
    return command("storms", _storms, argv, made)


def _storms(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import schema, sources, storms

    with opened(arguments, "storms") as on:
        run = on.run
        emitted = read_activity(on, connections=True).persist()
        transform = storms.storms(
            storms.Thresholds(
                arguments.connections_per_second,
                arguments.producer_ids_per_second,
                arguments.requests_per_second,
                arguments.factor,
            )
        )
        seen = storms.connections_by_second(sources.connections(emitted))
        run.write(
            transform(activity_of(emitted), seen), schema.STORMS, words="reading and adding up"
        )
        write_bad_lines(on, emitted)
        rows = run.read(schema.STORMS).orderBy("start_ms", "kind").collect()
        run.figure("storms", len(rows), note="rows of table storms")
        run.write_summary()
        closing_table(
            f"{len(rows)} storms",
            ("kind", "from (UTC)", "entity", "count", "peak/s", "quota", "why"),
            [
                (
                    r["kind"],
                    utc(r["start_ms"]),
                    r["entity"],
                    number(r["count"]),
                    number(r["peak_per_s"]),
                    "-" if r["quota"] is None else number(r["quota"]),
                    r["reason"],
                )
                for r in rows[:50]
            ],
        )
        print_bad_lines(on)


def main_effective(argv: Sequence[str]) -> int:
    """`headgate effective`: which quota applied to whom; dead quotas."""
    made = parser(
        "effective",
        "Tell which quota applied to each principal and client-id, what it overrides, and which "
        "configured quotas nobody matched.",
        quotas_required=True,
    )
    return command("effective", _effective, argv, made)


def _effective(arguments: argparse.Namespace) -> None:
    from pyspark.sql import functions as F

    from headgate.pipeline import effective, schema

    with opened(arguments, "effective") as on:
        run = on.run
        emitted = read_activity(on).persist()
        run.write(
            activity_of(emitted).transform(effective.effective(on.quotas)),
            schema.EFFECTIVE,
            words="reading and resolving",
        )
        write_bad_lines(on, emitted)
        table = run.read(schema.EFFECTIVE)
        rows = table.orderBy(
            F.desc("kind"), F.desc("bytes"), "quota_key", "principal", "client_id", "source"
        ).collect()
        dead = sum(r["kind"] == "dead" for r in rows)
        run.figure("dead_quotas", dead, note="configured quotas that nobody matched")
        run.write_summary()
        closing_table(
            f"{dead} dead quotas; what applied",
            ("", "quota", "principal", "client-id", "limit", "from", "instead of", "bytes"),
            [
                (
                    r["kind"],
                    r["quota_key"],
                    r["principal"] or "-",
                    r["client_id"] or "-",
                    number(r["value"]),
                    r["source"] or "-",
                    r["overridden"] or "-",
                    number(r["bytes"]),
                )
                for r in rows[:60]
            ],
        )
        print_bad_lines(on)
