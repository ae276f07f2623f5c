"""
Token buckets for byte rates: smooth pacing, and limits that others assign from time to time.

Kafka's sampled window lets ten seconds' worth through at once and then a trickle. A bucket that
holds ``burst_ms`` of the quota lets through the quota itself, all the time; what a request takes
beyond it is owed, and the next waits until it is repaid. So over any time T a quota-id gets at most
bound x (T + burst), plus the requests in flight when the bucket ran dry.

Differs from Kafka, which has no such manager. It serves ``headgate.pacing=smooth``, and the splits
and shares (``cluster``, ``shares``). The limits of these move, and a sampled sensor doesn't suit
that: it can't take back a long throttle that it told, and it judges the past by the newest limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Unpack

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.steps import Work, finish
from headgate.throttle.java import LONG_MAX, UNLIMITED
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Overrides, Tags
from headgate.throttle.registry import (
    SENSORS_AT_ONCE,
    UNCHARGED,
    Common,
    SensorRegistry,
    Throttle,
)
from headgate.throttle.sensor import SampledRate
from headgate.throttle.token_bucket import token_throttle_time_ms

BURST_MS: Final = 1000
"""How much of its quota a bucket holds, unless told otherwise: one second's."""
SET_BACK_MS: Final = 1000
"""A clock that is behind a bucket's last charge by more than this was set back."""
_FOREVER: Final = float("inf")
_new = tuple.__new__

Moved = Callable[[Tags, float, int], None]
"""Takes a quota-id, its new bound and now, epoch ms."""


@dataclass(slots=True, eq=False)
class PacedSensor:
    """
    One quota-id's bucket.

    Attributes:
        user_tag: raw user, or "".
        client_tag: raw client-id, or "".
        bound: units per second now.
        tokens: credit at last_ms; below zero is owed.
        used: units charged since :meth:`take`.
        requests: charges since then.
        throttled: whether one of them was told to wait.
        waited_ms: for how long the bucket was overdrawn.
        valid_until_ms: when an assigned bound lapses.
        moved: called at every change of the bound, with now; a replay must know the moment.
        rate: units per second over a sampled window, for metrics; never checked.
    """

    user_tag: str
    client_tag: str
    bound: float
    last_ms: int
    burst_s: float
    moved: Moved | None
    rate: SampledRate | None
    valid_until_ms: int
    last_record_ms: int = field(init=False)
    tokens: float = field(init=False)
    burst: float = field(init=False)
    within: Throttle = field(init=False)
    credit: float = field(init=False)
    seen_ms: int = field(init=False)
    used: float = 0.0
    requests: int = 0
    throttled: bool = False
    waited_ms: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.burst = self.credit = self.bound * self.burst_s
        self.last_record_ms = self.seen_ms = self.last_ms
        self.within = Throttle(0, self.user_tag, self.client_tag, self.bound)

    def peek(self, now_ms: int) -> float:
        """Return the tokens at now and change nothing."""
        elapsed = now_ms - self.last_ms
        tokens = self.tokens + self.bound * (elapsed / 1000.0) if elapsed > 0 else self.tokens
        return tokens if tokens < self.burst else self.burst

    def set_bound(self, bound: float, now_ms: int) -> None:
        """Pay out at the old bound up to now, then go on at the new one with its burst."""
        if bound == self.bound:
            return
        self.refill(now_ms)
        self.bound = bound
        self.burst = bound * self.burst_s
        if self.tokens > self.burst:
            self.tokens = self.burst
        if bound >= UNLIMITED:
            self.tokens = self.burst  # without a limit nothing is owed, from this moment on
        if self.credit > self.burst:
            self.credit = self.burst
        self.within = Throttle(0, self.user_tag, self.client_tag, bound)
        if self.moved is not None:
            self.moved((self.user_tag, self.client_tag), bound, now_ms)

    def forgive(self, now_ms: int) -> None:
        """Owe nothing, as if there had been no limit until now; a replay is told so too."""
        bound = self.bound
        self.set_bound(UNLIMITED, now_ms)
        self.set_bound(bound, now_ms)

    def follow(self, now_ms: int) -> None:
        """Go on from now if the clock was set back; else it would stand still until then."""
        if self.last_ms - now_ms > SET_BACK_MS:
            self.last_ms = now_ms
            if self.moved is not None:  # a replay must know the moment of this too
                self.moved((self.user_tag, self.client_tag), self.bound, now_ms)

    def refill(self, now_ms: int) -> None:
        """Add the credit since the last refill, and note for how long the bucket was overdrawn."""
        self.follow(now_ms)
        if now_ms > self.last_ms:
            self._wait(now_ms)
            self.tokens = self.peek(now_ms)
            self.last_ms = now_ms

    def _wait(self, now_ms: int) -> None:
        """Note for how long of the time not yet seen the bucket was overdrawn."""
        if self.tokens < 0.0:
            owed_ms = -self.tokens / self.bound * 1000.0 if self.bound else _FOREVER
            since = self.last_ms if self.last_ms > self.seen_ms else self.seen_ms
            until = min(self.last_ms + owed_ms, now_ms)
            if until > since:
                self.waited_ms += until - since

    def take(self, seconds: float, now_ms: int) -> Observation:
        """
        Return what the ``seconds`` since the last call showed, and begin the next period.

        The bucket itself isn't touched: observing it never changes a decision.
        """
        self._wait(now_ms)
        self.seen_ms = now_ms
        tokens = self.peek(now_ms)
        waited = self.waited_ms / (seconds * 1000.0)
        seen = Observation(
            max(self.used, 0.0) / seconds,
            self.throttled or tokens < 0.0,
            min(waited, 1.0),
            self.requests,
            max(self.credit, 0.0),
            tokens < 0.1 * self.burst,
        )
        self.credit = tokens
        self.used = 0.0
        self.requests = 0
        self.throttled = False
        self.waited_ms = 0.0
        return seen


class PacedQuotaManager(SensorRegistry):
    """
    A byte quota kept by token buckets; used like :class:`ClientQuotaManager`.

    A bucket's bound is the quota itself. Or it is assigned, period by period, from what the buckets
    observed: where the quota is a cluster-wide rate (``bps``), of which this broker gets a split,
    or a weight (``shares``).

    Args:
        type: the quota type.
        burst_ms: credit a bucket holds, as time at its quota; at least 1.
        bursts: seconds for single entities, instead of ``burst_ms``.
        period_ms: how often bounds are assigned; None: never. One throttle is at most two periods:
            by then the bound has been replaced.
        common: as for every manager. Nothing is judged by its windows.
    """

    def __init__(
        self,
        type: QuotaType,
        *,
        burst_ms: int = BURST_MS,
        period_ms: int | None = None,
        bursts: Mapping[QuotaEntity, float] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if burst_ms < 1:
            raise ValueError(f"a bucket must hold 1 ms of its quota at least, not {burst_ms}")
        super().__init__(**common)
        self.type = type
        self.moved: Moved | None = None
        """Called at every change of a live bucket's bound; set it before the first charge."""
        self.shows_rates = False
        """Whether buckets measure a sampled rate too, for metrics."""
        self.burst_s = burst_ms / 1000.0
        self._bursts = Overrides()
        for entity, seconds in (bursts or {}).items():
            self._bursts.update(entity, seconds)
        self.period_ms = period_ms
        if period_ms is not None:
            self.max_throttle_ms = 2 * period_ms
        self._assigned: dict[Tags, tuple[float, int]] = {}
        self._observed_ms: int | None = None

    def _make_sensor(self, tags: Tags, bound: float, now_ms: int) -> PacedSensor:
        bound, valid_until_ms = self._assigned.get(tags, (bound, -1))
        if valid_until_ms < now_ms:
            bound, valid_until_ms = self.fallback(tags), LONG_MAX
        rate = SampledRate(self.num_samples, self.window_ms) if self.shows_rates else None
        burst_s = self.burst_of(tags)
        return PacedSensor(*tags, bound, now_ms, burst_s, self.moved, rate, valid_until_ms)

    def burst_of(self, tags: Tags) -> float:
        """Return how much of its quota a quota-id's bucket holds, seconds."""
        seconds = self._bursts.bound(tags)
        return seconds if seconds < UNLIMITED else self.burst_s

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """
        Charge a request and decide how long its client waits.

        Args:
            user: the principal's name, raw.
            client_id: raw; "" for none.
            amount: bytes.
            now_ms: epoch ms. A clock that is set back finds the bucket as it was, and goes on.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        sensor: PacedSensor | None = self._charged.get((user, client_id))
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._sensor_for(user, client_id, now_ms)
            if sensor is None:
                return UNCHARGED
        if now_ms > sensor.valid_until_ms:
            self._lapse(sensor, now_ms)
        sensor.last_record_ms = now_ms
        sensor.used += amount
        sensor.requests += 1
        if sensor.rate is not None:
            sensor.rate.record(amount, now_ms)
        elapsed = now_ms - sensor.last_ms
        tokens = sensor.tokens
        if tokens < 0.0 or elapsed < 0:
            sensor.refill(now_ms)
            tokens = sensor.tokens
        elif elapsed > 0:
            tokens += sensor.bound * (elapsed / 1000.0)
            sensor.last_ms = now_ms
            if tokens > sensor.burst:
                tokens = sensor.burst
        tokens -= amount
        sensor.tokens = tokens
        if tokens >= 0.0:
            return sensor.within
        ms = token_throttle_time_ms(tokens, sensor.bound)
        if ms <= 0:
            return sensor.within
        sensor.throttled = True
        if ms > self.max_throttle_ms:
            ms = self.max_throttle_ms
        return _new(Throttle, (ms, sensor.user_tag, sensor.client_tag, sensor.bound))

    def unrecord(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """Take a charge back; credit never exceeds the burst."""
        self.advance(now_ms)
        if not self._overrides.flags:
            return UNCHARGED
        sensor: PacedSensor = self._sensor_of_tags(self.tags(user, client_id), now_ms)
        sensor.follow(now_ms)
        sensor.last_record_ms = now_ms
        sensor.used -= amount
        if sensor.rate is not None:
            sensor.rate.record(-amount, now_ms)
        sensor.tokens = min(sensor.tokens + amount, sensor.burst)
        return sensor.within

    def owed_ms(self, tags: Tags, now_ms: int) -> int:
        """Return how long it takes until what a quota-id owes is repaid, uncapped; 0: nothing."""
        sensor: PacedSensor | None = self.sensor(tags)
        if sensor is None:
            return 0
        if now_ms > sensor.valid_until_ms:  # those that wait for this charge nothing meanwhile
            self._lapse(sensor, now_ms)
        sensor.follow(now_ms)
        tokens = sensor.peek(now_ms)
        return max(token_throttle_time_ms(tokens, sensor.bound), 0) if tokens < 0.0 else 0

    def _lapse(self, sensor: PacedSensor, now_ms: int) -> None:
        """Go back from an assigned bound that lapsed to the quota itself."""
        sensor.valid_until_ms = LONG_MAX
        sensor.set_bound(self.fallback((sensor.user_tag, sensor.client_tag)), now_ms)

    def bound_in_force(self, tags: Tags) -> float:
        """Return what is assigned to tags, or else what they fall back to."""
        sensor: PacedSensor | None = self.sensor(tags)
        return self.fallback(tags) if sensor is None else sensor.bound

    def fallback(self, tags: Tags) -> float:
        """Return the bound of tags to which nothing is assigned."""
        return self._overrides.bound(tags)

    # -- bounds that are assigned

    def assign(self, bounds: Mapping[Tags, float], now_ms: int, valid_until_ms: int) -> None:
        """
        Take new bounds for quota-ids; others keep theirs until they lapse.

        Args:
            bounds: units per second by tags.
            now_ms: from when.
            valid_until_ms: when they lapse, back to :meth:`fallback`.
        """
        finish(self.assigning(bounds.items(), lambda: now_ms, valid_until_ms))

    def assigning(
        self, bounds: Iterable[tuple[Tags, float]], clock: Callable[[], int], valid_until_ms: int
    ) -> Work[None]:
        """Do as :meth:`assign`, in steps; ``clock`` returns epoch ms and is asked at each."""
        now_ms = clock()
        # Bounds that no request is charged to are dropped once they lapse.
        self._assigned = {t: a for t, a in self._assigned.items() if a[1] >= now_ms}
        for count, (tags, bound) in enumerate(bounds, 1):
            self._put(tags, bound, now_ms, valid_until_ms)
            if not count % SENSORS_AT_ONCE:
                yield
                now_ms = clock()

    def _put(self, tags: Tags, bound: float, now_ms: int, valid_until_ms: int) -> None:
        self._assigned[tags] = (bound, valid_until_ms)
        sensor: PacedSensor | None = self._sensors.get(tags)
        if sensor is not None:
            sensor.valid_until_ms = valid_until_ms
            sensor.set_bound(bound, now_ms)

    def observe(self, now_ms: int) -> dict[Tags, Observation]:
        """Return what the period since the last call showed, by tags, and begin the next."""
        return finish(self.observing(now_ms))

    def observing(self, now_ms: int) -> Work[dict[Tags, Observation]]:
        """Do as :meth:`observe`, in steps; a charge meanwhile may count for either period."""
        since = now_ms - (self.period_ms or 0) if self._observed_ms is None else self._observed_ms
        seconds = max(now_ms - since, 1) / 1000.0
        self._observed_ms = now_ms
        observed = {}
        for count, sensor in enumerate(self.sensors(), 1):
            observed[sensor.user_tag, sensor.client_tag] = sensor.take(seconds, now_ms)
            if not count % SENSORS_AT_ONCE:
                yield
        return observed
