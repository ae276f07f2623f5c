"""
Divide cluster-wide quotas over brokers, and contested capacity by weight.

Every period each ``bps`` quota is divided by the demand that the period showed at each broker. A
split that isn't renewed expires: quota / brokers is in force then, and until one has come. One
``Splitter`` does this wherever splits are computed: in a process for its own brokers (``local``),
and in a supervisor for its workers' (``supervised``). What was divided is put in force by
``parts_of_quotas`` in either case, and for splits from a topic.

A broker that nobody looked at in a period keeps its part, since other processes front it, or its
worker hangs: its last split until that expires, and quota / brokers after that. This amount is
reserved for it, except ``LEAST``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headgate.quota.key import QuotaType
from headgate.steps import FEW, Work
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.java import UNLIMITED
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Tags

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers

PERIODS_VALID: Final = 3
"""A split that isn't renewed for this many periods has expired."""
LEAST: Final = 0.02
"""Part of its equal part that a broker gets even when all of a quota is kept back for others."""
_TYPES: Final = (QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE)


class QuotaIdPeriod(NamedTuple):
    """What a period showed of one quota-id at one broker, and its cluster-wide quota."""

    type: str
    user: str
    client_id: str
    quota: float
    observation: Observation


class BrokerSplit(NamedTuple):
    """A broker's split of one quota-id, and the quota that was divided; units per second."""

    type: str
    user: str
    client_id: str
    split: float
    quota: float


class WorkerObservation(msgspec.Struct):
    """
    What a worker's period showed.

    Args:
        brokers: all of the cluster that it knows of.
        fronted: whether it fronts its broker now.
        seen: quota-ids with a cluster-wide quota.
    """

    brokers: list[int]
    fronted: bool
    seen: list[QuotaIdPeriod]


class Assigned(msgspec.Struct):
    """
    Splits for a worker's broker.

    Args:
        parts: by quota-id.
        valid_until_ms: epoch ms; whatever comes later than that is out of date.
    """

    parts: list[BrokerSplit]
    valid_until_ms: int


class Splitter:
    """
    The splits of brokers, round by round, on plain data.

    Args:
        period_ms: ``headgate.splits.period.ms``.
        may_hang: a broker that isn't observed may still use its last split, which is kept back.
    """

    def __init__(self, period_ms: int, *, may_hang: bool) -> None:
        self._may_hang = may_hang
        self._valid_ms = PERIODS_VALID * period_ms
        self._splitters = {kind: ClusterSplitter[int](period_ms) for kind in _TYPES}
        # Splits and their ends, epoch ms, by type, quota-id and broker: any may still be in force,
        # for a worker that hangs now may not have taken the last one.
        self._given: dict[tuple[str, Tags], dict[int, list[tuple[float, int]]]] = {}

    def round(
        self, observed: Mapping[int, WorkerObservation], now_ms: int
    ) -> Work[dict[int, Assigned]]:
        """
        Compute the splits of the next period, in steps.

        Args:
            observed: what each worker that answered saw at its broker.
            now_ms: epoch ms.

        Returns:
            Splits by broker, for the brokers that are fronted.
        """
        fronted = [broker for broker, its in observed.items() if its.fronted]
        known = {b for its in observed.values() for b in its.brokers} | set(observed)
        missing = known.difference(fronted)
        self._given = {
            key: alive
            for key, given in self._given.items()
            if (alive := {b: left for b, its in given.items() if (left := _alive(its, now_ms))})
        }
        until_ms = now_ms + self._valid_ms
        parts: dict[int, list[BrokerSplit]] = {broker: [] for broker in fronted}
        for kind, splitter in self._splitters.items():
            quotas: dict[Tags, float] = {}
            shown: dict[int, dict[Tags, Observation]] = {broker: {} for broker in fronted}
            for broker in fronted:
                for count, seen in enumerate(observed[broker].seen, 1):
                    if not count % FEW:
                        yield
                    if seen.type == kind:
                        tags = (seen.user, seen.client_id)
                        quotas[tags] = min(quotas.get(tags, seen.quota), seen.quota)
                        shown[broker][tags] = seen.observation
            budgets = {}
            for count, (tags, quota) in enumerate(quotas.items(), 1):
                budgets[tags] = self._budget(kind, tags, quota, missing, len(known))
                if not count % FEW:
                    yield
            divided = yield from splitter.rounding(budgets, fronted, shown)
            for count, (tags, splits) in enumerate(divided.items(), 1):
                for broker, split in splits.items():
                    if self._may_hang:
                        given = self._given.setdefault((kind, tags), {})
                        given.setdefault(broker, []).append((split, until_ms))
                    parts[broker].append(BrokerSplit(str(kind), *tags, split, quotas[tags]))
                if not count % FEW:
                    yield
        return {broker: Assigned(its, until_ms) for broker, its in parts.items()}

    def _budget(
        self, kind: str, tags: Tags, quota: float, missing: Collection[int], brokers: int
    ) -> float:
        """Return what is left of a quota for the brokers that are fronted here."""
        equal = quota / brokers
        given = self._given.get((kind, tags), {})
        kept = fsum(
            max([equal, *(split for split, _ in given.get(broker, ()))]) for broker in missing
        )
        return max(quota - kept, LEAST * equal * (brokers - len(missing)))


def _alive(given: list[tuple[float, int]], now_ms: int) -> list[tuple[float, int]]:
    return [one for one in given if one[1] > now_ms]


def _bps(managers: Managers) -> Iterator[tuple[QuotaType, BpsQuotaManager]]:
    yield _TYPES[0], managers.produce_bps
    yield _TYPES[1], managers.fetch_bps


def observe_steps(managers: Managers, now_ms: int) -> Work[list[QuotaIdPeriod]]:
    """Return, in steps, what the period since the last look showed at a broker."""
    seen: list[QuotaIdPeriod] = []
    for kind, manager in _bps(managers):
        if not manager.enabled:
            continue
        observed = yield from manager.observing(now_ms)
        for count, (tags, observation) in enumerate(observed.items(), 1):
            quota = manager.quota(tags)
            if quota < UNLIMITED:
                seen.append(QuotaIdPeriod(str(kind), *tags, quota, observation))
            if not count % FEW:
                yield
    return seen


def assign_steps(managers: Managers, its: Assigned, clock: Callable[[], int]) -> Work[None]:
    """Put a broker's splits in force, in steps; ``clock`` returns epoch ms."""
    for kind, manager in _bps(managers):
        told = (
            ((part.user, part.client_id), part.split, part.quota)
            for part in its.parts
            if part.type == kind
        )
        yield from manager.assigning(parts_of_quotas(told, manager), clock, its.valid_until_ms)


class LocalSplits:
    """
    Divide ``bps`` quotas over the brokers of one process.

    Args:
        period_ms: ``headgate.splits.period.ms``.
    """

    def __init__(self, period_ms: int) -> None:
        # A broker that isn't here any more is closed here, and uses none of its last split.
        self._splitter = Splitter(period_ms, may_hang=False)

    def round(
        self, brokers: Mapping[int, Managers], cluster: Collection[int], clock: Callable[[], int]
    ) -> Work[None]:
        """
        Look at what every broker's period showed and assign the next one's splits, in steps.

        Args:
            brokers: managers by broker.
            cluster: all brokers; those that aren't here keep their equal parts.
            clock: returns epoch ms.
        """
        now_ms = clock()
        observed = {}
        for broker, managers in brokers.items():
            seen = yield from observe_steps(managers, now_ms)
            observed[broker] = WorkerObservation(list(cluster), True, seen)
        for broker, its in (yield from self._splitter.round(observed, now_ms)).items():
            yield from assign_steps(brokers[broker], its, clock)


def share_out(managers: Managers, clock: Callable[[], int]) -> Work[None]:
    """
    Divide a broker's contested capacity by weight, unless a fleet's division is in force.

    Args:
        managers: of the broker.
        clock: returns epoch ms.
    """
    for shares in (managers.produce_shares, managers.fetch_shares):
        if shares.enabled and shares.divided_until_ms < clock():
            yield from shares.rebalancing(clock)


def parts_of_quotas(
    splits: Iterable[tuple[Tags, float, float | None]], manager: BpsQuotaManager
) -> Iterator[tuple[Tags, float]]:
    """
    Yield splits, scaled to the quotas in force at each step.

    Quotas may have changed since they were divided, or not be in force here yet.

    Args:
        splits: quota-ids, units per second, and the quota that was divided; None if it isn't given.
        manager: knows the quotas.
    """
    for tags, split, divided in splits:
        quota = manager.quota(tags)
        if quota >= UNLIMITED:
            continue  # none is in force here: not yet, or not any more
        changed = quota / divided if divided else 1.0  # a quota of 0 may come from a store
        yield tags, min(split * changed, quota)
