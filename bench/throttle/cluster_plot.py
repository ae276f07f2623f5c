"""
Simulate a cluster-wide quota over 100 brokers and plot what each way of splitting it admits.

Writes docs/img/cluster-quotas.svg and prints the figures its page cites. About 20 s.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from kit.cluster_simulation import (  # noqa: E402
    Change,
    Result,
    demand_split,
    equal_split,
    proportional_split,
    simulate,
    zipf,
)

QUOTA = 100e6
BROKERS = 100
SECONDS = 150
RESHUFFLE_S, LEAVE_S, JOIN_S = 40, 80, 116
WIDTH, HEIGHT = 920, 430
LEFT, RIGHT, TOP, BOTTOM = 62, 182, 52, 46
LINES = (
    ("one limiter (the ideal)", None, "#8a8a8a", "6 4"),
    ("Headgate: by demand", demand_split, "#0b6e99", ""),
    ("in proportion to use", lambda: proportional_split, "#c77d0a", ""),
    ("equal parts", lambda: equal_split, "#b23a48", ""),
)


def shuffled(seed: int) -> dict[int, float]:
    """Return Zipf demands, 1.5 times the quota together, dealt to brokers by chance."""
    order = list(range(BROKERS))
    random.Random(seed).shuffle(order)
    return dict(zip(order, zipf(BROKERS, 1.5 * QUOTA), strict=True))


def scenario() -> list[Change]:
    """All demands change place; then ten brokers leave, their demand moves; then twenty join."""
    second = shuffled(2)
    stay = {b: d for b, d in second.items() if b % 10}
    lost = sum(second.values()) - sum(stay.values())
    stay = {b: d + lost / len(stay) for b, d in stay.items()}
    joined = stay | {200 + i: d for i, d in enumerate(zipf(20, 0.5 * QUOTA))}
    return [
        Change(0, shuffled(1)),
        Change(RESHUFFLE_S, second),
        Change(LEAVE_S, stay),
        Change(JOIN_S, joined),
    ]


def x_of(seconds: float) -> float:
    """Return the place of a time."""
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / SECONDS


def y_of(part: float) -> float:
    """Return the place of a part of the quota."""
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (part - 0.4) / 0.7)


def path_of(values: Sequence[float], period_s: float) -> str:
    """Return a line through the means of periods."""
    points = (
        f"{x_of((i + 0.5) * period_s):.1f},{y_of(max(0.4, min(v, 1.1))):.1f}"
        for i, v in enumerate(values)
    )
    return " ".join(points)


def svg(results: Sequence[tuple[str, str, str, Result]]) -> str:
    """Return the plot."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        "<title>What 100 brokers admit of a cluster-wide quota</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#222">Part of a cluster-wide quota that '
        "100 brokers admit together (Zipf demand, 1.5 x the quota)</text>",
    ]
    for tenth in range(4, 12):
        y = y_of(tenth / 10)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{"#bbb" if tenth == 10 else "#eee"}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{tenth * 10} %'
            "</text>"
        )
    parts += [
        f'<text x="{x_of(at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" '
        f'fill="#555">{at}</text>'
        for at in range(0, SECONDS + 1, 10)
    ]
    parts.append(
        f'<text x="{x_of(SECONDS / 2):.1f}" y="{HEIGHT - 10}" text-anchor="middle" fill="#555">'
        "seconds (one split every 2 s)</text>"
    )
    for at, words in (
        (RESHUFFLE_S, "all demands change place"),
        (LEAVE_S, "10 brokers leave"),
        (JOIN_S, "20 join"),
    ):
        parts.append(
            f'<line x1="{x_of(at):.1f}" x2="{x_of(at):.1f}" y1="{TOP - 6}" '
            f'y2="{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="2 3"/>'
            f'<text x="{x_of(at) + 4:.1f}" y="{TOP + 2}" fill="#555">{words}</text>'
        )
    for _, colour, dashes, result in results:
        values = [rate / QUOTA for rate in result.admitted]
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<polyline points="{path_of(values, result.period_ms / 1000)}" fill="none" '
            f'stroke="{colour}" stroke-width="2"{dashed}/>'
        )
    ends = [y_of(result.admitted[-1] / QUOTA) for *_, result in results]
    for (name, colour, _, _), y in zip(results, spread(ends), strict=True):
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def spread(places: Sequence[float], least: float = 17) -> list[float]:
    """Return label places in the same order, at least that far apart."""
    told: list[float] = []
    for place in places:
        told.append(max(place, told[-1] + least) if told else place - 6)
    return told


def main() -> None:
    """Simulate, plot, print."""
    target = Path(__file__).parents[2] / "docs" / "img" / "cluster-quotas.svg"
    results = []
    for name, make, colour, dashes in LINES:
        result = simulate(make() if make else None, QUOTA, scenario(), SECONDS)
        results.append((name, colour, dashes, result))
        steady = result.mean(20, RESHUFFLE_S) / QUOTA
        after = [f"{result.admitted[RESHUFFLE_S // 2 + i] / QUOTA:.0%}" for i in range(6)]
        late = result.mean(64, LEAVE_S) / QUOTA
        print(
            f"{name}: steady {steady:.1%}; periods after the change {', '.join(after)}; steady "
            f"again {late:.1%}; after leaving {result.mean(100, JOIN_S) / QUOTA:.1%}; after "
            f"joining {result.mean(136, SECONDS) / QUOTA:.1%}",
            flush=True,
        )
    target.parent.mkdir(exist_ok=True)
    target.write_text(svg(results), "utf-8")
    print(f"wrote {target.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
