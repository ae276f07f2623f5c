"""
`headgate what-if`: the same requests under other quotas, several plans side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from headgate.cli.contract import BadUsage
from headgate.cli.pipeline.demand import tell_demand, write_demand
from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, share
from headgate.cli.pipeline.reading import pack_once
from headgate.cli.pipeline.stream import Replays, run_answer
from headgate.cli.quotas.quota_output import say_notes
from headgate.cli.results import Tables
from headgate.pipeline import quotas, schema
from headgate.pipeline.answers import bounds, what_if
from headgate.pipeline.answers.bounds import Bounds
from headgate.pipeline.quotas import Quotas
from headgate.quota.key import CONSUMER_SHARES, PRODUCER_SHARES


def run_what_if(arguments: argparse.Namespace) -> Tables:
    """Run `headgate what-if`."""
    plans = [quotas.load(path, "--plan") for path in arguments.plan]
    if not arguments.quiet:
        for plan in plans:
            say_notes("headgate what-if", plan.notes)
    given = arguments.quotas or arguments.store
    if not plans and not given:
        raise BadUsage("give quotas to try: --plan FILE, or --quotas FILE")
    capacities = _capacities(arguments)

    def every(on: Opened) -> list[Quotas]:
        return _named([*([on.quotas] if given else []), *plans])

    def write(on: Opened, activity: DataFrame | None) -> DataFrame:
        tried = every(on)
        options = what_if.options_of(
            tried,
            capacities=capacities,
            split_period_ms=arguments.splits_period_ms,
            **on.windows,
        )
        packed = pack_once(on, options)
        on.run.write(
            packed.transform(what_if.what_if_packed(options, in_force=bool(given))),
            schema.WHAT_IF,
            words="reading and replaying under " + ", ".join(p.name for p in tried),
        )
        for r in _by_plan(on.run.read(schema.WHAT_IF), _names(tried)):
            name = f"{r['plan']}.{r['kind']}" if r["kind"] else r["plan"]
            on.run.figure(f"{name}.throttled_s", r["ms"] / 1000, unit="s")
            on.run.figure(f"{name}.throttled_requests", r["throttled"], unit="requests")
            if r["withheld"] and r["plan"] != what_if.LOGGED:
                note = f"with {r['withheld']} fetches that the log holds no bytes of"
                on.run.figure(f"{name}.at_least_s", r["least"] / 1000, unit="s", note=note)
                most = None if r["most"] is None else r["most"] / 1000
                text = None if r["most"] is not None else "nothing tells"
                on.run.figure(f"{name}.at_most_s", most, text=text, unit="s", note=note)
        for name, found in _together(on.run.read(schema.WHAT_IF)).items():
            for which, ms in (("least", found.least[1]), ("most", found.most[1])):
                note = f"by all limits together, at {which}"
                on.run.figure(f"{name}.together_at_{which}_s", ms / 1000, unit="s", note=note)
        if arguments.closed_loop:
            write_demand(on, tried)
        return packed

    def tell(on: Opened) -> None:
        tried = every(on)
        table = on.run.read(schema.WHAT_IF)
        names = _names(tried)
        _tell_plans(table, names)
        _tell_together(on, names)
        _tell_clients(table, names)
        print("Open-loop: a throttled client would have sent later than it did.")
        if arguments.closed_loop:
            tell_demand(on)
        _tell_withheld(table, bool(given))
        _tell_left_out(tried, capacities)

    tables = ("what_if", "demand") if arguments.closed_loop else ("what_if",)
    return run_answer(arguments, Replays("what-if", write, tell, tables))


def _names(plans: Sequence[Quotas]) -> list[str]:
    return [what_if.LOGGED, *(p.name for p in plans)]


def _capacities(arguments: argparse.Namespace) -> dict[str, float]:
    """
    Return the capacities given, by quota type.

    Raises:
        BadUsage: one isn't above 0.
    """
    given = {
        "producer_byte_rate": arguments.capacity_producer_byte_rate,
        "consumer_byte_rate": arguments.capacity_consumer_byte_rate,
    }
    for quota_type, value in given.items():
        if value is not None and not value > 0:
            flag = f"--capacity-{quota_type.replace('_', '-')}"
            raise BadUsage(f"{flag} {value:g}: give bytes per second, more than 0")
    return {quota_type: value for quota_type, value in given.items() if value is not None}


def _by_plan(table: DataFrame, names: list[str]) -> list[Row]:
    """Return a row per plan, and one for each kind of limit that Kafka doesn't have."""
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
            *_between(),
            F.countDistinct(
                F.when(F.col("throttled_requests") > 0, F.struct("principal", "client_id"))
            ).alias("who"),
        )
        .collect()
    )
    return sorted(found, key=lambda r: (names.index(r["plan"]), r["kind"]))


def _between() -> list[Column]:
    """Return the least and the most throttling, summed; the most is null if any row's is."""
    most = F.col("most_throttle_time_ms")
    return [
        F.sum("withheld_requests").alias("withheld"),
        F.sum("least_throttle_time_ms").alias("least"),
        F.when(F.count(most) == F.count(F.lit(1)), F.sum(most)).alias("most"),
    ]


def seconds_between(least_ms: int, most_ms: int | None) -> str:
    """Return seconds for the closing table: one figure, two, or the least alone."""
    least = number(least_ms / 1000)
    if most_ms is None:
        return f"≥ {least}"
    most = number(most_ms / 1000)
    return least if most == least else f"{least} to {most}"


def _tell_withheld(table: DataFrame, in_force: bool) -> None:
    """Say that throttled fetches make figures inexact, if there are any."""
    logged = table.where(F.col("plan") == "logged").where("withheld_requests > 0")
    row = logged.agg(F.sum("withheld_requests"), F.sum("throttle_time_ms")).first()
    if row is None or not row[0]:
        return
    rest = (
        "under a limit below the one in force it's at least what the log says, above it at most"
        if in_force
        else "give the quotas that were in force by --quotas, and bounds are closer"
    )
    print(
        f"A broker answers throttled fetches empty and logs no bytes of them ({number(row[0])} "
        f"fetches, {number(row[1] / 1000)} s): no plan is charged with what was withheld, so "
        f"seconds of fetch quotas are bounds (≥: at least); {rest}."
    )


def _tell_plans(table: DataFrame, names: list[str]) -> None:
    """Print what each plan throttles."""

    def delayed(row: Row) -> str:
        if row["plan"] == names[0] or not row["bytes"]:
            return "-"
        return share(row["delayed"] / row["bytes"])

    closing_table(
        "What if",
        (
            ("plan", lambda r: f"  by {_KINDS[r['kind']]}" if r["kind"] else r["plan"]),
            ("requests", lambda r: number(r["requests"])),
            ("throttled", lambda r: number(r["throttled"])),
            ("throttled s", lambda r: seconds_between(r["least"], r["most"])),
            ("delayed bytes", delayed),
            ("clients throttled", lambda r: number(r["who"])),
        ),
        _by_plan(table, names),
    )


def _together(table: DataFrame) -> dict[str, Bounds]:
    """Return the least and the most throttling of each plan whose limits overlap."""
    types = [r["quota_type"] for r in table.select("quota_type").distinct().collect()]
    if not bounds.overlaps(types):
        return {}
    who = ("plan", "quota_type", "principal", "client_id")
    sums = table.groupBy(*who).agg(*(F.sum(name).alias(name) for name in bounds.SUMS))
    found = bounds.bounds_by_plan(r.asDict() for r in sums.collect())
    return {plan: of for plan, of in found.items() if not of.is_exact}


def _tell_together(on: Opened, names: list[str]) -> None:
    """Print the throttling of plans with several limits, whose rows can't just be added up."""
    figures = {f.name: f.value for f in on.run.figures}
    told = [name for name in names if f"{name}.together_at_most_s" in figures]
    if not told:
        return
    print(
        "A request held to several limits waits for the longest, and each limit is replayed "
        "alone: seconds of several rows or types add up to an upper bound. All together:"
    )
    for name in told:
        least, most = (figures[f"{name}.together_at_{which}_s"] for which in ("least", "most"))
        print(f"  {name}: {number(least)} s at least, {number(most)} s at most")


_KINDS: Final = {"bps": "cluster-wide rates (bps)", "shares": "shares"}
_MOST_CLIENTS: Final = 20


def _tell_clients(table: DataFrame, names: list[str]) -> None:
    """Print, plan beside plan, the throttled seconds of the clients on which plans differ most."""
    by_plan = (
        table.groupBy("quota_type", "principal", "client_id").pivot("plan", names).agg(*_between())
    )
    given = [F.coalesce(F.col(f"`{n}_least`"), F.lit(0)) for n in names[1:]]
    spread = F.greatest(*given) - F.least(*given) if len(given) > 1 else given[0]
    order = (F.desc("spread"), "quota_type", "principal", "client_id")
    rows = by_plan.withColumn("spread", spread).where("spread > 0").orderBy(*order)
    shown = rows.limit(_MOST_CLIENTS).collect()
    if not shown:
        return
    closing_table(
        f"Throttled seconds of the {len(shown)} clients on which the plans differ most",
        (
            ("quota type", "quota_type"),
            ("principal", lambda r: r["principal"] or "-"),
            ("client-id", lambda r: r["client_id"] or "-"),
            *((name, partial(_seconds_under, name)) for name in names),
        ),
        shown,
    )


def _seconds_under(plan: str, row: Row) -> str:
    least = row[f"{plan}_least"]
    return "-" if least is None else seconds_between(least, row[f"{plan}_most"])


def _tell_left_out(plans: Sequence[Quotas], capacities: Mapping[str, float]) -> None:
    """Say which shares weren't tried, because no capacity was given."""
    for direction, key in (("producer", PRODUCER_SHARES), ("consumer", CONSUMER_SHARES)):
        named = [p.name for p in plans if any(t.for_key(key) for t in p.tables)]
        if named and f"{direction}_byte_rate" not in capacities:
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
