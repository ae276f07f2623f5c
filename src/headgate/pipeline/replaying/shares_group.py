"""
Replay shares: one broker's capacity, divided by weight every second among clients with demand.

A group of shares holds all of a broker's charges of one type, of clients without a weight too: what
they use is taken from the capacity first. The gateway's own manager decides, charge by charge and
in order of time, so this costs some microseconds per charge; other limits go through the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.kernel.codes import OP_NO_CHECK, OP_UNRECORD
from headgate.pipeline.replaying.events import Events
from headgate.pipeline.replaying.packed_format import GroupKind
from headgate.pipeline.replaying.sensor_group import SensorGroup
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.shares import PERIOD_MS, SharesQuotaManager

# After this many periods without a charge nothing is assigned, unless somebody still repays.
_LAPSED = 4


class _Plan:
    """
    One plan's shares on one broker.

    Args:
        quota_type: whose capacity it is.
        capacity_bps: units per second.
    """

    def __init__(self, quota_type: str, capacity_bps: float) -> None:
        self._make = (QuotaType(quota_type), capacity_bps)
        self._manager: SharesQuotaManager | None = None
        self._weights: dict[int, float] = {}
        self._next_ms = 0

    def charge(self, sensor: int, weight: float, amount: float, op: int, t_ms: int) -> int:
        """Charge one event, and return its throttle time in ms."""
        manager = self._manager
        if manager is None:
            quota_type, capacity = self._make
            manager = SharesQuotaManager(quota_type, capacity, start_ms=t_ms)
            # Shares are in force even before the first client with a weight is charged.
            manager.update_quota(QuotaEntity.of(user="a weight nobody has"), 1.0, t_ms)
            self._manager = manager
            self._next_ms = t_ms - t_ms % PERIOD_MS + PERIOD_MS
        elif t_ms >= self._next_ms:
            self._divide(manager, t_ms)
        name = str(sensor)
        if self._weights.get(sensor, np.inf) != weight:
            self._weights[sensor] = weight
            value = weight if weight < np.inf else None
            manager.update_quota(QuotaEntity.of(user=name), value, t_ms)
        if op == OP_UNRECORD:
            manager.unrecord(name, "", amount, t_ms)
            return 0
        ms = manager.record(name, "", amount, t_ms).throttle_time_ms
        return 0 if op == OP_NO_CHECK else ms

    def _divide(self, manager: SharesQuotaManager, t_ms: int) -> None:
        last = t_ms - t_ms % PERIOD_MS
        for count, at in enumerate(range(self._next_ms, last, PERIOD_MS), 1):
            if not manager.rebalance(at) and count >= _LAPSED:
                break  # nobody has anything to repay
        # The last one is looked at too: the next period's use is counted from there.
        manager.rebalance(last)
        self._next_ms = last + PERIOD_MS


class SharesGroup(SensorGroup):
    """
    All charges of one type on one broker, under plans that weigh them.

    Args:
        kind: ``quota_type`` ends ``:shares``.
        plans: how many are replayed side by side.
        capacity_bps: the broker's capacity for the type, units per second.
    """

    def __init__(self, kind: GroupKind, plans: int, capacity_bps: float) -> None:
        super().__init__(kind, plans)
        quota_type = kind.quota_type.partition(":")[0]
        self._divided = [_Plan(quota_type, capacity_bps) for _ in range(plans)]

    def throttles(self, events: Events, plan: int = 0) -> Any:
        """Return the throttle time of each event under one plan, ms."""
        divided = self._divided[plan]
        heads, head = events.heads, events.head
        ops = np.zeros(len(head), np.uint8) if events.op is None else events.op
        # All of a broker's charges have one root, and so are in order.
        rows = zip(
            heads.of_plan(plan)[head].tolist(),
            heads.bounds[head, plan].tolist(),
            events.amount.tolist(),
            ops.tolist(),
            events.t.tolist(),
            strict=True,
        )
        return np.array([divided.charge(*row) for row in rows], np.int64)

    def add_up(self, events: Events, sums: Any) -> None:
        """Add all plans' decisions up, in a ``kernel.PlanSums``, by the events' groups."""
        for plan in range(len(self._divided)):
            self._add_plan(events, sums, plan)
