"""
Who a request is charged to: one principal with one client-id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.fetch_gate import GateKey
    from headgate.gateway.charging.headroom import Headroom
    from headgate.throttle.line import Place
    from headgate.throttle.manager import RateSensor


class Context:
    """
    One principal with one client-id, by the quotas of one epoch.

    Args:
        principal: name of the principal, raw.
        client_id: as the client claims it, raw.
        exempt: named in ``headgate.exempt.principals``: measured, never throttled.
        limited: at least one finite quota applies.
        timed: a quota of request time does, so any request may be throttled.
        headroom: of the quotas on its time and on what it produces; None: there are none.
        epoch: of the rules.
        gates: of the quota-ids that its fetches are charged to; empty under
            ``headgate.fetch=kafka``.
        share_gates: likewise of a share group's fetches, which are delivered under either setting.
        overdue: of the quotas on what it produces whose throttles are capped: the name of each, and
            what returns how long a Produce waits for what is owed beyond the cap, ms; it takes the
            request's place and now.

    Attributes:
        fetches_alone: a fetch may be throttled by the size of its answer, which isn't known
            before. So one at a time is in flight, as in Kafka.
        sensor: what its last Produce was charged to; good while the manager's ``generation`` is
            this one's.
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
        "overdue",
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
        *,
        limited: bool,
        timed: bool,
        headroom: Headroom | None,
        epoch: int,
        gates: tuple[GateKey, ...],
        share_gates: tuple[GateKey, ...],
        overdue: tuple[tuple[str, Callable[[Place, int], int]], ...] = (),
    ) -> None:
        self.principal = principal
        self.client_id = client_id
        self.exempt = exempt
        self.limited = limited
        self.timed = timed
        self.fetches_alone = bool(share_gates)
        self.headroom = headroom
        self.epoch = epoch
        self.gates = gates
        self.share_gates = share_gates
        self.overdue = overdue
        self.sensor: RateSensor | None = None
        self.generation = -1
