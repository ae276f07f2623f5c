"""
Take lines of CSV apart that have a request in one of their cells.
"""

from __future__ import annotations

import csv
import re
from typing import Any, Final

# A cell in quotes up to the word, its own quotes doubled.
_CELL: Final = re.compile(r'(?:^|[,;\t|])"(?:[^"]|"")*requestHeader')
_FIRST_CELLS: Final = re.compile(r'(?:[^",;\t|{]*[,;\t|])*"(?!\s*:)')
_BEHIND: Final = re.compile(r'[^"]"([,;\t|])')
_NAMES: Final = re.compile(r'"?[@\w .-]{1,64}"?(?:[,;\t|]"?[@\w .-]{1,64}"?)*\s*')
_BETWEEN: Final = re.compile(r"[,;\t|]")
csv.field_size_limit(1 << 30)


def is_csv(line: bytes) -> bool:
    """Say whether a line is of CSV, and a request is, or begins, in one of its cells."""
    text = line.decode("utf-8", "replace")
    return cells_of(text) is not None or (
        text.count('"') % 2 == 1 and _FIRST_CELLS.match(text) is not None
    )


def names_in(line: bytes) -> tuple[str, ...]:
    """Return what a file's first line calls the columns, if it's that; none where it can't be."""
    text = line.decode("utf-8", "replace").lstrip("\ufeff")
    if not _NAMES.fullmatch(text):
        return ()
    return tuple(name.strip(' "') for name in _BETWEEN.split(text.strip()))


def cells_of(text: str, columns: tuple[str, ...] = ()) -> dict[Any, str] | None:
    """
    Return the cells of a line of CSV; None: it isn't one with a request.

    Args:
        text: the line.
        columns: their names; cells are numbered where there are more, or fewer.
    """
    cell = _CELL.search(text)
    if cell is None or '""' not in cell[0]:
        return None
    delimiter = cell[0][0] if cell[0][0] != '"' else next(iter(_BEHIND.findall(text)), ",")
    try:
        cells = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return None
    named = len(columns) == len(cells) == len({*columns})
    return dict(zip(columns if named else range(len(cells)), cells, strict=True))
