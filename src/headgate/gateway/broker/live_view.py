"""
What goes on at one broker, for ``live.picture``: read from its links and sensors, changing neither.

It is done in steps. The connections are gone through once for all questions of a moment. Sensors
are looked up one by one, or gone through for a question about everybody.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from headgate.gateway.charging.charges import TYPES
from headgate.gateway.charging.clients import Used
from headgate.live.picture import (
    MOST_ADDRESSES,
    MOST_CLIENTS,
    PAUSE_MS,
    BrokerPicture,
    ClientUse,
    ListenerUse,
    QuotaUse,
    WaitTold,
)
from headgate.metrics.samples import rate_of
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER_SHARES, QuotaKey
from headgate.throttle.java import INT_MAX, UNLIMITED
from headgate.throttle.overrides import Tags
from headgate.throttle.sensor import SampledRate

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.clients import Told
    from headgate.gateway.session.session import Session
    from headgate.steps import Work

_AT_ONCE: Final = 512
"""Clients of one quota-id that are gone through in a step, in a quarter of a millisecond."""

_Rank = tuple[bool, float, float]
Pair = tuple[str, str]
"""A principal's name and a client-id, raw."""


class QuotaId(NamedTuple):
    """A quota-id under a quota key; for connection rates the first tag is the address."""

    key: QuotaKey
    tags: Tags


class _ClientWaits(NamedTuple):
    """How many connections of a client wait by a quota-id, until when, and why the last does."""

    connections: int
    until_ms: int
    told: WaitTold | None


_NOT_HELD: Final = _ClientWaits(0, 0, None)


class _Client:
    """The connections of one principal with one client-id."""

    __slots__ = ("addresses", "connections", "held")

    def __init__(self) -> None:
        self.connections = 0
        self.addresses: Counter[str] = Counter()
        self.held: dict[QuotaId, _ClientWaits] = {}

    def waits(self, quota_id: QuotaId, until_ms: int, told: WaitTold | None) -> None:
        """Note a connection that waits by a quota-id until then, epoch ms."""
        count, latest_ms, why = self.held.get(quota_id, _NOT_HELD)
        if until_ms >= latest_ms:
            latest_ms, why = until_ms, told
        self.held[quota_id] = _ClientWaits(count + 1, latest_ms, why)

    def outlives(self, charged: set[QuotaId]) -> None:
        """Mark the waits of quota-ids that it isn't charged to any more: a wait outlasts them."""
        for quota_id in self.held.keys() - charged:
            held = self.held[quota_id]
            if held.told is not None:
                told = replace(held.told, replaced=True)
                self.held[quota_id] = held._replace(told=told)

    def use(self, pair: Pair, quota_id: QuotaId) -> ClientUse:
        """Return what a picture says about it under one quota-id."""
        held, until_ms, told = self.held.get(quota_id, _NOT_HELD)
        addresses = tuple(self.addresses.most_common(MOST_ADDRESSES))
        others = len(self.addresses) - len(addresses)
        return ClientUse(*pair, self.connections, held, until_ms, addresses, others, told)


class Connected:
    """
    The clients connected to a broker at one moment.

    Args:
        at_ms: the moment, epoch ms.

    Attributes:
        clients: by principal and client-id.
        client_ids: by principal.
        clients_by_quota_id: the clients charged to a quota-id, or connected from a limited address.
        held: quota-ids by which a client waits.
        connections, muted: by listener.
    """

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.clients: dict[Pair, _Client] = {}
        self.client_ids: dict[str, list[str]] = {}
        self.clients_by_quota_id: dict[QuotaId, list[Pair]] = {}
        self.held: set[QuotaId] = set()
        self.connections: Counter[str] = Counter()
        self.muted: Counter[str] = Counter()

    def pairs(self, user: str, client_id: str | None) -> list[Pair]:
        """
        Return a principal's clients: the connected ones, or one, connected or not.

        Args:
            user: the principal's name.
            client_id: of the one client; None: all that are connected, or client-id "" if none is.
        """
        if client_id is not None:
            return [(user, client_id)]
        return [(user, name) for name in self.client_ids.get(user, ("",))]


def connected_steps(broker: Broker, now_ms: int) -> Work[Connected]:
    """Return the clients connected to a broker now."""
    found = Connected(now_ms)
    for link in list(broker.links):
        yield
        session = link.session
        if link.closed is not None:
            continue
        found.connections[link.listener.name] += 1
        if not session.known:
            continue
        pair = (session.context.principal, session.context.client_id)
        client = found.clients.get(pair)
        if client is None:
            client = found.clients[pair] = _Client()
            found.client_ids.setdefault(pair[0], []).append(pair[1])
        client.connections += 1
        client.addresses[link.address] += 1
        wait = _wait(broker, session, now_ms)
        if wait is not None:
            client.waits(*wait)
            found.muted[link.listener.name] += 1
    for pair, client in found.clients.items():
        charged = set(_quota_ids(broker, pair, client.addresses))
        client.outlives(charged)
        for quota_id in charged | client.held.keys():
            found.clients_by_quota_id.setdefault(quota_id, []).append(pair)
        found.held.update(client.held)
        yield
    return found


def _wait(
    broker: Broker, session: Session, now_ms: int
) -> tuple[QuotaId, int, WaitTold | None] | None:
    """Return by which quota-id a connection waits, until when, and why; None: it doesn't."""
    told = session.muted_by
    if session.throttled_until_ms > now_ms and told is not None:
        whose = QuotaId(QuotaKey.parse(told.key), (told.user_tag, told.client_tag))
        return whose, session.throttled_until_ms, _told(told, "closed" if told.closed else "client")
    debts = session.debts
    if debts is not None and debts.waits_at is not None:
        lane = debts.waits_at
        whose = QuotaId(QuotaKey.parse(lane.quota_type), (lane.user_tag, lane.client_tag))
        return whose, debts.wake_ms, None
    held = [hold for hold in (session.hold, session.produce_hold) if hold and hold.waiting]
    if not held:
        return None
    # One may wait at a gate that is open, since another's turn comes first.
    rest_ms, key = max((hold.rest(now_ms) for hold in held), key=lambda rest: rest[0])
    if key is None:
        return None
    gate = broker.rules.gates.get(key)
    whose = QuotaId(QuotaKey.parse(key.quota_type), (key.user_tag, key.client_tag))
    return whose, now_ms + rest_ms, None if gate is None else _told(gate.told, "gate")


def _told(told: Told | None, told_to: Literal["client", "closed", "gate"]) -> WaitTold | None:
    if told is None:
        return None
    quota, rate, owed = told.used or Used(told.bound, None, None)
    return WaitTold(told.at_ms, _limit(told.bound), _limit(quota), rate, owed, told_to)


def _limit(bound: float) -> float | None:
    return bound if bound < UNLIMITED else None


def _quota_ids(broker: Broker, pair: Pair, addresses: Iterable[str]) -> Iterator[QuotaId]:
    """Yield what a client is charged to: its quota-ids, and the addresses that are limited."""
    for key, tags in broker.rules.contexts.quota_ids(*pair):
        yield QuotaId(key, tags)
    for address in addresses:
        if broker.quotas.ip_bound(address) < INT_MAX:
            yield QuotaId(CONNECTION, (address, ""))


def picture_steps(
    broker: Broker,
    connected: Connected,
    user: str | None,
    client_id: str | None,
    most: int,
    now_ms: int,
) -> Work[BrokerPicture]:
    """
    Return what goes on at a broker.

    Args:
        broker: the broker.
        connected: the clients connected to it.
        user: a principal's name, raw: what it and its client-ids are charged to; None: everybody.
        client_id: with a user: this client-id only, connected or not.
        most: quota-ids to name.
        now_ms: epoch ms.
    """
    if user is None:
        wanted: Iterable[QuotaId | None] = _everybody(broker, connected)
        connections = connected.connections.total()
    else:
        pairs = connected.pairs(user, client_id)
        connections = sum(connected.clients[p].connections for p in pairs if p in connected.clients)
        del pairs[most:]
        wanted = _of_pairs(broker, connected, pairs)
    rates: dict[str, float] = {}
    for address, rate in broker.quotas.ip_rates(now_ms):
        rates[address] = rate
        yield
    best: list[tuple[_Rank, int, QuotaId]] = []
    count = 0
    for quota_id in wanted:
        yield
        if quota_id is None:
            continue
        item = (_rank(broker, connected, quota_id, rates, now_ms), -count, quota_id)
        count += 1
        if len(best) < most:
            heapq.heappush(best, item)
        elif item > best[0]:
            heapq.heapreplace(best, item)
    left_out = count - len(best)
    quotas: deque[QuotaUse] = deque()
    while best:
        quota_id = heapq.heappop(best)[2]
        quotas.appendleft((yield from _use(broker, connected, quota_id, rates, user, now_ms)))
        yield
    return BrokerPicture(
        broker.broker_id,
        enforce=broker.settings.enforce,
        connections=connections,
        accept_rate=broker.quotas.broker_rate(now_ms),
        accept_limit=_finite(broker.quotas.broker.bound),
        listeners=tuple(_listeners(broker, connected, now_ms)),
        quotas=tuple(quotas),
        other_quotas=left_out,
        without_capacity=without_capacity(broker.settings),
    )


def without_capacity(settings: Settings) -> tuple[str, ...]:
    """Return the keys of shares that settings give no capacity for."""
    capacities = (
        (PRODUCER_SHARES, settings.capacity_producer_byte_rate),
        (CONSUMER_SHARES, settings.capacity_consumer_byte_rate),
    )
    return tuple(key.name for key, capacity in capacities if capacity is None)


def _rank(
    broker: Broker, connected: Connected, quota_id: QuotaId, rates: dict[str, float], now_ms: int
) -> _Rank:
    """Return a sort key: by whether a client waits, then by utilisation, then by rate."""
    key, tags = quota_id
    if key == CONNECTION:
        rate, limit = rates.get(tags[0], 0.0), float(broker.quotas.ip_bound(tags[0]))
    else:
        manager = broker.rules.managers.by_key[key]
        sensor = manager.sensor(tags)
        rate = ((sensor and rate_of(sensor, now_ms)) or (0.0, 0))[0]
        limit = sensor.bound if sensor is not None and key.is_divided else manager.bound(tags)
    full = rate / limit if 0 < limit < UNLIMITED else 0.0
    return quota_id in connected.held, full, rate


def _everybody(broker: Broker, connected: Connected) -> Iterator[QuotaId | None]:
    """Yield quota-ids with a sensor, and limited addresses in use; None for what is passed over."""
    for key, manager in broker.rules.managers.by_key.items():
        for sensor in manager.sensors():
            yield QuotaId(key, (sensor.user_tag, sensor.client_tag))
    for quota_id in connected.clients_by_quota_id:
        yield quota_id if quota_id.key == CONNECTION else None


def _of_pairs(broker: Broker, connected: Connected, pairs: Iterable[Pair]) -> Iterator[QuotaId]:
    """Yield each quota-id, or limited address, that one of these clients is charged to, once."""
    seen: set[QuotaId] = set()
    for pair in pairs:
        client = connected.clients.get(pair)
        own = _quota_ids(broker, pair, () if client is None else client.addresses)
        for quota_id in chain(own, () if client is None else client.held):
            if quota_id not in seen:
                seen.add(quota_id)
                yield quota_id


def _use(
    broker: Broker,
    connected: Connected,
    quota_id: QuotaId,
    rates: dict[str, float],
    user: str | None,
    now_ms: int,
) -> Work[QuotaUse]:
    key, tags = quota_id
    pairs = connected.clients_by_quota_id.get(quota_id, ())
    busiest: list[tuple[tuple[bool, int, int], Pair]] = []
    total = until_ms = 0
    for count, pair in enumerate(pairs, 1):
        client = connected.clients[pair]
        held, latest_ms, _ = client.held.get(quota_id, _NOT_HELD)
        total += held
        until_ms = max(until_ms, latest_ms)
        item = ((pair[0] == user, held, client.connections), pair)
        if count <= MOST_CLIENTS:
            heapq.heappush(busiest, item)
        elif item > busiest[0]:
            heapq.heapreplace(busiest, item)
        if not count % _AT_ONCE:
            yield
    named = [pair for _, pair in sorted(busiest, reverse=True)]
    clients: dict[str, Any] = {
        "held": total,
        "held_until_ms": until_ms,
        "clients": tuple(connected.clients[pair].use(pair, quota_id) for pair in named),
        "other_clients": len(pairs) - len(named),
    }
    if key == CONNECTION:
        return QuotaUse(
            key.name,
            ip=tags[0],
            quota=float(broker.quotas.ip_bound(tags[0])),
            rate=rates.get(tags[0], 0.0),
            window_ms=broker.quotas.num_samples * broker.quotas.window_ms,
            **clients,
        )
    manager = broker.rules.managers.by_key[key]
    sensor = manager.sensor(tags)
    rate, window_ms = (sensor and rate_of(sensor, now_ms)) or (0.0, 0)
    quota = manager.bound(tags)
    split = sensor.bound if sensor is not None and key.is_divided else UNLIMITED
    told = broker.meters.throttled[TYPES[key.name]].get(tags)
    return QuotaUse(
        key.name,
        *tags,
        quota=_limit(quota),
        rate=rate,
        split=_limit(split),
        held_since_ms=told.since_ms if told and now_ms - told.until_ms <= PAUSE_MS else 0,
        throttled=told.count if told else 0,
        throttled_ms=told.ms if told else 0,
        window_ms=window_ms,
        owed=None if sensor is None or isinstance(sensor, SampledRate) else _owed(sensor, now_ms),
        **clients,
    )


def _owed(bucket: Any, now_ms: int) -> float:
    return max(-float(bucket.peek(now_ms)), 0.0)


def _listeners(broker: Broker, connected: Connected, now_ms: int) -> Iterator[ListenerUse]:
    for name, listener in broker.listeners.items():
        host, port = listener.acceptor.address
        yield ListenerUse(
            name,
            f"{host}:{port}",
            connected.connections[name],
            connected.muted[name],
            broker.quotas.listener_rate(name, now_ms),
            _finite(broker.quotas.listener_limit(name)),
            listener.acceptor.accepting,
            listener.acceptor.blocked_since_ms,
        )


def _finite(bound: int) -> float | None:
    return float(bound) if bound < INT_MAX else None
