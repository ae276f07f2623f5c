r"""
Read a file of properties the way Kafka does: `java.util.Properties`, with line numbers.

Comments (``#`` or ``!``), keys ended by ``=``, ``:`` or white space, lines continued by a
backslash, escapes (``\t \n \r \f \\ \uXXXX``; a backslash before anything else is dropped).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """
    One key and its value, as read.

    Args:
        key: the name, escapes resolved.
        value: the text, escapes resolved; "" where there is none.
        line: the number of the line it starts on, from 1; 0 if it came from no file.
    """

    key: str
    value: str
    line: int = 0


def parse_properties(text: str) -> tuple[list[Property], list[tuple[int, str]]]:
    """
    Split a file's text into its properties.

    Args:
        text: the whole file.

    Returns:
        The properties in the file's order (a key given twice appears twice), and the lines that
        couldn't be read, each with the reason.

    Source: java.util.Properties.load.
    """
    found: list[Property] = []
    bad: list[tuple[int, str]] = []
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        try:
            found.append(Property(_unescape(key), _unescape(value), line))
        except ValueError as problem:
            bad.append((line, str(problem)))
    return found, bad


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line's number, text) with continuations joined, comments and blanks left out."""
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield start, "".join(parts)
        parts = []
    if parts:
        yield start, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Split a line into key and value, at the first ``=``, ``:`` or blank that isn't escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        digits = text[at : at + 4]
        if len(digits) != 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise ValueError("a \\u that isn't an escape: \\u takes four hexadecimal digits")
        out.append(chr(int(digits, 16)))
        at += 4
    # Java keeps UTF-16; a pair of \u escapes is one character here.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
