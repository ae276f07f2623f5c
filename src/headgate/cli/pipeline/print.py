"""
How the pipeline's commands print: closing tables, and figures as people read them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.output import printable
from headgate.words import amount

if TYPE_CHECKING:
    from rich.console import Console


def progress_console(arguments: argparse.Namespace) -> Console:
    """Return what progress goes to: stderr, or nowhere with ``--quiet``."""
    from rich.console import Console

    return Console(stderr=True, quiet=arguments.quiet)


def closing_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a run's closing table to stdout; numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(_numeric(row[i]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[shortened(printable(str(v))) for v in row])
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table, highlight=False, markup=False)


# A name this long would fill the table; its ends tell it from others.
_LONG: Final = re.compile(r"(\S{60})\S{40,}(\S{20})")


def shortened(text: str) -> str:
    """Return a cell without the middle of names of 120 characters or more; paths stay whole."""
    return text if text.startswith("/") or "://" in text else _LONG.sub(r"\1…\2", text)


def _numeric(text: Any) -> bool:
    return bool(_NUMBER.fullmatch(str(text))) or str(text) in ("", "-", "unlimited")


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
