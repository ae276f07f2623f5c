"""
Answers to a client with many unanswered requests are read in fewer, larger pieces.

The kernel is told to wake us when about half of the answers due have come (SO_RCVLOWAT), and not at
each answer. While we read these, the broker works on the other half. If the next answer takes long,
a timer lowers the mark, and those that have come are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from typing import Any, Final

MANY_UNANSWERED: Final = 8
"""
With this many or more, answers may wait for each other a moment. A producer has 5 at most by
default (``max.in.flight.requests.per.connection``).
"""
SMALL_ANSWER_BYTES: Final = 512
"""Larger answers are worth a read of their own."""
MOST_GATHERED_BYTES: Final = 16_384
GATHER_S: Final = 0.001
"""How long an answer may wait for others (the loop's timers may take one millisecond more)."""


class Gathering:
    """
    The low-water mark (SO_RCVLOWAT) of one connection to a broker.

    Args:
        raw: a copy of its socket; closed by ``close``.

    Attributes:
        active: a mark is set, and the timer runs.
        read_ms: when something was last read while many were unanswered.
    """

    __slots__ = ("_raw", "_reads", "_timer", "active", "read_ms")

    def __init__(self, raw: socket.socket) -> None:
        self._raw: socket.socket | None = raw
        self._reads = 0
        self._timer: asyncio.TimerHandle | None = None
        self.active = False
        self.read_ms = 0

    @classmethod
    def of(cls, transport: Any) -> Gathering | None:
        """Return the mark of a connection; None where the system has none."""
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is None or sys.platform != "linux":
            return None
        # uvloop would make a copy of the descriptor at every setsockopt.
        return cls(socket.socket(fileno=os.dup(sock.fileno())))

    def answered(self, before: int, left: int, nbytes: int, now_ms: int) -> None:
        """
        Set the mark again after a read.

        Args:
            before: requests that were unanswered before it.
            left: those that are now.
            nbytes: how much was read.
            now_ms: epoch milliseconds.
        """
        if before <= MANY_UNANSWERED and not self.active:
            return
        if left >= MANY_UNANSWERED and before > left and now_ms - self.read_ms <= 1:
            self.gather(left, nbytes // (before - left))
        elif self.active:
            self.gather(0, 0)
        self.read_ms = now_ms

    def gather(self, answers: int, size: int) -> None:
        """
        Set the mark so that the next read waits for half of the answers due.

        Args:
            answers: how many are due; 0: the next read waits for none.
            size: of one answer, about, in bytes.
        """
        if size > SMALL_ANSWER_BYTES:
            answers = 0
        if self._raw is None or not (answers or self.active):
            return
        low = min(answers * size // 2, MOST_GATHERED_BYTES)
        with contextlib.suppress(OSError):
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(low, 1))
        self._reads += 1
        if answers and not self.active:
            self._look_later()
        self.active = bool(answers)

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(GATHER_S, self._look, self._reads)

    def _look(self, reads: int) -> None:
        """Let nothing wait below the mark for longer than a moment."""
        if not self.active:
            return
        if reads == self._reads:
            self.gather(0, 0)
        else:
            self._look_later()

    def close(self) -> None:
        """Close the copy of the socket."""
        self.active = False
        if self._timer is not None:
            self._timer.cancel()
        if self._raw is not None:
            self._raw.close()
            self._raw = None
