"""Write the page: template, style, script, figures and one copy of plotly in a single file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from headgate import words
from headgate.errors import ConfigError
from headgate.pipeline.answers.advice import HIDING_SHARE
from headgate.pipeline.report import charts
from headgate.pipeline.report.model import Report, build_report
from headgate.pipeline.report.sections import NOT_KNOWN, in_open_loop, rate, wait
from headgate.pipeline.report.tables import ReportTables, read_tables
from headgate.pipeline.report.topics import topics
from headgate.pipeline.report.what_to_do import what_to_do
from headgate.templates import environment


@dataclass(frozen=True)
class WrittenReport:
    """What `write_report` wrote: the file, its size, and how many tenants have a page in it."""

    path: Path
    size: int
    tenants: int
    report: Report


def write_report(
    tables: Path | str | ReportTables,
    out: Path,
    *,
    generated_ms: int,
    title: str = "Headgate report",
    window_s: int = 11,
) -> WrittenReport:
    """
    Draw a pipeline run's tables as one HTML file.

    Args:
        tables: the folder given to pipeline commands as ``--out``, or its URI; or what was read.
        out: the file to write; replaced in one step.
        generated_ms: the time printed on it, epoch ms.
        title: its title.
        window_s: the quota window whose rate is compared with the quota, seconds.

    Raises:
        ConfigError: the tables can't be read, or the file can't be written.
    """
    read = tables if isinstance(tables, ReportTables) else read_tables(tables)
    report = build_report(read, window_s=window_s)
    page = render(report, generated_ms=generated_ms, title=title)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        half = out.with_name(out.name + ".part")
        half.write_text(page, encoding="utf-8")
        os.replace(half, out)  # noqa: PTH105 - Path.replace reads as if it changed text
    except OSError as exc:
        raise ConfigError(
            f"{out}: can't be written ({(exc.strerror or str(exc)).lower()})"
        ) from exc
    return WrittenReport(out, len(page.encode()), len(report.tenants), report)


def render(report: Report, *, generated_ms: int, title: str) -> str:
    """Return the page's HTML."""
    drawn = charts.all_charts(report)
    by_topic = topics(report)
    drawn |= {by_topic.name: by_topic} if by_topic else {}
    env = environment("headgate.pipeline.report", then=_then)
    data = {
        "tenants": [charts.series_of(tenant) for tenant in report.tenants],
        "start": report.start_ms,
        "bin": report.bin_ms,
        "bins": report.bins,
        "window": report.window_s,
        "short": report.seconds <= 1800,
    }
    return env.get_template("report.html.j2").render(
        r=report,
        title=title,
        generated_ms=generated_ms,
        charts=drawn,
        todo=what_to_do(report),
        cards=charts.cards(report),
        waiting=[t for t in report.tenants if t.throttle_ms],
        fidelity=fidelity(report),
        advised=[a for a in report.recommendations if a["action"] != "wait"],
        unknown=[a for a in report.recommendations if a["action"] == "wait"],
        OPEN_LOOP=in_open_loop,
        figures=[row for row in report.summary if "." not in row["name"]],
        style=Markup(_text("report.css")),
        script=Markup(_text("report.js")),
        figures_data=_json({name: chart.figure() for name, chart in drawn.items()}),
        data=_json(data),
        plotly=_plotly(),
        dash=words.NONE,
        WORDS=words.what_of,
        UNIT=words.unit_of,
        RATE=rate,
        WAIT=wait,
    )


_FIDELITY = (
    "equal_decisions_share",
    "exact_share",
    "within_1_ms_share",
    "logged_ms",
    "replayed_ms",
)


def fidelity(report: Report) -> list[dict[str, Any]]:
    """How near the replay came, one row per quota type, from the summary's figures."""
    found: dict[str, dict[str, Any]] = {}
    for row in report.summary:
        quota_type, dot, name = row["name"].partition(".")
        if row["command"] == "replay" and dot:
            blank = {"quota_type": quota_type, **dict.fromkeys(_FIDELITY)}
            value = row["value"]
            if value is not None and row["unit"] == "s":
                name, value = name.removesuffix("_s") + "_ms", value * 1000
            found.setdefault(quota_type, blank)[name] = value
    return [found[quota_type] for quota_type in sorted(found)]


def _then(advice: dict[str, Any]) -> str:
    """How long clients would wait under a recommended limit, or that it isn't known."""
    ms = advice["throttle_time_ms_recommended"]
    is_hidden = ms is None and (advice["held_share"] or 0.0) > HIDING_SHARE
    if is_hidden:
        return "not seen"
    return NOT_KNOWN if ms is None and advice["action"] != "remove" else words.duration(ms)


def _text(name: str) -> str:
    return (resources.files("headgate.pipeline.report") / "templates" / name).read_text("utf-8")


def _json(data: Any) -> Markup:
    """JSON that may stand inside a script element: no tag can end it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _plotly() -> Markup:
    """Plotly's script, as inert text until the first chart is drawn."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    if "</script" in source.lower() or "<!--" in source:
        # Both may only stand in string literals there; escaped they mean the same.
        source = source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return Markup(source)
