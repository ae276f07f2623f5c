"""
Read sensors and meters into plain samples: name, labels, value. Reading changes no sensor.

It is done in steps, because there may be a hundred thousand sensors. A caller may stop wherever it
gets None or a sample, and continue later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any, Final, NamedTuple

from headgate.metrics.chosen import MOST, Tags, choose
from headgate.metrics.meters import Meters
from headgate.metrics.table import prometheus_name
from headgate.quota.key import QuotaKey, QuotaType
from headgate.quota.sanitizer import sanitize
from headgate.steps import one_by_one
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
        most: quota-ids of each type, and addresses, that have series of their own.
        other_addresses: how many addresses have none, and their connections per s together.
    """

    broker_id: int
    managers: Mapping[QuotaKey, Any] = field(default_factory=dict)
    meters: Meters = field(default_factory=Meters)
    connection_rates: Mapping[tuple[str, str], tuple[float, float | None]] = field(
        default_factory=dict
    )
    info: Mapping[str, str] = field(default_factory=dict)
    most: int = MOST
    other_addresses: tuple[int, float] = (0, 0.0)


def sample_steps(view: BrokerView, clock: Callable[[], int]) -> Iterator[Sample | None]:
    """
    Yield the series of one worker in no order; None at steps that give no sample.

    Where there are more quota-ids than places, those have series that ``rank_steps`` chose last.
    """
    broker = ("broker", str(view.broker_id))
    for row in (
        row
        for part in (_quota_rows, _queue_rows, _connection_rows, _meter_rows)
        for row in part(view, clock)
    ):
        if row is None:
            yield None
        else:
            name, labels, value = row
            yield Sample(name, (broker, *labels), value)
    view.meters.drawings += 1


def rank_steps(view: BrokerView, clock: Callable[[], int]) -> Iterator[None]:
    """Choose who has series from the next drawing on, where that is due; yields at each step."""
    for quota_type, managers in _by_type(view).items():
        if _too_many(view, quota_type, managers) and view.meters.chosen[quota_type].due(clock()):
            yield from _choose(view, quota_type, managers, clock)


_Row = tuple[str, tuple[tuple[str, str], ...], float]
_Rows = Iterator[_Row | None]
_Clock = Callable[[], int]
MOST_NAME: Final = 256
"""Characters of a label's value; a client-id may have 32,767 bytes."""


def shortened(name: str) -> str:
    """
    Return a name; of a long one, its beginning and its hash.

    A shortened name is longer than any name that isn't shortened, so two names never become one.
    """
    if len(name) <= MOST_NAME:
        return name
    raw = name.encode("utf-8", "surrogatepass")
    return f"{name[:MOST_NAME]}~{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def _tags(user: str, client_id: str) -> tuple[tuple[str, str], ...]:
    """The tags that apply, user percent-encoded, client-id raw."""
    # Differs: Kafka's quota metrics always carry both tags, "" for the one that doesn't apply.
    labels = []
    if user:
        labels.append(("user", shortened(sanitize(user))))
    if client_id:
        labels.append(("client_id", shortened(client_id)))
    return tuple(labels)


def rate_of(sensor: Any, now_ms: int) -> tuple[float, int] | None:
    """Return a sensor's rate per second and its window, ms, changing nothing; None: it has none."""
    reading = sensor.peek(now_ms)
    if isinstance(reading, tuple):
        return reading
    rate = getattr(sensor, "rate", None)
    return rate.peek(now_ms) if rate is not None else None


def _rate_and_tokens(sensor: Any, now_ms: int) -> tuple[float | None, float | None]:
    """A sampled sensor's rate, or a bucket's tokens with the rate beside it."""
    reading = sensor.peek(now_ms)
    if isinstance(reading, tuple):
        return reading[0], None
    rate = getattr(sensor, "rate", None)
    return (rate.peek(now_ms)[0] if rate is not None else None), reading


def _quota_rows(view: BrokerView, clock: _Clock) -> _Rows:
    for quota_type, managers in _by_type(view).items():
        chosen = view.meters.chosen[quota_type]
        if _too_many(view, quota_type, managers):
            if chosen.next is None and not chosen.shown:  # nobody has been chosen yet
                yield from _choose(view, quota_type, managers, clock)
            if chosen.next is not None:
                _seat(view.meters, quota_type, chosen.next)
        else:
            _seat_everybody(view, quota_type, managers)
        shown = chosen.shown
        for key, manager in managers:
            for tags in shown:
                sensor = manager.sensor(tags)
                if sensor is not None:
                    yield from _sensor_rows(key, manager, sensor, clock())
            exempt = getattr(manager, "exempt", None)
            if exempt is not None and manager.enabled:
                group = GROUPS[quota_type].group
                name = prometheus_name("kafka.server", group, "exempt-request-time")
                yield name, (), exempt.peek(clock())[0]
        yield from _throttle_rows(view.meters, quota_type, shown, clock())
        yield from _rest_rows(view.meters, quota_type, shown)


_Managers = list[tuple[QuotaKey, Any]]


def _by_type(view: BrokerView) -> dict[QuotaType, _Managers]:
    by_type: dict[QuotaType, _Managers] = {t: [] for t in GROUPS}
    for key, manager in view.managers.items():
        by_type[QuotaType(key.type)].append((key, manager))
    return by_type


def _too_many(view: BrokerView, quota_type: QuotaType, managers: _Managers) -> bool:
    """Whether there may be more quota-ids of a type than have series of their own."""
    sensors = sum(manager.num_sensors for _, manager in managers)
    return bool(sensors + len(view.meters.throttled[quota_type]) > view.most)


def _seat_everybody(view: BrokerView, quota_type: QuotaType, managers: _Managers) -> None:
    """Give series to each quota-id."""
    chosen = view.meters.chosen[quota_type]
    shown = {(s.user_tag, s.client_tag) for _, manager in managers for s in manager.sensors()}
    chosen.ranked_ms, chosen.rest_rates, chosen.rest_ids = None, {}, 0
    _seat(view.meters, quota_type, frozenset(shown.union(view.meters.throttled[quota_type])))


def _choose(
    view: BrokerView, quota_type: QuotaType, managers: _Managers, clock: _Clock
) -> Iterator[None]:
    """Choose which quota-ids of a type have series from the next drawing on."""
    meters = view.meters
    chosen = meters.chosen[quota_type]
    everybody = [(key, manager, manager.sensors()) for key, manager in managers]
    throttled = meters.throttled[quota_type]
    seen: dict[Tags, tuple[bool, float, float]] = {}
    named: set[Tags] = set()
    rates: dict[str, dict[Tags, float]] = {}
    for key, manager, sensors in everybody:
        of_key = rates.setdefault(str(key.units), {})
        for sensor in sensors:
            tags = (sensor.user_tag, sensor.client_tag)
            rate = _rate_and_tokens(sensor, clock())[0] or 0.0
            bound = sensor.bound if hasattr(sensor, "bound") else UNLIMITED
            share = rate / bound if 0 < bound < UNLIMITED else 0.0
            _, most, busiest = seen.get(tags, (False, 0.0, 0.0))
            seen[tags] = (False, max(most, share), max(busiest, rate))
            yield None  # with 87,382 entries either takes 6 ms to grow
            of_key[tags] = rate
            if manager.named(tags):
                named.add(tags)
            yield None
    for tags in one_by_one(throttled):
        counts = throttled.get(tags)
        if counts is not None:
            _, most, busiest = seen.get(tags, (False, 0.0, 0.0))
            seen[tags] = (counts.ms > counts.ranked_ms, most, busiest)
            counts.ranked_ms = counts.ms
        yield None
    count = len(seen)
    shown_now = yield from choose(_candidates(seen, named), view.most, chosen.shown)
    chosen.ranked_ms = clock()
    chosen.rest_ids = count - len(shown_now)
    chosen.rest_rates = dict.fromkeys(rates, 0.0)
    for units, of_key in rates.items():
        while of_key:
            tags, rate = of_key.popitem()
            if tags not in shown_now:
                chosen.rest_rates[units] += rate
            yield None
    chosen.next = shown_now


def _candidates(
    seen: dict[Tags, tuple[bool, float, float]], named: set[Tags]
) -> Iterator[tuple[Tags, tuple[bool, float, float], bool]]:
    """Take each quota-id out of both: to free 50,000 at once takes 8 ms."""
    while seen:
        tags, score = seen.popitem()
        by_name = tags in named
        named.discard(tags)
        yield tags, score, by_name


def _seat(meters: Meters, quota_type: QuotaType, shown: frozenset[Tags]) -> None:
    """Change which quota-ids have series of their own; no count is lost or counted twice."""
    chosen, throttled = meters.chosen[quota_type], meters.throttled[quota_type]
    for tags in chosen.shown - shown:
        counts = throttled.get(tags)
        if counts is not None:
            counts.to_rest()
    for tags in shown - chosen.shown:
        counts = throttled.get(tags)
        if counts is not None and counts.drawing != meters.drawings:
            counts.to_rest()
    chosen.shown, chosen.next = shown, None


def _sensor_rows(key: QuotaKey, manager: Any, sensor: Any, now_ms: int) -> _Rows:
    names = GROUPS[QuotaType(key.type)]
    # Two units of one type may share a quota-id; Kafka's metric is that of Kafka's unit.
    kafkas = QuotaKey.parse(key.type) == key
    labels = _tags(sensor.user_tag, sensor.client_tag)
    rate, tokens = _rate_and_tokens(sensor, now_ms)
    if kafkas and rate is not None:
        yield prometheus_name("kafka.server", names.group, names.rate), labels, rate
    if kafkas and tokens is not None and names.tokens:
        yield prometheus_name("kafka.server", names.group, names.tokens), labels, tokens
    own = (("quota_type", str(key.type)), ("unit", str(key.units)), *labels)
    quota = manager.bound((sensor.user_tag, sensor.client_tag))
    if quota < UNLIMITED:
        yield "headgate_quota_value", own, quota
    if key.is_divided and sensor.bound < UNLIMITED:
        yield "headgate_quota_split", own, sensor.bound
    if tokens is not None and not names.tokens and sensor.bound < UNLIMITED:
        yield "headgate_quota_tokens", own, tokens
    if key.is_divided:
        quota = sensor.bound  # of this broker's part: the rate is this broker's
    limited = 0 < quota < UNLIMITED
    if rate is not None and limited:
        yield "headgate_quota_utilisation", own, rate / quota
    if rate is not None and kafkas and not names.tokens:
        # Kafka's proposals have no utilisation of token buckets.
        of_group = ("kafka.server", names.group)
        share = rate / quota * 100.0 if limited else nan
        yield prometheus_name(*of_group, "quota-utilization"), labels, share
        if quota < UNLIMITED:
            yield prometheus_name(*of_group, "quota-value"), labels, quota


def _throttle_rows(
    meters: Meters, quota_type: QuotaType, shown: frozenset[Tags], now_ms: int
) -> _Rows:
    name = prometheus_name("kafka.server", GROUPS[quota_type].group, "throttle-time")
    for tags in shown:
        counts = meters.throttled[quota_type].get(tags)
        if counts is None:
            yield None
            continue
        labels = _tags(*tags)
        value = meters.throttle_times[quota_type, *tags].peek(now_ms)
        if value is not None:
            yield name, labels, value
        own = (("quota_type", str(quota_type)), *labels)
        yield "headgate_throttled_total", own, counts.count - counts.rest_count
        yield "headgate_throttle_ms_total", own, counts.ms - counts.rest_ms


def _rest_rows(meters: Meters, quota_type: QuotaType, shown: frozenset[Tags]) -> _Rows:
    """Sum up those that have no series of their own."""
    chosen = meters.chosen[quota_type]
    of_type = ("quota_type", str(quota_type))
    if shown or chosen.rest_ids:
        yield "headgate_quota_ids", (of_type, ("series", "own")), len(shown)
        yield "headgate_quota_ids", (of_type, ("series", "others")), chosen.rest_ids
    for units, rate in chosen.rest_rates.items():
        yield "headgate_others_rate", (of_type, ("unit", units)), rate
    count, ms = meters.throttled_in_all.get(quota_type, (0, 0))
    for tags in shown:
        counts = meters.throttled[quota_type].get(tags)
        if counts is not None:
            count -= counts.count - counts.rest_count
            ms -= counts.ms - counts.rest_ms
    if count:
        others = (of_type, ("others", "true"))
        yield "headgate_throttled_total", others, count
        yield "headgate_throttle_ms_total", others, ms


def _queue_rows(view: BrokerView, clock: _Clock) -> _Rows:
    for quota_type, names in GROUPS.items():
        yield (
            prometheus_name("kafka.server", names.group, "queue-size"),
            (),
            view.meters.queue.get(quota_type, 0),
        )


def _connection_rows(view: BrokerView, clock: _Clock) -> _Rows:
    group = "socket-server-metrics"
    of_type = ("quota_type", str(QuotaType.CONNECTION_CREATION_RATE))
    addresses = sum(scope == "ip" for scope, _ in view.connection_rates)
    if addresses:
        others, rate = view.other_addresses
        yield "headgate_quota_ids", (of_type, ("series", "own")), addresses
        yield "headgate_quota_ids", (of_type, ("series", "others")), others
        if others:
            yield "headgate_others_rate", (of_type, ("unit", "per_s")), rate
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
        if scope == "ip" and limit is not None:
            own = (of_type, ("unit", "per_s"), ("ip", name))
            yield "headgate_quota_value", own, limit
            if limit > 0:
                yield "headgate_quota_utilisation", own, rate / limit


def _meter_rows(view: BrokerView, clock: _Clock) -> _Rows:
    now_ms = clock()
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
        if listener.blocked is not None:
            for rate, share in listener.blocked.peek(now_ms).items():
                yield blocked, (*at, ("rate", rate)), share
        for metric, mean in (
            ("connection-accept-throttle-time", listener.throttle_time),
            ("ip-connection-accept-throttle-time", listener.ip_throttle_time),
        ):
            value = mean.peek(now_ms)
            if value is not None:
                yield prometheus_name("kafka.server", group, metric), at, value
    for reason, count in list(meters.upstream_failures.items()):
        yield "headgate_upstream_failures_total", (("reason", reason),), count
    yield "headgate_quota_principals_crowded", (), meters.crowded
    yield "headgate_queued_bytes", (), meters.queued_bytes
    yield "headgate_usage_events_total", (), meters.usage_events
    yield "headgate_usage_dropped_total", (), meters.usage_dropped
    yield "headgate_usage_files_damaged_total", (), meters.usage_damaged
    yield "headgate_usage_files_removed_total", (), meters.usage_removed
    yield "headgate_fetches_held_total", (), meters.fetches_held
    yield "headgate_fetch_held_seconds_total", (), meters.fetch_held_ms / 1000.0
    yield "headgate_mutations_guessed_total", (), meters.mutations_guessed
    yield "headgate_loop_longest_ms", (), meters.loop_longest_ms
    yield "headgate_loop_slow_total", (), meters.loop_slow
    yield "headgate_broker_up", (), float(meters.broker_up)
    yield "headgate_store_up", (), float(meters.store_up)
    yield "headgate_store_version", (), meters.store_version
    yield "headgate_split_expired", (), float(meters.split_expired)
    if view.info:
        yield "headgate_info", tuple(view.info.items()), 1.0
