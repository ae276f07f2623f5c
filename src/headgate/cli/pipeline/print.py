"""
How the pipeline's commands print: closing tables, and figures as people read them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from headgate.cli.output import printable
from headgate.words import amount


def progress_console(arguments: argparse.Namespace) -> Console:
    """Return what progress goes to: stderr, or nowhere with ``--quiet``."""
    return Console(stderr=True, quiet=arguments.quiet, highlight=False)


Column = tuple[str, str | Callable[[Any], object]]
"""A heading, and its cells: the row's field of that name, or what makes a cell of a row."""


def closing_table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    *,
    most: int | None = None,
    table: str = "",
) -> None:
    """
    Print a run's closing table to stdout; numbers to the right.

    Args:
        title: stands above it.
        columns: what it shows of each row.
        rows: what it is about.
        most: how many rows are shown, the others counted; None: all.
        table: where the others are.
    """
    shown = rows[:most]
    drawn = Table(title=title, title_justify="left", title_style="bold")
    columns_of_cells = []
    for heading, of in columns:
        cells = [str(row[of] if isinstance(of, str) else of(row)) for row in shown]
        numeric = bool(cells) and all(_numeric(cell) for cell in cells)
        drawn.add_column(heading, justify="right" if numeric else "left", overflow="fold")
        columns_of_cells.append([shortened(printable(cell)) for cell in cells])
    for row in zip(*columns_of_cells, strict=True):
        drawn.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(drawn, highlight=False, markup=False)
    if len(rows) > len(shown):
        print(f"{len(rows) - len(shown)} more are in table {table}.")


# A name this long would fill the table; its ends tell it from others.
_LONG: Final = re.compile(r"(\S{60})\S{40,}(\S{20})")


def shortened(text: str) -> str:
    """Return a cell without the middle of names of 120 characters or more; paths stay whole."""
    return text if text.startswith("/") or "://" in text else _LONG.sub(r"\1…\2", text)


def _numeric(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) or text in ("", "-", "unlimited")


_NUMBER: Final = re.compile(r"-?[\d.,]+(e[+-]?\d+)?%?( [A-Za-z]{1,3}| \([\d.]+ [kMGT]?B(/s)?\))?")


def number(value: float | None, unit: str = "") -> str:
    """Return a number for the closing table: thin, rounded, "unlimited" for None."""
    if value is None:
        return "unlimited"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.3g}"
    return f"{text} {unit}".rstrip()


def sized(value: float | None, key: str = "byte_rate", unit: str = "B/s") -> str:
    """
    Return a number; if it is of bytes, with the rounded form: ``1,234,567 (1.23 MB/s)``.

    Args:
        value: what is shown; None is unlimited.
        key: the quota type or key whose unit it has.
        unit: of the bytes.
    """
    said = "" if value is None or value < 1000 or "byte_rate" not in key else amount(value, unit)
    exact = number(value)
    return f"{exact} ({said})" if said and not key.endswith("shares") else exact


def share(value: float | None) -> str:
    """Return a share as a percentage, "-" for None."""
    return "-" if value is None else f"{value:.1%}"


def utc(ms: int) -> str:
    """Return a moment in UTC, to the second."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
