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
from headgate.gateway.charging.limits import LIMITS, Charge, MayOwe, keys_of
from headgate.gateway.charging.plans import RequestKind
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    KEYS,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.java import LONG_MAX, UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import Tags
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import ProducerIdQuotaManager
from headgate.throttle.request import RequestQuotaManager
from headgate.throttle.shares import SharesQuotaManager

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.steps import Work

_BEYOND_KAFKA: Final = frozenset(limit.key for limit in LIMITS if not KEYS[limit.key].in_kafka)
"""What no Kafka broker enforces: all that ``headgate.enforce=missing`` throttles by."""

_MOST_ASKED: Final = 2.0**31
"""Bytes; no fetch asks for more."""
_SMOOTH_FETCH_S: Final = 0.5
"""A smooth consumer gets no more at once than its quota allows in this time. Less would make it pay
for more part batches: a fetch ends in one, which is charged and which clients throw away."""
FETCHING: Final = keys_of(MayOwe.NOTHING)
PRODUCING: Final = keys_of(MayOwe.ONE_THROTTLE)
_LANES: Final[Mapping[int, tuple[QuotaKey, ...]]] = {
    kind: tuple(limit.key for limit in LIMITS if kind in limit.kinds and limit.key not in FETCHING)
    for kind in RequestKind
}
"""The quotas by which a kind of request leaves debts."""
_MAY_OWE: Final = {limit.key.name: limit.may_owe for limit in LIMITS}


class Managers:
    """
    Every manager of one broker.

    Args:
        settings: windows, pacing, capacities, static defaults.
        start_ms: epoch milliseconds; expiry counts from it.
    """

    def __init__(self, settings: Settings, start_ms: int) -> None:
        self._empties = settings.fetch == "kafka"
        made: dict[QuotaKey, Any] = {one.key: one.make(settings, start_ms) for one in LIMITS}
        self.by_key: Mapping[QuotaKey, Any] = made
        self.produce: ClientQuotaManager | PacedQuotaManager = made[PRODUCER]
        self.fetch: ClientQuotaManager | PacedQuotaManager = made[CONSUMER]
        self.request: RequestQuotaManager = made[REQUEST]
        self.mutation: ControllerMutationQuotaManager = made[MUTATION]
        self.producer_ids: ProducerIdQuotaManager = made[PRODUCER_IDS]
        self.produce_bps: BpsQuotaManager = made[PRODUCER_BPS]
        self.fetch_bps: BpsQuotaManager = made[CONSUMER_BPS]
        self.produce_shares: SharesQuotaManager = made[PRODUCER_SHARES]
        self.fetch_shares: SharesQuotaManager = made[CONSUMER_SHARES]
        self._by_name = {key.name: manager for key, manager in self.by_key.items()}
        for manager in self.by_key.values():
            if isinstance(manager, PacedQuotaManager):
                manager.shows_rates = True
        self.in_use: tuple[tuple[QuotaKey, Any], ...] = ()
        self.active: frozenset[QuotaKey] = frozenset()
        self.active_names: frozenset[str] = frozenset()
        self.produce_active: tuple[tuple[str, Any, Charge], ...] = ()
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
        self.produce_active = tuple(
            (limit.key.name, self.by_key[limit.key], limit.charge)
            for limit in LIMITS
            if limit.charge is not None and self.by_key[limit.key].enabled
        )
        self.fetch_active = tuple(
            (key.name, manager)
            for key, manager in self.by_key.items()
            if key in FETCHING and key != CONSUMER and manager.enabled
        )

    @property
    def most_sensors(self) -> int:
        """The number of sensors of the manager that has the most."""
        most: int = max(manager.num_sensors for manager in self.by_key.values())
        return most

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
        for key in _LANES[kind]:
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
        may_owe = _MAY_OWE[name]
        if may_owe is MayOwe.NOTHING:
            return 0
        most_ms: int = self._by_name[name].max_throttle_ms
        return most_ms if may_owe is MayOwe.ONE_THROTTLE else LONG_MAX

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
