"""
What the demo shows while it runs: a live table on a terminal, plain progress lines elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.demo.quota_ids import SHOWN_S, QuotaIdLine

BARS: Final = " ▁▂▃▄▅▆▇█"


def rate_text(value: float | None) -> str:
    """Say a rate: ``102.4 kB/s``."""
    if value is None:
        return "unlimited"
    if value >= 1e6:
        return f"{value / 1e6:.2f} MB/s"
    if value >= 1e3:
        return f"{value / 1e3:.1f} kB/s"
    return f"{value:.0f} B/s"


def spark(values: Sequence[float], top: float) -> str:
    """Draw values as a line of bars; ``top`` is a full one."""
    if top <= 0:
        return ""
    return "".join(BARS[min(len(BARS) - 1, round(v / top * (len(BARS) - 1)))] for v in values)


Column = tuple[str, Literal["left", "right"], Callable[[Any], Text | str]]
"""A heading, the side its cells stand at, and what makes a cell of a row."""


def table_of(title: str, columns: Iterable[Column], rows: Iterable[object]) -> Table:
    """Return a table whose cells take one line each."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading, side, _ in columns:
        table.add_column(heading, justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, _, cell in columns))
    return table


def live_table(
    lines: Iterable[QuotaIdLine], seconds: float, total: float, width: int = 120
) -> Group:
    """
    Return the table for this moment, as wide as the console; the saw-tooth fills the rest of a row.
    """
    teeth = min(SHOWN_S, width - 98)

    def told(line: QuotaIdLine) -> Text:
        if not line.seen.told:
            return Text("never", style="green")
        return Text(f"{line.seen.told_ms / 1000:.1f} s", style="yellow")

    def saw_tooth(line: QuotaIdLine) -> Text:
        rates = line.rates()[-teeth:]
        return Text(spark(rates, max(rates, default=0.0)), style="cyan")

    columns: list[Column] = [
        ("quota-id", "left", lambda line: Text(line.quota_id)),
        ("", "left", lambda line: line.what),
        ("quota", "right", lambda line: rate_text(line.quota)),
        ("mean", "right", lambda line: rate_text(line.mean)),
        ("told to wait", "right", told),
    ]
    if width >= 98:
        columns.append(("set at", "left", lambda line: Text(line.source)))
    if teeth >= 10:
        columns.append(("saw-tooth, 1 s a bar", "left", saw_tooth))
    return Group(
        table_of(f"Through the gateway, second {seconds:.0f} of {total:.0f}", columns, lines),
        Text(
            "A saturated client gets a window's worth at once, then a trickle until that burst\n"
            "has left the window: Kafka's sampled quota. Over whole cycles it gets its quota.",
            style="dim",
        ),
    )


class View:
    """
    Progress for people or for a log.

    Args:
        console: where it goes.
        clock: seconds; for the time each step begins.
        quiet: print only the result, not the steps.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        quiet: bool = False,
    ) -> None:
        self.console = console
        self.way = Console(quiet=True) if quiet else console
        self._clock = clock
        self._began = clock()
        self._live: Live | None = None
        self._next_s = 0.0

    def step(self, number: int, text: str) -> None:
        """Begin one of the five steps; says how long the demo has run."""
        at = f"  ({self._clock() - self._began:.0f} s)" if number > 1 else ""
        self.way.print()
        self.way.print(Text(f"{number}. {text}", style="bold").append(at, style="not bold dim"))

    def say(self, text: str, style: str = "") -> None:
        """Print one line."""
        self.way.print(Text(f"   {text}", style=style), soft_wrap=True)

    def update(self, lines: Sequence[QuotaIdLine], seconds: float, total: float) -> None:
        """Show the load as of now."""
        if self.way.is_terminal and not self.way.quiet:
            if self._live is None:
                self._live = Live(console=self.console, refresh_per_second=4)
                self._live.start()
            self._live.update(live_table(lines, seconds, total, self.console.width))
            return
        if seconds < self._next_s:
            return
        self._next_s = seconds + 10
        busy = ", ".join(
            f"{line.quota_id} {line.what} {rate_text(line.mean)} of {rate_text(line.quota)}"
            for line in lines
            if line.quota_id in ("user1:", "user2:")
        )
        self.say(f"{seconds:3.0f} s: mean so far {busy}")

    def done(self, lines: Sequence[QuotaIdLine], seconds: float, total: float) -> None:
        """End the live table; leave its last state."""
        last = live_table(lines, seconds, total, self.console.width)
        if self._live is None:
            self.console.print(last)
            return
        self._live.update(last)
        self._live.stop()
        self._live = None
