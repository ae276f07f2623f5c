"""
What is in force in a gateway now, and the store it comes from.

And the limits that follow from it: connection limits in force for a broker are settings of the
file, changed by the store's. Precedence as for Kafka's dynamic configs: per broker, then the
cluster's default, then the file; within each a listener's own value has a key of its own. For a
listener without one ``throttle.connection`` uses the plain value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.config import LONG_MAX
from headgate.quota.key import CONNECTION, QUOTA_DEFAULTS, QuotaKey
from headgate.store.broker_rules import as_applied
from headgate.throttle.connection import (
    COUNT_CONFIG,
    PER_IP_CONFIG,
    PER_IP_OVERRIDES_CONFIG,
    RATE_CONFIG,
    host_address,
)

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.quota.table import QuotaTable
    from headgate.store.watched import QuotaStore


@dataclass(slots=True)
class InForceNow:
    """
    What is in force now.

    Args:
        settings: of the file; a reload puts others in their place.
        table: the quotas that every broker's rules follow.
        store: where quotas live; None: there is none, or the guard lets none in yet.
        coming: the quotas that the store sent last, which are being put in force; else ``table``.
        broker_configs: settings of brokers by id as text; "" is the default of all.
    """

    settings: Settings
    table: QuotaTable
    store: QuotaStore | None
    coming: QuotaTable = field(init=False)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.coming = self.table


def static_limits(settings: Settings) -> dict[str, str]:
    """Return the file's limits under Kafka's names, with a listener's prefix where given."""
    limits = {
        RATE_CONFIG: str(settings.max_connection_creation_rate),
        COUNT_CONFIG: str(settings.max_connections),
        PER_IP_CONFIG: str(settings.max_connections_per_ip),
        PER_IP_OVERRIDES_CONFIG: ",".join(
            f"{host}:{count}" for host, count in settings.max_connections_per_ip_overrides.items()
        ),
    }
    for listener in settings.listener_list:
        own = settings.for_listener(listener.name)
        prefix = f"listener.name.{listener.name.lower()}."
        if settings.limit_given(RATE_CONFIG, listener.name):
            limits[prefix + RATE_CONFIG] = str(own.max_connection_creation_rate)
        if settings.limit_given(COUNT_CONFIG, listener.name):
            limits[prefix + COUNT_CONFIG] = str(own.max_connections)
    return limits


def static_defaults(settings: Settings) -> dict[QuotaKey, float]:
    """Return the file's static defaults; none where the upstream enforces Kafka's quotas."""
    values = (settings.quota_producer_default, settings.quota_consumer_default)
    return {
        key: float(value)
        for key, value in zip(QUOTA_DEFAULTS.values(), values, strict=True)
        if value < LONG_MAX and settings.enforce != "missing"
    }


def connection_limits(
    settings: Settings, configs: Mapping[str, Mapping[str, str]], broker_id: int
) -> dict[str, str]:
    """
    Return the limits of one broker.

    Args:
        settings: the file.
        configs: the store's ``broker_configs``: "" is the cluster's default.
        broker_id: the broker's.
    """
    limits = static_limits(settings)
    limits.update(as_applied(configs.get("", {})))
    limits.update(as_applied(configs.get(str(broker_id), {})))
    return limits


def ip_rates(table: QuotaTable, address: Callable[[str], str | None]) -> dict[str | None, float]:
    """
    Return the connection rates in force by address; None is the default of all others.

    Args:
        table: where they are set.
        address: returns a host's address; None while it isn't known. A rate set for an address has
            precedence over one set for a host with that address.
    """
    named: dict[str | None, float] = {}
    plain: dict[str | None, float] = {}
    for entity, value in table.for_key(CONNECTION).items():
        ip = entity.ip
        if not isinstance(ip, str):
            plain[None] = value
            continue
        found = address(ip)
        if found is not None:
            (plain if found == host_address(ip) else named)[found] = value
    return {**named, **plain}
