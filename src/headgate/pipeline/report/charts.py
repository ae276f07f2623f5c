"""
Say what is drawn: plotly figures as plain data, each with a sentence and a table that say the same.

Colours are names of CSS variables (``--usage``), filled in when a chart is drawn, so that a chart
follows the page's light, dark and printed looks.
"""

# ruff: noqa: E501 - a figure is data, its rows read best whole

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate import words
from headgate.pipeline.answers.advice import BYTES
from headgate.pipeline.report import sections
from headgate.pipeline.report.model import Report, Tenant

MOST_BARS: Final = 20
MOST_HEAT_ROWS: Final = 40
LONGEST: Final = 40  # characters of a name in a chart
MOST_FLOWS: Final = 24
MOST_CARDS: Final = 12

FLATTENING: Final = 25
"""If a bar is this many times as long as the shortest, the shortest looks like a line."""


@dataclass(frozen=True)
class Chart:
    """
    One chart.

    Args:
        name: its id on the page.
        title: its heading.
        says: the sentence that says what it shows, read aloud instead of it.
        data, layout: plotly's.
        headers, rows: the same as a table.
        height: pixels.
    """

    name: str
    title: str
    says: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    height: int = 320

    def figure(self) -> dict[str, Any]:
        """The figure as plain data."""
        return {"data": self.data, "layout": {**self.layout, "height": self.height}}


def label(tenant: Tenant) -> str:
    """A quota-id as people read it, with its quota type; a long one by its ends and its number."""
    name = short(tenant.quota_id)
    number = "" if name == plain(tenant.quota_id) else f" ({tenant.index})"
    return f"{name}{number}  {tenant.what}"


def short(name: str) -> str:
    """Return a name for a chart: without its middle where it's long."""
    return plain(name if len(name) <= LONGEST else f"{name[:24]}…{name[-15:]}")


def plain(text: str) -> str:
    """Keep Plotly from taking a name for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def times(report: Report) -> tuple[list[float], str, str]:
    """
    The x values of the bins, their axis title and type.

    Short runs count seconds from their start; long ones are told by the clock.
    """
    if report.seconds <= 1800:
        return (
            [place * report.bin_s for place in range(report.bins)],
            f"seconds since {words.moment(report.start_ms)}",
            "linear",
        )
    return (
        [report.start_ms + place * report.bin_ms for place in range(report.bins)],
        "UTC",
        "date",
    )


def overview(report: Report) -> Chart:
    """Bytes in and out of the cluster over time, and the time clients were told to wait."""
    x, title, kind = times(report)
    traces, rows = [], []
    for quota_type, name, colour, dash in (
        ("producer_byte_rate", "produced", "--usage", "solid"),
        ("consumer_byte_rate", "fetched", "--fetched", "dot"),
    ):
        line = report.flow.get(quota_type)
        if line:
            rates = [value / report.bin_s for value in line]
            traces.append(
                {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": _round(rates),
                 "line": {"color": colour, "width": 2, "shape": "hv", "dash": dash},
                 "hovertemplate": "%{y:.3s}B/s<extra>" + name + "</extra>"}
            )  # fmt: skip
            rows.append((name, words.amount(sum(line), "B"), words.amount(max(rates), "B/s")))
    return Chart(
        "overview",
        "Bytes through the cluster",
        "Bytes per second over time: "
        + "; ".join(f"{row[0]} {row[1]}, at most {row[2]}" for row in rows)
        + ".",
        traces,
        {"xaxis": {"title": {"text": title}, "type": kind},
         "yaxis": {"title": {"text": "bytes per second"}, "tickformat": ".2s", "rangemode": "tozero"},
         "legend": {"orientation": "h", "y": 1.12, "x": 0}},
        ("direction", "total", "busiest " + _bin_words(report)),
        rows,
    )  # fmt: skip


def utilisation(report: Report) -> Chart | None:
    """How near each quota-id came to its quota."""
    limited = [t for t in report.tenants if t.quota and t.mean]
    limited.sort(key=lambda t: -(t.utilisation or 0))
    shown = limited[:MOST_BARS]
    if not shown:
        return None
    names = [label(t) for t in shown][::-1]
    mean = [100 * t.mean / t.quota for t in shown if t.quota][::-1]
    peak = [100 * (t.utilisation or 0) for t in shown][::-1]
    full = max(*peak, 100)
    over = sum(1 for t in limited if t.throttled)
    return Chart(
        "utilisation",
        "Use against quota",
        f"{len(limited)} quota-ids have a quota, {over} of them were throttled. Nearest to it: "
        + ", ".join(f"{t.quota_id} {t.what} {words.share(t.utilisation)}" for t in shown[:3])
        + ".",
        [
            {"type": "bar", "orientation": "h", "name": "mean over its time", "y": names, "x": mean,
             "marker": {"color": ["--throttle" if t.throttled else "--usage" for t in shown][::-1]},
             "hovertemplate": "%{x:.1f} % of its quota<extra>mean</extra>", "showlegend": False},
            {"type": "scatter", "mode": "markers", "name": f"busiest {report.window_s} s",
             "y": names, "x": peak, "marker": {"symbol": "line-ns", "size": 14,
             "line": {"width": 3, "color": "--ink"}},
             "hovertemplate": "%{x:.1f} % of its quota<extra>busiest window</extra>"},
        ],
        {"xaxis": {"title": {"text": "% of the quota"}, "range": [0, full * 1.06], "ticksuffix": " %"},
         "yaxis": {"automargin": True, "tickfont": {"size": 12}}, "bargap": 0.35,
         "legend": {"orientation": "h", "y": 1.08, "x": 0}, "margin": {"l": 10},
         "shapes": [{"type": "line", "x0": 100, "x1": 100, "y0": 0, "y1": 1, "yref": "paper",
                     "line": {"color": "--quota", "width": 2, "dash": "dash"}}]},
        ("quota-id", "quota type", "quota", "mean", f"busiest {report.window_s} s", "of quota"),
        [(t.quota_id, t.what, words.amount(t.quota, t.unit), words.amount(t.mean, t.unit),
          words.amount(t.peak, t.unit), words.share(t.utilisation)) for t in shown],
        90 + 26 * len(shown),
    )  # fmt: skip


def heat(report: Report) -> Chart | None:
    """Who was told to wait, and when."""
    waited = [t for t in report.tenants if t.throttle_ms][:MOST_HEAT_ROWS]
    if not waited:
        return None
    x, title, kind = times(report)
    rows = []
    for tenant in waited:
        told = [sum(s.throttle_ms[i] for s in tenant.series) for i in range(report.bins)]
        rows.append([value / 1000 / report.bin_s if value else None for value in told])
    worst = waited[0]
    return Chart(
        "heat",
        "When clients were told to wait",
        f"{len(waited)} quota-ids were throttled. Longest in all: {worst.quota_id} "
        f"{worst.what}, {words.duration(worst.throttle_ms)} in {words.count(worst.throttled)} "
        "requests.",
        [
            {"type": "heatmap", "x": x, "y": [label(t) for t in waited][::-1],
             "z": [[None if v is None else round(v, 3) for v in row] for row in rows[::-1]],
             "colorscale": [[0, "--heat-0"], [0.35, "--heat-1"], [1, "--heat-2"]], "ygap": 2,
             "hoverongaps": False, "zmin": 0,
             "colorbar": {"title": {"text": "s told<br>per s"}, "thickness": 12, "outlinewidth": 0},
             "hovertemplate": "%{y}<br>%{z:.2f} s told per second<extra></extra>"}
        ],
        {"xaxis": {"title": {"text": title}, "type": kind, "showgrid": False},
         "yaxis": {"automargin": True, "tickfont": {"size": 12}, "showgrid": False},
         "margin": {"l": 10}},
        ("quota-id", "quota type", "told in all", "throttled requests", "longest"),
        [(t.quota_id, t.what, words.duration(t.throttle_ms), words.count(t.throttled),
          words.duration(t.longest_ms)) for t in waited],
        110 + 24 * len(waited),
    )  # fmt: skip


def sharing(report: Report) -> Chart | None:
    """Which client counts against which quota-id, and which entity's quota that is."""
    flows = [
        (member, tenant)
        for tenant in report.tenants
        if tenant.quota_type in BYTES
        for member in tenant.members
        if member["bytes"]
    ]
    flows.sort(key=lambda f: -f[0]["bytes"])
    shown = flows[:MOST_FLOWS]
    if not shown:
        return None
    nodes: dict[tuple[str, str], int] = {}
    names: list[str] = []
    colours: list[str] = []

    def node(kind: str, name: str, colour: str) -> int:
        if (kind, name) not in nodes:
            nodes[kind, name] = len(names)
            names.append(name if kind == "id" else short(name))
            colours.append(colour)
        return nodes[kind, name]

    links: dict[tuple[int, int], int] = {}
    for member, tenant in shown:
        client = f"{member['principal'] or '(nobody)'} · {member['client_id'] or '(no client-id)'}"
        left = node("client", client, "--usage-2")
        middle = node("id", f"{label(tenant)}", "--throttle" if tenant.throttled else "--usage")
        right = node(
            "source", tenant.source or "no quota", "--quota" if tenant.quota else "--faint"
        )
        for pair in ((left, middle), (middle, right)):
            links[pair] = links.get(pair, 0) + member["bytes"]
    rest = len(flows) - len(shown)
    return Chart(
        "sharing",
        "Who shares which quota",
        "From left to right: client, the quota-id it counts against, the entity whose quota that "
        f"is; as wide as its bytes. {len(shown)} clients shown"
        + (f", {rest} smaller ones left out." if rest else "."),
        [
            {"type": "sankey", "arrangement": "snap",
             "node": {"label": names, "color": colours, "pad": 14, "thickness": 14,
                      "line": {"width": 0}, "hovertemplate": "%{label}<br>%{value:.3s}B<extra></extra>"},
             "link": {"source": [pair[0] for pair in links], "target": [pair[1] for pair in links],
                      "value": list(links.values()), "color": "--link",
                      "hovertemplate": "%{source.label} → %{target.label}<br>%{value:.3s}B<extra></extra>"}}
        ],
        {"margin": {"l": 8, "r": 8, "t": 12, "b": 12}},
        ("principal", "client-id", "counts against", "quota type", "quota of", "bytes"),
        [(m["principal"] or words.NONE, m["client_id"] or words.NONE, t.quota_id, t.what, t.source or "no quota",
          words.amount(m["bytes"], "B")) for m, t in shown],
        max(320, 60 + 30 * len({f[0]["principal"] + f[0]["client_id"] for f in shown})),
    )  # fmt: skip


def _between(say: Callable[[Any], str], least: float, most: float) -> str:
    """Return a figure, or the two that it lies between."""
    return say(most) if least == most else f"{say(least)} to {say(most)}"


def _scaled(names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic scale for bars of which one would flatten the rest; else nothing."""
    above = sorted(value for value in values if value > 0)
    if len(above) < 2 or above[-1] < FLATTENING * above[0]:
        return {}
    lowest, highest = math.log10(above[0]), math.log10(above[-1])
    return {
        "yaxis": {"title": {"text": "throttle time told, s (log scale)"}, "type": "log",
                  "range": [lowest - 0.7, highest + 0.15 * (highest - lowest) + 0.1], "dtick": 1},
        # A logarithm has no 0: its place is below the axis' foot.
        "annotations": [{"x": name, "y": 0, "yref": "paper", "text": "none", "showarrow": False,
                         "yanchor": "bottom"} for name, value in zip(names, values, strict=True)
                        if value <= 0],
    }  # fmt: skip


def plans(report: Report) -> Chart | None:
    """The same traffic under other quotas."""
    if len(report.plans) < 2:
        return None
    names = [p["plan"] for p in report.plans]
    seconds = [p["throttle_ms"] / 1000 for p in report.plans]
    rows = [
        (p["plan"], p["told"], words.count(p["ids"]),
         _between(words.count, p["throttled_least"], p["throttled"]),
         _between(words.duration, p["throttle_ms_least"], p["throttle_ms"]),
         _between(words.share, *(min(p[n] / p["bytes"], 1.0) if p["bytes"] else 0 for n in ("delayed_least", "delayed"))))
        for p in report.plans
    ]  # fmt: skip
    told = [p["told"] for p in report.plans]
    several = any(p["several"] for p in report.plans)
    colours = ["--quota" if name == "logged" else "--throttle" for name in names]
    return Chart(
        "plans",
        "What if every request had come at the same moment",
        "An open loop, no forecast: a client that waits sends later. Throttle time to expect under "
        "each plan: " + "; ".join(f"{row[0]} {row[1]}" for row in rows) + ". The bars are a replay's"
        " sums: " + "; ".join(f"{row[0]} {row[4]}, {row[2]} quota-ids" for row in rows) + "."
        + (" A request held to several limits waits for the longest, and each is replayed "
           "alone: bars are their sum, the most it can be." if several else ""),
        [
            {"type": "bar", "x": names, "y": [round(value, 3) for value in seconds],
             "marker": {"color": colours}, "text": told,
             "constraintext": "none", "textposition": "outside", "cliponaxis": False,
             "hovertemplate": "%{x}: %{y:.1f} s told<extra></extra>", "showlegend": False}
        ],
        {"yaxis": {"title": {"text": "throttle time of a replay, s"}, "rangemode": "tozero"},
         "xaxis": {"type": "category"}, "bargap": 0.5} | _scaled(names, seconds),
        ("plan", "throttle time to expect", "replayed: quota-ids throttled", "requests throttled",
         "told in all", "bytes delayed"),
        rows,
    )  # fmt: skip


def fares(report: Report) -> Chart | None:
    """How throttled quota-ids would fare under each plan, if they sent later when they wait."""
    rows = [
        (f"{label(tenant)}, {short(row['plan'])}", tenant, row)
        for tenant in report.tenants if tenant.demand is not None
        for row in tenant.fares if row["rate_least_per_s"] is not None
    ][:MOST_BARS]  # fmt: skip
    if not rows:
        return None
    ends = [
        row[n] or 0 for _, _, row in rows for n in ("rate_most_per_s", "quota", "rate_least_per_s")
    ]
    beyond = 1.3 * max(ends) or 1.0  # where a bar ends that nothing bounds

    def bars(name: str, colour: str, saturated: bool) -> dict[str, Any]:
        mine = [
            (at, row)
            for at, t, row in rows
            if (t.demand and t.demand.kind == "saturated") is saturated
        ]
        ends = [(row["rate_least_per_s"], beyond if row["rate_most_per_s"] is None else row["rate_most_per_s"])
                for _, row in mine]  # fmt: skip
        return {"type": "scatter", "mode": "lines", "name": name, "y": [y for at, _ in mine for y in (at, at, None)],
                "x": [x for pair in ends for x in (*pair, None)], "line": {"color": colour, "width": 9},
                "text": [sections.rate(row) for _, row in mine for _ in range(3)],
                "hovertemplate": "%{y}: %{text}<extra></extra>"}  # fmt: skip

    def marks(key: str, name: str, colour: str, symbol: str) -> dict[str, Any]:
        mine = [(at, row[key]) for at, _, row in rows if row[key] is not None]
        return {"type": "scatter", "mode": "markers", "name": name, "y": [y for y, _ in mine], "x": [x for _, x in mine],
                "marker": {"symbol": symbol, "size": 13, "color": colour, "line": {"width": 3, "color": colour}},
                "hovertemplate": "%{y}: %{x:.3s}B/s<extra>" + name + "</extra>"}  # fmt: skip

    return Chart(
        "fares",
        "What if, in a closed loop: rates of throttled quota-ids",
        "A client that waits sends later. Rates under each plan: "
        + "; ".join(f"{t.quota_id} {t.what} under {row['plan']} {sections.rate(row)}" for _, t, row in rows[:4])
        + ". A bar that reaches the right edge has no known end.",
        [bars("saturated: between", "--throttle", True), bars("others: between", "--usage", False),
         marks("rate_per_s", "figure", "--ink", "circle"), marks("quota", "limit under the plan", "--quota", "line-ns")],
        {"xaxis": {"title": {"text": "bytes per second and broker"}, "tickformat": ".2s", "range": [0, beyond]},
         "yaxis": {"automargin": True, "autorange": "reversed", "type": "category", "categoryarray": [at for at, _, _ in rows],
                   "tickfont": {"size": 12}},
         "legend": {"orientation": "h", "y": 1.12, "x": 0}, "margin": {"l": 10}},
        ("quota-id", "type", "plan", "what it is", "limit", "rate", "told to wait", "done after", "why no figure"),
        [(t.quota_id, t.what, row["plan"], row["kind"], words.amount(row["quota"], t.unit), sections.rate(row),
          sections.wait(row), sections.finish(row), row["reason"] or "") for _, t, row in rows],
        120 + 26 * len(rows),
    )  # fmt: skip


def advice(report: Report) -> Chart | None:
    """Where limits are proposed to move."""
    moved = [
        r for r in report.recommendations
        if r["recommended"] and r["current"] and r["action"] not in ("keep", "remove")
        and r["quota_type"] in BYTES
    ][:MOST_BARS]  # fmt: skip
    if not moved:
        return None
    names = [
        f"{r['entity']}  {'produce' if r['quota_type'] == BYTES[0] else 'fetch'}" for r in moved
    ]
    shapes = [
        {"type": "line", "x0": r["current"], "x1": r["recommended"], "y0": name, "y1": name,
         "line": {"color": "--faint", "width": 3}, "layer": "below"}
        for r, name in zip(moved, names, strict=True)
    ]  # fmt: skip

    def dots(key: str, name: str, colour: str, symbol: str) -> dict[str, Any]:
        return {"type": "scatter", "mode": "markers", "name": name, "y": names,
                "x": [r[key] for r in moved],
                "marker": {"size": 12, "color": colour, "symbol": symbol},
                "hovertemplate": "%{x:.3s}B/s<extra>" + name + "</extra>"}  # fmt: skip

    return Chart(
        "advice",
        "Limits that should move",
        f"{len(moved)} limits are proposed to change; the first: {names[0]} from "
        f"{words.amount(moved[0]['current'], 'B/s')} to "
        f"{words.amount(moved[0]['recommended'], 'B/s')}.",
        [dots("current", "now", "--quota", "circle-open"),
         dots("recommended", "proposed", "--usage", "circle")],
        {"xaxis": {"type": "log", "title": {"text": "bytes per second and broker"}, "tickformat": "~s", "dtick": "D2"},
         "yaxis": {"automargin": True, "autorange": "reversed", "type": "category"},
         # Above the first row, however few there are: it shows the same dots.
         "shapes": shapes, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
         "margin": {"l": 10, "t": 40}},
        ("entity", "now", "proposed"),
        [(name, words.amount(r["current"], "B/s"), words.amount(r["recommended"], "B/s"))
         for name, r in zip(names, moved, strict=True)],
        124 + 26 * len(moved),
    )  # fmt: skip


def cards(report: Report) -> list[Tenant]:
    """The tenants shown at once: those who waited longest, then those who used most."""
    used = [t for t in report.tenants if t.quota_type in BYTES]
    return used[:MOST_CARDS]


def series_of(tenant: Tenant) -> dict[str, Any]:
    """A tenant's series and figures, compact, for the page's own script to draw."""
    return {
        "i": tenant.index,
        "q": tenant.quota_id,
        "k": tenant.what,
        "u": tenant.unit,
        "s": [
            {"b": s.broker_id, "l": s.quota, "y": _round(s.amounts),
             "t": s.throttle_ms if any(s.throttle_ms) else []}
            for s in tenant.series
        ],
    }  # fmt: skip


def all_charts(report: Report) -> dict[str, Chart]:
    """Every chart of the page that has something to show, by name."""
    made = (
        overview(report), utilisation(report), heat(report), sharing(report), plans(report),
        fares(report), advice(report),
    )  # fmt: skip
    return {chart.name: chart for chart in made if chart is not None and chart.data}


def _bin_words(report: Report) -> str:
    return "second" if report.bin_ms == 1000 else words.duration(report.bin_ms)


def _round(values: Sequence[float]) -> list[float]:
    """Whole numbers where nothing is lost, else four figures: the page stays small."""
    return [int(v) if v == int(v) else float(f"{v:.4g}") for v in values]
