"""
How much of a quota-id may be on its way to the broker before anything of it could be throttled.

Kafka takes one request of a connection at a time, so that nothing of it is in the broker while it
is throttled. Where no throttle is possible, that is only a delay: the broker behind us takes one
at a time anyway, and charges and decisions come out the same. So a request that is sure to fit into
what is left under every quota of its client, whenever it is charged, goes early: what follows it
may follow at once. It claims its part when its last byte is there, so one that is half sent claims
nothing.

One that may not fit goes after those of its own connection are answered, and nothing follows it
until it is answered itself. When it is all there, every early one that claims from the same quota
is charged, answered or not: that their throttle is 0 is certain, and afterwards it wouldn't be. So
nobody waits for anybody else.

Each quota of a client has a room of its own, shared by all who are charged to the same quota-id.
Before a bound moves, whoever moves it has all early ones charged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.charging.client import ClientConnection

LEAST_TIME_NS: Final = 1_000_000
"""Thread time that a request claims at least; one takes some 10 to 100 µs."""
MOST_TIMED: Final = 64
"""Requests of one quota-id that claim thread time at once: what they take is only an estimate."""


class Room:
    """
    What of one quota-id is in flight under one quota; for byte quotas.

    Args:
        spare: returns the units that can be charged from now on, whenever, before one is
            throttled (``spare`` of the managers).

    Attributes:
        claimed: units of complete requests that aren't charged yet.
        left: so much more may be claimed without asking ``spare``. Charges only turn what is
            claimed into what was charged, and time only takes samples away or adds tokens: so a
            room found once is good until it is used up or the bound moves.
        early: sessions that may have early requests here that aren't charged yet.
    """

    __slots__ = ("claimed", "early", "left", "spare")

    def __init__(self, spare: Callable[[], float]) -> None:
        self.spare = spare
        self.claimed = 0
        self.left = 0.0
        self.early: dict[ClientConnection, None] = {}

    def claim(self, units: int) -> bool:
        """Claim units for a complete request; return whether they are sure to fit."""
        left = self.left - units
        if left < 0:
            left = self.spare() - self.claimed - units
        self.claimed += units
        self.left = left if left > 0 else 0.0
        return left >= 0

    @property
    def idle(self) -> bool:
        """Whether nothing is claimed."""
        return not self.claimed


class IdRoom(Room):
    """
    The same for new producer ids: an id in flight counts once, however many requests have it.

    Args:
        spare: of the manager; what it returns allows for ids that are charged again meanwhile.
    """

    __slots__ = ("ids",)

    def __init__(self, spare: Callable[[], float]) -> None:
        super().__init__(spare)
        self.ids: dict[int, int] = {}

    def claim_ids(self, producer_ids: Collection[int]) -> bool:
        """Claim the ids of a request; return whether they are sure to fit."""
        ids = self.ids
        for producer_id in producer_ids:
            ids[producer_id] = ids.get(producer_id, 0) + 1
        self.claimed = len(ids)
        return self.spare() >= len(ids)

    def release_ids(self, producer_ids: Collection[int]) -> None:
        """These are charged now."""
        ids = self.ids
        for producer_id in producer_ids:
            if ids[producer_id] == 1:
                del ids[producer_id]
            else:
                ids[producer_id] -= 1
        self.claimed = len(ids)


class TimeRoom(Room):
    """
    The same for thread time, of which nobody knows how much a request will take.

    Each claims twice what the slowest of the last window took: it is charged twice, for reading
    and for answering. When one took more than it claimed and what is claimed no longer fits, none
    goes early for a window.

    Args:
        spare: thread time in ns.
        window_ms: what the manager's samples cover.
    """

    __slots__ = ("_before_ns", "_blind_until_ms", "_max_ns", "_since_ms", "_window_ms")

    def __init__(self, spare: Callable[[], float], window_ms: int) -> None:
        super().__init__(spare)
        self._window_ms = window_ms
        self._since_ms = 0
        self._max_ns = self._before_ns = 0
        self._blind_until_ms = 0

    def claim_time(self, now_ms: int) -> bool:
        """Claim the time of one request; return whether it is sure to fit, by what is known."""
        self.claimed += 1
        return self.fits(now_ms, 0)

    def fits(self, now_ms: int, more: int = 1) -> bool:
        """Whether so many more fit besides those who claim."""
        claimed = self.claimed + more
        return (
            claimed <= MOST_TIMED
            and now_ms >= self._blind_until_ms
            and self.spare() >= claimed * self._each_ns(now_ms)
        )

    def spent(self, nanos: int, now_ms: int) -> None:
        """Note what a request of this quota-id was charged."""
        each = self._each_ns(now_ms)
        self._max_ns = max(self._max_ns, nanos)
        if nanos > each and self.spare() < self.claimed * self._each_ns(now_ms):
            self._blind_until_ms = now_ms + self._window_ms

    def _each_ns(self, now_ms: int) -> int:
        if not 0 <= now_ms - self._since_ms < self._window_ms:
            self._since_ms = now_ms
            self._max_ns, self._before_ns = 0, self._max_ns
        return max(2 * self._max_ns, 2 * self._before_ns, LEAST_TIME_NS)


class Headroom:
    """
    The rooms of one client: a request goes early if it fits into each.

    Args:
        rooms: for the bytes it produces.
        ids: for its producer ids, if they are limited.
        time: for its thread time, if that is limited.
        timeless: thread time is limited, and no request's is known beforehand: none goes early.
    """

    __slots__ = ("all", "bytes", "ids", "time", "timeless")

    def __init__(
        self,
        rooms: tuple[Room, ...],
        ids: IdRoom | None = None,
        time: TimeRoom | None = None,
        *,
        timeless: bool = False,
    ) -> None:
        self.bytes = rooms
        self.ids = ids
        self.time = time
        self.timeless = timeless
        self.all: tuple[Room, ...] = rooms + tuple(room for room in (ids, time) if room is not None)

    def fits(self, size: int, now_ms: int) -> bool:
        """Whether a request of so many bytes produced would go early, as far as its header says."""
        for room in self.bytes:
            if room.left < size and room.spare() - room.claimed < size:
                return False
        return not self.timeless and (self.time is None or self.time.fits(now_ms))

    def claim(
        self,
        session: ClientConnection,
        size: int,
        producer_ids: Collection[int] | None,
        now_ms: int,
    ) -> bool:
        """
        Claim what a complete request will be charged; have others charged where it may not fit.

        Args:
            session: whose it is.
            size: bytes produced; 0 for what isn't a Produce.
            producer_ids: of its batches.
            now_ms: milliseconds of the epoch.

        Returns:
            Whether it goes early. Either way ``release`` is due when it is charged.
        """
        early = not self.timeless
        for room in self.bytes:
            left = room.left - size
            if left >= 0:  # as ``Room.claim``, without a call
                room.left = left
                room.claimed += size
            elif not room.claim(size):
                early = False
                settle(room, now_ms)
        ids = self.ids
        if ids is not None and producer_ids and not ids.claim_ids(producer_ids):
            early = False
            settle(ids, now_ms)
        time = self.time
        if time is not None and not time.claim_time(now_ms):
            early = False
            settle(time, now_ms)
        if early and session.early_in is not self:
            session.leave_rooms(now_ms)
            session.early_in = self
            for room in self.all:
                room.early[session] = None
        return early

    def release(self, size: int, producer_ids: Collection[int] | None) -> None:
        """What was claimed is charged now; arguments as they were for ``claim``."""
        for room in self.bytes:
            room.claimed -= size
        if self.ids is not None and producer_ids:
            self.ids.release_ids(producer_ids)
        if self.time is not None:
            self.time.claimed -= 1

    def make_way(self, size: int, now_ms: int) -> None:
        """Have others charged where a charge of so many bytes, not claimed before, may not fit."""
        for room in self.bytes:
            if not room.claim(size):
                settle(room, now_ms)
            room.claimed -= size
        for room in self.all[len(self.bytes) :]:
            settle(room, now_ms)

    @property
    def idle(self) -> bool:
        """Whether nothing is claimed in any room."""
        return all(room.idle for room in self.all)


def settle(room: Room, now_ms: int) -> None:
    """Charge every early request that claims from a room; nobody waits for that."""
    while room.early:
        next(iter(room.early)).leave_rooms(now_ms)
