"""
How much of a quota-id may be on its way to the broker before anything of it could be throttled.

Kafka takes one request of a connection at a time, so that nothing of it is in the broker while it
is throttled. Where no throttle is possible, that is only a delay: the broker behind us takes one
at a time anyway, and answers, charges and decisions come in the same order with the same figures.
So as long as everything in flight, charged whenever it may be, leaves the rate within the bound, or
with smooth pacing tokens in the bucket, requests are passed on as they come (EARLY). One that might
be throttled goes when no early one of its quota-id is in flight, on whatever connection, and
nothing follows it on its own (ALONE).

A quota lowered while early requests are in flight finds them there: each is charged and told by
the new one, and the client is muted until the last one's throttle is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WAIT: Final = 0
"""Not yet: early requests are in flight."""
ALONE: Final = 1
"""Now, and nothing of its connection after it until it is answered."""
EARLY: Final = 2
"""Now, and whatever comes next may follow at once."""


class Headroom:
    """
    What is in flight of one quota-id, and what may be.

    Args:
        spare: returns the units that can be charged from now on, whenever, before one is
            throttled (``spare`` of ``ClientQuotaManager`` and of ``PacedQuotaManager``).

    Attributes:
        early: units of early requests in flight.
        waiting: sessions that wait for ``early`` to be 0; while there are any, none goes early.
    """

    __slots__ = ("_alone", "_room", "_spare", "early", "waiting")

    def __init__(self, spare: Callable[[], int]) -> None:
        self._spare = spare
        self._alone = 0  # units of requests that went ALONE
        self._room = 0  # at least so much more may be in flight
        self.early = 0
        self.waiting = 0

    def admit(self, size: int) -> int:
        """
        Say how a request may go; unless it is to wait, it is in flight from now on.

        Args:
            size: what it will be charged.
        """
        room = self._room - size
        if room < 0 or self.waiting:
            # Charges only turn what is in flight into what was charged, and time only takes
            # samples away or adds tokens: so a room found once is good until it is used up.
            room = -1 if self.waiting else self._spare() - self.early - self._alone - size
            if room < 0:
                if self.early:
                    return WAIT
                self._room = 0
                self._alone += size
                return ALONE
        self._room = room
        self.early += size
        return EARLY

    def release(self, size: int, way: int) -> None:
        """A request is charged now, or never will be; ``way`` as ``admit`` returned it."""
        if way == EARLY:
            self.early -= size
        else:
            self._alone -= size

    @property
    def idle(self) -> bool:
        """Whether nothing of it is in flight and nobody waits for that."""
        return not (self.early or self._alone or self.waiting)

    def quota_changed(self) -> None:
        """Ask anew what may be in flight."""
        self._room = 0
