"""
Debts: the mutes of closed connections, which the next connections of the quota-id wait for.

Kafka mutes a connection. A client that closes it and connects again isn't muted, and so evades its
quota. Here every charge belongs to a *lane*: a quota-id of one quota type, as used by one
connection. When a connection closes, it leaves behind the *end* of each of its lanes' mutes: the
time when the mute is over. A new connection takes the earliest end that is still to come, and waits
until then; if it closes before, it leaves that end unchanged. Only a new connection that finds no
such end begins a lane of its own. So there are never more lanes than there were connections open at
once, and a client gains nothing by connecting again.

A client may hang up behind bytes that a muted connection doesn't read. Its end can't be seen then,
and the connection that took a left end looks open. So while one that took an end waits, or isn't
charged yet, a further newcomer that finds no end waits too (``Queue``).

Where a quota-id has no user in it, lanes are per principal: a client that uses another's client-id
leaves its debts to its own principal only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from headgate.gateway.charging.clients import Told, Used
from headgate.gateway.charging.repaying import REPAYS_MS, SEEN_MS, Queue
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
MOST_WAITING: Final = 1_000
"""Newcomers of one owner that wait at a broker's queues; one more is closed, for each holds
descriptors, and one that has hung up unseen can't be told apart. Those that wait keep their places.
One goes in a tenth of a second or so, so the last of them waits for minutes."""


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

    @property
    def owner(self) -> str:
        """Whose connections these are: the principal, or the quota-id's user."""
        return self.principal or self.user_tag


Owes: TypeAlias = tuple[int, tuple[LaneKey, ...]]
"""A kind of request, and the lanes that it is charged to."""


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
        whole: the mute as it was left, if the clock was set back before it was taken; else None.
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

    def until(self, now_ms: int) -> int:
        """
        Return when a newcomer may pass, epoch ms.

        A client that stays connected waits as long as it was told, whatever becomes of the quota,
        and so does a newcomer in its place.
        """
        return now_ms + max(self.left_ms(now_ms), 0)

    def taken(self, until_ms: int, now_ms: int) -> Lane:
        """Return the mute as a newcomer has it that waits until ``until_ms`` only."""
        if until_ms >= self.end_ms:
            return self
        return Lane(until_ms, now_ms, self.bound, self, self.used)


class LaneBook:
    """
    The ends that closed connections of one broker left, by lane key.

    Attributes:
        queues: where connections repay, by lane key.
        waiting: how many newcomers wait at them, by owner.
    """

    def __init__(self) -> None:
        self.queues: dict[LaneKey, Queue] = {}
        self.waiting: dict[str, int] = {}
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
        nudge: has the session look again soon.

    Attributes:
        repays: where others wait for it: the kind of request that is to be charged, and when that
            may pass, epoch ms.
        waits_by: what was told to the connection whose lane a newcomer waits for, or waited for
            last; None: it waited for none.
        waits_at: the lane key at whose queue it waits; None: at none.
        turned_away: there was no room for it at a queue: the connection is to be closed.
        wake_ms: when it looks again there, epoch ms.
    """

    __slots__ = (
        "_book",
        "_gone",
        "_half",
        "_lanes",
        "_taken",
        "nudge",
        "repays",
        "turned_away",
        "waits_at",
        "waits_by",
        "wake_ms",
    )

    def __init__(self, book: LaneBook, nudge: Callable[[], None] | None = None) -> None:
        self._book = book
        self._lanes: dict[LaneKey, Lane | None] = {}
        self._taken: dict[LaneKey, Lane] = {}  # ends that others left, as this waits for them
        self.repays: dict[LaneKey, tuple[int, int]] = {}
        self._gone = self._half = self.turned_away = False
        self.nudge = nudge
        self.waits_by: Told | None = None
        self.waits_at: LaneKey | None = None
        self.wake_ms = 0

    def enter(self, keys: Iterable[LaneKey], now_ms: int, kind: int = 0) -> int:
        """
        Begin to be charged.

        Args:
            keys: the lanes' keys.
            now_ms: epoch ms.
            kind: of the request; its charge repays (``charged``).

        Returns:
            Until when the first charged request waits, epoch ms; ``now_ms`` or before: it doesn't.
            Then it enters again, if it waits at a queue (``waits_at``) or isn't in all lanes.
        """
        before, self.waits_at = self.waits_at, None
        until_ms = now_ms
        # All take keys in one order, so no two connections wait for what the other has to repay.
        for key in sorted(keys):
            if key in self._lanes:
                continue
            lane = self._book.take(key, now_ms)
            if lane is not None:
                until = lane.until(now_ms)
                taken = self._taken[key] = lane.taken(until, now_ms)
                self._add(key, taken, now_ms)
                self._repay(key, kind, until, now_ms)
                if until > until_ms:
                    until_ms = until
                    self.waits_by = Told(*key[:3], lane.since_ms, lane.bound, lane.used, True)
                continue
            queue = self._book.queues.get(key)
            if queue is not None:
                wake_ms = queue.wait(self, now_ms)
                if wake_ms:
                    if until_ms <= now_ms:  # it waits for one thing at a time
                        self._wait_at(key, queue, wake_ms)
                        until_ms = wake_ms
                    break
                if key == before:
                    self._repay(key, kind, until_ms, now_ms)
            self._add(key, None, now_ms)
        if before is not None and before != self.waits_at:
            self._step_out(before)
        return until_ms

    def withdraw(self, now_ms: int) -> None:
        """Give back, unchanged, the ends that are waited for: who is charged may be another now."""
        for key, lane in tuple(self._taken.items()):
            # What is over was served: it isn't asked for again, whoever is charged.
            if self._lanes.get(key) is lane and lane.left_ms(now_ms) > 0:
                del self._lanes[key], self._taken[key]
                self.repays.pop(key, None)
                self._give_back(key, lane._replace(whole=None), now_ms)

    def stand_aside(self) -> None:
        """Wait at no queue any more: it isn't charged there."""
        before, self.waits_at = self.waits_at, None
        if before is not None:
            self._step_out(before)

    def _wait_at(self, key: LaneKey, queue: Queue, wake_ms: int) -> None:
        """Wait at a queue, or be turned away where there is no room."""
        if self in queue.waiting or self._step_in(key, queue):
            self.waits_at, self.wake_ms = key, wake_ms
        else:
            self.turned_away = True

    def is_in(self, keys: Iterable[LaneKey]) -> bool:
        """Whether it has entered all these lanes."""
        return all(key in self._lanes for key in keys)

    def owe(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle; the connection may have closed before its request was charged."""
        if self._gone:
            self._book.leave(key, lane, lane.since_ms)
            return
        before = self._lanes.get(key)
        # Not their ends are compared: the clock may have been set back between the two.
        if before is None or before.left_ms(lane.since_ms) < lane.left_ms(lane.since_ms):
            self._add(key, lane, lane.since_ms)

    def charged(self, kind: int, now_ms: int) -> bool:
        """Note that a request of a kind is charged; return whether that repays all it has to."""
        for key, (due, pass_ms) in tuple(self.repays.items()):
            if due == kind and pass_ms <= now_ms:  # not one that was in flight before
                del self.repays[key]
                self._taken.pop(key, None)
                queue = self._book.queues.get(key)
                if queue is not None:
                    queue.repaying[self] = (now_ms, now_ms + SEEN_MS)
                    queue.call()
        return not self.repays

    def reads(self, half: bool, now_ms: int) -> None:
        """Note that a request is half here, or all: others wait for one that is whole."""
        if half == self._half:
            return
        self._half = half
        for key, (_, pass_ms) in self.repays.items():
            queue = self._book.queues.get(key)
            if queue is not None and self in queue.repaying:
                until_ms = max(now_ms, pass_ms) + (SEEN_MS if half else REPAYS_MS)
                queue.repaying[self] = (now_ms, until_ms)
                if half:
                    queue.call()

    def paid(self, end_ms: int) -> None:
        """
        Forget the mutes that end at a time, epoch ms: the connection has waited until then.

        The wall clock may not say so, since it was set back meanwhile. Such a mute would stand for
        the one that comes next, and be left in its place.
        """
        self._taken.clear()
        for key, lane in self._lanes.items():
            if lane is not None and lane.end_ms == end_ms:
                self._lanes[key] = None

    def leave(self, now_ms: int) -> None:
        """The connection closes."""
        self._gone = True
        self.nudge = None
        for key, lane in self._lanes.items():
            self._give_back(key, lane, now_ms)
        self._lanes.clear()
        self._taken.clear()
        self.repays.clear()
        self.stand_aside()

    def _add(self, key: LaneKey, lane: Lane | None, now_ms: int) -> None:
        if len(self._lanes) >= MOST_HELD and key not in self._lanes:
            first, before = next(iter(self._lanes.items()))
            del self._lanes[first]
            self.repays.pop(first, None)
            self._taken.pop(first, None)
            self._give_back(first, before, now_ms)
        self._lanes[key] = lane

    def _repay(self, key: LaneKey, kind: int, pass_ms: int, now_ms: int) -> None:
        """Have newcomers wait until a request is charged that may pass then."""
        queue = self._book.queues.get(key)
        if queue is None:
            queue = self._book.queues[key] = Queue()
        queue.repaying[self] = (now_ms, pass_ms + REPAYS_MS)
        self.repays[key] = (kind, pass_ms)

    def _give_back(self, key: LaneKey, lane: Lane | None, now_ms: int) -> None:
        """Leave what isn't over, as it was before it was taken."""
        leaves = lane is not None and lane.left_ms(now_ms) > 0
        if lane is not None and leaves:
            self._book.leave(key, lane.whole or lane, now_ms)
        queue = self._book.queues.get(key)
        if queue is not None:
            if queue.repaying.pop(self, None) is not None or leaves:
                queue.call()
            self._step_out(key)

    def _step_in(self, key: LaneKey, queue: Queue) -> bool:
        """Wait at a queue; return whether there was room."""
        waiting = self._book.waiting
        count = waiting.get(key.owner, 0)
        if count >= MOST_WAITING:
            return False
        waiting[key.owner] = count + 1
        queue.waiting[self] = None
        return True

    def _step_out(self, key: LaneKey) -> None:
        """Wait at a queue no more: the next one may go."""
        queue = self._book.queues.get(key)
        if queue is not None:
            was_first = next(iter(queue.waiting), None) is self
            if queue.waiting.pop(self, self) is None:
                waiting = self._book.waiting
                waiting[key.owner] -= 1
                if not waiting[key.owner]:
                    del waiting[key.owner]
            if was_first:
                queue.call()
            if not (queue.repaying or queue.waiting):
                del self._book.queues[key]
