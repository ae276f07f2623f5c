"""
What commands print: names made harmless, output that outlives its reader.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from typing import Any, Final, TextIO

# Control and format characters (C0, C1, bidi overrides, zero width), line and paragraph
# separators, lone surrogates and unassigned code points: what can move a cursor, recolour or
# forge a line. Private use (Co) prints as a box at worst.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""
    Return text with everything a terminal might obey spelled out.

    Args:
        text: any text, such as the name of an entity somebody else chose.

    Returns:
        The text; each control or format character as ``\x1b`` or ``\u202e``. Letters of any
        script stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) for char in text)


def _escape(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE_CATEGORIES:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Outlet(io.FileIO):
    """A descriptor whose reader may go: what it doesn't read any more goes nowhere."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def outlive_reader() -> None:
    """
    Let the process do its work to the end where nobody reads its output, as in ``… | head``.

    For the beginning of a program: stdout and stderr are replaced if they are still its own.
    """
    for name, stream in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        if stream is None or stream is not getattr(sys, name):
            continue
        stream.flush()
        outlet = _Outlet(stream.fileno(), "w", closefd=False)
        made = io.TextIOWrapper(
            io.BufferedWriter(outlet),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, made)


def say(text: str = "", *, file: TextIO | None = None) -> None:
    """Print one line, whatever the terminal's encoding can't show replaced by ``?``."""
    stream = sys.stdout if file is None else file
    try:
        print(text, file=stream)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding), file=stream)


def complain(text: str) -> None:
    """Print one line to stderr."""
    say(text, file=sys.stderr)
