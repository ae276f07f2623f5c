"""
Hold tenants to cluster-wide quotas or shares over three gateways while their load moves.

Three brokers, a `headgate serve` before each, `headgate splits` on Spark, real clients. Prints a
table, and with --plot FILE.png draws the rate by gateway against the quota, and the splits.

    python bench/pipeline/splits_fleet.py [--direction consumer] [--shares] [--seconds 80]
        [--period-ms 5000] [--plot FILE.png]

With --shares two tenants of weights 3 and 1 contend for each broker's capacity (a third of
--quota), and what is due to each is reckoned by hand here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from headgate.quota.key import QuotaKey
from kit.splits_fleet import Fleet, Measured, Phase, summary


def phases(quota: float, seconds: float) -> list[Phase]:
    """Return loads of 1.5 times the quota: two that are mixed, one that is on one broker alone."""
    return [
        Phase(seconds, {1: 1.2 * quota, 2: 0.2 * quota, 3: 0.1 * quota}),
        Phase(seconds, {1: 0.1 * quota, 2: 1.2 * quota, 3: 0.2 * quota}),
        Phase(seconds, {3: 1.5 * quota}),
    ]


def shared_phases(capacity: float, seconds: float) -> list[Phase]:
    """Return loads of two tenants, of weights 3 and 1: both everywhere, apart, on one broker."""
    c = capacity

    def due(alice: float, bob: float) -> dict[str, float]:
        return {"alice": alice * c, "bob": bob * c}

    everywhere = dict.fromkeys((1, 2, 3), 1.5 * c)
    return [
        Phase(seconds, everywhere, {"bob": everywhere}, due(3 * 0.75, 3 * 0.25)),
        # On 1 both want more than there is. On 2 alice wants little, and bob gets the rest. On 3
        # bob is alone, without a limit.
        Phase(seconds, {1: 1.5 * c, 2: 0.2 * c}, {"bob": {**everywhere, 3: 0.6 * c}},
              due(0.75 + 0.2, 0.25 + 0.8 + 0.6)),
        Phase(seconds, {3: 1.5 * c}, {"bob": {3: 1.5 * c}}, due(0.75, 0.25)),
    ]  # fmt: skip


def tell(measured: Measured, name: str = "") -> None:
    """Print what was measured."""
    print(f"{name} quota {measured.quota:,.0f} B/s, split period {measured.period_ms / 1000:g} s")
    print("| any 60 s, part of the quota | least | mean | most |")
    print("|---|---|---|---|")
    for name, events in (("charged", measured.charged), ("acknowledged", measured.acknowledged)):
        for which, found in (
            ("two periods after a change on", measured.settled(events)),
            ("changes of load included", measured.crossing(events)),
        ):
            least, mean, most = summary(found)
            print(f"| {name}, {which} | {least:.3f} | {mean:.3f} | {most:.3f} |")
    print()
    rows = [r for r in measured.rounds if r.get("age_ms") is not None]
    took = [r["took_ms"] for r in rows]
    age = [r["age_ms"] for r in rows if r["seen"]]
    arrival = [at - s.computed_ms for at, s in measured.splits]
    for name, values in (
        ("a round, from its rows asked for to written, ms", took),
        ("newest charge a round knows, until the splits are there, ms", age),
        ("computed until read by a consumer, ms", arrival),
    ):
        if values:
            p95 = sorted(values)[int(len(values) * 0.95)]
            print(f"{name}: median {statistics.median(values):.0f}, p95 {p95:.0f}")
    words = ", ".join(f"{s:.1f}" for s in measured.followed_s())
    print(f"change of load until the busiest broker's split is over half the quota, s: {words}")


def plot(measured: Measured, path: Path) -> None:
    """Draw rates and splits over time."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    start = measured.phases[0][0]
    seconds = int((measured.phases[-1][1] - start) / 1000)
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.6, 0.4],
        subplot_titles=("Charged by each gateway, stacked, mean of 3 s", "Splits"),
    )  # fmt: skip
    colours = ("#0b6e99", "#c77d0a", "#6b8e23")
    for broker, colour in enumerate(colours, 1):
        sums = [0.0] * seconds
        for t_ms, at, amount in measured.charged:
            second = int((t_ms - start) // 1000)
            if at == broker and 0 <= second < seconds:
                sums[second] += amount / 1000
        smooth = [statistics.fmean(sums[max(i - 1, 0) : i + 2]) for i in range(seconds)]
        name = f"gateway {broker}"
        figure.add_scatter(
            x=list(range(seconds)), y=smooth, name=name, stackgroup="one", mode="lines",
            line={"color": colour, "width": 1}, row=1, col=1,
        )  # fmt: skip
        points = [
            ((at - start) / 1000, s.split / 1000)
            for at, s in measured.splits
            if s.broker == broker and 0 <= at - start <= seconds * 1000
        ]
        figure.add_scatter(
            x=[p[0] for p in points], y=[p[1] for p in points], showlegend=False, mode="lines",
            line={"color": colour, "shape": "hv"}, row=2, col=1,
        )  # fmt: skip
    for row in (1, 2):
        figure.add_hline(y=measured.quota / 1000, line={"dash": "dash"}, row=row, col=1)
    for begin, _ in measured.phases[1:]:
        figure.add_vline(x=(begin - start) / 1000, line={"dash": "dot", "width": 1})
    figure.update_yaxes(title_text="kB/s", rangemode="tozero")
    figure.update_xaxes(title_text="seconds; dotted: the load moves", row=2, col=1)
    figure.add_trace(
        go.Scatter(x=[None], y=[None], name="cluster-wide quota", mode="lines",
                   line={"dash": "dash", "color": "black"}), row=1, col=1,
    )  # fmt: skip
    figure.update_layout(width=1000, height=620, template="plotly_white", margin={"t": 40})
    page = path.with_suffix(".html")
    figure.write_html(page, include_plotlyjs=True)
    picture(page, path)
    page.unlink()


def picture(page: Path, path: Path) -> None:
    """Take a picture of a page with the browser that the tests use."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        view = browser.new_page(viewport={"width": 1020, "height": 640})
        view.goto(page.resolve().as_uri())
        view.wait_for_selector(".main-svg")
        view.screenshot(path=str(path))
        browser.close()


def chromium() -> str | None:
    """Return where a Chromium of the system is; None: playwright's own."""
    import shutil

    return shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> None:
    """Run, print, draw."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--quota", type=float, default=600_000.0)
    made.add_argument("--seconds", type=float, default=80.0, help="of each of three phases")
    made.add_argument("--period-ms", type=int, default=5000)
    made.add_argument("--batch-ms", type=int, default=1000, help="headgate.usage.batch.ms")
    made.add_argument("--direction", choices=("producer", "consumer"), default="producer")
    made.add_argument("--shares", action="store_true", help="two tenants, weights 3 and 1")
    made.add_argument("--plot", type=Path, metavar="FILE.png")
    made.add_argument("--raw", type=Path, metavar="FILE.json", help="keep what was measured")
    arguments = made.parse_args()
    quota, seconds = arguments.quota, arguments.seconds
    key = QuotaKey(f"{arguments.direction}_byte_rate", "shares" if arguments.shares else "bps")
    with tempfile.TemporaryDirectory(prefix="headgate-fleet-") as folder:
        with Fleet(
            Path(folder),
            quota=quota,
            period_ms=arguments.period_ms,
            batch_ms=arguments.batch_ms,
            key=key,
            shares={"alice": 3.0, "bob": 1.0} if arguments.shares else None,
            capacity=quota / 3 if arguments.shares else None,
        ) as fleet:
            shared = shared_phases(quota / 3, seconds)
            measured = fleet.run(shared if arguments.shares else phases(quota, seconds))
        for name, text in measured.logs.items():
            (Path(tempfile.gettempdir()) / f"fleet-{name}.log").write_text(text)
    for name, found in fleet.of.items():
        tell(found, name)
        for due, (begin, end) in zip(found.due, found.phases, strict=True):
            after = begin + 2 * found.period_ms
            windows = [
                found.windows(e, after, end, due) for e in (found.charged, found.acknowledged)
            ]
            print(
                f"  due {due:,.0f} B/s:",
                *(" to ".join(f"{v:.3f}" for v in summary(w)) for w in windows),
                sep="  ",
            )
    if arguments.raw:
        kept = {n: getattr(measured, n) for n in ("phases", "charged", "acknowledged", "splits")}
        arguments.raw.write_text(json.dumps(kept))
    if arguments.plot:
        plot(measured, arguments.plot)


if __name__ == "__main__":
    main()
