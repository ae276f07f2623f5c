"""
A client as charging sees it: its connection, the wait that was told to it, and the client-id that
it is charged as.

A client-id is what a client claims, so one principal may claim any number, and each of them costs a
sensor for every quota type. So a bounded number of a principal's client-ids is charged separately
at a broker (``headgate.quota.client.ids``). Those that come when this many are in use are charged
as one more client-id, ``(others of PRINCIPAL)``, under the quota that applies to a client-id
without a quota of its own. These rules keep that fair:

- A client-id that any quota names is always charged separately, and isn't counted.
- A client-id keeps its place as long as anything that was charged to it counts. What counts for
  nothing (no sample, no debt) gives its place to the next: nobody's decision changes by that.
- A client-id that was charged as one of the others stays among them until nothing that was charged
  to the others counts any more. So no client gets a fresh quota by waiting for a place.
- The others of one principal are charged separately: no principal pays for another's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headgate.steps import one_by_one
from headgate.throttle.bloom import ScalableBloomFilter

if TYPE_CHECKING:
    from headgate.gateway.charging.hold import Hold
    from headgate.gateway.charging.lanes import Lane, LaneKey
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.steps import Work


class Used(NamedTuple):
    """
    The use of a quota-id at one moment.

    Attributes:
        quota: the quota in force, as it is set.
        rate: per second, of a sampled rate; None: a bucket decides.
        owed: what the bucket was overdrawn by, in its units; None: a rate decides.
    """

    quota: float
    rate: float | None
    owed: float | None


class Told(NamedTuple):
    """
    Why a client waits.

    Attributes:
        key: name of the quota key.
        user_tag, client_tag: of the quota-id.
        at_ms: when the wait was decided, epoch ms.
        bound: what the use was compared with: the quota, or a broker's part of it.
        used: the use then; None: it wasn't measured.
        closed: it was decided for a connection that has closed since.
    """

    key: str
    user_tag: str
    client_tag: str
    at_ms: int
    bound: float
    used: Used | None = None
    closed: bool = False


def used_of(manager: Any, tags: tuple[str, str], now_ms: int) -> Used:
    """Return the use of a quota-id of a manager now; it changes nothing."""
    sensor, quota = manager.sensor(tags), manager.bound(tags)
    if sensor is None:
        return Used(quota, None, None)
    reading = sensor.peek(now_ms)
    if isinstance(reading, tuple):
        return Used(quota, reading[0], None)
    return Used(quota, None, max(-reading, 0.0))


class ClientConnection(Protocol):
    """
    A client's connection to one broker; ``session.session.Session`` is the one that is used.

    Attributes:
        spent_ns: thread time that its next charge has to count; the charge sets it to 0.
        began_ns: since when the thread works for it in this callback, by the clock of
            ``RequestTime``; a charge sets it to now. 0: nobody measures that.
        asked_ms: when a broker begins with its oldest request in flight, epoch ms.
        told: why it was muted last; a decision that throttles sets it.
        repays: kinds of requests (``RequestPlan.bit``) whose charge it has to be told (``repaid``).
        client_ip: for the journal.
        listener: for the journal.
        connection: for the journal; unique within the worker.
        origins: the journal's own, kept for as long as the connection is open.
        origin_seen: the one that the journal used last, by quota type.
    """

    spent_ns: int
    began_ns: int
    asked_ms: int
    told: Told | None
    repays: int
    client_ip: str
    listener: str
    connection: str
    origins: dict[Any, Any]
    origin_seen: dict[str, tuple[Any, ...]]

    @property
    def broker_id(self) -> int:
        """The upstream broker's id."""

    @property
    def hold(self) -> Hold | None:
        """Its fetch; None before the first."""

    @property
    def produce_hold(self) -> Hold | None:
        """Its Produce; None before the first that waited."""

    def note_debt(self, key: LaneKey, lane: Lane) -> None:
        """Note a throttle, to be left behind if the connection closes before it is over."""

    def repaid(self, plan: RequestPlan, now_ms: int) -> None:
        """Note that a request is charged of a kind that may have waited for a debt."""


OTHERS: Final = "(others of "
"""How the others' client-id begins. A client that claims such a name is one of the others."""
_NAMED_EACH: Final = 128
"""Characters of a client-id, on average, that a place has room for: one may have 32,767 bytes."""
_FILTER: Final = 1_000, 0.01
"""Client-ids that a filter begins with, and how many of 100 are taken for one of the others though
they aren't. From a million on more are."""
_RELEASED_EVERY_MS: Final = 3_600_000
"""Places of a principal that has room left are looked at as often as Kafka forgets sensors."""


def others_of(principal: str) -> str:
    """Return the client-id that the others of a principal are charged as."""
    return f"{OTHERS}{principal})"


class _Principal:
    """
    The client-ids of one principal.

    Attributes:
        own: those charged separately.
        named: characters of them.
        others: knows which were charged as one of the others; None: none of them counts.
    """

    __slots__ = ("named", "others", "own")

    def __init__(self) -> None:
        self.own: dict[str, None] = {}
        self.named = 0
        self.others: ScalableBloomFilter | None = None


class ClientIds:
    """
    Say as which client-id each client of one broker is charged.

    Args:
        most: client-ids of one principal that are charged separately.
        names: whether a quota is set for this client-id, of the principal, of any, or of none.
        counts: whether anything that was charged to this principal's client-id counts still.
        drop: forgets the sensors of a client-id for which nothing counts.
        changed: called when clients may be charged as other client-ids than before: all have to
            ask again.
        start_ms: now, epoch ms.
    """

    def __init__(
        self,
        most: int,
        names: Callable[[str, str], bool],
        counts: Callable[[str, str], bool],
        drop: Callable[[str, str], None],
        changed: Callable[[], None],
        start_ms: int,
    ) -> None:
        # Differs: a principal's client-ids beyond 10,000 are charged as one; Kafka has no bound.
        self._most = most
        self._names = names
        self._counts = counts
        self._drop = drop
        self._changed = changed
        self._unsaid: dict[str, None] = {}  # who has others since ``newly_crowded``
        self._principals: dict[str, _Principal] = {}
        self._released_ms = start_ms

    def charged_as(self, principal: str, client_id: str) -> str:
        """
        Return as which client-id a client is charged; from now on it has its place.

        The answer is good until ``changed`` is called.
        """
        mine = self._principals.get(principal)
        if mine is None:
            mine = self._principals[principal] = _Principal()
        if client_id in mine.own or not client_id:
            return client_id
        others, number = mine.others, hash(client_id)
        shares = others is not None and number in others
        found = self._place(principal, mine, client_id, shares=shares)
        if found is None:
            mine.own[client_id] = None
            mine.named += len(client_id)
            return client_id
        if found != client_id and not shares:
            if others is None:
                others = mine.others = ScalableBloomFilter(*_FILTER)
                self._unsaid[principal] = None
            others.add(number)
        return found

    def would_be(self, principal: str, client_id: str) -> str:
        """Return as which client-id a client would be charged now; it takes no place."""
        mine = self._principals.get(principal)
        if mine is None or client_id in mine.own or not client_id:
            return client_id
        shares = mine.others is not None and hash(client_id) in mine.others
        return self._place(principal, mine, client_id, shares=shares) or client_id

    @property
    def crowded(self) -> int:
        """How many principals have client-ids that are charged together."""
        return sum(one.others is not None for one in self._principals.values())

    def newly_crowded(self) -> list[str]:
        """Return the principals that have others since the last call."""
        found = list(self._unsaid)
        self._unsaid.clear()
        return found

    def _place(
        self, principal: str, mine: _Principal, client_id: str, *, shares: bool
    ) -> str | None:
        """
        Return as what a client-id without a place is charged.

        Args:
            principal: whose it is.
            mine: its client-ids.
            client_id: the client-id.
            shares: it was charged as one of the others.

        Returns:
            None: separately, by a place that it has to take.
        """
        if client_id.startswith(OTHERS):
            return others_of(principal)
        if self._names(principal, client_id):
            return client_id
        if shares:
            return others_of(principal)
        if (
            len(mine.own) < self._most and mine.named + len(client_id) <= self._most * _NAMED_EACH
            # Or its place was released while it was charged once more.
        ) or self._counts(principal, client_id):
            return None
        return others_of(principal)

    def releasing(self, now_ms: int) -> Work[None]:
        """
        Release the places of client-ids for which nothing counts any more, in steps.

        It looks at principals who have others, and once in an hour at everybody: a principal that
        has room needs nothing released, but each place is memory.
        """
        passed_ms = now_ms - self._released_ms
        everybody = not 0 <= passed_ms < _RELEASED_EVERY_MS
        if everybody:
            self._released_ms = now_ms
        for principal in one_by_one(self._principals):
            mine = self._principals[principal]
            if everybody or mine.others is not None:
                yield from self._release(principal, mine)

    def _release(self, principal: str, mine: _Principal) -> Work[None]:
        """Release a principal's places."""
        before = len(mine.own)
        for client_id in one_by_one(mine.own):
            if not self._counts(principal, client_id):
                self._drop(principal, client_id)
                del mine.own[client_id]
                mine.named -= len(client_id)
            yield
        # From here on without a step: what was asked before isn't true any more.
        released = len(mine.own) < before
        if mine.others is not None and not self._counts(principal, others_of(principal)):
            self._drop(principal, others_of(principal))
            mine.others = None
            released = True
        if not mine.own and mine.others is None:
            del self._principals[principal]
        if released:
            self._changed()
