"""
Who a request is charged to, and what a session needs to know of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headgate.gateway.charging.fetch_gate import GateKey
    from headgate.gateway.charging.headroom import Headroom
    from headgate.throttle.manager import RateSensor


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
