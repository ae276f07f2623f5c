"""
How much of a quota-id may be on its way to the broker before anything of it could be throttled.

Kafka takes one request of a connection at a time, so that none is in the broker while the
connection is throttled. Where no throttle is possible, that is only a delay: the broker behind us
takes one at a time anyway, and charges and decisions come out the same. So a request that is sure
to fit into what is left under every quota of its client, whenever it is charged, goes *early*:
the next one may follow before it is answered. It claims its part when its last byte is there, so
one that is half sent claims nothing.

A request that may not fit waits until those before it on its connection are answered, and nothing
follows it until it is answered itself. When it is complete, every early request that claims from
the same quota is charged, answered or not: at this moment it is certain that their throttle is 0,
and afterwards it wouldn't be. So no client waits for another.
That is done in one piece, so the requests of an allowance that go early are bounded
(``MOST_EARLY``). Beyond that a request waits likewise, but nothing has to be charged before it.

There is an allowance for each quota and quota-id, shared by all clients that are charged to it.
Before a quota changes, all early requests are charged, in steps; meanwhile none goes early.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.charging.clients import ClientConnection

LEAST_TIME_NS: Final = 1_000_000
"""Thread time that a request claims at least; one takes some 10 to 100 µs."""
MOST_TIMED: Final = 64
"""Requests of one quota-id that claim thread time at once: what they take is only an estimate."""
MOST_EARLY: Final = 500
"""Requests of one allowance in flight; at this many none more goes early. It takes half a
millisecond to charge them."""
MOST_EARLY_CLIENTS: Final = 2_048
"""Connections that an allowance knows as early. One more has the one that came first charged, which
mostly has nothing in flight any more."""


class Allowance:
    """
    What clients of one quota-id have in flight under one quota; this one is for byte quotas.

    Args:
        spare: returns the units that can be charged from now on, at any time, before a request
            is throttled (``spare`` of the managers).
        used: where an allowance is put that has to be settled before a quota changes: units are
            ``left``, or requests are ``early``.

    Attributes:
        claimed: units of complete requests that aren't charged yet.
        left: units that may be claimed besides without asking ``spare``. They don't become fewer
            except by claims: a charge takes what was claimed before, and time only takes samples
            away or adds tokens. So they stay good until they are used up or the bound moves.
        early: connections that may have early requests here that aren't charged yet.
        requests: complete requests that aren't charged yet, early or not.
    """

    __slots__ = ("claimed", "early", "left", "requests", "spare", "used")

    def __init__(self, spare: Callable[[], float], used: dict[Allowance, None]) -> None:
        self.spare = spare
        self.used = used
        self.claimed = self.requests = 0
        self.left = 0.0
        self.early: dict[ClientConnection, None] = {}

    def claim(self, units: int) -> bool:
        """Claim units for a complete request; return whether they are sure to fit."""
        left = self.left - units
        if left < 0:
            left = self.spare() - self.claimed - units
        self.claimed += units
        self.left = left if left > 0 else 0.0
        self.used[self] = None
        return left >= 0

    def settle(self, now_ms: int) -> None:
        """Charge every early request that claims from this; no client waits for that."""
        while self.early:  # a charge may have others go early
            for client in tuple(self.early):
                client.charge_early(now_ms)

    def ask_again(self, now_ms: int) -> None:
        """Settle, and have the next claim ask how much is spare: the bound may move now."""
        self.settle(now_ms)
        self.left = 0.0

    @property
    def weight(self) -> int:
        """How much there is to settle: requests and connections."""
        return self.requests + len(self.early)


class IdAllowance(Allowance):
    """
    An allowance of new producer ids: an id in flight counts once, however many requests have it.

    Args:
        spare: of the manager; what it returns allows for ids that are charged again meanwhile.
        used: as for ``Allowance``.
    """

    __slots__ = ("ids",)

    def __init__(self, spare: Callable[[], float], used: dict[Allowance, None]) -> None:
        super().__init__(spare, used)
        self.ids: dict[int, int] = {}

    def claim_ids(self, producer_ids: Collection[int]) -> bool:
        """Claim the ids of a request; return whether they are sure to fit."""
        ids = self.ids
        for producer_id in producer_ids:
            ids[producer_id] = ids.get(producer_id, 0) + 1
        self.claimed = len(ids)
        return self.spare() >= len(ids)

    def release_ids(self, producer_ids: Collection[int]) -> None:
        """Release ids that are charged now."""
        ids = self.ids
        for producer_id in producer_ids:
            if ids[producer_id] == 1:
                del ids[producer_id]
            else:
                ids[producer_id] -= 1
        self.claimed = len(ids)


class TimeAllowance(Allowance):
    """
    An allowance of thread time; how much a request will take isn't known before.

    A request claims twice what the slowest of the last window took, since it is charged twice: for
    reading and for answering. When one took more than it claimed, and what is claimed no longer
    fits, none goes early for a window.

    Args:
        spare: thread time in ns.
        used: as for ``Allowance``.
        window_ms: what the manager's samples cover.
    """

    __slots__ = ("_before_ns", "_blind_until_ms", "_max_ns", "_since_ms", "_window_ms")

    def __init__(
        self, spare: Callable[[], float], used: dict[Allowance, None], window_ms: int
    ) -> None:
        super().__init__(spare, used)
        self._window_ms = window_ms
        self._since_ms = 0
        self._max_ns = self._before_ns = 0
        self._blind_until_ms = 0

    def claim_time(self, now_ms: int) -> bool:
        """Claim the time of one request; return whether it is sure to fit, by what is known."""
        self.claimed += 1
        return self.fits(now_ms, 0)

    def fits(self, now_ms: int, more: int = 1) -> bool:
        """Whether ``more`` requests fit besides those that claim."""
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


class ChangeFlag:
    """
    Whether quotas are being changed.

    Attributes:
        under_way: how many changes are; meanwhile no connection begins to go early.
    """

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        self.under_way = 0


NO_CHANGES: Final = ChangeFlag()


class Headroom:
    """
    The allowances of one client: a request goes early if it fits into each.

    Args:
        produced: for the bytes it produces.
        ids: for its producer ids, if they are limited.
        time: for its thread time, if that is limited.
        timeless: thread time is limited, and no request's is known before: none goes early.
        changes: of the quotas.
    """

    __slots__ = ("_changes", "_only", "all", "bytes", "ids", "time", "timeless")

    def __init__(
        self,
        produced: tuple[Allowance, ...],
        ids: IdAllowance | None = None,
        time: TimeAllowance | None = None,
        *,
        timeless: bool = False,
        changes: ChangeFlag = NO_CHANGES,
    ) -> None:
        self._changes = changes
        self.bytes = produced
        self.ids = ids
        self.time = time
        self.timeless = timeless
        self.all = produced + tuple(one for one in (ids, time) if one is not None)
        single = len(produced) == len(self.all) == 1 and not timeless
        self._only = produced[0] if single else None

    def fits(self, size: int, now_ms: int) -> bool:
        """Whether a request that produces ``size`` bytes goes early, by its header."""
        if self._changes.under_way:
            return False
        for allowance in self.all:
            if allowance.requests >= MOST_EARLY:
                return False
        for allowance in self.bytes:
            if allowance.left < size and allowance.spare() - allowance.claimed < size:
                return False
        return not self.timeless and (self.time is None or self.time.fits(now_ms))

    def claim_at_once(self, client: ClientConnection, size: int) -> bool:
        """
        Claim the bytes of a complete Produce where ``spare`` needn't be asked: the usual case.

        Args:
            client: the connection that the request came by.
            size: bytes produced.

        Returns:
            Whether the request goes early; if not, nothing is claimed.
        """
        only = self._only
        if only is None or client.early_in is not self:
            return False
        left = only.left - size
        if left < 0 or only.requests >= MOST_EARLY:
            return False
        only.requests += 1
        only.left = left
        only.claimed += size
        return True

    def claim(
        self,
        client: ClientConnection,
        size: int,
        producer_ids: Collection[int] | None,
        now_ms: int,
    ) -> bool:
        """
        Claim what a complete request will be charged; have others charged where it may not fit.

        Args:
            client: the connection that the request came by.
            size: bytes produced; 0 for what isn't a Produce.
            producer_ids: of its batches.
            now_ms: epoch ms.

        Returns:
            Whether it goes early. Either way ``release`` is due when it is charged.
        """
        early = not (self.timeless or self._changes.under_way)
        for allowance in self.all:
            if allowance.requests >= MOST_EARLY:
                early = False
            allowance.requests += 1
        for allowance in self.bytes:
            left = allowance.left - size
            if left >= 0:  # as ``Allowance.claim``, without a call
                allowance.left = left
                allowance.claimed += size
            elif not allowance.claim(size):
                early = False
                allowance.settle(now_ms)
        ids = self.ids
        if ids is not None and producer_ids and not ids.claim_ids(producer_ids):
            early = False
            ids.settle(now_ms)
        time = self.time
        if time is not None and not time.claim_time(now_ms):
            early = False
            time.settle(now_ms)
        if early and client.early_in is not self:
            client.charge_early(now_ms)
            for allowance in self.all:
                if len(allowance.early) >= MOST_EARLY_CLIENTS:
                    next(iter(allowance.early)).charge_early(now_ms)
            client.early_in = self
            for allowance in self.all:
                allowance.early[client] = None
                allowance.used[allowance] = None
        return early

    def release(self, size: int, producer_ids: Collection[int] | None) -> None:
        """What was claimed is charged now; arguments as they were for ``claim``."""
        for allowance in self.bytes:
            allowance.claimed -= size
            allowance.requests -= 1
        if self.ids is not None:
            self.ids.requests -= 1
            if producer_ids:
                self.ids.release_ids(producer_ids)
        if self.time is not None:
            self.time.requests -= 1
            self.time.claimed -= 1

    def make_way(self, size: int, now_ms: int) -> None:
        """Have others charged where a charge of ``size`` bytes, not claimed before, may not fit."""
        for allowance in self.bytes:
            if not allowance.claim(size):
                allowance.settle(now_ms)
            allowance.claimed -= size
        for allowance in self.all[len(self.bytes) :]:
            allowance.settle(now_ms)
