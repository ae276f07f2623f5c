"""
What a broker's clients are charged under: a row for each quota key.

A new quota key is a row here and one in ``quota.key.KEYS``. What is particular to it is in its row:
which requests are charged, how much of each, what its manager is made of, and how much a quota-id
may owe before others of it wait (``gates``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import ProducerIdQuotaManager
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import RequestQuotaManager
from headgate.throttle.shares import SharesQuotaManager

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.throttle.registry import Common

Charge: TypeAlias = Callable[
    [Any, str, str, int, frozenset[int] | None, int], tuple[Throttle, float]
]
"""Charges a Produce to a manager: it takes the principal, the client-id, bytes, producer ids and
now, and returns the decision and what was charged."""


class MayOwe(enum.Enum):
    """How much a quota-id may owe with its gate open."""

    NOTHING = enum.auto()
    """Each charge over the quota closes the gate. Nothing is left behind by who hangs up."""
    ONE_THROTTLE = enum.auto()
    """What is owed beyond the longest throttle is waited for at the gate."""
    ANYTHING = enum.auto()
    """There is no gate: each connection waits for what it was told or took over (``lanes``)."""


class Limit(NamedTuple):
    """
    How requests are limited by quotas of one key.

    Attributes:
        key: the quota key.
        kinds: requests that are charged.
        may_owe: how much a quota-id may owe before others wait.
        make: makes a broker's manager; it takes the settings and now, epoch ms.
        charge: of a Produce; None: its bytes are charged by themselves, time and topics are charged
            with other requests too, and fetches by their answers.
    """

    key: QuotaKey
    kinds: frozenset[RequestKind]
    may_owe: MayOwe
    make: Callable[[Settings, int], Any]
    charge: Charge | None = None


def _bytes(
    manager: PacedQuotaManager,
    user: str,
    client_id: str,
    size: int,
    producer_ids: frozenset[int] | None,
    now_ms: int,
) -> tuple[Throttle, float]:
    return manager.record(user, client_id, size, now_ms), size


def _new_producer_ids(
    manager: ProducerIdQuotaManager,
    user: str,
    client_id: str,
    size: int,
    producer_ids: frozenset[int] | None,
    now_ms: int,
) -> tuple[Throttle, float]:
    if not producer_ids:
        return UNCHARGED, 0.0
    return manager.record(user, producer_ids, now_ms), manager.last_new


def _ours(settings: Settings, start_ms: int) -> Common:
    return {
        "num_samples": settings.quota_window_num,
        "window_ms": settings.quota_window_ms,
        "start_ms": start_ms,
    }


def _kafkas(settings: Settings, start_ms: int) -> Common:
    """Return what Kafka's managers have besides: whose rules choose a quota's level."""
    rules = KAFKA_3_9 if settings.quota_rules == KAFKA_3_9.name else KAFKA_4
    return {**_ours(settings, start_ms), "rules": rules}


def _produce(settings: Settings, start_ms: int) -> ClientQuotaManager | PacedQuotaManager:
    default = settings.quota_producer_default
    return _byte_rate(settings, QuotaType.PRODUCER_BYTE_RATE, default, start_ms)


def _fetch(settings: Settings, start_ms: int) -> ClientQuotaManager | PacedQuotaManager:
    default = settings.quota_consumer_default
    return _byte_rate(settings, QuotaType.CONSUMER_BYTE_RATE, default, start_ms)


def _byte_rate(
    settings: Settings, kind: QuotaType, default: int, start_ms: int
) -> ClientQuotaManager | PacedQuotaManager:
    """Return the manager of a broker's byte rate, by ``headgate.pacing``."""
    common: Common = {**_kafkas(settings, start_ms), "static_default": default}
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


def _produce_bps(settings: Settings, start_ms: int) -> BpsQuotaManager:
    common, period_ms = _ours(settings, start_ms), settings.splits_period_ms
    return BpsQuotaManager(QuotaType.PRODUCER_BYTE_RATE, 1, period_ms=period_ms, **common)


def _fetch_bps(settings: Settings, start_ms: int) -> BpsQuotaManager:
    common, period_ms = _ours(settings, start_ms), settings.splits_period_ms
    return BpsQuotaManager(QuotaType.CONSUMER_BYTE_RATE, 1, period_ms=period_ms, **common)


def _produce_shares(settings: Settings, start_ms: int) -> SharesQuotaManager:
    capacity_bps = settings.capacity_producer_byte_rate
    common = _ours(settings, start_ms)
    return SharesQuotaManager(QuotaType.PRODUCER_BYTE_RATE, capacity_bps, **common)


def _fetch_shares(settings: Settings, start_ms: int) -> SharesQuotaManager:
    capacity_bps = settings.capacity_consumer_byte_rate
    common = _ours(settings, start_ms)
    return SharesQuotaManager(QuotaType.CONSUMER_BYTE_RATE, capacity_bps, **common)


def _request_time(settings: Settings, start_ms: int) -> RequestQuotaManager:
    return RequestQuotaManager(**_kafkas(settings, start_ms))


def _mutations(settings: Settings, start_ms: int) -> ControllerMutationQuotaManager:
    return ControllerMutationQuotaManager(
        num_samples=settings.controller_quota_window_num,
        window_ms=settings.controller_quota_window_size_seconds * 1000,
        rules=_kafkas(settings, start_ms)["rules"],
        start_ms=start_ms,
    )


def _producer_ids(settings: Settings, start_ms: int) -> ProducerIdQuotaManager:
    return ProducerIdQuotaManager(
        settings.producer_id_quota_cache_cleanup_scheduler_interval_ms,
        num_samples=settings.producer_id_quota_window_num,
        window_ms=settings.producer_id_quota_window_size_seconds * 1000,
        cache_window_ms=settings.producer_id_quota_cache_window_seconds * 1000,
        start_ms=start_ms,
    )


_PRODUCE: Final = frozenset({RequestKind.PRODUCE})
_FETCH: Final = frozenset({RequestKind.FETCH, RequestKind.SHARE_FETCH})
_MUTATE: Final = frozenset({RequestKind.MUTATION})
_ALL: Final = frozenset(RequestKind)

LIMITS: Final = (
    Limit(PRODUCER, _PRODUCE, MayOwe.ANYTHING, _produce),
    Limit(CONSUMER, _FETCH, MayOwe.NOTHING, _fetch),
    Limit(PRODUCER_BPS, _PRODUCE, MayOwe.ONE_THROTTLE, _produce_bps, _bytes),
    Limit(CONSUMER_BPS, _FETCH, MayOwe.NOTHING, _fetch_bps),
    Limit(PRODUCER_SHARES, _PRODUCE, MayOwe.ONE_THROTTLE, _produce_shares, _bytes),
    Limit(CONSUMER_SHARES, _FETCH, MayOwe.NOTHING, _fetch_shares),
    Limit(REQUEST, _ALL, MayOwe.ANYTHING, _request_time),
    Limit(MUTATION, _MUTATE, MayOwe.ANYTHING, _mutations),
    Limit(PRODUCER_IDS, _PRODUCE, MayOwe.ANYTHING, _producer_ids, _new_producer_ids),
)
"""All limits of requests. Of throttles that are equally long the earlier row's is told, and that of
request time before any other. Connections have limits of their own (``cluster.quotas``)."""


def keys_of(may_owe: MayOwe) -> frozenset[QuotaKey]:
    """Return the quota keys under which a quota-id may owe this much."""
    return frozenset(limit.key for limit in LIMITS if limit.may_owe is may_owe)
