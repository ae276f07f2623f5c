"""
Read the lines that a split owns, as chunks of whole lines in one buffer, or as a list.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from headgate.pipeline.filesplits import MAX_LINE_BYTES, Split, filesystem

# Read at a time: what was just read is still in a core's cache when it's looked at.
CHUNK_BYTES: Final = 1 << 20
# Bytes behind a chunk's end that may be looked at, whatever they hold.
PADDING: Final = 64
# A buffer that isn't in use, for the next to read: the kernel needn't find and clear new memory.
_spare: list[bytearray] = []


def decompressed(system: Any, inner: str, compression: str) -> Iterator[bytes]:
    """
    Yield the text of a compressed file.

    Raises:
        OSError: where the stream ends early or is broken, after all that came before it (gzip,
            xz), or nearly all (others, whose streams give whole blocks).
    """
    if compression == "xz":
        yield from _unxz(system, inner)
        return
    if compression != "gzip":
        with system.open_input_stream(inner, compression=compression) as stream:
            while data := stream.read(65536):
                yield data
        return
    with system.open_input_stream(inner, compression=None) as stream:
        unzip, fed = zlib.decompressobj(31), b""
        while data := fed or stream.read(1 << 20):
            try:
                text = unzip.decompress(data)
            except zlib.error as exc:
                raise OSError(str(exc)) from exc
            if text:
                yield text
            fed = unzip.unused_data.lstrip(b"\0")
            if unzip.eof:  # another member may follow
                unzip = zlib.decompressobj(31)
                fed = fed or stream.read(1 << 20).lstrip(b"\0")
                if not fed:
                    return
        msg = "the gzip stream ends early"
        raise OSError(msg)


def _unxz(system: Any, inner: str) -> Iterator[bytes]:
    """Yield the text of an xz file, or an .lzma one."""
    with system.open_input_stream(inner, compression=None) as stream:
        unpack, fed = lzma.LZMADecompressor(), b""
        while data := fed or stream.read(1 << 20):
            try:
                text = unpack.decompress(data)
            except lzma.LZMAError as exc:
                raise OSError(str(exc)) from exc
            if text:
                yield text
            fed = unpack.unused_data.lstrip(b"\0")
            if unpack.eof:  # another stream may follow
                unpack = lzma.LZMADecompressor()
                fed = fed or stream.read(1 << 20).lstrip(b"\0")
                if not fed:
                    return
        msg = "the xz stream ends early"
        raise OSError(msg)


def read_lines(split: Split) -> Iterator[tuple[int, list[bytes]]]:
    """
    Yield the lines that ``split`` owns, in chunks of (byte offset of the first line, lines).

    Raises:
        OSError: as ``read_chunks``.
    """
    for offset, text, end in read_chunks(split):
        yield offset, text[: end - 1].tobytes().split(b"\n")


def read_chunks(split: Split) -> Iterator[tuple[int, Any, int]]:
    """
    Yield the lines that ``split`` owns, in chunks of whole lines.

    Yields:
        (byte offset of the first line; uint8 array, overwritten by the next chunk, with PADDING
        bytes beyond the end; where the lines end, behind a newline). A last line without its
        newline gets one.

    Raises:
        OSError: if the file can't be read, or its compressed stream ends early; lines before
            that are yielded first.
    """
    if split.unread:
        raise OSError(split.unread)
    system, inner = filesystem(split.path)
    if split.compression:
        source = _Stream(decompressed(system, inner, split.compression))
        yield from _chunks(source.read_into, 0, -1)
        return
    with system.open_input_file(inner) as file:
        # The line that is under way at the start belongs to the piece before.
        begin = max(split.start - 1, 0)
        file.seek(begin)
        if split.start > 0:
            begin = _behind_newline(file, begin, split.end)
            file.seek(begin)
        yield from _chunks(file.readinto, begin, split.end)


class _Stream:
    """Reads pieces of whatever length into given room."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

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
    while begin < end:
        data: bytes = file.read(min(65536, end - begin))
        newline = data.find(b"\n")
        if newline >= 0:
            return begin + newline + 1
        if not data:
            break
        begin += len(data)
    return end


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
    raw = _spare.pop() if _spare else bytearray(2 * CHUNK_BYTES + PADDING)
    try:
        yield from _chunks_in(raw, read_into, offset, end)
    finally:
        _spare[:] = [raw]


def _chunks_in(
    raw: bytearray, read_into: Callable[[memoryview], int], offset: int, end: int
) -> Iterator[tuple[int, Any, int]]:
    """Yield ``_chunks`` in a buffer, or in a larger one where a line asks for it."""
    have = 0  # bytes of a line under way, at the buffer's start
    failure: OSError | None = None
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
        except OSError as exc:
            failure, n = exc, 0
        total = have + n
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
