"""
Byte rates: the manager of one sampled quota type, a decision for every request.

Pure and single-threaded: time is an argument, the answer is a value, the caller sleeps. ``record``
is the gateway's hot path, so its usual case (a whole number of bytes, within a sample already
open, on a clock that doesn't step back) is written out here instead of calling the sensor.

Source: kafka.server.ClientQuotaManager.
"""

from __future__ import annotations

from typing import Unpack

from headgate.quota.key import QuotaType
from headgate.throttle.java import DOUBLE_MAX
from headgate.throttle.overrides import Tags
from headgate.throttle.registry import UNCHARGED, Common, SensorRegistry, Throttle
from headgate.throttle.sensor import MOST_EXACT, SampledRate, throttle_time_ms

_new = tuple.__new__


class RateSensor(SampledRate):
    """
    A sampled rate with a bound, for one quota-id.

    Attributes:
        user_tag: raw user, or "".
        client_tag: raw client-id, or "".
        bound: the limit now.
        within: the ready-made decision for "not throttled".
        last_record_ms: time of the last record, which expiry looks at.
    """

    __slots__ = ("bound", "client_tag", "last_record_ms", "user_tag", "within")

    def __init__(
        self, tags: Tags, bound: float, now_ms: int, num_samples: int, window_ms: int
    ) -> None:
        super().__init__(num_samples, window_ms)
        self.last_record_ms = now_ms
        self.user_tag, self.client_tag = tags
        self.set_bound(bound, now_ms)

    def set_bound(self, bound: float, now_ms: int) -> None:
        """Judge by a new bound from now on; the samples stay."""
        self.bound = bound
        self.within = Throttle(0, self.user_tag, self.client_tag, bound)


class ClientQuotaManager(SensorRegistry):
    """
    The manager of a sampled quota type: produce and fetch bytes, and the base of request time.

    Args:
        type: the quota type, for metrics and journals.
        common: as for every manager.
    """

    def __init__(self, type: QuotaType, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.type = type
        self._pad_ms = (self.num_samples - 1) * self.window_ms

    def _make_sensor(self, tags: Tags, bound: float, now_ms: int) -> RateSensor:
        return RateSensor(tags, bound, now_ms, self.num_samples, self.window_ms)

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """
        Charge a request and decide how long its client waits.

        Args:
            user: the principal's name, raw.
            client_id: the client-id of the request's header, raw; "" for none.
            amount: bytes, a whole number (others work, more slowly).
            now_ms: epoch ms.

        Returns:
            The decision; :data:`UNCHARGED` while no quota of this type exists.

        Source: ClientQuotaManager.maybeRecordAndGetThrottleTimeMs.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        sensor: RateSensor | None = self._charged.get((user, client_id))
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._sensor_for(user, client_id, now_ms)
            if sensor is None:
                return UNCHARGED
        return self._charge(sensor, amount, now_ms)

    def charged(self, user: str, client_id: str) -> RateSensor | None:
        """
        Return the sensor that a request was just charged to, for ``record_again``.

        It is good until ``generation`` grows.
        """
        sensor: RateSensor | None = self._charged.get((user, client_id))
        return sensor

    def record_again(self, sensor: RateSensor, amount: float, now_ms: int) -> Throttle | None:
        """
        Do as :meth:`record` for a sensor of this ``generation``, without looking it up.

        Returns:
            The decision, or None if the sensor has been idle for too long: look it up again.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        if sensor.last_record_ms < self._idle_before_ms:
            return None
        return self._charge(sensor, amount, now_ms)

    def _charge(self, sensor: RateSensor, amount: float, now_ms: int) -> Throttle:
        """Charge a live sensor and decide."""
        sensor.last_record_ms = now_ms
        if sensor.last_ms <= now_ms < sensor.quick_until and amount % 1.0 == 0.0:
            value = sensor.value + amount
            if 0 <= value < MOST_EXACT:
                # What sensor.charge does when nothing but the current sample's sum changes.
                sensor.value = value
                sensor.last_ms = now_ms
                window = now_ms - sensor.oldest_ms
                pad = self._pad_ms
                if window < pad:
                    window = pad + window % self.window_ms
                elif not window:
                    window = 1
                rate = (sensor.others + value) / (window / 1000.0)
                if rate <= sensor.bound:
                    return sensor.within
            else:
                rate, window = sensor.charge(amount, now_ms)
        else:
            rate, window = sensor.charge(amount, now_ms)
        bound = sensor.bound
        if rate <= bound:
            return sensor.within
        ms = throttle_time_ms(rate, bound, window)
        if ms > self.max_throttle_ms:
            ms = self.max_throttle_ms
        return _new(Throttle, (ms, sensor.user_tag, sensor.client_tag, bound))

    def record_no_throttle(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """
        Charge without a check, as the network thread's time is; the next decision sees it.

        Returns:
            Always a throttle time of 0, with the tags charged; UNCHARGED while not enabled.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        sensor: RateSensor | None = self._charged.get((user, client_id))
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._sensor_for(user, client_id, now_ms)
            if sensor is None:
                return UNCHARGED
        sensor.last_record_ms = now_ms
        sensor.record(amount, now_ms)
        return sensor.within

    def unrecord(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """
        Take a charge back (a throttled fetch that was answered empty).

        Works, and creates the sensor, even while no quota exists, as Kafka's does.
        """
        self.advance(now_ms)
        sensor: RateSensor = self._sensor_of_tags(self.tags(user, client_id), now_ms)
        sensor.last_record_ms = now_ms
        sensor.record(-amount, now_ms)
        return sensor.within

    def max_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """
        Return the most a client may receive in a quota window: bound x (N - 1) windows.

        Returns:
            Units (bytes); the largest double where there is no limit. It bounds a
            fetch's size. As in Kafka, the call creates the sensor.

        Source: ClientQuotaManager.maxValueInQuotaWindow.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        sensor: RateSensor | None = self._charged.get((user, client_id))
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._sensor_for(user, client_id, now_ms)
            if sensor is None:
                return DOUBLE_MAX
        limit = self._overrides.limit((sensor.user_tag, sensor.client_tag))
        if limit is None:
            return DOUBLE_MAX
        return limit * (self.num_samples - 1) * (self.window_ms / 1000.0)

    def left_in_window(self, user: str, client_id: str, now_ms: int) -> float:
        """
        Return the units that can be charged now before the quota is reached; below 0: it is over.

        The result may be too small, but only while it is at least half of the window's units.
        As ``max_in_window``, the call creates the sensor.
        """
        sensor: RateSensor | None = self._find(user, client_id, now_ms)
        if sensor is None:
            return DOUBLE_MAX
        bound = self._overrides.bound((sensor.user_tag, sensor.client_tag))
        most = bound * self._pad_ms / 1000.0
        charged = sensor.others + sensor.value
        if sensor.exact and charged <= most / 2:
            return most - charged  # samples that have left the window may be among them
        rate, window = sensor.peek(now_ms)
        return (bound - rate) * window / 1000.0

    def measure(self, tags: Tags, now_ms: int) -> tuple[float, int] | None:
        """
        Measure a quota-id's rate as reading Kafka's metric does, emptying old samples.

        Returns:
            Rate per second and window in ms; None where there is no sensor. Metrics use
            :meth:`peek`; this is for traces that hold such readings.
        """
        self.advance(now_ms)
        sensor: RateSensor | None = self.sensor(tags)
        return None if sensor is None else sensor.charge(None, now_ms)

    def peek(self, tags: Tags, now_ms: int) -> float:
        """Return a quota-id's rate per second at now without changing anything; 0 if unknown."""
        sensor: RateSensor | None = self.sensor(tags)
        # Differs: in Kafka reading a metric empties old samples and so changes later decisions.
        return 0.0 if sensor is None else sensor.peek(now_ms)[0]
