"""
How answers that are taken whole are read: brokers' addresses are replaced, the throttle time found.

A client learns brokers' addresses only from answers. So no client bypasses a gateway that rewrites
every address. A broker whose id has no address here isn't shown to clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.steps import Work, begin, finish
from headgate.wire.fields import Buffer
from headgate.wire.header import response_body_offset
from headgate.wire.messages.addresses import REWRITERS, Book, name_controller
from headgate.wire.throttle import finding_throttle

if TYPE_CHECKING:
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.session.commands import ClusterView

STEPS_AT_ONCE: Final = 2
"""Steps of 256 brokers, coordinators, partitions or tokens that are done in one piece; of an answer
that has more, all are done in slices."""
AddressBook = Book


class Addresses(dict[int, tuple[str, int]]):
    """
    Broker id to the host and port clients shall use.

    Attributes:
        any_controller: in KRaft any broker forwards requests for the controller, and each answer
            may name another broker as the controller. Then all clients are told the same one.
    """

    any_controller = False


class Rewritten(NamedTuple):
    """
    An answer fit for a client.

    Attributes:
        frame: the answer; the same object where nothing had to change.
        hidden: ids of brokers that it named and that are left out, in order.
        throttle_at: where its throttle time is; None: it has none.
    """

    frame: Buffer
    hidden: tuple[int, ...]
    throttle_at: int | None


def rewriting(api_key: int, version: int, frame: Buffer, book: AddressBook) -> Work[Rewritten]:
    """
    Find the throttle time in an answer and replace every broker's address, in steps.

    Args:
        api_key: of the request answered.
        version: of the request answered; at most what ApiVersions advertised.
        frame: the whole answer with its length prefix.
        book: broker id to the host and port clients shall use.

    Raises:
        RemoteProtocolError: the answer doesn't parse; it must not pass.
    """
    throttle_at = yield from finding_throttle(api_key, version, frame)
    since, rewrite = REWRITERS.get(api_key, (0, None))
    if rewrite is None or version < since:
        return Rewritten(frame, (), throttle_at)
    hidden: list[int] = []
    at = response_body_offset(api_key, version, frame) if throttle_at is None else throttle_at + 4
    answer = yield from rewrite(frame, at, version, book, hidden)
    if isinstance(book, Addresses) and book.any_controller:
        # Differs: in KRaft clients see one controller, so that one bucket counts mutations.
        answer = yield from name_controller(api_key, version, answer)
    return Rewritten(answer, tuple(hidden), throttle_at)


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """
    A command: do the work in slices, then call ``Session.rewritten`` with this very object.

    Others are served meanwhile, since an answer may name a hundred thousand coordinators.

    Attributes:
        plan: of the request.
        frame: the answer.
        work: what is to be done with it.
        came_ms: when all of it had come, epoch ms.
    """

    plan: RequestPlan
    frame: Any
    work: Work[Rewritten]
    came_ms: int


class Rewriter:
    """
    Reads the answers that one client gets: replaces addresses, finds where throttle times are.

    Args:
        cluster: the brokers, as the clients of its listener see them.

    Attributes:
        pending: the answer in which that is done in slices.
    """

    __slots__ = ("_cluster", "pending")

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self.pending: Rewrite | None = None

    @property
    def pending_bytes(self) -> int:
        """Size of the pending answer, and of the copy that is made of it."""
        return 0 if self.pending is None else 2 * len(self.pending.frame)

    def whole(self, plan: RequestPlan, frame: Buffer) -> Buffer:
        """Return an answer with our addresses, in one piece: it is short."""
        return self.shown(finish(self._work(plan, frame)))

    def at_once(
        self, plan: RequestPlan, frame: Buffer, now_ms: int, *, owned: bool
    ) -> Rewritten | Rewrite:
        """
        Return an answer with our addresses, or what is now ``pending`` if it is long.

        Args:
            plan: of its request.
            frame: the answer.
            now_ms: epoch ms.
            owned: whether it lies in the session's own memory.
        """
        work = self._work(plan, frame)
        rewritten = begin(work, STEPS_AT_ONCE)
        if rewritten is not None:
            return rewritten
        if not owned:  # the work begins again, in a copy
            frame = memoryview(bytearray(frame))
            work = self._work(plan, frame)
        self.pending = Rewrite(plan, frame, work, now_ms)
        return self.pending

    def shown(self, rewritten: Rewritten) -> Buffer:
        """Return the answer; report the brokers that are left out of it."""
        if rewritten.hidden:
            self._cluster.unknown_brokers(rewritten.hidden)
        return rewritten.frame

    def _work(self, plan: RequestPlan, frame: Buffer) -> Work[Rewritten]:
        return rewriting(plan.key, plan.version, frame, self._cluster.addresses)
