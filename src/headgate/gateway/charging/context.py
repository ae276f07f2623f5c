"""
Who a request is charged to: one principal with one client-id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.gateway.charging.fetch_gate import GateKey
    from headgate.gateway.charging.headroom import Headroom
    from headgate.throttle.manager import RateSensor


@dataclass(slots=True, eq=False)
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

    Attributes:
        fetches_alone: a fetch may be throttled by the size of its answer, which isn't known
            before. So one at a time is in flight, as in Kafka.
        sensor: what its last Produce was charged to; good while the manager's ``generation`` is
            this one's.
    """

    principal: str
    client_id: str
    exempt: bool
    limited: bool
    timed: bool
    headroom: Headroom | None
    epoch: int
    gates: tuple[GateKey, ...]
    share_gates: tuple[GateKey, ...]
    fetches_alone: bool = field(init=False)
    sensor: RateSensor | None = None
    generation: int = -1

    def __post_init__(self) -> None:
        self.fetches_alone = bool(self.share_gates)
