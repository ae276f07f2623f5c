"""
Draw the three ways through Headgate: `python docs/img/architecture.py docs/img/architecture.svg`.

``WAYS`` is the picture as data. The page docs/explanation/architecture.md shows it, and a test
holds that the drawing is up to date and that every package named in it exists.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Final, NamedTuple


class Step(NamedTuple):
    """
    One box.

    Args:
        words: what happens, in one or two lines.
        package: the package of ``headgate`` that does it; "" for a program beside Headgate.
    """

    words: tuple[str, ...]
    package: str = ""


class Way(NamedTuple):
    """A row of boxes, read from left to right, with its title and colour."""

    title: str
    colour: str
    steps: tuple[Step, ...]


WAYS: Final = (
    Way(
        "A quota change",
        "#7a4fb5",
        (
            Step(("an operator changes", "a quota")),
            Step(("read the command", "line"), "cli.kafka_configs"),
            Step(("send the request", "(APIs 48, 49)"), "admin"),
            Step(("answer it in the", "broker's place"), "gateway.answered_here"),
            Step(("check entity,", "key and value"), "quota"),
            Step(("write it, with", "its history"), "store"),
            Step(("tell every gateway", "that watches"), "store"),
            Step(("put it in force,", "slice by slice"), "gateway.cluster"),
        ),
    ),
    Way(
        "A produce request",
        "#1f6fb2",
        (
            Step(("a client sends", "a Produce")),
            Step(("accept, read", "bytes"), "gateway.connection"),
            Step(("pass it on to the", "broker, wait"), "gateway.session"),
            Step(("charge it when its", "answer comes"), "gateway.charging"),
            Step(("compute the", "throttle time"), "throttle"),
            Step(("record the charge", "as an event"), "usage"),
            Step(("write the time into", "the answer"), "wire"),
            Step(("send the answer,", "mute the client"), "gateway.session"),
        ),
    ),
    Way(
        "A log line to a report",
        "#2e7d4f",
        (
            Step(("a broker writes a", "request log")),
            Step(("find files, divide", "them into pieces"), "pipeline.sources"),
            Step(("run in Python", "workers of Spark"), "pipeline.workers"),
            Step(("parse lines, recover", "the bytes charged"), "pipeline.logs"),
            Step(("sum up, replay,", "try other quotas"), "pipeline.answers"),
            Step(("the arithmetic over", "whole arrays"), "kernel"),
            Step(("replace the tables", "(Parquet)"), "pipeline.tables"),
            Step(("draw one HTML", "page"), "pipeline.report"),
        ),
    ),
)

# From (way, step) to (way, step), with the words beside the arrow.
LINKS: Final = (
    ((0, 7), (1, 3), "quotas in force"),
    ((1, 5), (2, 1), "usage journal: files or a topic"),
)

WIDTH, HEIGHT = 144, 76  # of a box
GAP, TOP, LEFT, ROW = 20, 62, 20, 176
FONT = "font-family='Helvetica, Arial, sans-serif'"


def _at(way: int, step: int) -> tuple[int, int]:
    return LEFT + step * (WIDTH + GAP), TOP + way * ROW


def _text(x: float, y: float, words: str, size: int, colour: str, more: str = "") -> str:
    return f"<text x='{x}' y='{y}' {FONT} font-size='{size}' fill='{colour}' {more}>{escape(words)}</text>"  # noqa: E501


def _box(way: int, step: int) -> list[str]:
    x, y = _at(way, step)
    drawn = WAYS[way].steps[step]
    colour = WAYS[way].colour
    ours = bool(drawn.package)
    fill, dash = ("#ffffff", "") if ours else ("#f1f1ee", "stroke-dasharray='5 4'")
    middle = x + WIDTH / 2
    parts = [
        f"<rect x='{x}' y='{y}' width='{WIDTH}' height='{HEIGHT}' rx='7' fill='{fill}' "
        f"stroke='{colour}' stroke-width='1.5' {dash}/>"
    ]
    first = y + (24 if ours else 36)
    parts += [
        _text(middle, first + 17 * n, line, 13, "#222222", "text-anchor='middle'")
        for n, line in enumerate(drawn.words)
    ]
    if ours:
        parts.append(
            _text(
                middle, y + 65, drawn.package, 11, colour, "text-anchor='middle' font-weight='bold'"
            )
        )
    return parts


def _arrow(points: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.6' "
        "marker-end='url(#end)'/>"
    )


def _links() -> list[str]:
    parts = []
    for (from_way, from_step), (to_way, to_step), words in LINKS:
        x, y = _at(from_way, from_step)
        x, y = x + WIDTH / 2, y + HEIGHT
        to_x, to_y = _at(to_way, to_step)
        to_x += WIDTH / 2
        turn = y + 26
        parts.append(_arrow([(x, y), (x, turn), (to_x, turn), (to_x, to_y - 3)], "#555555"))
        parts.append(_text((x + to_x) / 2, turn - 6, words, 12, "#555555", "text-anchor='middle'"))
    return parts


def picture() -> str:
    """Return the picture as SVG."""
    width = LEFT * 2 + 8 * WIDTH + 7 * GAP
    height = TOP + 2 * ROW + HEIGHT + 24
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' role='img' "
        "aria-label='Three ways through Headgate, step by step, with the package of each step'>",
        "<defs><marker id='end' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' "
        "markerHeight='7' orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='#555555'/></marker>",
        "</defs>",
        f"<rect width='{width}' height='{height}' fill='#fcfcfa'/>",
    ]
    for number, way in enumerate(WAYS):
        x, y = _at(number, 0)
        parts.append(_text(x, y - 14, way.title, 16, way.colour, "font-weight='bold'"))
        for step in range(len(way.steps)):
            parts += _box(number, step)
            if step:
                to_x, middle = _at(number, step)[0], y + HEIGHT / 2
                parts.append(_arrow([(to_x - GAP, middle), (to_x - 3, middle)], "#555555"))
    parts += [*_links(), "</svg>"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
