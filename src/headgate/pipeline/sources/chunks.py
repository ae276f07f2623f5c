"""
Read the lines that a piece owns, as chunks of whole lines in one buffer, or as a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from headgate.pipeline.logs.bad_lines import goes_on
from headgate.pipeline.logs.joining import MOST_BYTES
from headgate.pipeline.logs.scan.names import PADDING
from headgate.pipeline.sources.compressed import Damaged, decompressed, reading
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.pieces import MAX_LINE_BYTES, FilePiece
from headgate.pipeline.sources.under_way import under_way

# Read at a time: what was just read is still in a core's cache when it's looked at.
CHUNK_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 65536
# A buffer that isn't in use, for the next to read: the kernel needn't find and clear new memory.
_spare: list[bytearray] = []


def read_lines(piece: FilePiece) -> Iterator[tuple[int, list[bytes]]]:
    """
    Yield the lines that ``piece`` owns, in chunks of (byte offset of the first line, lines).

    Raises:
        ReadError, Damaged: as ``read_chunks``.
    """
    for offset, text, end in read_chunks(piece):
        yield offset, text[: end - 1].tobytes().split(b"\n")


def read_chunks(piece: FilePiece) -> Iterator[tuple[int, Any, int]]:
    """
    Yield the lines that ``piece`` owns, in chunks of whole lines.

    Yields:
        (byte offset of the first line; uint8 array, overwritten by the next chunk, with PADDING
        bytes beyond the end; where the lines end, behind a newline). A last line without its
        newline gets one.

    Raises:
        ReadError: the file can't be read, or has become shorter than its pieces.
        Damaged: its compressed stream is broken or ends early; lines before that are yielded first.
    """
    with reading(piece.path):
        yield from _read_chunks(piece)


def _read_chunks(piece: FilePiece) -> Iterator[tuple[int, Any, int]]:
    system, inner = filesystem(piece.path)
    if piece.compression:
        source = _Stream(decompressed(system, inner, piece.compression))
        begin = piece.start
        if piece.end >= 0 and begin > 0:  # of a log that was plain when it was divided
            source.skip(begin - 1)
            begin += source.skip_line() - 1
        else:
            source.skip(begin)
        yield from _chunks(source.read_into, begin, piece.end)
        return
    with system.open_input_file(inner) as file:
        stop = piece.stop if piece.stop >= 0 else file.size()
        begin, end = piece.start, piece.end
        if begin > 0:  # the line that is under way at the start belongs to the piece before
            begin = _behind_newline(file, begin - 1, stop)
        if piece.start != piece.begin:
            begin = _first_owned(file, begin, piece, stop)
        if 0 < end < stop:
            end = _first_owned(file, _behind_newline(file, end - 1, stop), piece, stop)
        file.seek(begin)
        yield from _chunks(file.readinto, begin, end)


def _first_owned(file: Any, at: int, piece: FilePiece, stop: int) -> int:
    """
    Return where the first line begins, at or behind ``at``, before which no request is under way.

    So the piece in which a request of several lines begins has all of them, and what other sources
    wrote in between.
    """
    joiner, before = under_way(file, piece.begin, at, piece.columns)
    file.seek(at)
    owned, rest, start = at, b"", 0
    while owned < min(stop, at + MOST_BYTES):
        newline = rest.find(b"\n", start)
        if newline < 0:
            more = file.read(_LOOK_BYTES)
            if more:
                rest, start = rest[start:] + more, 0
                continue
            newline = len(rest)
        line = rest[start:newline]
        if not joiner.is_under_way and not goes_on(before, line):
            return owned
        joiner.pass_over(owned, line)
        owned += len(line) + 1
        before, start = line, newline + 1
    return min(owned, stop)


class _Stream:
    """Reads pieces of whatever length into given room."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def skip(self, count: int) -> None:
        """Go past ``count`` bytes."""
        while count > len(self._rest):
            count -= len(self._rest)
            self._rest = next(self._pieces, b"")
            if not self._rest:
                return
        self._rest = self._rest[count:]

    def skip_line(self) -> int:
        """Go past the next newline; return by how many bytes."""
        passed = 0
        while self._rest or (rest := next(self._pieces, b"")):
            self._rest = self._rest or rest
            newline = self._rest.find(b"\n")
            passed += len(self._rest) if newline < 0 else newline + 1
            self._rest = b"" if newline < 0 else self._rest[newline + 1 :]
            if newline >= 0:
                break
        return passed

    def read_into(self, room: memoryview) -> int:
        """Fill some of ``room``; 0 at the end."""
        if not self._rest:
            self._rest = next(self._pieces, b"")
        n = min(len(room), len(self._rest))
        room[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n


def _behind_newline(file: Any, begin: int, end: int) -> int:
    """Return where the first line begins behind ``begin``; ``end`` if that's beyond it."""
    file.seek(begin)
    while begin < end:
        data: bytes = file.read(min(65536, end - begin))
        newline = data.find(b"\n")
        if newline >= 0:
            return begin + newline + 1
        if not data:
            raise _shorter(begin, end)
        begin += len(data)
    return end


def _shorter(at: int, end: int) -> OSError:
    """Return the error for a file that was truncated since, or is another one here."""
    return OSError(f"it ends at byte {at}, before byte {end}, and was longer when it was listed")


def _chunks(
    read_into: Callable[[memoryview], int], offset: int, end: int
) -> Iterator[tuple[int, Any, int]]:
    """
    Yield the lines that begin before ``end`` (-1 = all).

    Args:
        read_into: fills some of a memoryview and says how much, 0 at the end.
        offset: of the first byte.
        end: where lines of others begin.
    """
    try:  # tasks of Sail's are threads: one may take it after another has looked
        raw = _spare.pop()
    except IndexError:
        raw = bytearray(2 * CHUNK_BYTES + PADDING)
    try:
        yield from _chunks_in(raw, read_into, offset, end)
    finally:
        _spare[:] = [raw]


def _chunks_in(
    raw: bytearray, read_into: Callable[[memoryview], int], offset: int, end: int
) -> Iterator[tuple[int, Any, int]]:
    """Yield ``_chunks`` in a buffer, or in a larger one where a line asks for it."""
    have = 0  # bytes of a line under way, at the buffer's start
    failure: Damaged | None = None
    while end < 0 or offset + have < end or have:
        room = CHUNK_BYTES if end < 0 else min(CHUNK_BYTES, max(end - offset - have, 0))
        beyond = room == 0  # only the last line's end is wanted
        room = room or 65536
        if have + room + PADDING > len(raw):
            grown = bytearray(2 * len(raw) + room)
            grown[:have] = raw[:have]
            raw = grown
        try:
            with memoryview(raw) as view:
                n = read_into(view[have : have + room])
        except Damaged as exc:
            failure, n = exc, 0
        total = have + n
        if not n and offset + total < end:
            raise _shorter(offset + total, end)
        newline = raw.find(b"\n", have, total) if beyond else raw.rfind(b"\n", have, total)
        stop = newline + 1
        if newline < 0:
            if n and total <= MAX_LINE_BYTES:
                have = total
                continue
            if not total:
                break
            raw[total] = 10  # the last line, without its newline; or one longer than any
            stop = total + 1
            n = 0 if beyond else n
        yield offset, np.frombuffer(raw, np.uint8), stop
        if beyond or not n:
            break
        have = max(total - stop, 0)
        raw[:have] = raw[stop : stop + have]
        offset += min(stop, total)
    if failure is not None:
        raise failure
