"""Who uses which topic: what is drawn, the table beside it, and when the section is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from made_tables import T0, everything, usage_row, write

from headgate.pipeline.report import build_report, read_tables, render
from headgate.pipeline.report.topics import FRAMING, MOST_FLOWS, MOST_ROWS, UNKNOWN, topics

P, C = "producer_byte_rate", "consumer_byte_rate"
EVIL = "</script><script>alert(1)</script>"


def part(topic: str | None, size: int, who: str = "alice:", kind: str = P, **more: Any) -> Any:
    row = {"quota_type": kind, "quota_id": who, "broker_id": 1, "period_ms": T0, "requests": 1}
    return {**row, "topic": topic, "bytes": size, **more}


def drawn(place: Path, *rows: Any) -> Any:
    write(place, usage=[usage_row(0, amount=5)], usage_by_topic_day=list(rows))
    return topics(build_report(read_tables(place)))


def page(place: Path) -> str:
    return render(build_report(read_tables(place)), generated_ms=1, title="t")


def test_days_and_brokers_of_a_topic_are_one_flow(tmp_path: Path) -> None:
    chart = drawn(
        tmp_path,
        *(part("a", 10), part("a", 5, broker_id=2), part("a", 1, period_ms=T0 + 86_400_000)),
        *(part("b", 100), part("a", 3, kind=C), part("", 9), part(None, 2)),
    )
    (sankey,) = chart.data
    node, link = sankey["node"], sankey["link"]
    flows = {
        (node["label"][a], node["label"][b]): size
        for a, b, size in zip(link["source"], link["target"], link["value"], strict=True)
    }
    assert flows == {
        ("alice:  produce", "a"): 16,
        ("alice:  produce", "b"): 100,
        ("alice:  fetch", "a"): 3,
        ("alice:  produce", UNKNOWN): 2,
    }
    assert [row[2] for row in chart.rows] == ["b", "a", FRAMING, "a", UNKNOWN]
    assert "Of 130 B in all, 9 B are framing and 2 B are of topics that aren't known" in chart.says
    assert sorted(zip(node["label"], node["color"], strict=True))[:2] == [
        ("(topic not known)", "--faint"),
        ("a", "--usage-2"),
    ]


def test_only_the_largest_are_drawn_and_listed(tmp_path: Path) -> None:
    chart = drawn(tmp_path, *(part(f"t{n}", n + 1) for n in range(MOST_ROWS + 9)))
    assert len(chart.data[0]["link"]["value"]) == MOST_FLOWS
    assert len(chart.rows) == MOST_ROWS
    assert chart.rows[0][2] == f"t{MOST_ROWS + 8}"


def test_the_section_is_there_where_the_table_is(tmp_path: Path) -> None:
    made = everything(tmp_path / "made")
    assert 'id="topics"' in page(made)
    assert 'href="#topics"' in page(made)
    for name, rows in (("absent", []), ("framing", [part("", 5)])):
        assert drawn(tmp_path / name, *rows) is None
        assert 'id="topics"' not in page(tmp_path / name)


def test_plotly_accepts_it_and_names_stay_text(tmp_path: Path) -> None:
    chart = drawn(tmp_path, part(EVIL, 10, who=EVIL), part("x" * 200, 5))
    figure = json.dumps(chart.figure(), allow_nan=False)
    go.Figure(json.loads(re.sub(r'"--[a-z0-9-]+"', '"#123456"', figure)))
    assert max(map(len, chart.data[0]["node"]["label"])) < 80
    assert "<script>alert" not in page(tmp_path)
