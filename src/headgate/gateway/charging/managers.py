"""
The managers of one broker, by quota key: made from the settings, fed from the quota table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.charging.clients import Told, Used, used_of
from headgate.gateway.charging.gates import GateKey
from headgate.gateway.charging.lanes import LaneKey, lane_key
from headgate.gateway.charging.plans import RequestKind
from headgate.quota.entity import entity_from_path
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
    QuotaType,
)
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.java import LONG_MAX, UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4, Tags
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import ProducerIdQuotaManager
from headgate.throttle.request import RequestQuotaManager
from headgate.throttle.shares import SharesQuotaManager

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.steps import Work
    from headgate.throttle.registry import Common

_BEYOND_KAFKA: Final = frozenset(
    {PRODUCER_BPS, CONSUMER_BPS, PRODUCER_SHARES, CONSUMER_SHARES, PRODUCER_IDS}
)
"""What no Kafka broker enforces: all that ``headgate.enforce=missing`` throttles by."""

_MOST_ASKED: Final = 2.0**31
"""Bytes; no fetch asks for more."""
_SMOOTH_FETCH_S: Final = 0.5
"""A smooth consumer gets no more at once than its quota allows in this time. Less would make it pay
for more part batches: a fetch ends in one, which is charged and which clients throw away."""
_LANES: Final[Mapping[int, tuple[QuotaKey, ...]]] = {
    RequestKind.PRODUCE: (REQUEST, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS),
    RequestKind.MUTATION: (REQUEST, MUTATION),
}
"""The quotas by which a kind of request leaves debts; any other kind by its time only. Fetches have
gates only (``gates``)."""
FETCHING: Final = frozenset({CONSUMER, CONSUMER_BPS, CONSUMER_SHARES})
PRODUCING: Final = frozenset({PRODUCER_BPS, PRODUCER_SHARES})
"""What is produced under bounds that are assigned from time to time. So one throttle is capped, and
what is owed beyond that is waited for at a gate."""
_PRODUCING: Final = frozenset(key.name for key in PRODUCING)
_FETCHED: Final = frozenset(key.name for key in FETCHING)


class Managers:
    """
    Every manager of one broker.

    Args:
        settings: windows, pacing, capacities, static defaults.
        start_ms: epoch milliseconds; expiry counts from it.
    """

    def __init__(self, settings: Settings, start_ms: int) -> None:
        self._empties = settings.fetch == "kafka"
        ours: Common = {
            "num_samples": settings.quota_window_num,
            "window_ms": settings.quota_window_ms,
            "start_ms": start_ms,
        }
        # Which Kafka's rules choose a quota's level (``headgate.quota.rules``).
        rules = KAFKA_3_9 if settings.quota_rules == KAFKA_3_9.name else KAFKA_4
        kafkas: Common = {**ours, "rules": rules}
        produced, fetched = QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE
        self.produce = _byte_rate(settings, produced, settings.quota_producer_default, kafkas)
        self.fetch = _byte_rate(settings, fetched, settings.quota_consumer_default, kafkas)
        self.request = RequestQuotaManager(**kafkas)
        self.mutation = ControllerMutationQuotaManager(
            num_samples=settings.controller_quota_window_num,
            window_ms=settings.controller_quota_window_size_seconds * 1000,
            rules=rules,
            start_ms=start_ms,
        )
        self.producer_ids = ProducerIdQuotaManager(
            settings.producer_id_quota_cache_cleanup_scheduler_interval_ms,
            num_samples=settings.producer_id_quota_window_num,
            window_ms=settings.producer_id_quota_window_size_seconds * 1000,
            cache_window_ms=settings.producer_id_quota_cache_window_seconds * 1000,
            start_ms=start_ms,
        )
        period_ms = settings.splits_period_ms
        self.produce_bps = BpsQuotaManager(produced, 1, period_ms=period_ms, **ours)
        self.fetch_bps = BpsQuotaManager(fetched, 1, period_ms=period_ms, **ours)
        capacity_bps = settings.capacity_producer_byte_rate
        self.produce_shares = SharesQuotaManager(produced, capacity_bps, **ours)
        capacity_bps = settings.capacity_consumer_byte_rate
        self.fetch_shares = SharesQuotaManager(fetched, capacity_bps, **ours)
        self.by_key: Mapping[QuotaKey, Any] = {
            PRODUCER: self.produce,
            CONSUMER: self.fetch,
            PRODUCER_BPS: self.produce_bps,
            CONSUMER_BPS: self.fetch_bps,
            PRODUCER_SHARES: self.produce_shares,
            CONSUMER_SHARES: self.fetch_shares,
            REQUEST: self.request,
            MUTATION: self.mutation,
            PRODUCER_IDS: self.producer_ids,
        }
        self._by_name = {key.name: manager for key, manager in self.by_key.items()}
        for manager in self.by_key.values():
            if isinstance(manager, PacedQuotaManager):
                manager.shows_rates = True
        self.in_use: tuple[tuple[QuotaKey, Any], ...] = ()
        self.active: frozenset[QuotaKey] = frozenset()
        self.active_names: frozenset[str] = frozenset()
        self.produce_active: tuple[tuple[str, PacedQuotaManager], ...] = ()
        self.fetch_active: tuple[tuple[str, PacedQuotaManager], ...] = ()
        self.set_enforce(settings.enforce)

    def set_enforce(self, enforce: str) -> None:
        """Choose whose throttles are in force (``headgate.enforce``); all keep measuring."""
        if enforce == "all":
            self.active = frozenset(self.by_key)
        elif enforce == "missing":
            self.active = _BEYOND_KAFKA
        else:
            self.active = frozenset()
        self.active_names = frozenset(key.name for key in self.active)

    def forgive(
        self, keys: frozenset[QuotaKey], users: frozenset[str] | None, now_ms: int
    ) -> Iterator[tuple[QuotaKey, Tags]]:
        """
        Have the buckets under quota keys owe nothing: they come into force.

        Args:
            keys: whose buckets.
            users: users (raw) whose buckets; None: everybody's.
            now_ms: epoch ms.

        Yields:
            Each bucket whose bound hasn't told the journal so itself.
        """
        for key in keys:
            manager = self.by_key[key]
            found = manager.forgive(now_ms, users)
            if not isinstance(manager, PacedQuotaManager):
                yield from ((key, tags) for tags in found)

    def changed(self) -> None:
        """Note that quotas have changed: some types may be in use now, or not any more."""
        self.in_use = tuple((k, manager) for k, manager in self.by_key.items() if manager.enabled)
        self.produce_active = self._enabled(PRODUCER_BPS, PRODUCER_SHARES)
        self.fetch_active = self._enabled(CONSUMER_BPS, CONSUMER_SHARES)

    @property
    def most_sensors(self) -> int:
        """The number of sensors of the manager that has the most."""
        most: int = max(manager.num_sensors for manager in self.by_key.values())
        return most

    def _enabled(self, *keys: QuotaKey) -> tuple[tuple[str, PacedQuotaManager], ...]:
        return tuple((key.name, self.by_key[key]) for key in keys if self.by_key[key].enabled)

    @property
    def splits(self) -> bool:
        """Whether there is a cluster-wide quota to be split."""
        return self.produce_bps.enabled or self.fetch_bps.enabled

    def sharing_among(self, brokers: int, clock: Callable[[], int]) -> Work[None]:
        """Tell in steps how many brokers share cluster-wide quotas; ``clock`` returns epoch ms."""
        for manager in (self.produce_bps, self.fetch_bps):
            yield from manager.sharing_among(brokers, clock)

    def set_exempt(self, principals: frozenset[str]) -> None:
        """Name the principals who are measured, on sensors of their own, and never throttled."""
        for manager in self.by_key.values():
            manager.set_exempt(principals)

    def names(self, principal: str, client_id: str) -> bool:
        """Whether a quota of any type is set for this client-id, of the principal or of others."""
        return any(m.names_client_id(principal, client_id) for _, m in self.in_use)

    def finite(self, principal: str, client_id: str) -> dict[QuotaKey, Tags]:
        """Return the finite quotas in force for a principal and client id, with their quota-ids."""
        found: dict[QuotaKey, Tags] = {}
        for key, manager in self.by_key.items():
            if key in self.active and manager.enabled:
                tags = manager.tags(principal, client_id)
                if manager.bound(tags) < UNLIMITED:
                    found[key] = tags
        return found

    def used(self, name: str, tags: Tags, now_ms: int) -> Used:
        """Return the use of a quota-id under a quota key, by the key's name; changes nothing."""
        return used_of(self._by_name[name], tags, now_ms)

    def told(self, name: str, principal: str, client_id: str, now_ms: int) -> Told:
        """Return what a client is over by now, under a paced quota key, by the key's name."""
        manager = self._by_name[name]
        user_tag, client_tag = tags = manager.tags(principal, client_id)
        used = used_of(manager, tags, now_ms)
        return Told(name, user_tag, client_tag, now_ms, manager.bound_in_force(tags), used)

    def lanes_of(self, principal: str, client_id: str, kind: int) -> Iterator[LaneKey]:
        """Yield the lanes that a kind of request is charged to."""
        for key in _LANES.get(kind, (REQUEST,)):
            manager = self.by_key[key]
            if key in self.active and manager.enabled:
                tags = manager.tags(principal, client_id)
                if manager.bound(tags) < UNLIMITED:
                    yield lane_key(key.name, tags[0], tags[1], principal)

    def owed_ms(self, key: GateKey) -> Callable[[int], int] | None:
        """Return what says how long a bucket owes more than it may; None: it isn't a bucket."""
        manager = self._by_name[key.quota_type]
        if not isinstance(manager, PacedQuotaManager):
            return None
        tags, may_ms = (key.user_tag, key.client_tag), self.most_owed_ms(key.quota_type)
        return lambda now_ms: max(manager.owed_ms(tags, now_ms) - may_ms, 0)

    def most_owed_ms(self, name: str) -> int:
        """Return how much a quota-id may owe with its gate open, by the name of its key."""
        # Differs: by bps or shares a Produce waits while more is owed than one throttle may tell.
        # Else connections that stay would each pass a request per throttle, however much is owed.
        most_ms: int = self._by_name[name].max_throttle_ms
        if name in _FETCHED:
            return 0
        return most_ms if name in _PRODUCING else LONG_MAX  # who owes by any other leaves ends

    def gate_bound(self, key: GateKey) -> float:
        """Return the quota in force for a gate."""
        bound: float = self._by_name[key.quota_type].bound((key.user_tag, key.client_tag))
        return bound

    def fetch_limit(self, principal: str, client_id: str, now_ms: int) -> float:
        """Return the most bytes a fetch may ask for; infinite where nothing limits it."""
        manager = self.fetch
        if not manager.enabled:
            return float("inf")
        if isinstance(manager, ClientQuotaManager):
            most = manager.max_in_window(principal, client_id, now_ms)
            if self._empties or most >= _MOST_ASKED:
                return most
            # Differs: a fetch is capped to what is left of its window, or to a sample's worth;
            # Kafka caps it to the whole window.
            left = manager.left_in_window(principal, client_id, now_ms)
            return min(most, max(left, most / max(manager.num_samples - 1, 1)))
        # Differs: smooth pacing caps a fetch to half a second's worth, or to the burst.
        tags = manager.tags(principal, client_id)
        return manager.bound(tags) * min(manager.burst_of(tags), _SMOOTH_FETCH_S)


Sensors = Mapping[str, Callable[[Tags], dict[str, Any]]]
"""By released name of a quota type: how the sensor of a quota-id decides, as the journal's columns:
``rule`` and windows; ``max_throttle_ms`` where a throttle is capped."""


def sensors_of(managers: Mapping[QuotaKey, Any]) -> Sensors:
    """Return what a replay must know about managers (by key, as ``Managers.by_key``)."""
    return {key.name: partial(_sensor_of, manager) for key, manager in managers.items()}


def _sensor_of(manager: Any, tags: Tags) -> dict[str, Any]:
    if isinstance(manager, PacedQuotaManager):
        burst_ms = round(manager.burst_of(tags) * 1e3)
        windows = {"rule": "paced", "num_samples": 1, "window_ms": burst_ms}
    else:
        sampled = isinstance(manager, ClientQuotaManager)
        windows = {
            "rule": "sampled" if sampled else "bucket",
            "num_samples": manager.num_samples,
            "window_ms": manager.window_ms,
        }
    cap_ms = manager.max_throttle_ms
    return windows if cap_ms == LONG_MAX else {**windows, "max_throttle_ms": cap_ms}


def _byte_rate(
    settings: Settings, kind: QuotaType, default: int, common: Common
) -> ClientQuotaManager | PacedQuotaManager:
    """Return the manager of a broker's byte rate, by ``headgate.pacing``."""
    common = {**common, "static_default": default}
    if settings.pacing != "smooth":
        return ClientQuotaManager(kind, **common)
    return PacedQuotaManager(
        kind,
        burst_ms=max(round(settings.pacing_burst_seconds * 1000), 1),
        bursts={
            entity_from_path(path): max(round(seconds * 1000), 1) / 1000.0
            for path, seconds in settings.pacing_burst_overrides.items()
        },
        **common,
    )
