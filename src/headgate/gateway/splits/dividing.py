"""
Cluster-wide quotas divided over this gateway's brokers, and contested capacity by weight.

``headgate.splits=local``: every period this process divides each ``bps`` quota by the demand it
sees. Where it fronts every broker, it divides the whole quota; else its brokers' equal part, since
other processes front the rest. Workers under a supervisor get their splits from it
(``supervised``). With ``stream`` the splits come from a topic; until one has come, and when it has
expired, quota / brokers is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from headgate.quota.key import QuotaType
from headgate.steps import FEW, Work
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers
    from headgate.throttle.overrides import Tags

PERIODS_VALID = 3
"""A split that isn't renewed for this many periods has expired."""


class LocalSplits:
    """
    Divide ``bps`` quotas over the brokers of one process.

    Args:
        period_ms: ``headgate.splits.period.ms``.
    """

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._splitters: dict[QuotaType, ClusterSplitter[int]] = {
            QuotaType.PRODUCER_BYTE_RATE: ClusterSplitter(period_ms),
            QuotaType.CONSUMER_BYTE_RATE: ClusterSplitter(period_ms),
        }

    def round(self, brokers: Mapping[int, Managers], clock: Callable[[], int]) -> Work[None]:
        """
        Look at what every broker's period showed and assign the next one's splits, in steps.

        Args:
            brokers: managers by broker.
            clock: returns epoch ms.
        """
        for kind, splitter in self._splitters.items():
            managers: dict[int, BpsQuotaManager] = {
                broker: found.produce_bps
                if kind is QuotaType.PRODUCER_BYTE_RATE
                else found.fetch_bps
                for broker, found in brokers.items()
            }
            if not any(manager.enabled for manager in managers.values()):
                continue
            now_ms = clock()
            observed = {}
            for broker, manager in managers.items():
                observed[broker] = yield from manager.observing(now_ms)
            any_manager = next(iter(managers.values()))
            part = min(len(managers) / any_manager.brokers, 1.0)
            quotas = {}
            for seen in observed.values():
                for count, tags in enumerate(seen):
                    quota = any_manager.quota(tags)
                    if quota < UNLIMITED:
                        quotas[tags] = quota * part
                    if not count % FEW:
                        yield
            splits = yield from splitter.rounding(quotas, list(managers), observed)
            valid_until = now_ms + PERIODS_VALID * self._period_ms
            for broker, manager in managers.items():
                # Left out: quotas that changed meanwhile. The change has scaled their splits.
                bounds = (
                    (tags, by_broker[broker])
                    for tags, by_broker in splits.items()
                    if manager.quota(tags) * part == quotas[tags]
                )
                yield from manager.assigning(bounds, clock, valid_until)


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
        yield tags, min(split if divided is None else split * (quota / divided), quota)
