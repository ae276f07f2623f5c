"""
Connection quotas: how fast, and how many, connections a broker's listeners take (KIP-612).

Three rates (whole broker, each listener, each address) and three counts (max.connections of the
broker and of a listener, max.connections.per.ip). The broker's and the listener's rate delay
*accepting*; an address's rate refuses the connection, which is then taken back from all rates.
One connection is three calls::

    wait_ms = quotas.reserve(listener, now_ms)         # charge broker and listener
    ... until wait_ms is over AND quotas.slot_available(listener) ...
    admission = quotas.admit(listener, address, now_ms)  # charge the address, count
    quotas.release(listener, address)                  # when it closes (also if TOO_MANY)

Source: kafka.network.ConnectionQuotas; KIP-612.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.errors import ConfigError
from headgate.throttle.java import INT_MAX
from headgate.throttle.registry import EXPIRY_MS, EXPIRY_PERIOD_MS, freeing_idle
from headgate.throttle.sensor import NEVER, SampledRate, throttle_time_ms

RATE_CONFIG: Final = "max.connection.creation.rate"
COUNT_CONFIG: Final = "max.connections"
PER_IP_CONFIG: Final = "max.connections.per.ip"
PER_IP_OVERRIDES_CONFIG: Final = "max.connections.per.ip.overrides"


@lru_cache(4_096)
def host_address(text: str) -> str:
    """
    Return an address as Java's getHostAddress spells it: IPv6 in eight groups, unabbreviated.

    Args:
        text: an IPv4 or IPv6 address; anything else (a host name) is returned as it is.

    An IPv4 address mapped into IPv6 is the IPv4 address, as in Java.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return str(address)


class Outcome(enum.Enum):
    """What becomes of a connection."""

    ACCEPTED = "accepted"
    THROTTLED = "throttled"
    """Its address is too fast: close it after the throttle time. Not counted, rates taken back."""
    TOO_MANY = "too many"
    """Its address has too many: close it at once. Counted (release it), rates stay charged."""


class Admission(NamedTuple):
    """The decision about one connection; ``throttle_time_ms`` is 0 unless it is THROTTLED."""

    outcome: Outcome
    throttle_time_ms: int


_ADMITTED: Final = Admission(Outcome.ACCEPTED, 0)


class ConnectionRate(SampledRate):
    """A sampled rate with an int bound and the time of its last record."""

    __slots__ = ("bound", "last_record_ms")

    def __init__(self, bound: int, now_ms: int, num_samples: int, window_ms: int) -> None:
        super().__init__(num_samples, window_ms)
        self.bound = bound
        self.last_record_ms = now_ms

    def throttle(self, now_ms: int, cap_ms: int) -> int:
        """Charge one connection; return the capped throttle time, 0 within the bound."""
        self.last_record_ms = now_ms
        if self.bound == INT_MAX and self.last_ms <= now_ms < self.quick_until:
            self.value += 1  # as ``record`` does; no rate is too high
            self.last_ms = now_ms
            return 0
        rate, window = self.charge(1, now_ms)
        if rate <= self.bound:
            return 0
        return max(0, min(throttle_time_ms(rate, self.bound, window), cap_ms))

    def take_back(self, now_ms: int) -> None:
        """Take one connection back, without a check."""
        self.last_record_ms = now_ms
        self.record(-1, now_ms)


class _Listener:
    __slots__ = ("count", "max_connections", "rate")

    def __init__(self, rate: ConnectionRate, max_connections: int) -> None:
        self.rate = rate
        self.max_connections = max_connections
        self.count = 0


class ConnectionQuotas:
    """
    The connection quotas of one broker. Not thread-safe.

    Args:
        listeners: listener names, as in ``listeners``.
        inter_broker_listener: the one exempt from the broker-wide limits while there are others.
        config: broker settings; see :meth:`configure`.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000; also the longest single delay.
        start_ms: when the metrics registry started; expiry ticks count from it.
        resolve: turns a host of ``max.connections.per.ip.overrides`` into an address.

    Attributes:
        observing: rates are measured, and refuse nothing (``headgate.enforce=observe``).
    """

    def __init__(
        self,
        listeners: Iterable[str],
        inter_broker_listener: str | None = None,
        config: Mapping[str, str] | None = None,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        start_ms: int = 0,
        resolve: Callable[[str], str] = host_address,
    ) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.inter_broker_listener = inter_broker_listener
        self.observing = False
        self._resolve = resolve
        self._start_ms = start_ms
        self._next_tick_ms = start_ms + EXPIRY_PERIOD_MS
        self._idle_before_ms = NEVER
        self.broker = self._rate(INT_MAX, start_ms)
        self.max_connections = INT_MAX
        self.max_per_ip = INT_MAX
        self.max_per_ip_overrides: dict[str, int] = {}
        self.total = 0
        self._config: dict[str, str] = {}
        self._listeners: dict[str, _Listener] = {}
        self._counts: dict[str, int] = {}
        self._ips: dict[str, ConnectionRate] = {}
        self._ip_rates: dict[str, int] = {}
        self._default_ip_rate = INT_MAX
        for name in listeners:
            self.add_listener(name, start_ms)
        self.configure(config or {})

    def _rate(self, bound: int, now_ms: int) -> ConnectionRate:
        return ConnectionRate(bound, now_ms, self.num_samples, self.window_ms)

    # -- settings

    def add_listener(self, name: str, now_ms: int) -> None:
        """Register a listener, limited as the settings say."""
        self._listeners[name] = _Listener(self._rate(INT_MAX, now_ms), INT_MAX)
        self._apply_to(name)

    def configure(self, config: Mapping[str, str]) -> None:
        """
        Take broker settings, at the start or changed; what was sampled stays.

        Args:
            config: ``max.connection.creation.rate``, ``max.connections``,
                ``max.connections.per.ip``, ``max.connections.per.ip.overrides``, and the first two
                under ``listener.name.<lower-case name>.``. A listener without its own value takes
                the broker's, the inter-broker listener too, as in Kafka.

        Raises:
            ConfigError: every value that isn't a whole number in range, at once; nothing changes.
        """
        problems: list[str] = []
        overrides: list[tuple[str, int]] = []
        for key, text in config.items():
            if key == PER_IP_OVERRIDES_CONFIG:
                for item in filter(None, (part.strip() for part in text.split(","))):
                    host, colon, count = item.rpartition(":")
                    if not colon or not host or not _is_count(count):
                        problems.append(f"{key}: {item!r} isn't HOST:COUNT")
                    else:
                        overrides.append((host.strip("[]"), int(count)))
            elif key.endswith((RATE_CONFIG, COUNT_CONFIG, PER_IP_CONFIG)) and not _is_count(text):
                problems.append(f"{key}: {text!r} isn't a whole number from 0 to {INT_MAX}")
        if problems:
            raise ConfigError(problems)
        self._config = dict(config)
        self.broker.bound = int(config.get(RATE_CONFIG, INT_MAX))
        self.max_connections = int(config.get(COUNT_CONFIG, INT_MAX))
        self.max_per_ip = int(config.get(PER_IP_CONFIG, INT_MAX))
        self.max_per_ip_overrides = {self._resolve(host): count for host, count in overrides}
        for name in self._listeners:
            self._apply_to(name)

    def _apply_to(self, name: str) -> None:
        prefix = f"listener.name.{name.lower()}."
        config = self._config
        listener = self._listeners[name]
        listener.rate.bound = int(
            config.get(prefix + RATE_CONFIG, config.get(RATE_CONFIG, INT_MAX))
        )
        listener.max_connections = int(
            config.get(prefix + COUNT_CONFIG, config.get(COUNT_CONFIG, INT_MAX))
        )

    def set_broker_rate(self, rate: int) -> None:
        """Change the broker-wide rate alone (connections per s); listeners keep theirs."""
        self.broker.bound = rate

    def set_listener_rate(self, listener: str, rate: int) -> None:
        """Change a listener's rate (connections per s)."""
        self._listeners[listener].rate.bound = rate

    def set_ip_rate(self, ip: str | None, rate: float | None) -> None:
        """
        Change the quota of an address.

        Args:
            ip: the address as :func:`host_address` spells it; None: the default of all others.
            rate: connections per s, truncated to an int as Kafka does; None: removed.
        """
        if ip is None:
            self._default_ip_rate = INT_MAX if rate is None else int(rate)
        elif rate is None:
            self._ip_rates.pop(ip, None)
        else:
            self._ip_rates[ip] = int(rate)
        for address in self._ips if ip is None else self._ips.keys() & {ip}:
            self._ips[address].bound = self.ip_bound(address)

    def ip_bound(self, ip: str) -> int:
        """Return an address's quota in connections per s; 2147483647: none."""
        return self._ip_rates.get(ip, self._default_ip_rate)

    # -- connections

    def is_protected(self, listener: str) -> bool:
        """Whether broker-wide limits spare this listener: the inter-broker one among several."""
        return listener == self.inter_broker_listener and len(self._listeners) > 1

    def reserve(self, listener: str, now_ms: int) -> int:
        """
        Charge the broker and the listener for a connection about to be accepted.

        Returns:
            How long to accept nothing on this listener, in ms, at most one window. Always wait
            for :meth:`slot_available` too, however long that takes.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        broker_ms = 0
        if not self.is_protected(listener):
            broker_ms = self.broker.throttle(now_ms, self.window_ms)
        known = self._listeners.get(listener)
        if known is None:
            return 0
        return max(broker_ms, known.rate.throttle(now_ms, self.window_ms))

    def slot_available(self, listener: str) -> bool:
        """Whether the counts allow one more connection on this listener."""
        known = self._listeners.get(listener)
        if known is not None and known.count >= known.max_connections:
            return False
        return self.is_protected(listener) or self.total < self.max_connections

    def max_connections_exceeded(self, listener: str) -> bool:
        """
        Whether a connection of this listener should be closed to make room.

        A connection of the protected listener is admitted beyond max.connections. Then connections
        of other listeners are closed, the least recently used first.
        """
        return self.total > self.max_connections and not self.is_protected(listener)

    def admit(self, listener: str, address: str, now_ms: int) -> Admission:
        """
        Charge the address and count the connection, once the delay is over and a slot is free.

        Args:
            listener: where it came.
            address: its peer, as :func:`host_address` spells it.
            now_ms: the time now, after the wait.
        """
        throttle_ms = self._ip_throttle(listener, address, now_ms)
        if throttle_ms > 0 and not self.observing:
            return Admission(Outcome.THROTTLED, throttle_ms)
        count = self._counts.get(address, 0)
        self._counts[address] = count + 1
        self.total += 1
        known = self._listeners.get(listener)
        if known is not None:
            known.count += 1
        if count >= self.max_per_ip_overrides.get(address, self.max_per_ip):
            return Admission(Outcome.TOO_MANY, 0)
        return Admission(Outcome.ACCEPTED, throttle_ms) if throttle_ms else _ADMITTED

    def release(self, listener: str, address: str) -> None:
        """
        Count a connection out; what the rates were charged for it isn't given back.

        Raises:
            ValueError: no connection of that address is counted.
        """
        count = self._counts.get(address)
        if count is None:
            raise ValueError(f"no connection of {address} is counted")
        if count == 1:
            del self._counts[address]
        else:
            self._counts[address] = count - 1
        self.total -= 1
        known = self._listeners.get(listener)
        if known is not None:
            known.count -= 1

    def _ip_throttle(self, listener: str, address: str, now_ms: int) -> int:
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        bound = self.ip_bound(address)
        if bound == INT_MAX:
            return 0
        state = self._ips.get(address)
        if state is None or state.last_record_ms < self._idle_before_ms:
            state = self._ips[address] = self._rate(bound, now_ms)
        throttle_ms = state.throttle(now_ms, self.window_ms)
        if throttle_ms > 0 and not self.observing:
            state.take_back(now_ms)
            if not self.is_protected(listener):
                self.broker.take_back(now_ms)
            known = self._listeners.get(listener)
            if known is not None:
                known.rate.take_back(now_ms)
        return throttle_ms

    # -- metrics

    def listener_limit(self, listener: str) -> int:
        """Return a listener's limit in connections per s; 2147483647: none."""
        return self._listeners[listener].rate.bound

    def listener_rate(self, listener: str, now_ms: int) -> float:
        """Return connections per s of a listener at now, changing nothing."""
        return self._listeners[listener].rate.peek(now_ms)[0]

    def broker_rate(self, now_ms: int) -> float:
        """Return connections per s of the broker at now, changing nothing."""
        return self.broker.peek(now_ms)[0]

    def ip_rates(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """Yield each address that has a live sensor now, and its connections per s."""
        idle_before_ms = self._idle_before_ms
        return (
            (ip, state.peek(now_ms)[0])
            for ip, state in list(self._ips.items())
            if state.last_record_ms >= idle_before_ms
        )

    def expiring(self, now_ms: int) -> Iterator[str | None]:
        """Free the sensors of addresses idle for an hour: yield each that is freed, else None."""
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        yield from freeing_idle(self._ips, lambda: self._idle_before_ms)

    def _tick(self, now_ms: int) -> None:
        last = now_ms - (now_ms - self._start_ms) % EXPIRY_PERIOD_MS
        self._next_tick_ms = last + EXPIRY_PERIOD_MS
        self._idle_before_ms = last - EXPIRY_MS


def _is_count(text: str) -> bool:
    return text.strip().isascii() and text.strip().isdigit() and int(text) <= INT_MAX
