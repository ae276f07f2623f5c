"""Who was saturated, and how they would fare: figures, intervals, and where nothing is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_tables import T0, usage_row, write

from headgate.pipeline.report import Report, build_report, charts, read_tables
from headgate.pipeline.report.sections import Demand, demand_of
from headgate.pipeline.report.what_to_do import what_to_do
from headgate.pipeline.schema import TABLES

WHO = {"quota_type": "producer_byte_rate", "quota_id": "user1:", "quota_user": "user1"}


def fare(plan: str = "double", **values: Any) -> dict[str, Any]:
    """A row of `demand` of a saturated quota-id, which nothing bounds above."""
    fields = dict.fromkeys(TABLES["demand"].names) | WHO
    fields |= {"plan": plan, "broker_id": 1, "quota": 2e6, "kind": "saturated", "first_ms": T0,
               "seen_throttle_time_ms": 5_000, "wanted_least_per_s": 1e6,
               "rate_least_per_s": 1e6, "throttle_least_s": 0.0,
               "reason": "it always waited"}  # fmt: skip
    return fields | values


def advised(**values: Any) -> dict[str, Any]:
    fields = dict.fromkeys(TABLES["recommend"].names)
    fields |= {"quota_type": "producer_byte_rate", "entity": "{user=user1}", "user": "user1",
               "is_default_user": False, "is_default_client_id": False, "action": "keep",
               "current": 1e6, "held_share": 0.9, "demand": "saturated",
               "wanted_least_per_s": 3e6, "wanted_most_per_s": 5e6}  # fmt: skip
    return fields | values


def reported(place: Path, **tables: list[dict[str, Any]]) -> Report:
    usage = [usage_row(second, amount=1e6, quota=1e6, throttle_time_ms=900, throttled_requests=1,
                       max_throttle_time_ms=900) for second in range(30)]  # fmt: skip
    usage.append(usage_row(0, amount=5.0, quota_id="user2:", quota_user="user2"))
    return build_report(read_tables(write(place, usage=usage, **tables)))


def test_the_demand_table_says_who_is_saturated_and_what_a_plan_gives(tmp_path: Path) -> None:
    rows = [fare(), fare("half", quota=5e5, rate_per_s=5e5, rate_least_per_s=4.9e5,
                         rate_most_per_s=5.1e5, reason=None)]  # fmt: skip
    report = reported(tmp_path, demand=rows)
    held, calm = report.tenants
    assert held.demand == Demand("saturated", None, 1e6, None, "it always waited")
    assert held.demand.sentence == (
        "Saturated: it takes whatever it is given, so what it used shows its quota, not its need. "
        "Without a limit its rate would be 1 MB/s or more. No figure: it always waited."
    )
    assert calm.demand is None
    assert [
        step.why
        for group in what_to_do(report)
        for step in group.steps
        if held.demand.sentence in step.why
    ]
    chart = charts.fares(report)
    assert chart is not None
    saturated, others, figure, limit = chart.data
    beyond = 1.3 * 2e6
    assert saturated["x"] == [1e6, beyond, None, 4.9e5, 5.1e5, None]
    assert others["x"] == []
    assert figure["x"] == [5e5]
    assert limit["x"] == [2e6, 5e5]
    assert chart.layout["xaxis"]["range"] == [0, beyond]
    assert [row[5] for row in chart.rows] == ["1 MB/s or more", "500 kB/s"]


def test_recommend_alone_says_it_too(tmp_path: Path) -> None:
    report = reported(tmp_path, recommend=[advised()])
    demand = report.tenants[0].demand
    assert demand == Demand("saturated", None, 3e6, 5e6)
    assert demand.sentence.endswith("Without a limit its rate would be 3 MB/s to 5 MB/s.")
    assert charts.fares(report) is None


@pytest.mark.parametrize(
    ("rows", "advice", "kind"),
    [
        ([], [], None),
        ([fare(seen_throttle_time_ms=0)], [], None),
        (
            [fare(kind="rate-bound"), fare(broker_id=2, seen_throttle_time_ms=9_000)],
            [],
            "saturated",
        ),
        ([fare(kind="unknown")], [advised()], "unknown"),
        ([], [advised(entity="{user=other}")], None),
        ([], [advised(demand=None)], None),
    ],
)
def test_the_broker_that_held_it_most_decides(
    rows: list[dict[str, Any]], advice: list[dict[str, Any]], kind: str | None
) -> None:
    found = demand_of(rows, advice, "{user=user1}")
    assert (found and found.kind) == kind


def test_what_isnt_known_is_said() -> None:
    unknown = Demand("unknown", None, None, None, "fewer than five requests were seen")
    assert unknown.sentence == (
        "What it is can't be told. No figure: fewer than five requests were seen."
    )
    assert Demand("fixed work", 5e5, 4e5, 6e5).sentence == (
        "Fixed work: a job that ended, or a consumer that caught up. "
        "Without a limit its rate would be 500 kB/s."
    )
