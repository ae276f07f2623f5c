"""
How the pipeline's commands print: closing tables, and figures as people read them.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    Print a run's closing table to stdout; numbers to the right, and never divided.

    Where the terminal is too narrow for the table, each row is printed as text.

    Args:
        title: stands above it.
        columns: what it shows of each row.
        rows: what it is about.
        most: how many rows are shown, the others counted; None: all.
        table: where the others are.
    """
    shown = rows[:most]
    headings = [heading for heading, _ in columns]
    cells = [
        [shortened(printable(str(row[of] if isinstance(of, str) else of(row)))) for row in shown]
        for _, of in columns
    ]
    numeric = [bool(column) and all(map(_numeric, column)) for column in cells]
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
    widths = column_widths(headings, cells, numeric, console.width)
    if widths is None:
        console.print(title, style="bold", markup=False, soft_wrap=True)
        for row in zip(*cells, strict=True):
            for line in row_lines(headings, row, console.width):
                console.print(line, markup=False, soft_wrap=True)
    else:
        drawn = Table(title=title, title_justify="left", title_style="bold")
        for heading, width, right in zip(headings, widths, numeric, strict=True):
            drawn.add_column(
                heading, justify="right" if right else "left", width=width, overflow="fold"
            )
        for row in zip(*cells, strict=True):
            drawn.add_row(*map(Text, row))
        console.print(drawn)
    if len(rows) > len(shown):
        print(f"{len(rows) - len(shown)} more are in table {table}.")


_PIPE_COLUMNS: Final = 160
_LONGEST_WORD: Final = 40
"""Columns of a table that a word may take before it is divided."""


def column_widths(
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    width: int,
) -> list[int] | None:
    """
    Return the widths of a table's columns; None where the table can't be drawn so wide.

    Numbers and names are whole, texts wrap between words.

    Args:
        headings: of the columns, which wrap between words.
        cells: by column.
        numeric: which columns hold numbers.
        width: columns of the terminal.
    """
    least, natural = [], []
    for heading, column, is_number in zip(headings, cells, numeric, strict=True):
        whole = max(map(cell_len, column), default=0)
        words = (min(cell_len(w), _LONGEST_WORD) for cell in column for w in cell.split())
        head = max(map(cell_len, heading.split()), default=0)
        least.append(max(head, whole if is_number else max(words, default=0), 1))
        natural.append(max(cell_len(heading), whole, 1))
    room = width - sum(least) - 3 * len(least) - 1  # a line and two blanks for each, and a line
    if room < 0:
        return None
    while room and (wanting := [at for at in range(len(least)) if least[at] < natural[at]]):
        for at in wanting[:room]:
            least[at] += 1
        room -= len(wanting[:room])
    return least


def row_lines(headings: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """Return a row as text for a terminal too narrow for the table: headings and whole values."""
    parts = [f"{heading} {cell}".strip() for heading, cell in zip(headings, row, strict=True)]
    text = "; ".join(
        part if len(part) > _LONGEST_WORD else part.replace(" ", _KEPT) for part in parts
    )
    lines = textwrap.wrap(
        text, max(width, 20), subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace(_KEPT, " ") for line in lines]


_KEPT: Final = "\x1f"
"""Stands for a blank at which no line ends; ``printable`` leaves none in a cell."""


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
