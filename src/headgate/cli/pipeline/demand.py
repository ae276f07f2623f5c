"""
`headgate what-if --closed-loop`: what throttled clients want, and how they'd fare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, sized
from headgate.pipeline import schema
from headgate.pipeline.answers.demand import charged_of, demand
from headgate.pipeline.quotas import Quotas

_MOST_ROWS: Final = 20


def write_demand(on: Opened, plans: Sequence[Quotas]) -> None:
    """Write table `demand` of the run's inputs under plans."""
    words = "inferring what clients want, and playing it in a closed loop"
    charged = charged_of(on.spark, on.read_options)
    on.run.write(charged.transform(demand(plans, **on.windows)), schema.DEMAND, words=words)


def tell_demand(on: Opened) -> None:
    """Print the quota-ids that plans throttle most, and why figures are missing."""
    table = on.run.read(schema.DEMAND)
    order = (F.desc("throttle_most_s"), "quota_type", "quota_id", "broker_id", "plan")
    rows = table.orderBy(*order).limit(_MOST_ROWS).collect()
    if not rows:
        print("Closed-loop: no client was charged for bytes.")
        return
    closing_table(
        f"Closed-loop: how clients would fare ({len(rows)} rows, longest throttled first)",
        (
            ("plan", "plan"),
            ("quota-id", "quota_id"),
            ("type", lambda r: r["quota_type"].split("_")[0]),
            ("kind", "kind"),
            ("limit", lambda r: sized(r["quota"])),
            ("rate B/s", lambda r: _interval(r, "rate", "_per_s")),
            ("throttled s", lambda r: _interval(r, "throttle", "_s")),
            ("finish s", lambda r: _interval(r, "finish", "_s")),
        ),
        rows,
    )
    reasons: dict[str, list[str]] = {}
    for r in rows:
        if r["reason"] and None in (r["rate_per_s"], r["throttle_s"]):
            whose = f"{r['quota_id']} under {r['plan']}"
            reasons.setdefault(r["reason"], []).append(whose)
    for reason, names in reasons.items():
        print(f"An interval, no figure, for {', '.join(names)}: {reason}.")


def _interval(row: Row, name: str, unit: str) -> str:
    return between(row[name + unit], row[f"{name}_least{unit}"], row[f"{name}_most{unit}"])


def between(figure: float | None, least: float | None, most: float | None) -> str:
    """Return a figure with its interval for the closing table, or the interval alone."""
    if least is None:
        return "-"
    if figure is not None and most is not None:
        return f"{number(figure)} ({number(least)} to {number(most)})"
    return f"≥ {number(least)}" if most is None else f"{number(least)} to {number(most)}"
