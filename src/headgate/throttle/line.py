"""
Requests that wait for what a bucket owes beyond one throttle: they pass in the order they came.

Each counts with its bytes that have come, never with those it announces: else a client that sends
nothing more could keep the others of its quota-id waiting.
"""

from __future__ import annotations


class WaitingLine:
    """
    Those who wait at one bucket.

    Attributes:
        came: bytes of all that ever took a place.
        gone: bytes of all that left theirs.
    """

    __slots__ = ("came", "gone")

    def __init__(self) -> None:
        self.came = self.gone = 0


class Place:
    """
    The place of one request; it has none before it first waits.

    Args:
        size: bytes of it that have come.
    """

    __slots__ = ("_line", "_number", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._line: WaitingLine | None = None
        self._number = 0

    def ahead(self, line: WaitingLine) -> int:
        """Return the bytes that wait before it: all that wait, before it has a place."""
        number = self._number if self._line is line else line.came
        return max(number - line.gone, 0)

    def take(self, line: WaitingLine) -> None:
        """Take the last place, unless it has one."""
        if self._line is not line:
            self.leave()
            self._line, self._number = line, line.came
            line.came += self._size

    def leave(self) -> None:
        """Don't wait any more."""
        if self._line is not None:
            self._line.gone += self._size
            self._line = None
