"""
Bring the bundles of a group of sensors back into order, and feed them to the kernels.

A group of shares (one broker's capacity, divided by weight every second among clients with demand)
holds all of a broker's charges of one type, of clients without a weight too: what they use is taken
from the capacity first. The gateway's own manager decides, charge by charge and in order of time,
so this costs some microseconds per charge; other limits go through the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from headgate.kernel.codes import OP_NO_CHECK, OP_UNRECORD
from headgate.pipeline.replaying.packed_format import (
    BOTH,
    BUCKETS,
    LAYERS,
    USER,
    Events,
    GroupKind,
    Numbers,
)
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.shares import PERIOD_MS, SharesQuotaManager

# Overlapping bundles are put in order once more events than this wait in them.
ORDER_EVENTS: Final = 1_000_000
# The states of more heads than this don't fit into a core's cache.
MANY_HEADS: Final = 500
Rank = tuple[int, int]
"""When a piece's events begin, and a number for its file."""


class SensorGroup:
    """
    The sensors whose bundles have the same key, and those of their events that wait for later ones.

    Args:
        kind: tells which kernel, with what windows, and whether throttles are capped.
        plans: how many plans are replayed side by side.

    Attributes:
        numbers: of its sensors.
    """

    def __init__(self, kind: GroupKind, plans: int) -> None:
        from headgate.kernel.bucket import BucketState, replay_bucket
        from headgate.kernel.paced import PacedState, replay_paced
        from headgate.kernel.plans import replay_plans
        from headgate.kernel.rate import RateState, replay_rate

        self.kind = kind
        self._plans = plans
        self._replay_plans = replay_plans
        windows = {
            "num_samples": kind.num_samples,
            "window_ms": kind.window_ms,
            "start_ms": kind.start_ms or 0,
        }
        self._cap = kind.max_throttle_ms
        if self._cap is None and kind.quota_type == "request_percentage":
            # Kafka caps the request quota's throttle at one window (ClientRequestQuotaManager).
            self._cap = kind.window_ms
        rule = kind.rule or ("bucket" if kind.quota_type in BUCKETS else "sampled")
        kernels: dict[str, Any] = {
            "sampled": (RateState, replay_rate),
            "bucket": (BucketState, replay_bucket),
            "paced": (PacedState, replay_paced),
        }
        make, self._replay = kernels[rule]
        self._rate = RateState(0, **windows)
        self._buckets = [] if rule == "sampled" else [make(0, **windows) for _ in range(plans)]
        self.numbers = Numbers()
        self._codes = 0  # states in use
        # By sensor: which plans charge it; its first state; its states by plan once these differ.
        self._there = np.zeros((0, plans), np.bool_)
        self._code_of = np.zeros(0, np.int64)
        self._seen = np.zeros(0, np.bool_)
        self._parted: dict[int, list[int]] = {}
        self._waiting: list[tuple[Rank, Events]] = []
        self._last = 0
        self._room = ORDER_EVENTS

    def feed(self, events: Events, first: int, last: int, rank: Rank) -> list[Events]:
        """
        Take a bundle; return what no later one can overtake, in order.

        Args:
            events: of the bundle.
            first: order of its first event; later bundles begin no earlier.
            last: order of its last event.
            rank: of its piece. Of events at the same moment, those of the lower rank come first,
                however pieces are divided into bundles. Of bundles with the same ``first``, the one
                of the lower rank is fed first.
        """
        ready: list[Events] = []
        ends = (first, rank) if self._waiting else None
        if ends and ends >= (self._last, max(r for r, _ in self._waiting)):
            ready = self.rest()
        elif sum(len(e) for _, e in self._waiting) > self._room:
            done = [
                (r, e, e.pos <= first if r <= rank else e.pos < first) for r, e in self._waiting
            ]
            ready = _merged([(r, e.take(now)) for r, e, now in done])
            self._waiting = [(r, e.take(~now)) for r, e, now in done if not now.all()]
            self._room = max(ORDER_EVENTS, 2 * sum(len(e) for _, e in self._waiting))
        self._last = last if not self._waiting else max(self._last, last)
        self._waiting.append((rank, events))
        return ready

    def rest(self) -> list[Events]:
        """Return what still waits: nothing comes after it."""
        waiting, self._waiting = self._waiting, []
        return _merged(waiting)

    def throttles(self, events: Events, plan: int = 0) -> Any:
        """Return each event's throttle time under a plan, ms; needs buckets, or only one plan."""
        heads = events.heads
        key, bound = heads.of_plan(plan)[events.head], heads.bounds[events.head, plan]
        state = self._buckets[plan] if self._buckets else self._rate
        state.grow(len(self.numbers))
        return self._replay(
            state,
            key,
            events.t,
            events.amount,
            op=events.op,
            bound=bound,
            cap_ms=self._cap,
        )

    def add_up(self, events: Events, sums: Any) -> None:
        """Add all plans' decisions up, in a ``kernel.PlanSums``, by the events' groups."""
        if self._buckets:
            for plan in range(self._plans):
                self._add_plan(events, sums, plan)
            return
        heads = events.heads
        self._number_codes()
        many = len(heads) > MANY_HEADS and bool((heads.root == heads.root[0]).all())
        by_user: Events | None = None
        # A layer's events are in order of time for each of its sensors: the layers one by one.
        for layer in range(LAYERS):
            there = heads.layer == layer
            if not there.any():
                continue
            ordered = events
            if many and layer in (USER, BOTH):
                ordered = by_user = by_user or events.by_user()
            for key, bounds, plans in self._passes(heads.sensor[:, layer], there, heads.bounds):
                self._replay_plans(
                    self._rate,
                    sums,
                    ordered.head,
                    ordered.t,
                    ordered.amount,
                    key=key,
                    group=heads.group,
                    bounds=bounds,
                    plans=plans,
                    op=ordered.op,
                    cap_ms=self._cap,
                )

    def _add_plan(self, events: Events, sums: Any, plan: int) -> None:
        """Add one plan's decisions up."""
        there = events.heads.of_plan(plan)[events.head] >= 0
        mine = events if there.all() else events.take(there)
        if len(mine):
            group = mine.heads.group[mine.head]
            sums.add(plan, group, self.throttles(mine, plan), mine.amount)

    def _number_codes(self) -> None:
        """Give all sensors states of their own."""
        have = len(self._code_of)
        new = len(self.numbers) - have
        if new:
            self._code_of = np.append(self._code_of, np.arange(self._codes, self._codes + new))
            self._codes += new
            self._there = np.append(self._there, np.zeros((new, self._plans), np.bool_), axis=0)
            self._seen = np.append(self._seen, np.zeros(new, np.bool_))

    def _passes(self, sensor: Any, there: Any, bounds: Any) -> Iterator[tuple[Any, Any, list[int]]]:
        """
        Yield one layer's passes of the kernel: states by head, limits by head and plan, the plans.

        While the same plans charge all of a sensor's clients to it, its samples are the same under
        these plans, and they share one state. Once that ends, each plan has a state of its own.

        Args:
            sensor: by head, the sensor's number.
            there: by head and plan, whether the plan charges it.
            bounds: by head and plan, the limit.
        """
        mine = there.any(axis=1)
        plans = np.flatnonzero(there.any(axis=0)).tolist()
        whole = bool(there[:, plans].all())
        bounds = bounds if whole else np.where(there, bounds, np.nan)
        unseen = np.flatnonzero(mine & ~self._seen[sensor])
        self._there[sensor[unseen]] = there[unseen]
        self._seen[sensor[unseen]] = True
        differ = mine & (self._there[sensor] != there).any(axis=1)
        for number in np.unique(sensor[differ]).tolist():
            if number not in self._parted:
                self._part(number)
        self._rate.grow(self._codes)
        keys = np.where(mine, self._code_of[sensor], -1)
        parted = mine & np.isin(sensor, list(self._parted)) if self._parted else ~mine & mine
        yield np.where(parted, -1, keys), bounds, plans
        if not parted.any():
            return
        for plan in plans:
            own = np.full(len(keys), -1, np.int64)
            for head in np.flatnonzero(parted & there[:, plan]).tolist():
                own[head] = self._parted[int(sensor[head])][plan]
            if (own >= 0).any():
                yield own, bounds, [plan]

    def _part(self, sensor: int) -> None:
        """Give each plan its own state of a sensor: a copy, if the plan has charged the sensor."""
        codes = list(range(self._codes, self._codes + self._plans))
        self._codes += self._plans
        self._rate.grow(self._codes)
        for plan, code in enumerate(codes):
            if self._there[sensor, plan]:
                self._rate.copy_key(int(self._code_of[sensor]), code)
        self._parted[sensor] = codes


def _merged(waiting: list[tuple[Rank, Events]]) -> list[Events]:
    """Return bundles' events as one, in order; nothing where there are none."""
    parts = [e for _, e in sorted(waiting, key=lambda part: part[0]) if len(e)]
    return [Events.join(parts)] if parts else []


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
