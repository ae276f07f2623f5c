"""
Text for terminals: names made harmless, numbers as Java prints them.
"""

from __future__ import annotations

import io
import math
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


def java_double(value: float) -> str:
    """
    Return a number as ``Double.toString`` prints it: ``1024.0``, ``1.048576E7``, ``1.0E-4``.

    Args:
        value: any double.

    Source: java.lang.Double.toString (JDK 19 and later: the shortest decimal that reads back).
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    magnitude = abs(value)
    if magnitude == 0:
        return sign + "0.0"
    shortest = repr(magnitude)
    if len(shortest.partition("e")[0].replace(".", "").strip("0")) == 1:
        # Java prints two digits at least, and of those the nearest: 4.9E-324, not 5.0E-324.
        two_digits = f"{magnitude:.1e}"
        shortest = two_digits if float(two_digits) == magnitude else shortest
    mantissa, _, exponent = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # value = 0.DIGITS * 10**point
    point = int(exponent or 0) + len(whole)
    if whole == "0":
        point -= len(fraction) - len(fraction.lstrip("0")) + 1
    digits = digits.rstrip("0") or "0"
    if 1e-3 <= magnitude < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
