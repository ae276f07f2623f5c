"""
Which answers name brokers, and how their addresses are replaced.

A client learns brokers' addresses only from answers. So no client bypasses a gateway that rewrites
every address. A broker whose id has no address here isn't shown to clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.steps import Work, begin, finish
from headgate.wire.apis import NEVER
from headgate.wire.fields import Buffer
from headgate.wire.messages.addresses import REWRITERS, SINCE, Book, name_controller

if TYPE_CHECKING:
    from headgate.gateway.charging.plans import Plan
    from headgate.gateway.session.interfaces import ClusterView

STEPS_AT_ONCE: Final = 2
"""Steps of 256 brokers, coordinators or partitions that are done in one piece; of an answer that
has more, all are done in slices."""
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
    """

    frame: Buffer
    hidden: tuple[int, ...]


def rewriting(api_key: int, version: int, frame: Buffer, book: AddressBook) -> Work[Rewritten]:
    """
    Replace every broker's address in an answer, in steps.

    Args:
        api_key: of the request answered.
        version: of the request answered; at most what ApiVersions advertised.
        frame: the whole answer with its length prefix.
        book: broker id to the host and port clients shall use.

    Raises:
        RemoteProtocolError: the answer doesn't parse; it must not pass.
    """
    if version < SINCE.get(api_key, NEVER):
        return Rewritten(frame, ())
    hidden: list[int] = []
    answer = yield from REWRITERS[api_key](frame, version, book, hidden)
    if isinstance(book, Addresses) and book.any_controller:
        # Differs: in KRaft clients see one controller, so that one bucket counts mutations.
        answer = yield from name_controller(api_key, version, answer)
    return Rewritten(answer, tuple(hidden))


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """
    A command: do the work in slices, then call ``Session.rewritten`` with this very object.

    Others are served meanwhile, since an answer may name a hundred thousand coordinators.
    """

    plan: Plan
    frame: Any
    work: Work[Rewritten]


class Rewriter:
    """
    Replaces the brokers' addresses in the answers that one client gets.

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
        """Size of the pending answer."""
        return 0 if self.pending is None else len(self.pending.frame)

    def whole(self, plan: Plan, frame: Buffer) -> Buffer:
        """Return an answer with our addresses, in one piece: it is short."""
        return self.shown(finish(self._work(plan, frame)))

    def at_once(self, plan: Plan, frame: Buffer, *, owned: bool) -> Buffer | None:
        """
        Return an answer with our addresses, or None if it is ``pending``.

        Args:
            plan: of its request.
            frame: the answer.
            owned: whether it lies in the session's own memory.
        """
        rewritten = begin(self._work(plan, frame), STEPS_AT_ONCE)
        if rewritten is not None:
            return self.shown(rewritten)
        own = frame if owned else memoryview(bytearray(frame))
        self.pending = Rewrite(plan, own, self._work(plan, own))
        return None

    def shown(self, rewritten: Rewritten) -> Buffer:
        """Return the answer; report the brokers that are left out of it."""
        if rewritten.hidden:
            self._cluster.unknown_brokers(rewritten.hidden)
        return rewritten.frame

    def _work(self, plan: Plan, frame: Buffer) -> Work[Rewritten]:
        return rewriting(plan.key, plan.version, frame, self._cluster.addresses)
