"""
Look at the head of a file: what it is compressed with, and its first request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headgate.pipeline.logs.csv_lines import is_csv, names_in
from headgate.pipeline.logs.line_parser import LineParser
from headgate.pipeline.sources.compressed import Damaged, decompressed, reading
from headgate.pipeline.sources.files import filesystem

_COMPRESSION: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x5d\0\0", "xz"),  # its elder form, .lzma
    (b"PK\3\4", "zip"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    *((bytes((n,)) + b"\x2a\x4d\x18", "zstd") for n in range(0x50, 0x60)),  # as pzstd begins
)
# What isn't read, and would be millions of bad lines.
_FOREIGN: Final = (
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
    (b"\x1f\x9d", "compress (.Z)"),
    (b"\x02\x21\x4c\x18", "lz4's legacy format"),
    (b"\xff\x06\0\0sNaPpY", "snappy"),
    (b"\x89LZO", "lzop"),
)


HEAD_BYTES: Final = 65536
"""Text that is looked at, from the beginning of the line with the first request on."""
MOST_HEAD_BYTES: Final = 16 << 20
"""How far the first request is looked for: a broker logs its settings before it serves anybody."""
_MOST_LINES: Final = 50
_HOUR_MS: Final = 3_600_000.0
_REQUEST: Final = re.compile(rb'requestHeader(?:[\\"]|\.requestApiKey)|RequestHeader\(apiKey=')
_LONGEST: Final = 32
"""Bytes of what a request is found by, at most."""


def first_request(head: bytes) -> bytes:
    """
    Return the first whole request line of a log; what identifies it where there is none.

    Args:
        head: as ``head_of`` gives it.

    Returns:
        Nothing, if there's no request yet and the file isn't long enough to tell.
    """
    at = _place_of(head)
    if at < 0 and len(head) >= MOST_HEAD_BYTES:
        return head[:HEAD_BYTES]
    end = head.find(b"\n", at)
    return head[head.rfind(b"\n", 0, at) + 1 : end] if 0 <= at < end else b""


def shifts_of(head: bytes, tail: bytes = b"") -> tuple[float, ...]:
    """
    Return by what a wrapper's zone shifts the stamps that a logger printed without one, ms.

    The wrapper tells a zone if in all lines looked at its stamp differs from the logger's by whole
    quarters of an hour, or by none: one that lags by some other time tells nothing. It is the least
    of these shifts, as a lag only adds to it.

    Args:
        head: of a log.
        tail: its end. Where the shift is another one there, and by no more than an hour, clocks
            have changed in between.

    Returns:
        Nothing: a wrapper's zone doesn't count. Else one shift, or two in order.
    """
    at = head.rfind(b"\n", 0, max(_place_of(head), 0)) + 1
    first = _shift_of(head[at : head.rfind(b"\n") + 1].split(b"\n", _MOST_LINES)[:_MOST_LINES])
    return () if first is None else shifts_from((first,), tail)


def shifts_from(shifts_ms: tuple[float, ...], tail: bytes) -> tuple[float, ...]:
    """Return a log's shifts by its beginning, and the one by its end if that is another."""
    last = _shift_of(tail.split(b"\n")[1:-1][-_MOST_LINES:])
    if last is None or len(shifts_ms) != 1 or not 0.0 < abs(last - shifts_ms[0]) <= _HOUR_MS:
        return shifts_ms
    return tuple(sorted((*shifts_ms, last)))


def _shift_of(lines: Iterable[bytes]) -> float | None:
    """Return by what a wrapper's zone shifts the stamps of lines, ms; None: that isn't told."""
    parser = LineParser(watching=True)
    for line in lines:
        if _REQUEST.search(line):
            parser.rows(line)
    shifts = [shift for shift in parser.stamps.shifts if shift is not None]
    return min(shifts) if shifts and len(shifts) == len(parser.stamps.shifts) else None


def tail_of(path: str) -> bytes:
    """
    Return the last bytes of a plain file.

    Raises:
        ReadError: it can't be read.
    """
    with reading(path):
        system, inner = filesystem(path)
        with system.open_input_file(inner) as file:
            file.seek(max(file.size() - HEAD_BYTES, 0))
            text: bytes = file.read(HEAD_BYTES)
    return text


def columns_of(head: bytes) -> tuple[str, ...]:
    """Return what a file of CSV calls its columns; nothing, where it doesn't, or isn't one."""
    first, _, rest = head.partition(b"\n")
    return names_in(first) if is_csv(rest.lstrip(b"\r\n").partition(b"\n")[0]) else ()


def is_document(head: bytes) -> bool:
    """Say whether a file is JSON that is printed over several lines."""
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = first[: first.find(b"\n")] if b"\n" in first else b""
    return first.startswith((b"{", b"[")) and first.rstrip().endswith((b"{", b"[", b","))


def head_of(path: str) -> tuple[bytes, str, str]:
    """
    Return (text, compression, why it isn't read) of a file's beginning.

    The text goes on for ``HEAD_BYTES`` behind the first request, or ends after ``MOST_HEAD_BYTES``.
    """
    system, inner = filesystem(path)
    with system.open_input_file(inner) as file:
        head: bytes = file.read(HEAD_BYTES)
        known = next((name for magic, name in _COMPRESSION if head.startswith(magic)), "")
        known = known or _utf_16(head)
        if not known:
            for magic, name in _FOREIGN:
                if head.startswith(magic):
                    wanted = "text, plain or as gzip, zstd, bzip2, lz4, xz or zip"
                    return b"", "", f"it is {name}; make it {wanted}"
            return _to_request(head, lambda: file.read(1 << 20)), "", ""
    pieces = decompressed(system, inner, known)
    return _to_request(b"", lambda: _next(pieces)), known, ""


def _utf_16(head: bytes) -> str:
    """Return the encoding of a text that doesn't begin with its mark; "" where it isn't UTF-16."""
    begin = head[:512]
    zeros = [begin[n::2].count(0) for n in (0, 1)]
    most, least = max(zeros), min(zeros)
    if most * 4 < len(begin) * 1.8 or least * 50 > len(begin) or len(begin) < 64:
        return ""
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def _place_of(text: bytes | bytearray, begin: int = 0) -> int:
    """Return where the first request is named; -1: nowhere."""
    found = _REQUEST.search(text, begin)
    return -1 if found is None else found.start()


def _next(pieces: Iterator[bytes]) -> bytes:
    """Return more text; nothing at the end, and where the rest is damaged."""
    try:
        return next(pieces, b"")
    except Damaged:
        return b""


def _to_request(head: bytes, read: Callable[[], bytes]) -> bytes:
    """Read on to the first request, and a little behind it."""
    text = bytearray(head)
    at = _place_of(text)
    while len(text) < (MOST_HEAD_BYTES if at < 0 else at + HEAD_BYTES):
        more = read()
        if not more:
            break
        begin = max(len(text) - _LONGEST, 0)
        text += more
        at = _place_of(text, begin) if at < 0 else at
    return bytes(text[:MOST_HEAD_BYTES] if at < 0 else text[: at + HEAD_BYTES])
