"""Sum up the smaller tables of a report: plans, recommendations, chargeback, unreadable lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
