"""
A cluster-wide quota (``bps``) split over brokers by the demand each of them sees.

Once per period every broker reports what each quota-id used and how long it was made to wait. A
broker that throttled no client has shown its demand. A broker whose clients waited most of the
period might want any amount, because its split hides the rest of the demand; such a demand counts
as unbounded. Max-min fairness divides the quota among these demands. A part that no broker asked
for is spread over all, so that each can grow. So

- splits never add up to more than the quota, and every broker gets something;
- a step in demand is followed within three rounds: the first sees clients wait, the second gives an
  equal part, and the third lowers that to the demand that the second has shown;
- noise is averaged away: a demand that was fully visible is a mean over eight rounds; the mean
  starts again when the demand moves by more than the number of requests in a period can explain.

Splits are enforced by token buckets (:class:`BpsQuotaManager`). The messages that carry splits take
time, so for that moment brokers on old and on new splits may together exceed the quota.

Source: KIP-546 "Units" (bps across all brokers); docs/explanation/cluster-quotas.md.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from math import fsum, inf, sqrt
from typing import Final, Generic, TypeVar

from headgate.steps import Work, finish
from headgate.throttle.bps import PERIOD_MS
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Tags
from headgate.throttle.pacing import BURST_MS
from headgate.throttle.shares import fair_shares

FLOOR: Final = 0.02
"""Part of the quota dealt out equally, whatever was seen: nobody with demand starves."""
MARGIN: Final = 0.02
"""Room above a demand that was seen whole, so that noise doesn't make it wait at once."""
SELDOM: Final = 0.1
"""A bucket overdrawn for less than this part of a period has shown all of its demand."""
ALWAYS: Final = 0.95
"""A bucket overdrawn for at least this part of a period has hidden its demand."""
BACKLOG: Final = 0.6
"""Part of a demand that is added when clients begin to wait: in the next round they also send what
they had to hold back."""
GROWTH: Final = (1.25, 2.0)
"""What a hidden demand may claim as a multiple of what it got, in its first and second period in
a row; from the third on it counts as unbounded. What is left over goes to hidden ones anyway."""
HIGHEST: Final = 16.0
"""A demand that was seen in part is taken for at most this many times what the broker got."""
MEMORY: Final = 8
"""Rounds a demand seen whole is averaged over."""

B = TypeVar("B", bound=Hashable)


def split_demands(
    quota: float, demands: Mapping[B, float], hungry: Collection[B] = ()
) -> dict[B, float]:
    """
    Split a cluster-wide quota by demands.

    Args:
        quota: units per second of all brokers together.
        demands: what each live broker wants, units per second; infinity where it can't be told.
        hungry: brokers that may want more than their demand says: what is left goes to them.

    Returns:
        Units per second by broker: more than 0 each, together the quota and never more.
    """
    count = len(demands)
    if not count:
        return {}
    floor = FLOOR * quota / count
    given = fair_shares(
        quota - floor * count, {b: max(demand - floor, 0.0) for b, demand in demands.items()}
    )
    asked = fsum(given.values())
    spare = max(quota - floor * count - asked, 0.0)
    # What nobody asked for goes to the hungry. Without them, half of it is divided equally, for
    # demand that is new, and half in proportion to what was given.
    eaten = fsum(given[b] for b in given if b in hungry)
    by_demand = (spare if eaten else spare / 2.0 if asked else 0.0) / (eaten or asked or 1.0)
    equally = (0.0 if eaten else spare / 2.0 if asked else spare) / count
    splits = {
        b: floor + equally + got * (1.0 + (by_demand if b in hungry or not eaten else 0.0))
        for b, got in given.items()
    }
    while (over := fsum(splits.values()) - quota) > 0.0:  # rounding
        largest = max(splits, key=lambda b: splits[b])
        splits[largest] -= max(over, splits[largest] * 2**-52)
    return splits


class DemandEstimate:
    """
    What one broker wants of one quota-id, as far as its periods have shown.

    Args:
        period_s: seconds of a period.

    Attributes:
        mean: demand seen whole, units per second.
        rounds: periods it is the mean of, at most MEMORY.
        hidden: periods in a row that hid it.
    """

    __slots__ = ("hidden", "mean", "period_s", "rounds")

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.mean = 0.0
        self.rounds = 0
        self.hidden = 0

    def update(self, seen: Observation, split: float) -> float:
        """
        Take in a period.

        Args:
            seen: what it showed.
            split: the split it was under, units per second.

        Returns:
            The demand to plan with, units per second; infinity where it can't be told.
        """
        used = seen.used_per_s
        if seen.waited >= ALWAYS:
            if used < split / 2.0:
                # All clients were muted while an earlier, large request is repaid: nothing shown.
                return max(self.mean, split)
            self.rounds = 0  # whatever was known, it isn't so now
            self.mean = used
            self.hidden += 1
            return used * GROWTH[self.hidden - 1] if self.hidden <= len(GROWTH) else inf
        after_waiting = self.hidden > 0 or not self.rounds
        self.hidden = 0
        if seen.waited >= SELDOM and seen.overdrawn:
            # The bucket ran dry after a part 1 - w of the period. Until then clients got all that
            # they wanted: the split, and what the bucket held at first.
            held = split * BURST_MS / 1000.0 if seen.credit is None else seen.credit
            likely = split + held / ((1.0 - seen.waited) * self.period_s)
            self.mean, self.rounds = max(min(likely, HIGHEST * used), used), 0
            return self.mean * (1.0 if after_waiting else 1.0 + BACKLOG)
        # If n requests of used / n each come at random, their number varies by its root.
        noise = sqrt(max(used, self.mean) * used / max(seen.requests, 1))
        if self.rounds and abs(used - self.mean) <= 2.0 * noise:
            self.rounds = min(self.rounds + 1, MEMORY)
            self.mean += (used - self.mean) / self.rounds
        else:
            self.mean = used
            self.rounds = 1
        return self.mean * (1.0 + MARGIN) + noise / self.rounds**2


class ClusterSplitter(Generic[B]):
    """
    The splits of many quota-ids over the brokers of a cluster, round by round. Picklable.

    Its memory is three numbers per quota-id and broker with traffic; when the traffic ends,
    they are dropped.

    Args:
        period_ms: the split period.
    """

    def __init__(self, period_ms: int = PERIOD_MS) -> None:
        self._period_s = period_ms / 1000.0
        self._estimates: dict[tuple[Tags, B], DemandEstimate] = {}
        self._splits: dict[Tags, dict[B, float]] = {}

    def round(
        self,
        quotas: Mapping[Tags, float],
        brokers: Collection[B],
        observed: Mapping[B, Mapping[Tags, Observation]],
    ) -> dict[Tags, dict[B, float]]:
        """
        Compute the splits of the next period.

        Args:
            quotas: cluster-wide units per second, by quota-id.
            brokers: those alive; others are forgotten.
            observed: what each showed in the period that ends; a quota-id left out had no traffic.

        Returns:
            For every quota-id of ``quotas``: units per second by broker.
        """
        return finish(self.rounding(quotas, brokers, observed))

    def rounding(
        self,
        quotas: Mapping[Tags, float],
        brokers: Collection[B],
        observed: Mapping[B, Mapping[Tags, Observation]],
    ) -> Work[dict[Tags, dict[B, float]]]:
        """Do as :meth:`round`, in steps."""
        alive = set(brokers)
        self._splits = {tags: s for tags, s in self._splits.items() if tags in quotas}
        self._estimates = {
            (tags, broker): e
            for (tags, broker), e in self._estimates.items()
            if tags in quotas and broker in alive
        }
        for tags, quota in quotas.items():
            before = self._splits.get(tags, {})
            equal = quota / max(len(alive), 1)
            demands: dict[B, float] = {}
            for broker in brokers:
                seen = observed.get(broker, {}).get(tags)
                if seen is None and before and broker not in before:
                    demands[broker] = equal  # new here: it starts with its equal part
                    continue
                demands[broker] = self._demand(
                    tags, broker, seen or NOTHING, before.get(broker, equal)
                )
            hungry = {b for b in demands if self._is_hidden(tags, b)}
            self._splits[tags] = split_demands(quota, demands, hungry)
            yield
        return self._splits

    def _is_hidden(self, tags: Tags, broker: B) -> bool:
        estimate = self._estimates.get((tags, broker))
        return estimate is not None and estimate.hidden > 0

    def _demand(self, tags: Tags, broker: B, seen: Observation, split: float) -> float:
        estimate = self._estimates.get((tags, broker))
        if estimate is None:
            if not seen.used_per_s and not seen.throttled:
                return 0.0
            estimate = DemandEstimate(self._period_s)
            self._estimates[tags, broker] = estimate
        demand = estimate.update(seen, split)
        if estimate.mean == 0.0 and demand == 0.0:
            del self._estimates[tags, broker]
        return demand


NOTHING: Final = Observation(0.0, throttled=False)
"""What a period without traffic shows."""
