"""
Read a message that passes by in pieces, without ever holding it.

A walk is a generator: it yields how many bytes it wants (n > 0: they are sent to it) or how many it
doesn't care for (n < 0: they are skipped), and returns when it has seen enough. So a walk reads
like straight-line code, and a 50 MB message costs the few bytes it looks at.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

from headgate.errors import RemoteProtocolError
from headgate.wire.fields import MAX_INT32, Buffer, check_tag_count

Walk: TypeAlias = Generator[int, Buffer, None]
Step: TypeAlias = Generator[int, Buffer, int]


class Skimmer:
    """
    Drive a walk by pieces.

    Args:
        walk: the generator. The bytes that it is sent are valid until it yields again.

    Attributes:
        done: whether the walk has seen enough; further pieces are ignored.
        position: bytes consumed so far. While a walk runs: the end of what it was just sent.
    """

    __slots__ = ("_have", "_send", "_want", "done", "position")

    def __init__(self, walk: Walk) -> None:
        self._send = walk.send
        self._want = next(walk)
        self._have = bytearray()  # the first of the bytes that it wants
        self.done = False
        self.position = 0

    def feed(self, piece: Buffer) -> None:
        """
        Go on with the next piece.

        Raises:
            RemoteProtocolError: what the walk found is against the protocol.
        """
        if self.done:
            return
        begin, pos, size = self.position, 0, len(piece)
        want, have, send = self._want, self._have, self._send
        try:
            if have:
                pos = min(want - len(have), size)
                have += piece[:pos]
                self.position = begin + pos
                if len(have) < want:
                    return
                self._have = bytearray()
                want = send(have)
            while (end := pos + abs(want)) <= size:
                self.position = begin + end
                want = send(piece[pos:end] if want > 0 else b"")
                pos = end
        except StopIteration:
            self.done = True
            return
        self.position = begin + size
        if want > 0:
            self._have += piece[pos:]
            self._want = want
        else:
            self._want = want + size - pos

    def finish(self) -> None:
        """Raise RemoteProtocolError if the message ended before the walk did."""
        if not self.done:
            raise RemoteProtocolError(f"the message ends after {self.position} bytes")


def varint(limit: int = MAX_INT32) -> Step:
    """Read an unsigned varint (``yield from``)."""
    return (yield from rest_of_varint((yield 1)[0], limit))


def rest_of_varint(first: int, limit: int = MAX_INT32) -> Step:
    """Read on where the first byte of an unsigned varint was read with what is before it."""
    value, byte, shift = first & 0x7F, first, 7
    while byte >= 0x80:
        if shift == 35:
            raise RemoteProtocolError("varint is longer than 32 bits")
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > limit:
        raise RemoteProtocolError(f"a length of {value}")
    return value


def skip(size: int) -> Walk:
    """Step over ``size`` bytes; none if that isn't positive (null)."""
    if size > 0:
        yield -size


def tags() -> Walk:
    """Step over a tagged-field section."""
    if first := (yield 1)[0]:
        yield from rest_of_tags(first)


def rest_of_tags(first: int) -> Walk:
    """Step over the rest of a tagged-field section whose first byte was read."""
    yield from tagged_fields(check_tag_count((yield from rest_of_varint(first))))


def tagged_fields(count: int) -> Walk:
    """Step over ``count`` tagged fields."""
    for _ in range(count):
        yield from varint()
        yield from skip((yield from varint()))
