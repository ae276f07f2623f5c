"""
Requests that wait for what a bucket owes beyond one throttle: they pass in the order they came.

Each counts with its bytes that have come, never with those it announces: else a client that sends
nothing more could keep the others of its quota-id waiting.

Each knows how long it waits at most. The first looks again when the bound rises; who leaves calls
the next.
"""

from __future__ import annotations

from collections.abc import Callable


class WaitingLine:
    """
    Those who wait at one bucket.

    Attributes:
        came: bytes of all that ever took a place.
        gone: bytes of all that left theirs.
    """

    __slots__ = ("_places", "came", "gone")

    def __init__(self) -> None:
        self.came = self.gone = 0
        self._places: dict[Place, None] = {}  # in their order

    def call(self) -> None:
        """Have the first look again."""
        for first in self._places:
            first.nudge()
            break

    def join(self, place: Place, size: int) -> int:
        """Give the last place to one with ``size`` bytes; return how many came before it."""
        before = self.came
        self.came += size
        self._places[place] = None
        return before

    def part(self, place: Place, size: int) -> None:
        """Let one leave its place."""
        self.gone += size
        first = next(iter(self._places))
        del self._places[place]
        if place is first:
            self.call()


class Place:
    """
    The place of one request; it has none before it first waits.

    Args:
        size: bytes of it that have come.
        nudge: has it look again soon.
    """

    __slots__ = ("_line", "_number", "_size", "nudge")

    def __init__(self, size: int, nudge: Callable[[], None] = lambda: None) -> None:
        self._size = size
        self.nudge = nudge
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
            self._line, self._number = line, line.join(self, self._size)

    def leave(self) -> None:
        """Don't wait any more."""
        if self._line is not None:
            line, self._line = self._line, None
            line.part(self, self._size)
