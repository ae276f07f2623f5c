"""Draw who uses which topic: a flow from quota-ids to topics, from table `usage_by_topic_day`."""

from __future__ import annotations

from typing import Any, Final

from headgate import words
from headgate.pipeline.report.charts import Chart, short
from headgate.pipeline.report.model import Report

MOST_FLOWS: Final = 30
MOST_ROWS: Final = 200
FRAMING: Final = "(framing: of no topic)"
UNKNOWN: Final = "(topic not known)"


def topics(report: Report) -> Chart | None:
    """Who uses which topic most; None without the table."""
    rows = sorted(
        (row for row in report.topics if row["bytes"] > 0),
        key=lambda r: (-r["bytes"], r["quota_type"], r["quota_id"], r["topic"] or ""),
    )
    flows = [row for row in rows if row["topic"] != ""][:MOST_FLOWS]
    if not flows:
        return None
    total = sum(row["bytes"] for row in rows)
    framing = sum(row["bytes"] for row in rows if row["topic"] == "")
    unknown = sum(row["bytes"] for row in rows if row["topic"] is None)
    says = "; ".join(
        f"{row['quota_id']} {words.what_of(row['quota_type'])} {_name(row)} "
        f"{words.amount(row['bytes'], 'B')}"
        for row in rows[:4]
    )
    return Chart(
        "topics",
        "Who uses which topic most",
        f"From left to right: quota-id, topic; as wide as its bytes. Most: {says}. Of "
        f"{words.amount(total, 'B')} in all, {words.amount(framing, 'B')} are framing and "
        f"{words.amount(unknown, 'B')} are of topics that aren't known.",
        [_sankey(flows)],
        {"margin": {"l": 8, "r": 8, "t": 12, "b": 12}},
        ("quota-id", "quota type", "topic", "bytes", "of all"),
        [
            (
                row["quota_id"],
                words.what_of(row["quota_type"]),
                _name(row),
                words.amount(row["bytes"], "B"),
                words.share(row["bytes"] / total),
            )
            for row in rows[:MOST_ROWS]
        ],
        max(240, 60 + 34 * max(len({_who(f) for f in flows}), len({f["topic"] for f in flows}))),
    )


def _name(row: dict[str, Any]) -> str:
    """Return a row's topic, or what stands for it."""
    if row["topic"] is None:
        return UNKNOWN
    return row["topic"] or FRAMING


def _who(row: dict[str, Any]) -> str:
    return f"{short(row['quota_id'])}  {words.what_of(row['quota_type'])}"


def _sankey(flows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return plotly's flows from quota-ids to topics."""
    # Long names may be alike once they are shortened, so nodes are told apart by whole ones.
    left = list(dict.fromkeys((f["quota_type"], f["quota_id"]) for f in flows))
    right = list(dict.fromkeys(f["topic"] for f in flows))
    names = {(f["quota_type"], f["quota_id"]): _who(f) for f in flows}
    labels = {f["topic"]: short(_name(f)) for f in flows}
    colours = ["--fetched" if kind.startswith("consumer") else "--usage" for kind, _ in left]
    hover = "%{value:.3s}B<extra></extra>"
    return {
        "type": "sankey",
        "arrangement": "snap",
        "node": {
            "label": [names[who] for who in left] + [labels[topic] for topic in right],
            "color": colours + ["--faint" if t is None else "--usage-2" for t in right],
            "pad": 14,
            "thickness": 14,
            "line": {"width": 0},
            "hovertemplate": "%{label}<br>" + hover,
        },
        "link": {
            "source": [left.index((f["quota_type"], f["quota_id"])) for f in flows],
            "target": [len(left) + right.index(f["topic"]) for f in flows],
            "value": [f["bytes"] for f in flows],
            "color": "--link",
            "hovertemplate": "%{source.label} → %{target.label}<br>" + hover,
        },
    }
