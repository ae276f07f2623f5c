"""Compute what the report shows: figures, tenants with their series, comparisons. No drawing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.answers.advice import entity_of
from headgate.pipeline.report import sections
from headgate.pipeline.report.sections import Demand, demand_of, fares, told_by_plan
from headgate.pipeline.report.tables import ReportTables, bin_length_ms, binned
from headgate.pipeline.table import summed
from headgate.quota.entity import QuotaEntity
from headgate.quota.sanitizer import desanitize, sanitize
from headgate.words import unit_of, what_of

MOST_TENANTS: Final = 1_000
"""Tenants with a page of their own; the others are summed up in one row that says so."""
WINDOW_S: Final = 11
"""Kafka's default quota window (quota.window.num x quota.window.size.seconds)."""


@dataclass(frozen=True, slots=True)
class BrokerSeries:
    """
    One quota-id on one broker: amounts and throttle times per bin, dense from bin 0.

    ``mean``, ``peak`` and ``held`` are as in `Tenant`, on this broker; ``last_s`` is its last
    second with use, epoch s.
    """

    broker_id: int
    quota: float | None
    amounts: list[float]
    throttle_ms: list[int]
    mean: float
    peak: float
    held: float
    last_s: int = 0


@dataclass
class Tenant:
    """
    One quota-id of one quota type: who shares a quota, what they used, how long they waited.

    Attributes:
        source: the entity that the limit comes from; "" where none is known.
        quota: the limit per broker; None is unlimited.
        mean: amount per second on the busiest broker, over the seconds from its first to its last.
        peak: the highest rate over a quota window on any broker.
        held: share of its time, 0..1, in which it was told to wait, on the broker with most of it.
        utilisation: peak / quota; None without a quota.
        demand: what it wants; None where it never waited, or nothing was inferred.
        fares: its rows of table ``demand``.
    """

    index: int
    quota_type: str
    quota_id: str
    requests: int
    bytes: int
    amount: float
    throttle_ms: int
    throttled: int
    longest_ms: int
    source: str = ""
    quota: float | None = None
    mean: float = 0.0
    peak: float = 0.0
    held: float = 0.0
    series: list[BrokerSeries] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    advice: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    demand: Demand | None = None
    fares: Sequence[Mapping[str, Any]] = ()

    @property
    def entity(self) -> QuotaEntity:
        """The entity whose quota would be its own."""
        user, _, client_id = self.quota_id.partition(":")
        return entity_of(desanitize(user), client_id)

    @property
    def utilisation(self) -> float | None:
        """The highest window rate against the limit."""
        return self.peak / self.quota if self.quota else None

    @property
    def unit(self) -> str:
        """Unit of its rates."""
        return unit_of(self.quota_type)

    @property
    def what(self) -> str:
        """Its quota type in a word."""
        return what_of(self.quota_type)


@dataclass
class Report:
    """
    Everything the page says.

    Attributes:
        start_ms, end_ms: first and last second with usage, UTC.
        bin_ms: length of one point of the series.
        tenants: by throttle time, then bytes; at most MOST_TENANTS.
        others: how many tenants have no page, and their sums.
        totals: sums over the whole usage table, other tenants included.
        flow: amounts per quota type and bin, all tenants.
        plans: what-if's plans, the log first; ``told`` is a plan's throttle time in words.
        differing: clients on which the plans differ most, their throttle time by plan.
        topics: bytes by quota type, quota-id and topic.
    """

    place: str
    start_ms: int
    end_ms: int
    bin_ms: int
    bins: int
    window_s: int
    tenants: list[Tenant]
    others: dict[str, Any]
    totals: dict[str, Any]
    flow: dict[str, list[float]]
    plans: list[dict[str, Any]]
    differing: list[dict[str, Any]]
    topics: list[dict[str, Any]]
    recommendations: list[dict[str, Any]]
    chargeback: list[dict[str, Any]]
    storms: list[dict[str, Any]]
    dead: list[dict[str, Any]]
    bad: list[dict[str, Any]]
    bad_total: int
    summary: list[dict[str, Any]]

    @property
    def seconds(self) -> float:
        """Length of the period, s."""
        return (self.end_ms - self.start_ms) / 1000 + 1

    @property
    def bin_s(self) -> float:
        """Length of one bin, s."""
        return self.bin_ms / 1000


_OF_TOPIC: Final = ("quota_type", "quota_id", "topic")


def build_report(tables: ReportTables, *, window_s: int = WINDOW_S) -> Report:
    """
    Compute the report of a pipeline run.

    Args:
        tables: as read.
        window_s: the quota window whose rate is compared with the quota, seconds.

    Returns:
        The report; sums over its tenants and others are the sums over the usage table.
    """
    usage = tables.tables["usage"]
    start, end = _span(usage)
    bin_ms = max(bin_length_ms(start, end), tables.grain_ms)
    window_s = max(window_s, tables.grain_ms // 1000)
    bins = (end - start) // bin_ms + 1
    sums = ["requests", "bytes", "amount", "throttle_time_ms", "throttled_requests"]
    by_id = summed(usage, ["quota_type", "quota_id"], sums, ["max_throttle_time_ms"]).to_pylist()
    by_id.sort(key=lambda r: (-r["throttle_time_ms"], -r["bytes"], r["quota_type"], r["quota_id"]))
    kept, rest = by_id[:MOST_TENANTS], by_id[MOST_TENANTS:]
    tenants = [_tenant(place, row) for place, row in enumerate(kept)]
    shown = _only(usage, kept) if rest else usage
    report = Report(
        place=tables.place,
        start_ms=start,
        end_ms=end,
        bin_ms=bin_ms,
        bins=bins,
        window_s=window_s,
        tenants=tenants,
        others={"count": len(rest), **{name: sum(r[name] for r in rest) for name in sums}},
        totals={name: sum(r[name] for r in by_id) for name in sums} | {"ids": len(by_id)},
        flow=_flow(usage, start, bin_ms, bins),
        plans=sections.plans(tables.rows("what_if"), told_by_plan(fares(tables))),
        differing=sections.differing(tables.rows("what_if")),
        topics=summed(tables.tables["usage_by_topic_day"], _OF_TOPIC, ["bytes"]).to_pylist(),
        recommendations=sections.recommendations(tables.rows("recommend")),
        chargeback=sections.chargeback(tables.rows("chargeback")),
        storms=sorted(tables.rows("storms"), key=lambda r: -(r["count"] or 0)),
        dead=sections.dead(tables.rows("effective")),
        bad=sections.bad(tables),
        bad_total=len(tables.tables["bad_lines"]),
        summary=tables.rows("summary"),
    )
    _fill(report, shown, tables.grain_ms // 1000)
    _attach(report, tables)
    return report


def _span(usage: pa.Table) -> tuple[int, int]:
    if not len(usage):
        return 0, 0
    low_high = pc.min_max(usage["second_ms"]).as_py()
    return int(low_high["min"]), int(low_high["max"])


def _tenant(index: int, row: Mapping[str, Any]) -> Tenant:
    # Its columns have other names than Tenant's fields, but the same order.
    *sums, longest_ms = row.values()
    return Tenant(index, *[*sums, longest_ms or 0])


def _only(usage: pa.Table, kept: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Usage of the tenants that have a page."""
    wanted = pa.array([f"{row['quota_type']}\0{row['quota_id']}" for row in kept], pa.string())
    key = pc.binary_join_element_wise(usage["quota_type"], usage["quota_id"], "\0")
    return usage.filter(pc.is_in(key, value_set=wanted))


def _fill(report: Report, usage: pa.Table, grain_s: int) -> None:
    """
    Give each tenant its series per broker, its rates, its last limit and where that comes from.

    Args:
        report: its tenants have only sums so far.
        usage: of these tenants.
        grain_s: seconds that a row covers.
    """
    places = {(t.quota_type, t.quota_id): t for t in report.tenants}
    keys = ["quota_type", "quota_id", "broker_id"]
    waits = ["throttle_time_ms", "max_throttle_time_ms"]
    columns = [*keys, "second_ms", "amount", "quota", "quota_source", *waits]
    ordered = usage.select(columns).sort_by([(name, "ascending") for name in columns[:4]])
    ordered = ordered.combine_chunks()
    times = ordered["second_ms"].to_numpy()
    place, seconds = (times - report.start_ms) // report.bin_ms, times // 1000
    amounts = ordered["amount"].to_numpy()
    told, longest = (pc.fill_null(ordered[name], 0).to_numpy() for name in waits)
    # A row that covers several seconds may hold several waits, one after another.
    waited = np.minimum(told, longest + (grain_s - 1) * 1000) / 1000
    for at, end in _runs(ordered.select(keys)):
        kind, quota_id, broker = (ordered[name][at].as_py() for name in keys)
        here, bins, used = seconds[at:end], place[at:end], amounts[at:end]
        tenant = places[kind, quota_id]
        if all(int(here[-1]) > other.last_s for other in tenant.series):
            tenant.source = ordered["quota_source"][end - 1].as_py() or ""
        tenant.series.append(
            BrokerSeries(
                broker,
                ordered["quota"][end - 1].as_py(),
                np.bincount(bins, used, report.bins).tolist(),
                np.bincount(bins, told[at:end], report.bins).astype(int).tolist(),
                float(used.sum()) / float(here[-1] - here[0] + grain_s),
                _window_peak(here, used, report.window_s),
                _held(here, waited[at:end], grain_s),
                int(here[-1]),
            )
        )
    for tenant in report.tenants:
        tenant.mean = max(s.mean for s in tenant.series)
        tenant.peak = max(s.peak for s in tenant.series)
        tenant.held = max(s.held for s in tenant.series)
        # Quiet brokers may have seen their last charge under an earlier limit.
        tenant.quota = max(tenant.series, key=lambda s: s.last_s).quota


def _runs(keys: pa.Table) -> list[tuple[int, int]]:
    """Where each run of equal keys begins and ends, in a sorted table."""
    if not len(keys):
        return []
    changed = np.zeros(len(keys), dtype=bool)
    changed[0] = True
    for name in keys.column_names:
        # A broker that isn't known is one too: null equals null.
        codes = keys[name].combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(codes, pa.ChunkedArray):
            codes = codes.combine_chunks()
        indices = codes.indices.to_numpy(zero_copy_only=False)
        changed[1:] |= indices[1:] != indices[:-1]
    starts = [int(at) for at in np.flatnonzero(changed)]
    return list(zip(starts, [*starts[1:], len(keys)], strict=True))


def _window_peak(seconds: Any, amounts: Any, window_s: int) -> float:
    """The most used in any window of whole seconds, per second."""
    running = np.concatenate(([0.0], np.cumsum(amounts)))
    first = np.searchsorted(seconds, seconds - window_s + 1, side="left")
    return float(np.max(running[1:] - running[first])) / window_s


def _held(seconds: Any, waited: Any, grain_s: int) -> float:
    """Return the share of the time that lies in a wait; where two overlap it counts once."""
    ends = seconds + waited
    earlier = np.concatenate(([seconds[0]], np.maximum.accumulate(ends)[:-1]))
    held = np.maximum(0.0, ends - np.maximum(seconds, earlier)).sum()
    return min(1.0, float(held) / float(seconds[-1] - seconds[0] + grain_s))


def _flow(usage: pa.Table, start: int, bin_ms: int, bins: int) -> dict[str, list[float]]:
    flow: dict[str, list[float]] = {}
    for row in summed(binned(usage, start, bin_ms), ["quota_type", "bin"], ["amount"]).to_pylist():
        flow.setdefault(row["quota_type"], [0.0] * bins)[row["bin"]] += row["amount"]
    return flow


def _attach(report: Report, tables: ReportTables) -> None:
    """Give each tenant its members, its plans and the advice about its entity."""
    by_key = {(t.quota_type, t.quota_id): t for t in report.tenants}
    members: dict[tuple[int, Any, Any], tuple[str, dict[str, Any]]] = {}
    for row in tables.rows("effective"):
        if row["kind"] != "applied":
            continue
        tenant = by_key.get((row["quota_key"].partition(":")[0], row["quota_id"]))
        if tenant is not None and (row["requests"] or row["bytes"]):
            # A journal's usage knows its limits, not where they come from.
            tenant.source = tenant.source or row["source"] or ""
            # A client has a row for each limit that it had, and for each unit of limits.
            whose = (tenant.index, row["principal"], row["client_id"])
            if whose not in members:
                blank = {"principal": whose[1], "client_id": whose[2], "requests": 0, "bytes": 0}
                members[whose] = row["quota_key"], blank
                tenant.members.append(blank)
            unit, member = members[whose]
            if unit == row["quota_key"]:
                member["requests"] += row["requests"]
                member["bytes"] += row["bytes"]
    sums: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in tables.rows("what_if"):
        # A plan may give a client another quota-id; what its traffic would meet is shown there.
        plan = sums[row["quota_type"], row["quota_id"]].setdefault(
            row["plan"],
            {"plan": row["plan"], "quota": row["quota"], "throttled": 0, "throttle_ms": 0,
             "requests": 0},
        )  # fmt: skip
        plan["throttled"] += row["throttled_requests"]
        plan["throttle_ms"] += row["throttle_time_ms"]
        plan["requests"] += row["requests"]
    for key, plans in sums.items():
        if key in by_key:
            by_key[key].plans = sorted(plans.values(), key=lambda p: p["plan"])
    _attach_advice(report)
    found = fares(tables)
    for tenant in report.tenants:
        tenant.fares = found.get((tenant.quota_type, tenant.quota_id), ())
        tenant.demand = demand_of(tenant.fares, tenant.advice, str(tenant.entity))
        tenant.members.sort(key=lambda m: (-m["bytes"], -m["requests"], m["principal"] or ""))


def _attach_advice(report: Report) -> None:
    """Show advice where its entity's quota applies, or where its own quota-id is."""
    by_source: dict[tuple[str, str], list[Tenant]] = defaultdict(list)
    by_id: dict[tuple[str, str], Tenant] = {}
    for tenant in report.tenants:
        by_source[tenant.quota_type, tenant.source].append(tenant)
        by_id[tenant.quota_type, tenant.quota_id] = tenant
    for advice in report.recommendations:
        kind = advice["quota_type"]
        user = "" if advice["is_default_user"] else sanitize(advice["user"] or "")
        client = "" if advice["is_default_client_id"] else advice["client_id"] or ""
        concerned = list(by_source.get((kind, advice["entity"]), ()))
        ids = [f"{user}:{client}"]
        if advice["action"] == "split":  # of what the user's clients share
            ids.append(f"{user}:")
        for own in filter(None, (by_id.get((kind, one)) for one in ids)):
            if own not in concerned:
                concerned.append(own)
        for tenant in concerned:
            tenant.advice.append(advice)
