"""
What the demo shows while it runs: a live table on a terminal, plain progress lines elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.demo.quota_ids import SHOWN_S, Line

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


def live_table(lines: Iterable[Line], seconds: float, total: float, width: int = 120) -> Group:
    """
    Return the table for this moment, as wide as the console; the saw-tooth fills the rest of a row.
    """
    table = Table(title=f"Through the gateway, second {seconds:.0f} of {total:.0f}",
                  title_justify="left", title_style="bold", box=SIMPLE_HEAD)  # fmt: skip
    columns = [
        ("quota-id", "left"), ("", "left"), ("quota", "right"), ("mean", "right"),
        ("told to wait", "right"), ("set at", "left"),
    ]  # fmt: skip
    if width < 98:
        columns.pop()
    teeth = min(SHOWN_S, width - 98)
    if teeth >= 10:
        columns.append(("saw-tooth, 1 s a bar", "left"))
    for name, side in columns:
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for line in lines:
        waits = line.seen.told > 0
        cells: list[Text | str] = [
            Text(line.quota_id), line.what, rate_text(line.quota), rate_text(line.mean),
            Text(f"{line.seen.told_ms / 1000:.1f} s" if waits else "never",
                 style="yellow" if waits else "green"),
            Text(line.source),
        ]  # fmt: skip
        del cells[len(columns) :]
        if len(columns) > len(cells):
            rates = line.rates()[-teeth:]
            cells.append(Text(spark(rates, max(rates, default=0.0)), style="cyan"))
        table.add_row(*cells)
    return Group(
        table,
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

    def update(self, lines: Sequence[Line], seconds: float, total: float) -> None:
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

    def done(self, lines: Sequence[Line], seconds: float, total: float) -> None:
        """End the live table; leave its last state."""
        if self._live is not None:
            self._live.update(live_table(lines, seconds, total, self.console.width))
            self._live.stop()
            self._live = None
        else:
            self.console.print(live_table(lines, seconds, total, self.console.width))
