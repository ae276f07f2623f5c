"""
`headgate what-if`: the same requests under other quotas, several plans side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.pipeline_options import (
    add_windows,
    closing_table,
    command,
    number,
    opened,
    parser,
    share,
)
from headgate.cli.pipeline_reading import pack, print_bad_lines, write_bad_lines
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.pipeline.quotas import Quotas


def main_what_if(argv: Sequence[str]) -> int:
    """`headgate what-if`: the same requests under other quotas."""
    made = parser(
        "what-if",
        "Replay the same requests under other quotas: who would be throttled, for how long, and "
        "what share of their traffic. All plans go through one pass. Open-loop: a throttled "
        "client would have sent later.",
    )
    made.add_argument(
        "--plan",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="quotas files to compare, beside --quotas; a plan is named after its file",
    )
    add_windows(made)
    return command("what-if", _what_if, argv, made)


def _what_if(arguments: argparse.Namespace) -> None:
    from pyspark.sql import functions as F

    from headgate.pipeline import quotas, schema, what_if

    plans = [quotas.load(path) for path in arguments.plan]
    if not plans and not (arguments.quotas or arguments.store):
        raise ConfigError("give quotas to try: --plan FILE, or --quotas FILE")
    with opened(arguments, "what-if") as on:
        run = on.run
        given = arguments.quotas or arguments.store
        every = _named([*([on.quotas] if given else []), *plans])
        options = what_if.options_of(
            every,
            num_samples=arguments.quota_window_num,
            window_ms=arguments.quota_window_size_seconds * 1000,
        )
        packed = pack(on, options).persist()
        run.write(
            packed.transform(what_if.what_if_packed(options)),
            schema.WHAT_IF,
            words=f"reading and replaying under {len(every)} plans",
        )
        write_bad_lines(on, packed)
        table = run.read(schema.WHAT_IF)
        found = (
            table.groupBy("plan")
            .agg(
                F.sum("requests").alias("requests"),
                F.sum("bytes").alias("bytes"),
                F.sum("throttled_requests").alias("throttled"),
                F.sum("throttle_time_ms").alias("ms"),
                F.sum("delayed_bytes").alias("delayed"),
                F.countDistinct(
                    F.when(F.col("throttled_requests") > 0, F.struct("principal", "client_id"))
                ).alias("who"),
            )
            .collect()
        )
        order = [what_if.LOGGED, *(p.name for p in every)]
        found.sort(key=lambda r: order.index(r["plan"]))
        for r in found:
            run.figure(f"{r['plan']}.throttled_s", r["ms"] / 1000, unit="s")
            run.figure(f"{r['plan']}.throttled_requests", r["throttled"], unit="requests")
        run.write_summary()
        closing_table(
            "What if",
            ("plan", "requests", "throttled", "throttled s", "delayed bytes", "clients throttled"),
            [
                (
                    r["plan"],
                    number(r["requests"]),
                    number(r["throttled"]),
                    number(r["ms"] / 1000),
                    share(r["delayed"] / r["bytes"] if r["bytes"] else None)
                    if r["plan"] != what_if.LOGGED
                    else "-",
                    number(r["who"]),
                )
                for r in found
            ],
        )
        print("Open-loop: a throttled client would have sent later than it did.")
        print_bad_lines(on)


def _named(plans: list[Quotas]) -> list[Quotas]:
    """Return the plans with different names: a second ``prod`` becomes ``prod-2``."""
    seen: dict[str, int] = {"logged": 1}
    out = []
    for plan in plans:
        seen[plan.name] = seen.get(plan.name, 0) + 1
        n = seen[plan.name]
        out.append(plan if n == 1 else dataclasses.replace(plan, name=f"{plan.name}-{n}"))
    return out
