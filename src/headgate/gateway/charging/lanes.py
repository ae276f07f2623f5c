"""
Debts: the mutes of closed connections, which the next connections of the quota-id wait for.

Kafka mutes a connection. A client that closes it and connects again isn't muted, and so evades its
quota. Here every charge belongs to a *lane*: a quota-id of one quota type, as used by one
connection. When a connection closes, it leaves behind the *end* of each of its lanes' mutes: the
time when the mute is over. A new connection takes the earliest end that is still to come, and waits
until then; if it closes before, it leaves that end unchanged. Only a new connection that finds no
such end begins a lane of its own. So there are never more lanes than there were connections open at
once, and a client gains nothing by connecting again.

Where a quota-id has no user in it, lanes are per principal: a client that uses another's client-id
leaves its debts to its own principal only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from headgate.gateway.charging.told import Told, Used
from headgate.steps import one_by_one

MOST_OF_A_KEY: Final = 4_096
"""Ends kept for one lane key; beyond that the earliest is dropped, and its lane with it."""
MOST_LANES: Final = 1 << 15
"""Ends kept in all, some 9 MB; beyond that the earliest is dropped. To get there, as many
connections of several quota-ids must have been muted at once."""
MOST_NAMED: Final = 1 << 22
"""Characters of their names: a client-id may have 32,767."""
FORGOTTEN_AT_ONCE: Final = 64
"""Ends that are looked at when another comes, in a tenth of a millisecond: far more are forgotten
than come. For a while a few more than the most may be kept."""
MOST_HELD: Final = 16
"""Lanes that a connection remembers as its own. A client that changes its client-id more often
waits for debts again."""


class LaneKey(NamedTuple):
    """
    Whose lanes they are.

    Attributes:
        quota_type: the released name of a quota type with its unit.
        user_tag: of the quota-id, raw; "" where it has none.
        client_tag: likewise.
        principal: raw, where the quota-id has no user; else "".
    """

    quota_type: str
    user_tag: str
    client_tag: str
    principal: str


def lane_key(quota_type: str, user_tag: str, client_tag: str, principal: str) -> LaneKey:
    """Return the key of a principal's lanes under a quota-id."""
    return LaneKey(quota_type, user_tag, client_tag, "" if user_tag else principal)


class Lane(NamedTuple):
    """
    A mute that isn't over.

    Attributes:
        end_ms: when it is, epoch ms.
        since_ms: when it was told, epoch ms. If now is earlier, the clock was set back since.
        bound: the quota by which it was told.
        whole: the mute as it was left, if the newcomer that took it waits for less; else None.
        used: the use of the quota-id when it was told; None: not known.
    """

    end_ms: int
    since_ms: int
    bound: float
    whole: Lane | None = None
    used: Used | None = None

    def left_ms(self, now_ms: int) -> int:
        """Return how long it still lasts, ms; all of it if the clock was set back meanwhile."""
        return self.end_ms - max(now_ms, self.since_ms)

    def until(self, bound: float, now_ms: int) -> int:
        """
        Return when a newcomer may pass.

        Args:
            bound: the quota now; one that was raised meanwhile repays sooner.
            now_ms: epoch ms.
        """
        left_ms = self.left_ms(now_ms)
        if left_ms > 0 and 0 < self.bound < bound:
            left_ms = int(left_ms * (self.bound / bound))
        return now_ms + max(left_ms, 0)

    def taken(self, until_ms: int, now_ms: int) -> Lane:
        """Return the mute as a newcomer has it that waits until ``until_ms`` only."""
        if until_ms >= self.end_ms:
            return self
        return Lane(until_ms, now_ms, self.bound, self, self.used)


class LaneBook:
    """The ends that closed connections of one broker left, by lane key."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, list[Lane]] = {}  # heaps
        self._ends: list[tuple[int, LaneKey]] = []  # a heap of all; some are gone already
        self._fresh: list[tuple[int, LaneKey]] | None = None  # the next one, while it is made
        self._renewing: Iterator[None] = iter(())
        self._count = self._named = 0

    def __len__(self) -> int:
        return self._count

    def leave(self, key: LaneKey, lane: Lane, now_ms: int) -> None:
        """Take in the end of a connection that closes."""
        if lane.end_ms <= now_ms:
            return
        lanes = self._lanes.get(key)
        if lanes is None:
            lanes = self._lanes[key] = []
            self._named += sum(map(len, key))
        heappush(lanes, lane)
        heappush(self._ends, (lane.end_ms, key))
        if self._fresh is not None:
            heappush(self._fresh, (lane.end_ms, key))
        self._count += 1
        if len(lanes) > MOST_OF_A_KEY:
            self._drop_first(key)
        self._forget(now_ms)
        if self._fresh is None and len(self._ends) > 2 * self._count + 1_024:
            self._renewing = self._renew()
        next(self._renewing, None)  # far more are looked at than new ones come

    def take(self, key: LaneKey, now_ms: int) -> Lane | None:
        """Hand the earliest end that isn't over to a newcomer; None: nothing is owed."""
        lanes = self._lanes.get(key)
        over = 0
        while lanes:
            lane = lanes[0]
            self._drop_first(key)
            if lane.end_ms > now_ms:
                return lane
            over += 1
            if over == FORGOTTEN_AT_ONCE:  # all at once takes less than one by one
                self._keep_from(key, now_ms)
        return None

    def _keep_from(self, key: LaneKey, now_ms: int) -> None:
        """Forget all ends of a key that are over."""
        lanes = self._lanes.get(key)
        if lanes:
            before = len(lanes)
            lanes[:] = [lane for lane in lanes if lane.end_ms > now_ms]
            heapify(lanes)
            self._count -= before - len(lanes)
            if not lanes:
                self._drop_key(key)

    def _renew(self) -> Iterator[None]:
        """Make the heap of all ends again in steps, without those that are gone."""
        fresh = self._fresh = []
        for key in one_by_one(self._lanes):
            for lane in tuple(self._lanes.get(key, ())):
                heappush(fresh, (lane.end_ms, key))
                if not len(fresh) % FORGOTTEN_AT_ONCE:
                    yield
        self._ends, self._fresh = fresh, None

    def _drop_first(self, key: LaneKey) -> None:
        lanes = self._lanes[key]
        heappop(lanes)
        self._count -= 1
        if not lanes:
            self._drop_key(key)

    def _drop_key(self, key: LaneKey) -> None:
        del self._lanes[key]
        self._named -= sum(map(len, key))

    def _drop_earliest(self) -> None:
        """Forget the end that is over first."""
        end_ms, key = heappop(self._ends)
        lanes = self._lanes.get(key)
        # A key's ends are taken earliest first, so one that isn't its first is gone already.
        if lanes and lanes[0].end_ms == end_ms:
            self._drop_first(key)

    def _forget(self, now_ms: int) -> None:
        """Forget the earliest of those that are over, or too many; the rest at later calls."""
        for _ in range(FORGOTTEN_AT_ONCE):
            if not self._ends:
                return
            is_over = self._ends[0][0] <= now_ms
            if not is_over and self._count <= MOST_LANES and self._named <= MOST_NAMED:
                return
            self._drop_earliest()


class Debts:
    """
    The lanes of one connection.

    Args:
        book: where its ends go when it closes.

    Attributes:
        waits_by: what was told to the connection whose lane a newcomer waits for, or waited for
            last; None: it waited for none.
    """

    __slots__ = ("_book", "_gone", "_lanes", "waits_by")

    def __init__(self, book: LaneBook) -> None:
        self._book = book
        self._lanes: dict[LaneKey, Lane | None] = {}
        self._gone = False
        self.waits_by: Told | None = None

    def enter(self, keys: Iterable[tuple[LaneKey, float]], now_ms: int) -> int:
        """
        Begin to be charged.

        Args:
            keys: the lanes' keys, each with the quota in force.
            now_ms: epoch ms.

        Returns:
            Until when the first charged request waits, epoch ms; ``now_ms`` or before: it doesn't.
        """
        until_ms = now_ms
        for key, bound in keys:
            if key in self._lanes:
                continue
            if len(self._lanes) >= MOST_HELD:
                self._forget_one(now_ms)
            lane = self._book.take(key, now_ms)
            if lane is not None:
                until = lane.until(bound, now_ms)
                lane = lane.taken(until, now_ms)
                if until > until_ms:
                    until_ms = until
                    since_ms = (lane.whole or lane).since_ms
                    self.waits_by = Told(*key[:3], since_ms, lane.bound, lane.used, True)
            self._lanes[key] = lane
        return until_ms

    def owe(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle; the connection may have closed before its request was charged."""
        if self._gone:
            self._book.leave(key, lane, lane.since_ms)
            return
        before = self._lanes.get(key)
        # Not their ends are compared: the clock may have been set back between the two.
        if before is None or before.left_ms(lane.since_ms) < lane.left_ms(lane.since_ms):
            if len(self._lanes) >= MOST_HELD and key not in self._lanes:
                self._forget_one(lane.since_ms)
            self._lanes[key] = lane

    def paid(self, end_ms: int) -> None:
        """
        Forget the mutes that end at a time, epoch ms: the connection has waited until then.

        The wall clock may not say so, since it was set back meanwhile. Such a mute would stand for
        the one that comes next, and be left in its place.
        """
        for key, lane in self._lanes.items():
            if lane is not None and lane.end_ms == end_ms:
                self._lanes[key] = None

    def leave(self, now_ms: int) -> None:
        """The connection closes."""
        self._gone = True
        for key, lane in self._lanes.items():
            self._give_back(key, lane, now_ms)
        self._lanes.clear()

    def _forget_one(self, now_ms: int) -> None:
        key, lane = next(iter(self._lanes.items()))
        del self._lanes[key]
        self._give_back(key, lane, now_ms)

    def _give_back(self, key: LaneKey, lane: Lane | None, now_ms: int) -> None:
        """Leave what isn't over, as it was before it was taken."""
        if lane is not None and lane.left_ms(now_ms) > 0:
            self._book.leave(key, lane.whole or lane, now_ms)
