"""
One bound for all the bytes that connections have collected or hold, however many they are.

A connection is granted bytes that have arrived. What its peer declares doesn't count, since a
length costs a peer nothing. Each connection has a small minimum of its own, so that small requests
always get through. What it holds beyond that counts in the pool. When the pool is full, connections
that need more aren't read any further, and all others are read in pieces of the minimum's size. So
at most ``limit + one read + 2 * minimum * connections`` bytes are held.

Two kinds of connections may take a part of the pool only: those that haven't authenticated an
eighth, and those that the gateway itself makes wait (``ConnectionKind.OURS``) half. Neither can
fill it.

No connection waits for a peer that neither sends nor reads. While connections wait, the largest
holder that has made no progress for ``STUCK_MS`` is closed, then the next one, until an eighth is
free. A holder makes progress by giving bytes back, or by being granted ``PROGRESS_BYTES``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final

from headgate.gateway.background import Looks, StallMeter

if TYPE_CHECKING:
    from headgate.steps import Work

MINIMUM_BYTES: Final = 8_192
"""What each connection has besides the pool, for SASL tokens and small requests."""
STUCK_MS: Final = 5_000
PROGRESS_BYTES: Final = 65_536
WOKEN_AT_ONCE: Final = 64
"""Connections that go on in one piece of work. The next ones do so when these give bytes back, or
after a second (``expire``)."""
READ_BUFFER_BYTES: Final = 262_144
"""As libuv reads: larger gains nothing, smaller costs more calls at 1 MB frames."""
SPARE_BUFFERS: Final = 32
"""Buffers kept for the next time they are lent: 8 MiB."""


class ConnectionKind(enum.IntEnum):
    """Which kind of connection holds bytes."""

    KNOWN = 0
    UNKNOWN = 1
    """Not authenticated yet."""
    OURS = 2
    """The gateway makes it wait: it is muted, or its question is being answered."""


class Account:
    """
    The bytes that one connection holds.

    Args:
        go_on: called when it may be read again.
        give_up: called when it is to be closed.

    Attributes:
        size: bytes it holds, its minimum included.
    """

    __slots__ = ("_granted", "_kind", "_moved_ms", "_over", "give_up", "go_on", "size")

    def __init__(self, go_on: Callable[[], None], give_up: Callable[[], None]) -> None:
        self.go_on = go_on
        self.give_up = give_up
        self.size = 0
        self._over = 0  # beyond the minimum: these count in the pool
        self._kind = ConnectionKind.KNOWN
        self._granted = 0  # since it last made progress
        self._moved_ms = 0  # when that was


class Pool:
    """
    The pool of one worker.

    Args:
        limit: ``queued.max.request.bytes``.
        on_full: called with True when all connections are to read in small pieces, else with False.

    Attributes:
        used: bytes that count in it now.
        closed: how many connections were closed for being stuck.
    """

    def __init__(self, limit: int, on_full: Callable[[bool], None] = lambda full: None) -> None:
        self.limit = limit
        self.on_full = on_full
        self.used = 0
        self.closed = 0
        self._of = [0, 0, 0]
        self._holders: set[Account] = set()
        self._waiting: tuple[dict[Account, None], ...] = tuple({} for _ in ConnectionKind)
        self._full = False
        self._closing = False  # nobody is woken meanwhile

    @property
    def waiting(self) -> int:
        """How many connections wait for room."""
        return sum(map(len, self._waiting))

    def hold(self, account: Account, size: int, kind: ConnectionKind, now_ms: int) -> bool:
        """
        Note what a connection holds now.

        Args:
            account: the connection's.
            size: bytes in all.
            kind: of the connection.
            now_ms: of a clock that is never set.

        Returns:
            Whether it may be read any further; if not, ``go_on`` is called later.
        """
        account.size = size
        before = account._over
        over = account._over = max(size - MINIMUM_BYTES, 0)
        self._of[account._kind] -= before
        self._of[kind] += over
        self.used += over - before
        if kind is not account._kind:
            self._waiting[account._kind].pop(account, None)
            account._kind = kind
        if over > before:
            account._granted += over - before
            if not before:
                self._holders.add(account)
            if not before or account._granted >= PROGRESS_BYTES:
                account._granted, account._moved_ms = 0, now_ms
        elif over < before:
            account._granted, account._moved_ms = 0, now_ms
            if not over:
                self._holders.discard(account)
        self._look()
        if over and not self._room(kind):
            self._waiting[kind][account] = None
            return False
        self._waiting[kind].pop(account, None)
        if over < before:
            self._wake()
        return True

    def scarce(self, kind: ConnectionKind) -> bool:
        """Whether connections of a kind hold all the bytes that they may hold together."""
        return not self._room(kind)

    def forget(self, account: Account) -> None:
        """The connection has closed: what it held is free."""
        self._waiting[account._kind].pop(account, None)
        if account._over:
            self.hold(account, 0, account._kind, 0)
        account.size = 0

    def expire(self, now_ms: int) -> Work[None]:
        """
        Close connections without progress while others wait for space, the largest first.

        A step closes one, since thousands of unknown clients may each hold little. Those that wait
        are woken when it is done: to look at all of them for each that is closed takes a second.
        """
        self._wake()
        kinds = {kind for kind in ConnectionKind if self._waiting[kind]}
        if self.used < self._enough(self.limit):
            # Only a kind's own part is full. Connections that we make wait are never closed here.
            kinds &= {ConnectionKind.UNKNOWN}
        elif kinds:
            kinds = {ConnectionKind.KNOWN, ConnectionKind.UNKNOWN}
        stuck = [
            holder
            for holder in self._holders
            if holder._kind in kinds and now_ms - holder._moved_ms >= STUCK_MS
        ]
        stuck.sort(key=lambda holder: holder._over, reverse=True)
        self._closing = True
        try:
            for holder in stuck:
                if all(self._of_bound(kind) <= 7 / 8 for kind in kinds):
                    break
                if holder in self._holders and now_ms - holder._moved_ms >= STUCK_MS:
                    self.closed += 1
                    holder.give_up()
                    self.forget(holder)
                yield
        finally:
            self._closing = False
        self._wake()

    def _bound(self, kind: ConnectionKind) -> int:
        if kind == ConnectionKind.KNOWN:
            return self.limit
        return self.limit // 8 if kind == ConnectionKind.UNKNOWN else self.limit // 2

    def _of_bound(self, kind: ConnectionKind) -> float:
        return max(self.used / self.limit, self._of[kind] / self._bound(kind))

    def _room(self, kind: ConnectionKind) -> bool:
        return self.used < self.limit and self._of[kind] < self._bound(kind)

    @staticmethod
    def _enough(bound: int) -> int:
        """Return the use below which there is room again: lower, so that it isn't full at once."""
        return bound - bound // 16

    def _look(self) -> None:
        """Have all connections read in small pieces while the pool is full."""
        if self._full:
            if self.used < self._enough(self.limit):
                self._full = False
                self.on_full(False)
        elif self.used >= self.limit:
            self._full = True
            self.on_full(True)

    def _wake(self) -> None:
        """Let as many connections go on as there is room for, the smallest first."""
        left = self._enough(self.limit) - self.used
        if left <= 0 or self._closing:
            return
        rooms = [self._enough(self._bound(kind)) - self._of[kind] for kind in ConnectionKind]
        waiting = [wait for wait, room in zip(self._waiting, rooms, strict=True) if room > 0]
        if not any(waiting):
            return
        most = min(-(-left // MINIMUM_BYTES), WOKEN_AT_ONCE)
        for account in nsmallest(most, chain(*waiting), key=lambda account: account._over):
            kind = account._kind
            if rooms[kind] > 0:
                rooms[kind] -= MINIMUM_BYTES
                self._waiting[kind].pop(account, None)
                account.go_on()


class ReadBuffer:
    """
    The buffer that all links of one loop read into, one at a time, and the pool of what they hold.

    Args:
        pool_bytes: ``queued.max.request.bytes``.
        stall_meter: measures large reads.

    Attributes:
        looks: of the links that are called.

    Memory that a write still needs is lent to it and comes back when the write is done. New
    memory for each write would cost as much as the relaying (page faults).
    """

    __slots__ = ("_size", "_spare", "looks", "memory", "pool", "small", "stall_meter", "view")

    def __init__(self, pool_bytes: int = 1 << 27, stall_meter: StallMeter | None = None) -> None:
        self.stall_meter = stall_meter or StallMeter()
        self.looks = Looks()
        self.pool = Pool(pool_bytes, self._narrow)
        self._spare: list[bytearray] = []
        self._size = READ_BUFFER_BYTES
        self._use(bytearray(READ_BUFFER_BYTES))

    def _use(self, memory: bytearray) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.small = self.view[:MINIMUM_BYTES]

    def _narrow(self, full: bool) -> None:
        """Read in small pieces while the pool is full."""
        self._size = MINIMUM_BYTES if full else READ_BUFFER_BYTES
        self._spare.clear()
        self._use(bytearray(self._size))

    def lend(self) -> bytearray:
        """Leave the memory to a write that still needs it; go on with other memory."""
        lent = self.memory
        self._use(self._spare.pop() if self._spare else bytearray(self._size))
        return lent

    def take_back(self, lent: list[bytearray]) -> None:
        """Take memory back that no write needs any more."""
        room = SPARE_BUFFERS - len(self._spare)
        self._spare.extend(memory for memory in lent[:room] if len(memory) == self._size)
        lent.clear()
