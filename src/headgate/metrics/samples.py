"""Read sensors and meters into plain samples: name, labels, value. Reading changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headgate.metrics.meters import Meters
from headgate.metrics.table import BY_NAME, prometheus_name
from headgate.quota.key import QuotaKey, QuotaType, QuotaUnit
from headgate.quota.sanitizer import sanitize
from headgate.throttle.java import UNLIMITED


class Sample(NamedTuple):
    """One value; plain, so that a worker can send it to its supervisor."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class _Names(NamedTuple):
    """Kafka's metric names of one quota type."""

    group: str
    rate: str
    tokens: str | None


GROUPS: Final[Mapping[QuotaType, _Names]] = {
    QuotaType.PRODUCER_BYTE_RATE: _Names("Produce", "byte-rate", None),
    QuotaType.CONSUMER_BYTE_RATE: _Names("Fetch", "byte-rate", None),
    QuotaType.REQUEST_PERCENTAGE: _Names("Request", "request-time", None),
    QuotaType.CONTROLLER_MUTATION_RATE: _Names("ControllerMutation", "mutation-rate", "tokens"),
    QuotaType.PRODUCER_IDS_RATE: _Names("ProducerIds", "rate", "tokens"),
}


@dataclass
class BrokerView:
    """
    What one worker shows.

    Args:
        broker_id: the upstream broker it stands for; the label ``broker`` of every series.
        managers: by quota key; anything with ``bound(tags)`` and ``sensors()`` whose sensors have
            tags, ``bound`` and ``peek(now_ms)``. Kafka's metrics come from the keys Kafka enforces;
            other units (``bps``, ``shares``) show their value, part and credit.
        meters: its counts.
        connection_rates: rates of accepting now: ("broker", "") / ("listener", name) / ("ip",
            address) -> (rate per second, limit or None).
        info: labels of ``headgate_info``.
    """

    broker_id: int
    managers: Mapping[QuotaKey, Any] = field(default_factory=dict)
    meters: Meters = field(default_factory=Meters)
    connection_rates: Mapping[tuple[str, str], tuple[float, float | None]] = field(
        default_factory=dict
    )
    info: Mapping[str, str] = field(default_factory=dict)


def read_samples(view: BrokerView, now_ms: int) -> list[Sample]:
    """
    Return every series of one worker at a moment.

    Args:
        view: the worker's.
        now_ms: epoch ms.

    Returns:
        Samples in the table's order of families; those without a value are left out.
    """
    broker = ("broker", str(view.broker_id))
    found = [
        Sample(name, (broker, *labels), value)
        for name, labels, value in (
            *_quota_samples(view, now_ms),
            *_throttle_samples(view, now_ms),
            *_connection_samples(view),
            *_meter_samples(view, now_ms),
        )
    ]
    return in_table_order(found)


def in_table_order(samples: Iterable[Sample]) -> list[Sample]:
    """Return samples, as of several workers, in the table's order of families."""
    return sorted(samples, key=lambda sample: _ORDER[sample.name])


_ORDER: Final = {name: place for place, name in enumerate(BY_NAME)}
_Row = tuple[str, tuple[tuple[str, str], ...], float]


def _tags(user: str, client_id: str) -> tuple[tuple[str, str], ...]:
    """The tags that apply, user percent-encoded, client-id raw (SEEDS 55-6)."""
    # Differs: Kafka's quota metrics always carry both tags, "" for the one that doesn't apply.
    labels = []
    if user:
        labels.append(("user", sanitize(user)))
    if client_id:
        labels.append(("client_id", client_id))
    return tuple(labels)


def _rate_and_tokens(sensor: Any, now_ms: int) -> tuple[float | None, float | None]:
    """A sampled sensor's rate, or a bucket's tokens with the rate beside it."""
    reading = sensor.peek(now_ms)
    if isinstance(reading, tuple):
        return reading[0], None
    rate = getattr(sensor, "rate", None)
    return (rate.peek(now_ms)[0] if rate is not None else None), reading


def _quota_samples(view: BrokerView, now_ms: int) -> Iterator[_Row]:
    for key, manager in view.managers.items():
        names = GROUPS[QuotaType(key.type)]
        # Two units of one type may share a quota-id; Kafka's metric is that of Kafka's unit.
        kafkas = QuotaKey.parse(key.type) == key
        for sensor in list(manager.sensors()):
            labels = _tags(sensor.user_tag, sensor.client_tag)
            rate, tokens = _rate_and_tokens(sensor, now_ms)
            if kafkas and rate is not None:
                yield prometheus_name("kafka.server", names.group, names.rate), labels, rate
            if kafkas and tokens is not None and names.tokens:
                name = prometheus_name("kafka.server", names.group, names.tokens)
                yield name, labels, tokens
            own = (("quota_type", str(key.type)), ("unit", str(key.units)), *labels)
            quota = manager.bound((sensor.user_tag, sensor.client_tag))
            if quota < UNLIMITED:
                yield "headgate_quota_value", own, quota
            if key.units in (QuotaUnit.BPS, QuotaUnit.SHARES) and sensor.bound < UNLIMITED:
                yield "headgate_quota_split", own, sensor.bound
            if tokens is not None and not names.tokens and sensor.bound < UNLIMITED:
                yield "headgate_quota_tokens", own, tokens
            if key.units in (QuotaUnit.BPS, QuotaUnit.SHARES):
                quota = sensor.bound  # of this broker's part: the rate is this broker's
            if rate is not None and 0 < quota < UNLIMITED:
                yield "headgate_quota_utilisation", own, rate / quota
        exempt = getattr(manager, "exempt", None)
        if exempt is not None and manager.enabled:
            name = prometheus_name("kafka.server", names.group, "exempt-request-time")
            yield name, (), exempt.peek(now_ms)[0]


def _throttle_samples(view: BrokerView, now_ms: int) -> Iterator[_Row]:
    meters = view.meters
    for (quota_type, user, client_id), mean in list(meters.throttle_times.items()):
        value = mean.peek(now_ms)
        if value is not None and quota_type in GROUPS:
            name = prometheus_name("kafka.server", GROUPS[quota_type].group, "throttle-time")
            yield name, _tags(user, client_id), value
    for (quota_type, user, client_id), (count, total) in list(meters.throttled.items()):
        labels = (("quota_type", str(quota_type)), *_tags(user, client_id))
        yield "headgate_throttled_total", labels, count
        yield "headgate_throttle_ms_total", labels, total
    for quota_type, names in GROUPS.items():
        yield (
            prometheus_name("kafka.server", names.group, "queue-size"),
            (),
            meters.queue.get(quota_type, 0),
        )


def _connection_samples(view: BrokerView) -> Iterator[_Row]:
    group = "socket-server-metrics"
    for (scope, name), (rate, limit) in list(view.connection_rates.items()):
        if scope == "broker":
            metric = prometheus_name("kafka.server", group, "broker-connection-accept-rate")
            yield metric, (), rate
            continue
        yield (
            prometheus_name("kafka.server", group, "connection-accept-rate"),
            ((scope, name),),
            rate,
        )
        if scope == "ip" and limit:
            own = (
                ("quota_type", str(QuotaType.CONNECTION_CREATION_RATE)),
                ("unit", "per_s"),
                ("ip", name),
            )
            yield "headgate_quota_value", own, limit
            yield "headgate_quota_utilisation", own, rate / limit


def _meter_samples(view: BrokerView, now_ms: int) -> Iterator[_Row]:
    meters = view.meters
    group = "socket-server-metrics"
    for name, listener in list(meters.listeners.items()):
        at = (("listener", name),)
        yield "headgate_connections", at, listener.connections
        yield "headgate_connections_muted", at, listener.muted
        yield "headgate_connections_accepted_total", at, listener.accepted
        yield "headgate_requests_total", at, listener.requests
        yield "headgate_bytes_total", (*at, ("direction", "in")), listener.bytes_in
        yield "headgate_bytes_total", (*at, ("direction", "out")), listener.bytes_out
        for reason, count in list(listener.closed.items()):
            yield "headgate_connections_closed_total", (*at, ("reason", reason)), count
        blocked = prometheus_name("kafka.network", "Acceptor", "AcceptorBlockedPercent")
        yield blocked, at, listener.blocked.peek(now_ms)
        for metric, mean in (
            ("connection-accept-throttle-time", listener.throttle_time),
            ("ip-connection-accept-throttle-time", listener.ip_throttle_time),
        ):
            value = mean.peek(now_ms)
            if value is not None:
                yield prometheus_name("kafka.server", group, metric), at, value
    for reason, count in list(meters.upstream_failures.items()):
        yield "headgate_upstream_failures_total", (("reason", reason),), count
    yield "headgate_queued_bytes", (), meters.queued_bytes
    yield "headgate_usage_events_total", (), meters.usage_events
    yield "headgate_usage_dropped_total", (), meters.usage_dropped
    yield "headgate_usage_files_damaged_total", (), meters.usage_damaged
    yield "headgate_usage_files_removed_total", (), meters.usage_removed
    yield "headgate_fetches_held_total", (), meters.fetches_held
    yield "headgate_fetch_held_seconds_total", (), meters.fetch_held_ms / 1000.0
    yield "headgate_mutations_guessed_total", (), meters.mutations_guessed
    yield "headgate_store_up", (), float(meters.store_up)
    yield "headgate_store_version", (), meters.store_version
    yield "headgate_split_expired", (), float(meters.split_expired)
    if view.info:
        yield "headgate_info", tuple(view.info.items()), 1.0
