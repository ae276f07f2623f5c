"""
Weighted fair shares: contested capacity divided by weight, nothing left unused that is wanted.

KIP-546's unit ``shares``: a weight, not a rate. While all demands fit into the capacity, none is
limited. When they don't, every part rises in proportion to its weight until it meets its demand;
what is then left goes to the others (weighted max-min fairness).

Source: KIP-546 "Units"; Bertsekas and Gallager, "Data Networks" 6.5.2 (max-min).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from math import inf, isfinite
from typing import Final, TypeVar, Unpack

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.steps import FEW, Work, finish, sorting
from headgate.throttle.java import UNLIMITED
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Tags
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.registry import UNCHARGED, Common, Throttle

PERIOD_MS: Final = 1000
"""How often contested capacity is divided."""
K = TypeVar("K")


def fair_shares(
    capacity: float, demands: Mapping[K, float], weights: Mapping[K, float] | None = None
) -> dict[K, float]:
    """
    Divide a capacity by weighted max-min fairness.

    Args:
        capacity: units per second to divide; at least 0.
        demands: what each wants; infinity where it can't be told.
        weights: greater than 0; None, or one left out: 1.

    Returns:
        What each gets: never more than it wants, never more than the capacity in sum, and all of
        the capacity if they want that much. Doesn't depend on the order of the arguments.

    Raises:
        ValueError: a negative capacity or demand, or a weight that isn't positive.
    """
    return finish(sharing(capacity, demands, weights))


def sharing(
    capacity: float, demands: Mapping[K, float], weights: Mapping[K, float] | None = None
) -> Work[dict[K, float]]:
    """Do as :func:`fair_shares`, in steps."""
    if not capacity >= 0.0:
        raise ValueError("capacity and demands must be 0 or more")
    # Demands that are met at the lowest level (units per weight) come first. Those of one level are
    # sorted by their numbers, so that sums don't depend on the order of the arguments.
    waiting = yield from sorting(_levels(demands, weights or {}), lambda one: one[:3])
    # The weights from each demand to the last, summed from the end, so in a fixed order too.
    to_serve = list(accumulate(weight for _, _, weight, _ in reversed(waiting)))
    left, level = capacity, None
    given: dict[K, float] = {}
    for at, (level_wanted, demand, weight, k) in enumerate(waiting, 1):
        if level is None and level_wanted > left / to_serve[-at]:
            level = left / to_serve[-at]  # the others get this for each of their weight
        if level is None:
            given[k] = min(demand, left)
            left = max(left - demand, 0.0)
        else:
            given[k] = min(level * weight, demand)
        if not at % FEW:
            yield
    return given


def _levels(
    demands: Mapping[K, float], weights: Mapping[K, float]
) -> Iterator[tuple[float, float, float, K]]:
    """Yield the level (units per weight) that meets a demand, the demand, its weight, its key."""
    for k, demand in demands.items():
        weight = float(weights.get(k, 1.0))
        if not demand >= 0.0:
            raise ValueError("capacity and demands must be 0 or more")
        if not (weight > 0.0 and isfinite(weight)):
            raise ValueError("weights must be greater than 0")
        yield demand / weight, demand, weight, k


def allocate(
    capacity: float, observed: Mapping[Tags, Observation], weights: Mapping[Tags, float | None]
) -> dict[Tags, float]:
    """
    Divide one broker's capacity by weight for the next period, by the demand of the last one.

    Args:
        capacity: units per second of the broker.
        observed: the demand of each quota-id. What those without a weight used is taken from the
            capacity first, but never more than nine tenths of it.
        weights: shares by quota-id; None, or left out: it has none.

    Returns:
        Units per second of each quota-id with a weight that was seen; empty while demand fits.
    """
    return finish(allocating(capacity, observed, weights))


def allocating(
    capacity: float, observed: Mapping[Tags, Observation], weights: Mapping[Tags, float | None]
) -> Work[dict[Tags, float]]:
    """Do as :func:`allocate`, in steps."""
    shares: dict[Tags, float] = {}
    demands: dict[Tags, float] = {}
    outside = 0.0
    for count, (tags, seen) in enumerate(observed.items(), 1):
        weight = weights.get(tags)
        if weight is None:
            outside += seen.used_per_s
        else:
            shares[tags] = weight
            demands[tags] = inf if seen.throttled else seen.used_per_s
        if not count % FEW:
            yield
    room = max(capacity - outside, capacity / 10)
    # No client waits and all demands fit: no quota-id is limited.
    if sum(demands.values()) <= room:
        return {}
    # A quota-id that wants less than a tenth of its fair part gets that tenth, so it can grow.
    level = room / sum(shares.values())
    for count, (tags, weight) in enumerate(shares.items(), 1):
        demands[tags] = max(demands[tags], level * weight / 10)
        if not count % FEW:
            yield
    given: dict[Tags, float] = yield from sharing(room, demands, shares)
    return given


class SharesQuotaManager(PacedQuotaManager):
    """
    Shares of one broker's bandwidth.

    Quota-ids without shares are not limited here; what they use is taken from the capacity before
    the rest is divided, but never more than nine tenths of it.

    Args:
        type: produce or fetch bytes.
        capacity_bps: ``headgate.capacity.producer_byte_rate`` or ``.consumer_byte_rate``; None:
            shares are stored, not enforced.
        common: as for every manager.
    """

    def __init__(
        self, type: QuotaType, capacity_bps: float | None, **common: Unpack[Common]
    ) -> None:
        super().__init__(type, period_ms=PERIOD_MS, **common)
        self.capacity_bps = capacity_bps
        self.divided_until_ms = 0
        """Until when capacity is divided elsewhere (`headgate splits`, for a fleet), epoch ms."""

    @property
    def enabled(self) -> bool:
        """Whether shares are enforced: there are some, and the capacity is known."""
        return self.capacity_bps is not None and self._overrides.flags != 0

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """Charge a request; throttled only while the broker's capacity is contested."""
        if self.capacity_bps is None:
            return UNCHARGED
        return super().record(user, client_id, amount, now_ms)

    def updating(
        self, entity: QuotaEntity, value: float | None, clock: Callable[[], int]
    ) -> Work[None]:
        """Set an entity's weight; allocations follow at the next rebalance."""
        # A weight is not a bound: only the resolution changes here.
        if self._overrides.update(entity, value):
            self._forget()
        yield from ()

    def fallback(self, tags: Tags) -> float:
        """Return no limit: without an allocation nothing is contested."""
        return UNLIMITED

    def weight(self, tags: Tags) -> float | None:
        """Return the shares of a quota-id, None where it has none."""
        return self._overrides.limit(tags)

    def rebalance(self, now_ms: int) -> dict[Tags, float]:
        """
        Divide the capacity for the next period by what this one showed.

        Returns:
            The allocation of each quota-id with shares, units per second; empty while demand fits.
        """
        return finish(self.rebalancing(lambda: now_ms))

    def rebalancing(self, clock: Callable[[], int]) -> Work[dict[Tags, float]]:
        """Do as :meth:`rebalance`, in steps; ``clock`` returns epoch ms."""
        observed = yield from self.observing(clock())
        capacity = self.capacity_bps
        if capacity is None:
            return {}
        weights = {}
        for count, tags in enumerate(observed, 1):
            weights[tags] = self.weight(tags)
            if not count % FEW:
                yield
        allocation = yield from allocating(capacity, observed, weights)
        bounds = (
            (tags, allocation.get(tags, UNLIMITED))
            for tags, weight in weights.items()
            if weight is not None
        )
        yield from self.assigning(bounds, clock, clock() + 3 * PERIOD_MS)
        return allocation
