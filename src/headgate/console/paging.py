"""
Lists that are shown in pages: what an address asks for, and the rows of one page.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

ROWS: Final = 50
"""Rows of a page."""
MOST_FIND: Final = 200
"""Characters to look for."""


class PagePart(NamedTuple):
    """
    One page of a list.

    Args:
        rows: those of the page.
        found: how many there are on all pages.
        page: its number, from 1 on.
        pages: how many there are.
        size: how many rows a page has.
    """

    rows: Sequence[Any]
    found: int
    page: int
    pages: int
    size: int = ROWS

    @property
    def begin(self) -> int:
        """How many rows are on the pages before."""
        return (self.page - 1) * self.size

    @property
    def last(self) -> int:
        """The number of the page's last row, of all."""
        return self.begin + len(self.rows)

    @property
    def near(self) -> list[int]:
        """Numbers of pages to link to: the first, the last, those near; 0 for a gap."""
        near = range(max(1, self.page - 2), min(self.pages, self.page + 2) + 1)
        found: list[int] = []
        for number in sorted({1, self.pages, *near}):
            if found and number - found[-1] > 1:
                found.append(0)
            found.append(number)
        return found


def page_of(rows: Sequence[Any], request: Request) -> PagePart:
    """Return the page that a request asks for, or the nearest there is."""
    given = request.query_params.get("page", "")
    return part_of(rows, int(given) if given.isdecimal() and len(given) < 9 else 1)


def part_of(rows: Sequence[Any], asked: int, size: int = ROWS) -> PagePart:
    """
    Return one page of a list, or the nearest there is.

    Args:
        rows: all.
        asked: the page's number, from 1 on.
        size: how many rows a page has.
    """
    pages = max(1, -(-len(rows) // size))
    page = min(pages, max(1, asked))
    return PagePart(rows[(page - 1) * size : page * size], len(rows), page, pages, size)


def one_of(request: Request, name: str, known: Container[str], otherwise: str) -> str:
    """Return a word of the address; one that isn't known counts as none."""
    given = request.query_params.get(name, "")
    return given if given in known else otherwise


def text_to_find(request: Request) -> str:
    """Return the text that is looked for; "": all."""
    return request.query_params.get("find", "")[:MOST_FIND].strip()
