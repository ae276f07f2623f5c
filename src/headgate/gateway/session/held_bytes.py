"""
Hold the bytes that a client sent too early, in order and up to a bound.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headgate.gateway.session.commands import Command, PauseClient, ResumeClient

HELD_BYTES: Final = 262_144
"""Most bytes held for a waiting client before reading stops: one read buffer of the shell."""
RESUME_BYTES: Final = HELD_BYTES // 2
"""Reading goes on when no more than this is held, so it doesn't stop and start for each request."""
SMALL_BYTES: Final = 4_096
"""What comes in smaller pieces than this is joined to the piece before it."""


class HeldBytes:
    """
    The bytes of one client that can't be handled yet.

    Args:
        commands: of the session; the commands to stop reading and to go on are added to it.

    Attributes:
        pieces: what is held, in its order.
        size: how many bytes that are.
    """

    __slots__ = ("_commands", "_paused", "pieces", "size")

    def __init__(self, commands: list[Command]) -> None:
        self._commands = commands
        self.pieces: deque[memoryview] = deque()
        self._paused = False
        self.size = 0

    def add(self, data: memoryview) -> None:
        """Keep a copy of bytes that just came, behind what is held already."""
        pieces = self.pieces
        if pieces and len(pieces[-1]) + len(data) <= SMALL_BYTES:
            # A piece takes a few hundred bytes besides: byte by byte that would be a hundred MB.
            pieces.append(memoryview(bytearray(pieces.pop()) + data))
        else:
            pieces.append(memoryview(bytearray(data)))
        self._grown(len(data))

    def put_back(self, data: memoryview, *, owned: bool) -> None:
        """
        Keep bytes that can't be taken yet, before what is held already.

        Args:
            data: the bytes.
            owned: whether they lie in the session's own memory. Others are copied, because the
                read buffer they lie in is about to be used again. The end of a much longer piece is
                copied too: it would keep all of that piece, a hundred megabytes at most, and nobody
                would count them.
        """
        if owned and data.nbytes < memoryview(data.obj).nbytes // 2:
            owned = False
        self.pieces.appendleft(data if owned else memoryview(bytearray(data)))
        self._grown(len(data))

    def take(self) -> memoryview:
        """Return the first piece, which isn't held any more; empty when nothing is held."""
        if not self.pieces:
            return memoryview(b"")
        piece = self.pieces.popleft()
        self.size -= len(piece)
        return piece

    def clear(self) -> None:
        """Drop all of it."""
        self.pieces.clear()
        self.size = 0

    def resume(self) -> None:
        """Resume reading from the client if few enough bytes are held."""
        if self._paused and self.size <= RESUME_BYTES:
            self._paused = False
            self._commands.append(ResumeClient())

    def _grown(self, by_bytes: int) -> None:
        self.size += by_bytes
        if self.size > HELD_BYTES and not self._paused:
            self._paused = True
            self._commands.append(PauseClient())
