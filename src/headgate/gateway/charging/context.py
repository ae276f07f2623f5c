"""
Who a request is charged to, and what a session needs to know of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.gateway.charging.fetch_gate import GateKey, Gates
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.charging.lanes import LaneBook, LaneKey
    from headgate.gateway.charging.plans import Plan
    from headgate.gateway.session.rewrite import AddressBook
    from headgate.gateway.session.state import SessionState
    from headgate.throttle.controller_mutation import MutationQuota
    from headgate.throttle.manager import RateSensor
    from headgate.wire.fields import Buffer


class Limits(NamedTuple):
    """
    What finite quotas are in force for a principal and client id.

    Attributes:
        any: any at all.
        requests: of request time, which every request is charged.
        produces: of anything a produce request is charged besides.
        fetches: of anything a fetch is charged besides.
    """

    any: bool
    requests: bool
    produces: bool
    fetches: bool


class Context:
    """
    One principal with one client id, as the rules see it in one epoch.

    Args:
        principal: name of the principal, raw.
        client_id: as the client claims it, raw.
        exempt: named in ``headgate.exempt.principals``: measured, never throttled.
        limits: what may throttle it.
        headroom: of what throttles its time and what it produces; None: nothing does.
        epoch: of the rules.
        gates: of the quota-ids that what it fetches is charged to.
        share_gates: likewise of a share group's fetches.

    Attributes:
        limited: some finite quota applies.
        timed: any request may be throttled by its time.
        fetches_alone: a fetch may be by the size of its answer, which nobody knows before: one in
            flight, as in Kafka.
        sensor: what it was charged for producing last, good in ``generation`` of the manager.
    """

    __slots__ = (
        "client_id",
        "epoch",
        "exempt",
        "fetches_alone",
        "gates",
        "generation",
        "headroom",
        "limited",
        "principal",
        "sensor",
        "share_gates",
        "timed",
    )

    def __init__(
        self,
        principal: str,
        client_id: str,
        exempt: bool,
        limits: Limits,
        headroom: Headroom | None = None,
        epoch: int = 0,
        gates: tuple[GateKey, ...] = (),
        share_gates: tuple[GateKey, ...] = (),
    ) -> None:
        self.principal = principal
        self.client_id = client_id
        self.exempt = exempt
        self.limited = limits.any
        self.timed = limits.requests
        self.fetches_alone = limits.fetches
        self.headroom = headroom
        self.epoch = epoch
        self.gates = gates
        self.share_gates = share_gates
        self.sensor: RateSensor | None = None
        self.generation = -1


class SessionRules:
    """
    What a session asks of the rules; ``enforcement.Enforcement`` is the one that is used.

    Every charge returns the milliseconds the client is to be told and muted for by us: the
    largest of the managers concerned, ties to the request quota, 0 in ``observe``.

    Attributes:
        broker_id: the upstream broker's.
        epoch: grows when contexts handed out before may be out of date.
        counts_requests: request time is charged.
        counts_mutations: controller mutations are.
        counts_producer_ids: new producer ids are.
        empties_fetches: ``headgate.fetch=kafka``: a violating fetch is answered empty and not
            charged.
        hold_ms: the longest a fetch is held, ``headgate.fetch.hold.max.ms``.
        lanes: what connections that closed still owe.
        gates: of the quota-ids that fetched more than their quota.
    """

    lanes: LaneBook
    gates: Gates

    def __init__(
        self, broker_id: int, *, empties_fetches: bool = False, hold_ms: int = 10_000
    ) -> None:
        self.hold_ms = hold_ms
        self.broker_id = broker_id
        self.epoch = 0
        self.counts_requests = False
        self.counts_mutations = False
        self.counts_producer_ids = False
        self.empties_fetches = empties_fetches

    def context(self, principal: str, client_id: str) -> Context:
        """Return who to charge."""
        raise NotImplementedError

    def lanes_of(self, context: Context, kind: int) -> Iterable[tuple[LaneKey, float]]:
        """Return the lanes that a kind of request is charged to, each with its quota."""
        raise NotImplementedError

    def held(
        self, session: SessionState, context: Context, plan: Plan, waited_ms: int, now_ms: int
    ) -> None:
        """Note how long a fetch was held."""
        raise NotImplementedError

    def fetch_limit(self, context: Context, now_ms: int) -> int | None:
        """Return the most bytes a fetch may ask for, or None."""
        raise NotImplementedError

    def produce(
        self,
        session: SessionState,
        context: Context,
        plan: Plan,
        size: int,
        producer_ids: frozenset[int] | None,
        upstream_ms: int,
        answered: bool,
        now_ms: int,
    ) -> int:
        """Charge a produce of ``size`` bytes; ``answered`` is false for acks=0."""
        raise NotImplementedError

    def producer_id(
        self,
        session: SessionState,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
    ) -> None:
        """Note that the broker gave out a producer id."""
        raise NotImplementedError

    def fetch(
        self,
        session: SessionState,
        context: Context,
        plan: Plan,
        size: int,
        answer_bytes: int,
        upstream_ms: int,
        now_ms: int,
        *,
        withheld: bool = False,
    ) -> int:
        """Charge a fetch whose answer's frame has ``answer_bytes``; withheld: it goes empty."""
        raise NotImplementedError

    def unfetch(
        self, session: SessionState, context: Context, plan: Plan, answer_bytes: int, now_ms: int
    ) -> None:
        """Take a fetch's charge back: its answer was emptied."""
        raise NotImplementedError

    def request(
        self,
        session: SessionState,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
    ) -> int:
        """Charge the request quota only."""
        raise NotImplementedError

    def mutation(
        self,
        session: SessionState,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        quota: MutationQuota,
        now_ms: int,
    ) -> int:
        """Charge the time of a request whose mutations are charged to ``quota``."""
        raise NotImplementedError

    def network_time(
        self, session: SessionState, context: Context, nanos: int, now_ms: int
    ) -> None:
        """Charge the time it took to send an answer; never throttles by itself."""
        raise NotImplementedError


class Face(Protocol):
    """What a listener tells its clients; ``front.BrokerListener`` is the one that is used."""

    @property
    def addresses(self) -> AddressBook:
        """Broker id to the address that leads through the gateway, as of now."""
        ...

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        """The upstream named brokers that have no address here yet."""
        ...


class Identity(Protocol):
    """Who a client is; ``identity.Identity`` is the one that is used."""

    principal: str
    """The name of the principal, raw; ANONYMOUS until a broker has said yes."""
    authenticated: bool
    """Whether anything but authentication may be said."""
    close_reason: str | None
    """Why the connection is to be closed after a refusal; None if it needn't be."""
    close_text: str

    @property
    def raw(self) -> bool:
        """Whether what comes next on either side is a bare SASL token."""
        ...

    def raw_request(self, frame: Buffer) -> None:
        """See a bare token."""
        ...

    def unknown_token(self, key: int, version: int, frame: Buffer, body: int) -> str | None:
        """Return the id of the delegation token in a request, if its owner is to be found."""
        ...

    def raw_response(self, frame: Buffer) -> None:
        """See the broker's answer to it."""
        ...

    def request(self, key: int, version: int, frame: bytes, body: int) -> bytes | None:
        """See a SASL request; returns our own answer if it mustn't go to the broker."""
        ...

    def response(self, key: int, version: int, frame: bytes) -> None:
        """See the broker's answer to it."""
        ...
