"""
One broker's part in a cluster-wide quota: a bucket whose limit is the split it was assigned last.

``cluster`` computes the splits. A split is in force until the next one comes; if none comes, it
lapses, and the limit is quota / brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Unpack

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.steps import Work, finish, one_by_one
from headgate.throttle.java import LONG_MAX, UNLIMITED
from headgate.throttle.overrides import Tags
from headgate.throttle.pacing import PacedQuotaManager, PacedSensor
from headgate.throttle.registry import SENSORS_AT_ONCE, Common

PERIOD_MS: Final = 2000
"""How often splits are computed, unless told otherwise."""


class BpsQuotaManager(PacedQuotaManager):
    """
    One broker's part in cluster-wide byte quotas (unit ``bps``).

    Args:
        type: produce or fetch bytes.
        brokers: how many brokers share each quota; until a split is assigned, and when it has
            lapsed, the bound is quota / brokers.
        period_ms: the split period; one throttle is at most two of them.
        common: as for every manager.
    """

    def __init__(
        self,
        type: QuotaType,
        brokers: int,
        *,
        period_ms: int = PERIOD_MS,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(type, period_ms=period_ms, **common)
        self.brokers = brokers

    def quota(self, tags: Tags) -> float:
        """Return the cluster-wide quota of tags; 2^63 - 1 as a double where they have none."""
        return self._overrides.bound(tags)

    def fallback(self, tags: Tags) -> float:
        """Return quota / brokers: the bound while no split is in force."""
        quota = self._overrides.bound(tags)
        return quota if quota >= UNLIMITED else quota / max(self.brokers, 1)

    def split(self, tags: Tags, now_ms: int) -> float:
        """Return the bound in force at a moment: the split assigned, or quota / brokers."""
        bound, valid_until_ms = self._assigned.get(tags, (0.0, -1))
        return bound if valid_until_ms >= now_ms else self.fallback(tags)

    def set_brokers(self, brokers: int, now_ms: int) -> None:
        """Tell how many brokers share the quotas; bounds without a split in force follow."""
        finish(self.sharing_among(brokers, lambda: now_ms))

    def sharing_among(self, brokers: int, clock: Callable[[], int]) -> Work[None]:
        """Do as :meth:`set_brokers`, in steps; ``clock`` returns epoch ms and is asked at each."""
        if brokers != self.brokers:
            self.brokers, now_ms = brokers, clock()
            for count, tags in enumerate(one_by_one(self._sensors), 1):
                sensor: PacedSensor | None = self._sensors.get(tags)
                if sensor is not None and sensor.valid_until_ms == LONG_MAX:
                    sensor.set_bound(self.fallback(tags), now_ms)
                if not count % SENSORS_AT_ONCE:
                    yield
                    now_ms = clock()

    def updating(
        self, entity: QuotaEntity, value: float | None, clock: Callable[[], int]
    ) -> Work[None]:
        """Set or remove a cluster-wide quota; a split in force is scaled until the next one."""
        concerned: Collection[Tags]
        if entity.has_default:
            concerned = self._sensors | self._assigned
            before: Callable[[Tags], float] = self._overrides.copy().bound
        else:
            # The names are plain text here, so one pair of tags at most is concerned.
            exact = (str(entity.user or ""), str(entity.client_id or ""))
            concerned = (exact,) if exact in self._sensors or exact in self._assigned else ()
            before = {tags: self._overrides.bound(tags) for tags in concerned}.__getitem__
        if self._overrides.update(entity, value):
            self._forget()
        now_ms = clock()
        for count, tags in enumerate(concerned, 1):
            self._follow(tags, before(tags), now_ms)
            if not count % SENSORS_AT_ONCE:
                yield
                now_ms = clock()

    def _follow(self, tags: Tags, old: float, now_ms: int) -> None:
        """Scale the split in force of a quota-id whose quota has changed."""
        new = self._overrides.bound(tags)
        if new == old:
            return
        assigned = self._assigned.pop(tags, None)
        sensor: PacedSensor | None = self._sensors.get(tags)
        if assigned is not None and 0.0 < old < UNLIMITED and new < UNLIMITED:
            self._put(tags, assigned[0] * (new / old), now_ms, assigned[1])
        elif sensor is not None:
            sensor.valid_until_ms = LONG_MAX
            sensor.set_bound(self.fallback(tags), now_ms)
