"""
Copy a request out of the JSON string that a layout has put it in, in machine code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan.json_text import (
    NEWLINE,
    QUOTE,
    byte_at,
    lowest,
    newlines,
    put_byte,
    quotes,
    slashes,
)

_WIDTH: Final = 32
_SLASH: Final = ord("\\")


@inlined
def _copy(base, at, count, out, to):
    """Copy bytes without backslashes; return where the copy ends."""
    for i in range(count):
        c = byte_at(base, at + i)
        put_byte(out, to, c)
        to += 0 if c == _SLASH else 1
    return to


@compiled
def copy_unescaped(base, at, out):
    """
    Copy a string's text, each escaped quote as a quote, up to whatever else is escaped or ends it.

    Args:
        base: the text's address.
        at: where to begin, at no backslash.
        out: the copy's address; it gets a newline at its end.

    Returns:
        (where the text copied ends; the copy's length, -1 where it's longer than
        ``columns.MOST_TEXT``).
    """
    to = 0
    slashed = 0  # whether the byte in front is a backslash
    while to < columns.MOST_TEXT:
        is_quote = quotes(base, at)
        is_slash = slashes(base, at)
        stops = (is_slash << 1 | slashed) & 0xFFFFFFFF ^ is_quote | newlines(base, at)
        if stops != 0:
            count = lowest(stops)
            to = _copy(base, at, count, out, to)
            at += count
            if byte_at(base, at - 1) == _SLASH:
                at -= 1
            put_byte(out, to, NEWLINE)
            return at, to
        to = _copy(base, at, _WIDTH, out, to)
        slashed = is_slash >> 31
        at += _WIDTH
    return at, -1


@compiled
def end_of(text, at, length, end):
    """
    Return where in the string a position of its copy is.

    Args:
        text: the copy's address.
        at: a position in it.
        length: the copy's length.
        end: where the text ends that the whole copy was made of.
    """
    escapes = 0
    for i in range(at, length):
        escapes += 1 if byte_at(text, i) == QUOTE else 0
    return end - (length - at) - escapes
