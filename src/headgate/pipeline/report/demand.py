"""Say what a throttled quota-id wants, and how it would fare under each plan in a closed loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate import words
from headgate.pipeline.report.tables import ReportTables

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
