"""
When a quota-id may go on: one gate for all its connections.

Muting one connection isn't enough where its client has others, or connects again. So a charge that
takes a quota-id further over its quota than it may owe (``Managers.most_owed_ms``) closes its gate,
until it owes no more than that. What may owe nothing is fetched: each delivery closes the gate
until the throttle time that Kafka's manager computed for it is over (``headgate.fetch=deliver``).
What is produced by a bound that moves may owe as much as one throttle tells.

While a gate is closed, requests wait before they are passed on, and fetches' answers before they
are read. When it opens, one that waits passes, and the gate closes again when that is charged. A
long poll may bring nothing for a while, and the rest of a Produce may be long in coming. So after
``SLOT_MS`` two may pass, then four, and so on: nobody waits for a slow one. Principals take turns,
then the connections of each. A connection keeps its place until it is charged (``hold``). If it
closes before it was let through, the next new connection of its principal gets the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace, nlargest
from itertools import count
from typing import Final, NamedTuple

from headgate.gateway.charging.clients import Told
from headgate.steps import one_by_one

SLOT_MS: Final = 20
"""How long a gate waits for those it let through, before it lets more pass. A broker that has
records answers a fetch sooner."""
LOOK_AGAIN_MS: Final = 1_000
"""After so long at most a bucket is asked again: its bound may have lapsed to a higher one."""
MOST_DOUBLED: Final = 20
"""Most doublings: a million may then be on their way."""
CALLED_AT_ONCE: Final = 128
"""So many are let through at one look, in half a millisecond; the next looks at once."""
MOST_PRINCIPALS: Final = 4_096
"""Principals whose last turn a gate remembers. Those served longest ago are forgotten: without a
last turn they are still the next to have one."""
MOST_LEFT: Final = 4_096
"""Places kept of a principal's connections that closed unserved; more than wait at once."""
MOST_GATES: Final = 1 << 16
"""At this many gates the open ones are freed, some with each gate that comes; again whenever those
that are left have doubled."""
_LOOKED_AT_ONCE: Final = 128
"""Gates that are looked at in one step, in a quarter of a millisecond."""
SET_BACK_MS: Final = 10
"""A wall clock that moves by more than this against one that is never set has been set."""
MOST_GONE: Final = 64
"""Turns of closed connections in a gate's queues; more, and more than wait, are dropped at once."""
KEPT_BYTES: Final = 32 << 20
"""Bytes of answers that wait, all connections of a broker together; beyond it an answer is emptied
at once. A hundred connections with a read buffer each."""


class GateKey(NamedTuple):
    """A quota-id of one quota type: the released name of the type with its unit, raw tags."""

    quota_type: str
    user_tag: str
    client_tag: str


class GateTurn:
    """
    A connection's place at a gate.

    Args:
        principal: principals take turns.
        number: its place; the connection that came first has the lowest.
        wake: makes its connection look again.

    Attributes:
        waiting: it wants to pass.
        granted: it may pass, until the gate closes.
        appointed: it is the next, and has to come back at ``Gate.next_ms``.
        queued: it stands in the gate's queue.
    """

    __slots__ = ("appointed", "gate", "granted", "number", "principal", "queued", "waiting", "wake")

    def __init__(self, gate: Gate, principal: str, number: int, wake: Callable[[], None]) -> None:
        self.gate = gate
        self.principal = principal
        self.number = number
        self.wake = wake
        self.waiting = self.granted = self.appointed = self.queued = False


class Gate:
    """
    The gate of one quota-id under one quota type.

    Args:
        owed_ms: for a token bucket, how long it takes from now on until no more is owed than may
            be; None: the deadline that charges set.

    Attributes:
        told: what was true at the charge that closed it for longest; None: not known.
    """

    def __init__(self, owed_ms: Callable[[int], int] | None = None) -> None:
        self._owed_ms = owed_ms
        self._deadline_ms = 0
        self._bound = 0.0
        self.told: Told | None = None
        self._opened_ms: int | None = None  # when the first went, after it had been closed
        self._passing = 0  # let through since, and not charged yet
        self._waiting = self._gone = 0
        self._queues: dict[str, list[tuple[int, int, GateTurn]]] = {}  # heaps by principal
        # A heap of the principals that wait: when each last had a turn, its first place, its name.
        self._order: list[tuple[int, int, str]] = []
        self._served: dict[str, int] = {}
        self._left: dict[str, list[int]] = {}  # heaps of places by principal
        self._turns = self._joined = 0
        self._appointed: GateTurn | None = None

    # --- when -------------------------------------------------------------------------------

    def opens_ms(self, now_ms: int) -> int:
        """Return when it opens, epoch ms; ``now_ms`` or before: it is open."""
        if self._owed_ms is not None:
            return now_ms + self._owed_ms(now_ms)
        return self._deadline_ms

    def next_ms(self, now_ms: int) -> int:
        """Return when the next turn (``GateTurn.appointed``) has to look again, epoch ms."""
        opens_ms = self.opens_ms(now_ms)
        if opens_ms > now_ms:
            return opens_ms if self._owed_ms is None else min(opens_ms, now_ms + LOOK_AGAIN_MS)
        opened_ms = now_ms if self._opened_ms is None else self._opened_ms
        return now_ms + SLOT_MS - max(now_ms - opened_ms, 0) % SLOT_MS

    def charged(
        self, throttle_ms: int, bound: float, now_ms: int, told: Told | None = None
    ) -> None:
        """A charge took the quota-id over what it may owe: stay closed for this long."""
        if throttle_ms > 0:
            self._bound = bound
            if now_ms + throttle_ms >= self._deadline_ms:
                self._deadline_ms = now_ms + throttle_ms
                self.told = told
            self._close()

    def requoted(self, bound: float, now_ms: int) -> None:
        """The quota has changed: by a higher one what is left is repaid sooner."""
        left_ms = self._deadline_ms - now_ms
        if left_ms > 0 and 0 < self._bound < bound:
            self._deadline_ms = now_ms + int(left_ms * (self._bound / bound))
            self._bound = bound
        first = self._first()
        if first is not None:
            first.wake()

    def idle(self, now_ms: int) -> bool:
        """Whether it is open and nobody waits."""
        return not self._waiting and self.opens_ms(now_ms) <= now_ms

    # --- who --------------------------------------------------------------------------------

    def admit(self, turn: GateTurn, now_ms: int) -> bool:
        """Say whether a turn may pass now; otherwise it waits, and is woken when it may."""
        if self.opens_ms(now_ms) > now_ms:
            self._close()
            turn.granted = False
            self._join(turn)
            return False
        if not turn.granted:
            self._join(turn)
            self._call(now_ms, turn)
        return turn.granted

    def stand_aside(self, turn: GateTurn) -> None:
        """A turn doesn't wait any more, for now or for good; it keeps its place."""
        if turn.granted:
            turn.granted = False
            self._passing = max(self._passing - 1, 0)
        if turn.waiting:
            turn.waiting = False
            self._waiting -= 1
            if turn is self._appointed:
                self._appoint(None)

    def place(self, principal: str) -> int | None:
        """
        Take the lowest place of a principal's connections that closed before they could pass.

        None: there is none.
        """
        left = self._left.get(principal)
        if not left:
            return None
        number = heappop(left)
        if not left:
            del self._left[principal]
        return number

    def left(self, turn: GateTurn) -> None:
        """A turn's connection closes: the next new one gets its place, unless it had passed."""
        if turn.granted:
            self.stand_aside(turn)
            return
        self.stand_aside(turn)
        self._gone += turn.queued
        if self._gone > max(MOST_GONE, self._waiting):
            self._drop_gone()
        left = self._left.get(turn.principal)
        if left is None:
            if len(self._left) >= MOST_PRINCIPALS:
                return
            left = self._left[turn.principal] = []
        if len(left) < MOST_LEFT:
            heappush(left, turn.number)

    def _drop_gone(self) -> None:
        """Keep only turns that wait in the queues; ``_first`` would keep all behind one of them."""
        self._gone = 0
        for queue in self._queues.values():
            for _, _, turn in queue:
                turn.queued = turn.waiting
            queue[:] = [place for place in queue if place[2].queued]
            heapify(queue)

    def done(self, turn: GateTurn, now_ms: int) -> None:
        """It was charged: it leaves, and the next may go if the gate is still open."""
        self.stand_aside(turn)
        if self._waiting and self.opens_ms(now_ms) <= now_ms:
            self._call(now_ms, turn)

    def _close(self) -> None:
        self._opened_ms = None
        self._passing = 0

    def _join(self, turn: GateTurn) -> None:
        if turn.waiting:
            return
        turn.waiting = True
        self._waiting += 1
        if not turn.queued:
            turn.queued = True
            queue = self._queues.get(turn.principal)
            if queue is None:
                queue = self._queues[turn.principal] = []
                served = self._served.get(turn.principal, 0)
                heappush(self._order, (served, turn.number, turn.principal))
            self._joined += 1
            heappush(queue, (turn.number, self._joined, turn))
        if self._appointed is None:
            turn.appointed = True
            self._appointed = turn

    def _call(self, now_ms: int, asking: GateTurn) -> None:
        """Let some turns pass, until as many are on their way as may be now."""
        if self._opened_ms is None:
            self._opened_ms = now_ms
        slots = max(now_ms - self._opened_ms, 0) // SLOT_MS
        most = min(1 << min(slots, MOST_DOUBLED), self._passing + CALLED_AT_ONCE)
        while self._passing < most:
            turn = self._first()
            if turn is None:
                break
            turn.waiting = False
            turn.granted = True
            self._waiting -= 1
            self._passing += 1
            self._turns += 1
            self._served[turn.principal] = self._turns
            if turn is not asking:
                turn.wake()
        if len(self._served) > MOST_PRINCIPALS:
            recent = nlargest(MOST_PRINCIPALS // 2, self._served.items(), key=lambda item: item[1])
            self._served = dict(recent)
        self._appoint(asking)

    def _appoint(self, asking: GateTurn | None) -> None:
        """Appoint the first of those that wait, and wake it unless it is asking."""
        first = self._first()
        if first is self._appointed:
            return
        if self._appointed is not None:
            self._appointed.appointed = False
        self._appointed = first
        if first is not None:
            first.appointed = True
            if first is not asking:
                first.wake()

    def _first(self) -> GateTurn | None:
        """Return whose turn it is: of the principal served longest ago, the lowest place."""
        order = self._order
        while order:
            served, number, principal = order[0]
            queue = self._queues[principal]
            while queue and not queue[0][2].waiting:
                heappop(queue)[2].queued = False
            if not queue:
                del self._queues[principal]
                heappop(order)
                continue
            last = self._served.get(principal, 0)
            if served == last and number == queue[0][0]:
                return queue[0][2]
            heapreplace(order, (last, queue[0][0], principal))
        return None


class Gates:
    """
    The gates of one broker: those that are closed or waited at; any other quota-id's is open.

    Gates have a time of their own (``time``): the wall clock's, plus what that was set back. So
    nobody waits longer because the clock is set back. Charges keep the wall clock's time.

    Args:
        owed_ms: returns ``Gate``'s argument for a key: a function for a token bucket, None for a
            sampled rate.
        skew: returns how far the wall clock is ahead of one that is never set, ms.

    Attributes:
        kept_bytes: of answers that wait.
        ahead_ms: how far the gates' time is ahead of the wall clock.
        numbers: places, in the order of their coming.
    """

    def __init__(
        self,
        owed_ms: Callable[[GateKey], Callable[[int], int] | None],
        skew: Callable[[], int] = lambda: 0,
    ) -> None:
        self._owed_ms = owed_ms
        self._skew = skew
        self._skew_ms = skew()
        self._gates: dict[GateKey, Gate] = {}
        self._most = MOST_GATES
        self._making_room: Iterator[None] | None = None
        self._last_ms = self._charged_ms = 0
        self.kept_bytes = self.ahead_ms = 0
        self.numbers: Iterator[int] = count()

    def __len__(self) -> int:
        return len(self._gates)

    def time(self, now_ms: int) -> int:
        """Return the gates' time; ``now_ms`` is the wall clock's, epoch ms."""
        skew_ms = self._skew()
        back_ms = self._skew_ms - skew_ms
        self._skew_ms = skew_ms
        if abs(back_ms) > SET_BACK_MS:  # what it is set forward makes up for what it was set back
            self.ahead_ms = max(self.ahead_ms + back_ms, 0)
        self._last_ms = max(now_ms + self.ahead_ms, self._last_ms)
        return self._last_ms

    def get(self, key: GateKey) -> Gate | None:
        """Return a quota-id's gate; None: it is open, and nobody waits."""
        return self._gates.get(key)

    def any_at(self, keys: tuple[GateKey, ...]) -> bool:
        """Whether one of these quota-ids has a gate that may be closed or waited at."""
        gates = self._gates
        if gates:
            for key in keys:
                if key in gates:
                    return True
        return False

    def charged(
        self,
        key: GateKey,
        throttle_ms: int,
        bound: float,
        now_ms: int,
        told: Told | None = None,
    ) -> None:
        """Note a charge (``Gate.charged``); ``now_ms`` is the wall clock's."""
        gate = self._gates.get(key)
        if gate is None:
            if throttle_ms <= 0:
                return
            self._charged_ms = now_ms
            self._make_room()
            gate = self._gates[key] = self._made(key)
        gate.charged(throttle_ms, bound, self.time(now_ms), told)

    def _make_room(self) -> None:
        """Where there are too many gates, look at some more of them; free those that are open."""
        if self._making_room is None:
            if len(self._gates) < self._most:
                return
            self._making_room = self.tidying(lambda: self._charged_ms)
        if next(self._making_room, self) is self:
            self._making_room = None
            self._most = max(MOST_GATES, 2 * len(self._gates))

    def _made(self, key: GateKey) -> Gate:
        owed_ms = self._owed_ms(key)
        # Buckets follow the wall clock, as charges do.
        return Gate(None if owed_ms is None else lambda t_ms: owed_ms(t_ms - self.ahead_ms))

    def requoting(
        self, bound: Callable[[GateKey], float], clock: Callable[[], int]
    ) -> Iterator[None]:
        """Tell every gate, in steps, that its quota may have changed; ``bound`` returns it."""
        for key, gate in self._in_steps():
            if gate is None:
                yield
            else:
                gate.requoted(bound(key), self.time(clock()))

    def tidying(self, clock: Callable[[], int]) -> Iterator[None]:
        """Let go, in steps, of gates that are open and not waited at."""
        for key, gate in self._in_steps():
            if gate is None:
                yield
            elif gate.idle(self.time(clock())):
                del self._gates[key]

    def _in_steps(self) -> Iterator[tuple[GateKey, Gate | None]]:
        """Yield the gates there are, and None in place of one wherever a step ends."""
        for seen, key in enumerate(one_by_one(self._gates), 1):
            gate = self._gates.get(key)
            if gate is not None:
                yield key, gate
            if not seen % _LOOKED_AT_ONCE:
                yield key, None
