"""
`headgate what-if`: the same requests under other quotas, several plans side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headgate.cli.pipeline_options import (
    Opened,
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
from headgate.quota.key import CONSUMER_SHARES, PRODUCER_SHARES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    group = made.add_argument_group("limits that Kafka doesn't have (a gateway's settings)")
    for direction in ("producer", "consumer"):
        group.add_argument(
            f"--capacity-{direction}-byte-rate",
            type=float,
            metavar="B_PER_S",
            help=f"each broker's capacity that {direction}_byte_rate:shares divide; "
            "without it they aren't tried",
        )
    group.add_argument(
        "--splits-period-ms",
        type=int,
        default=5000,
        metavar="N",
        help="headgate.splits.period.ms, for cluster-wide rates (bps); default: 5000",
    )
    return command("what-if", _what_if, argv, made)


def _what_if(arguments: argparse.Namespace) -> None:
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
            capacities=_capacities(arguments),
            split_period_ms=arguments.splits_period_ms,
        )
        packed = pack(on, options).persist()
        run.write(
            packed.transform(what_if.what_if_packed(options)),
            schema.WHAT_IF,
            words="reading and replaying under " + ", ".join(p.name for p in every),
        )
        write_bad_lines(on, packed)
        names = [what_if.LOGGED, *(p.name for p in every)]
        table = run.read(schema.WHAT_IF)
        _tell_plans(on, table, names)
        _tell_clients(table, names)
        print("Open-loop: a throttled client would have sent later than it did.")
        _tell_left_out(every, options.capacities)
        print_bad_lines(on)


def _capacities(arguments: argparse.Namespace) -> dict[str, float]:
    """
    Return the capacities given, by quota type.

    Raises:
        ConfigError: one isn't above 0.
    """
    given = {
        "producer_byte_rate": arguments.capacity_producer_byte_rate,
        "consumer_byte_rate": arguments.capacity_consumer_byte_rate,
    }
    for quota_type, value in given.items():
        if value is not None and not value > 0:
            flag = f"--capacity-{quota_type.replace('_', '-')}"
            raise ConfigError(f"{flag} {value:g}: give bytes per second, more than 0")
    return {quota_type: value for quota_type, value in given.items() if value is not None}


def _tell_plans(on: Opened, table: DataFrame, names: list[str]) -> None:
    """Print a row per plan, and one for each kind of limit that Kafka doesn't have."""
    from pyspark.sql import functions as F

    unit = F.element_at(F.split("quota_type", ":"), 2)
    kind = F.when(F.size(F.split("quota_type", ":")) > 1, unit).otherwise("")
    found = (
        table.withColumn("kind", kind)
        .groupBy("plan", "kind")
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
    found.sort(key=lambda r: (names.index(r["plan"]), r["kind"]))
    rows = []
    for r in found:
        name = f"{r['plan']}.{r['kind']}" if r["kind"] else r["plan"]
        on.run.figure(f"{name}.throttled_s", r["ms"] / 1000, unit="s")
        on.run.figure(f"{name}.throttled_requests", r["throttled"], unit="requests")
        delayed = share(r["delayed"] / r["bytes"] if r["bytes"] else None)
        rows.append(
            (
                f"  by {_KINDS[r['kind']]}" if r["kind"] else r["plan"],
                number(r["requests"]),
                number(r["throttled"]),
                number(r["ms"] / 1000),
                delayed if r["plan"] != names[0] else "-",
                number(r["who"]),
            )
        )
    on.run.write_summary()
    closing_table(
        "What if",
        ("plan", "requests", "throttled", "throttled s", "delayed bytes", "clients throttled"),
        rows,
    )


_KINDS: Final = {"bps": "cluster-wide rates (bps)", "shares": "shares"}
_MOST_CLIENTS: Final = 20


def _tell_clients(table: DataFrame, names: list[str]) -> None:
    """Print, plan beside plan, the throttled seconds of those for whom plans differ most."""
    from pyspark.sql import functions as F

    seconds = F.sum("throttle_time_ms") / 1000
    by_plan = (
        table.groupBy("quota_type", "principal", "client_id").pivot("plan", names).agg(seconds)
    )
    given = [F.coalesce(F.col(f"`{n}`"), F.lit(0.0)) for n in names[1:]]
    spread = F.greatest(*given) - F.least(*given) if len(given) > 1 else given[0]
    order = (F.desc("spread"), "quota_type", "principal", "client_id")
    rows = by_plan.withColumn("spread", spread).where("spread > 0").orderBy(*order)
    shown = rows.limit(_MOST_CLIENTS).collect()
    if not shown:
        return
    closing_table(
        f"Throttled seconds of the {len(shown)} clients for whom it differs most",
        ("quota type", "principal", "client-id", *names),
        [
            (
                r["quota_type"],
                r["principal"] or "-",
                r["client_id"] or "-",
                *("-" if r[name] is None else number(r[name]) for name in names),
            )
            for r in shown
        ],
    )


def _tell_left_out(plans: Sequence[Quotas], capacities: Sequence[tuple[str, float]]) -> None:
    """Say which shares weren't tried, for want of a capacity."""
    known = dict(capacities)
    for direction, key in (("producer", PRODUCER_SHARES), ("consumer", CONSUMER_SHARES)):
        named = [p.name for p in plans if any(t.for_key(key) for t in p.tables)]
        if named and f"{direction}_byte_rate" not in known:
            print(
                f"{key.name} of {', '.join(named)} weren't tried: give each broker's capacity by "
                f"--capacity-{direction}-byte-rate."
            )


def _named(plans: list[Quotas]) -> list[Quotas]:
    """Return the plans with different names: a second ``prod`` becomes ``prod-2``."""
    seen: dict[str, int] = {"logged": 1}
    out = []
    for plan in plans:
        seen[plan.name] = seen.get(plan.name, 0) + 1
        n = seen[plan.name]
        out.append(plan if n == 1 else dataclasses.replace(plan, name=f"{plan.name}-{n}"))
    return out
