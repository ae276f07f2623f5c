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

Walk: TypeAlias = Generator[int, bytes, None]
Step: TypeAlias = Generator[int, bytes, int]


class Skimmer:
    """
    Drive a walk by pieces.

    Args:
        walk: the generator.

    Attributes:
        done: whether the walk has seen enough; further pieces are ignored.
        position: bytes consumed so far. While a walk runs: the end of what it was just sent.
    """

    __slots__ = ("_have", "_walk", "_want", "done", "position")

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._have = bytearray()
        self.done = False
        self.position = 0
        self._want = self._next(None)

    def _next(self, reply: bytes | None) -> int:
        try:
            want = next(self._walk) if reply is None else self._walk.send(reply)
        except StopIteration:
            self.done = True
            return 0
        return want

    def feed(self, piece: Buffer) -> None:
        """
        Go on with the next piece.

        Raises:
            RemoteProtocolError: what the walk found is against the protocol.
        """
        pos, size = 0, len(piece)
        while not self.done:
            want = self._want
            if want < 0:
                step = min(-want, size - pos)
                pos += step
                self.position += step
                self._want = want + step
                if self._want < 0:
                    return
                self._want = self._next(b"")
                continue
            step = min(want - len(self._have), size - pos)
            self._have += piece[pos : pos + step]
            pos += step
            self.position += step
            if len(self._have) < want:
                return
            reply = bytes(self._have)
            self._have.clear()
            self._want = self._next(reply)

    def finish(self) -> None:
        """Raise RemoteProtocolError if the message ended before the walk did."""
        if not self.done:
            raise RemoteProtocolError(f"the message ends after {self.position} bytes")


def varint(limit: int = MAX_INT32) -> Step:
    """Read an unsigned varint (``yield from``)."""
    value = shift = 0
    while shift < 35:
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > limit:
                raise RemoteProtocolError(f"a length of {value}")
            return value
        shift += 7
    raise RemoteProtocolError("varint is longer than 32 bits")


def skip(size: int) -> Generator[int, bytes, None]:
    """Step over ``size`` bytes; none if that isn't positive (null)."""
    if size > 0:
        yield -size


def tags() -> Generator[int, bytes, None]:
    """Step over a tagged-field section."""
    for _ in range(check_tag_count((yield from varint()))):
        yield from varint()
        yield from skip((yield from varint()))
