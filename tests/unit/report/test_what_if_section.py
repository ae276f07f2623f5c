"""What the page says about other quotas, and which advice it shows first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from made_tables import usage_row, write

from headgate.pipeline.report import write_report
from headgate.pipeline.report.charts import plans as plans_chart
from headgate.pipeline.report.model import build_report
from headgate.pipeline.report.tables import read_tables
from headgate.pipeline.schema import TABLES


def row(table: str, **values: Any) -> dict[str, Any]:
    return dict.fromkeys(TABLES[table].names) | values


def tried(plan: str, ms: int, n: int) -> dict[str, Any]:
    return row(
        "what_if", plan=plan, quota_type="producer_byte_rate", quota_id="a:", quota_user="a",
        quota_client_id="", principal="a", client_id="x", requests=100, bytes=9000,
        throttled_requests=n, throttle_time_ms=ms, max_throttle_time_ms=ms, delayed_bytes=0,
        least_throttle_time_ms=ms, most_throttle_time_ms=ms, withheld_requests=0, first_ms=0,
        last_ms=9,
    )  # fmt: skip


def wanted(plan: str, figure: float | None, least: float, most: float | None) -> dict[str, Any]:
    return row(
        "demand", plan=plan, quota_type="producer_byte_rate", quota_id="a:", quota_user="a",
        quota_client_id="", broker_id=1, kind="saturated", seen_throttle_time_ms=9000,
        throttle_s=figure, throttle_least_s=least, throttle_most_s=most, seen_per_s=1.0,
        first_ms=0, span_s=9.0,
    )  # fmt: skip


def told(place: Path, **tables: list[dict[str, Any]]) -> dict[str, str]:
    usage = [usage_row(s, amount=9, quota_id="a:", quota_user="a") for s in range(9)]
    report = build_report(read_tables(write(place, usage=usage, **tables)))
    assert plans_chart(report) is not None
    return {plan["plan"]: plan["told"] for plan in report.plans}


def test_a_replay_is_no_forecast_where_somebody_waited(tmp_path: Path) -> None:
    what_if = [tried("logged", 9000, 5), tried("twice", 0, 0), tried("half", 80_000, 9)]
    found = told(tmp_path / "open", what_if=what_if)
    assert found == {"logged": "9 s", "twice": "not known", "half": "not known"}
    demand = [wanted("twice", 8.0, 7.0, 9.0), wanted("half", None, 20.0, None)]
    found = told(tmp_path / "closed", what_if=what_if, demand=demand)
    assert found == {"logged": "9 s", "twice": "8 s", "half": "20 s or more"}


def test_where_nobody_waits_a_replay_is_exact(tmp_path: Path) -> None:
    what_if = [tried("logged", 0, 0), tried("twice", 0, 0)]
    assert told(tmp_path, what_if=what_if) == {"logged": "0", "twice": "0"}


def test_who_was_hardly_seen_stands_apart_from_what_can_be_done(tmp_path: Path) -> None:
    def advice(name: str, action: str) -> dict[str, Any]:
        return row(
            "recommend", quota_type="producer_byte_rate", entity=f"{{user={name}}}", user=name,
            is_default_user=False, is_default_client_id=False, action=action, reason="so",
            recommended=9.0 if action == "set" else None,
        )  # fmt: skip

    usage = [usage_row(0, amount=9, quota_id="a:", quota_user="a")]
    recommend = [advice("a", "set"), *(advice(f"u{n}", "wait") for n in range(186))]
    place = write(tmp_path, usage=usage, recommend=recommend)
    page = write_report(place, tmp_path / "r.html", generated_ms=0).path.read_text("utf-8")
    section = page[page.index('<section id="advice"') :]
    section = section[: section.index("</section>")]
    assert len(re.findall(r"<tr><th scope=\"row\"", section)) == 1
    assert "186 more: too little was seen of them for a figure" in section
    assert "and 136 more" in section
    assert "not known" in section  # what its clients would wait then
