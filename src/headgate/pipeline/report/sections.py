"""Sum up the smaller tables of a report: plans, demand, recommendations, bills, bad lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from headgate import words
from headgate.pipeline.answers.bounds import bounds_by_plan
from headgate.pipeline.report.tables import ReportTables

NOT_KNOWN: Final = "not known"


def plans(
    rows: Sequence[Mapping[str, Any]], closed: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """
    One row per plan: how many would have waited, for how long, which share of their bytes.

    ``throttled``, ``throttle_ms`` and ``delayed`` are sums over all limits: the most possible where
    limits are of the same requests; ``…_least`` are the least (``answers.bounds``). ``withheld``
    fetches have no bytes in the log: with them the throttle time lies between ``at_least`` and
    ``at_most`` (None: unknown). ``told`` is the throttle time in words: the log's own, a plan's in
    a closed loop, or that it isn't known: a replay is no forecast where somebody waits.

    Args:
        rows: of WHAT_IF.
        closed: throttle time by plan in a closed loop, in words.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        plan = found.setdefault(
            row["plan"],
            {"plan": row["plan"], "requests": 0, "throttled": 0, "throttle_ms": 0, "bytes": 0,
             "delayed": 0, "ids": set(), "withheld": 0, "at_least": 0, "at_most": 0},
        )  # fmt: skip
        # Limits that Kafka doesn't have are second rows of the same requests.
        if ":" not in row["quota_type"]:
            plan["requests"] += row["requests"]
            plan["bytes"] += row["bytes"]
        plan["throttled"] += row["throttled_requests"]
        plan["throttle_ms"] += row["throttle_time_ms"]
        plan["delayed"] += row["delayed_bytes"]
        # Tables of older versions have none of these.
        withheld = row.get("withheld_requests") or 0
        least = row["least_throttle_time_ms"] if withheld else row["throttle_time_ms"]
        most = row["most_throttle_time_ms"] if withheld else least
        plan["withheld"] += withheld
        plan["at_least"] += least
        unknown = most is None or plan["at_most"] is None
        plan["at_most"] = None if unknown else plan["at_most"] + most
        if row["throttled_requests"]:
            plan["ids"].add((row["quota_type"], row["quota_id"]))
    bounds = bounds_by_plan(rows)
    for plan in found.values():
        plan["ids"] = len(plan["ids"])
        least = bounds[plan["plan"]].least
        plan["throttled_least"], plan["throttle_ms_least"], plan["delayed_least"] = least
        plan["several"] = plan["throttle_ms_least"] < plan["throttle_ms"]
    waited = any(plan["throttled"] for plan in found.values())
    for name, plan in found.items():
        if name == "logged" or not waited:
            plan["told"] = words.duration(plan["throttle_ms"])
        else:
            plan["told"] = (closed or {}).get(name, NOT_KNOWN)
    return sorted(found.values(), key=lambda p: (p["plan"] != "logged", p["plan"]))


_MOST_DIFFERING: Final = 30


def in_open_loop(ms: int | None, logged_ms: int | None) -> str:
    """
    Return a plan's throttle time by a replay, in words.

    That nobody would wait isn't known where somebody waited: more would have been sent, or sooner.
    """
    return NOT_KNOWN if logged_ms and not ms else words.duration(ms)


def differing(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Clients on which the plans differ most: their throttle time under each, the log beside."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        who = (row["quota_type"], row["principal"] or "", row["client_id"] or "")
        line = found.setdefault(
            who, {"quota_type": who[0], "principal": who[1], "client_id": who[2], "plans": {}}
        )
        line["plans"][row["plan"]] = line["plans"].get(row["plan"], 0) + row["throttle_time_ms"]
    for line in found.values():
        told = [ms for plan, ms in line["plans"].items() if plan != "logged"]
        # With one plan only, how it differs from what was logged.
        if len(told) == 1 and "logged" in line["plans"]:
            told.append(line["plans"]["logged"])
        line["spread"] = max(told) - min(told) if told else 0
    most = [line for line in found.values() if line["spread"]]
    most.sort(key=lambda r: (-r["spread"], r["quota_type"], r["principal"], r["client_id"]))
    return most[:_MOST_DIFFERING]


def dead(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """
    Quotas that bound nobody, from EFFECTIVE rows.

    ``hidden_by`` are the quotas that bound clients in their place, of ``hidden_clients`` clients.
    """
    hiding: dict[tuple[str, str], set[tuple[str, Any, Any]]] = defaultdict(set)
    for row in rows:
        for entry in filter(None, (row["overridden"] or "").split("; ")):
            at = row["quota_key"], entry.rpartition("=")[0]
            hiding[at].add((row["source"] or "", row["principal"], row["client_id"]))
    found = []
    for row in rows:
        if row["kind"] == "dead":
            by = hiding.get((row["quota_key"], row["source"]), set())
            names = sorted({name for name, _, _ in by})
            clients = len({(principal, client) for _, principal, client in by})
            found.append({**row, "hidden_by": names, "hidden_clients": clients})
    return found


_ACTIONS: Final = ("set", "split", "merge", "default", "remove", "keep", "wait")


def recommendations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order by action, then by the time that is waited."""
    place = {action: i for i, action in enumerate(_ACTIONS)}
    return sorted(
        rows,
        key=lambda r: (
            place.get(r["action"], 9),
            -(r["throttle_time_ms_current"] or 0),
            r["quota_type"],
            r["entity"],
        ),
    )


def chargeback(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per principal over all periods of the finest kind that the table holds."""
    kinds = {row["period"] for row in rows}
    kind = next((k for k in ("hour", "day", "month") if k in kinds), None)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["period"] != kind:
            continue
        line = found.setdefault(
            row["principal"],
            {"principal": row["principal"], "requests": 0, "bytes_in": 0, "bytes_out": 0,
             "throttle_time_ms": 0, "price": 0.0, "currency": row["currency"],
             "peak_in_share": None, "peak_out_share": None},
        )  # fmt: skip
        for name in ("requests", "bytes_in", "bytes_out", "throttle_time_ms", "price"):
            line[name] += row[name] or 0
        for short, name in (("in", "peak_in_quota_share"), ("out", "peak_out_quota_share")):
            if row[name] is not None:
                line[f"peak_{short}_share"] = max(line[f"peak_{short}_share"] or 0.0, row[name])
    total = sum(line["bytes_in"] + line["bytes_out"] for line in found.values())
    for line in found.values():
        line["share"] = (line["bytes_in"] + line["bytes_out"]) / total if total else 0.0
    return sorted(found.values(), key=lambda r: (-r["share"], r["principal"] or ""))


def bad(tables: ReportTables) -> list[dict[str, Any]]:
    """Bad lines by reason, most frequent first, with one of each."""
    table = tables.tables["bad_lines"]
    found = []
    for pair in pc.value_counts(table["reason"]).to_pylist():
        at = pc.index(table["reason"], pair["values"]).as_py() if pair["values"] else -1
        row = table.slice(at, 1).to_pylist()[0] if at >= 0 else dict.fromkeys(table.column_names)
        found.append({**row, "reason": pair["values"] or "", "count": pair["counts"]})
    return sorted(found, key=lambda r: (-r["count"], r["reason"]))


_KINDS: Final = {
    "saturated": "it takes whatever it is given, so what it used shows its quota, not its need",
    "rate-bound": "its bytes come at a pace of their own, whatever the quota",
    "fixed work": "a job that ended, or a consumer that caught up",
    "mixed": "its connections differ",
}
"""What each kind of demand means (column ``kind`` of table ``demand``); else nothing is known."""

Fares = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""Rows of table ``demand`` by quota type and quota-id."""


@dataclass(frozen=True, slots=True)
class Demand:
    """
    What rate a quota-id would have without a limit, bytes/s on its busiest broker.

    Args:
        kind: as in table ``demand``.
        wanted: the figure; None where it can't be known.
        least, most: what it lies between; None = not inferred, nothing bounds it.
        reason: why there is no figure.
    """

    kind: str
    wanted: float | None
    least: float | None
    most: float | None
    reason: str | None = None

    @property
    def sentence(self) -> str:
        """What it wants, in a sentence or two."""
        meaning = _KINDS.get(self.kind)
        said = f"{self.kind.capitalize()}: {meaning}." if meaning else "What it is can't be told."
        if self.wanted is not None or self.least is not None:
            wanted = spread(_rate, self.wanted, self.least, self.most)
            said += f" Without a limit its rate would be {wanted}."
        return said + (f" No figure: {self.reason}." if self.wanted is None and self.reason else "")


def fares(tables: ReportTables) -> Fares:
    """Return the rows of table ``demand`` by whose they are, plan by plan."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in tables.rows("demand"):
        found[row["quota_type"], row["quota_id"]].append(row)
    for rows in found.values():
        rows.sort(key=lambda r: (r["plan"], r["broker_id"] or 0))
    return found


def demand_of(
    rows: Sequence[Mapping[str, Any]], advice: Sequence[Mapping[str, Any]], entity: str
) -> Demand | None:
    """
    Return what a quota-id wants; None where it had to wait too little to ask.

    Args:
        rows: its rows of table ``demand``.
        advice: rows of ``recommend`` about it, which know it without that table.
        entity: its own, as printed.
    """
    held = [row for row in rows if row["seen_throttle_time_ms"]]
    if held:
        busiest = max(
            held, key=lambda r: (r["seen_throttle_time_ms"], r["wanted_least_per_s"] or 0)
        )
        return _demand(busiest["kind"], busiest, busiest["reason"])
    own = next((a for a in advice if a.get("demand") and a["entity"] == entity), None)
    return None if own is None else _demand(own["demand"], own, None)


def _demand(kind: str, row: Mapping[str, Any], reason: str | None) -> Demand:
    figures = (row["wanted_per_s"], row["wanted_least_per_s"], row["wanted_most_per_s"])
    return Demand(kind, *figures, reason)


def spread(
    say: Callable[[float], str], figure: float | None, least: float | None, most: float | None
) -> str:
    """Return a figure, or else the two that it lies between, or what it is at least."""
    if figure is not None:
        return say(figure)
    if least is None:
        return words.NONE
    return f"{say(least)} or more" if most is None else f"{say(least)} to {say(most)}"


def told_by_plan(found: Fares) -> dict[str, str]:
    """Return, in words, the throttle time of all quota-ids under each plan in a closed loop."""
    sums: dict[str, list[float | None]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    names = ("throttle_s", "throttle_least_s", "throttle_most_s")
    for rows in found.values():
        for row in rows:
            so_far = sums[row["plan"]]
            for i, name in enumerate(names):
                before, more = so_far[i], row[name]
                so_far[i] = None if before is None or more is None else before + more
    return {
        plan: spread(lambda s: words.duration(s * 1000), *figures) for plan, figures in sums.items()
    }


def _rate(value: float) -> str:
    return words.amount(value, "B/s")


def rate(row: Mapping[str, Any]) -> str:
    """Return the rate that a row of table ``demand`` foretells."""
    return spread(_rate, row["rate_per_s"], row["rate_least_per_s"], row["rate_most_per_s"])


def wait(row: Mapping[str, Any]) -> str:
    """Return the throttle time that it foretells."""
    figures = (row["throttle_s"], row["throttle_least_s"], row["throttle_most_s"])
    return spread(lambda s: words.duration(s * 1000), *figures)


def finish(row: Mapping[str, Any]) -> str:
    """Return when fixed work would be done, from its first request on."""
    figures = (row["finish_s"], row["finish_least_s"], row["finish_most_s"])
    return spread(lambda s: words.duration(s * 1000), *figures)
