"""
Controller mutations: partitions created and deleted per second, by token bucket (KIP-599).

Strict (newer API versions): the check comes first, so a mutation is accepted whole while the
bucket isn't below zero, whatever its size, and refused with THROTTLING_QUOTA_EXCEEDED and not
charged while it is. Permissive (older versions): charged always, refused never, told to wait.

Source: kafka.server.ControllerMutationQuotaManager.
"""

from __future__ import annotations

from typing import Final

from headgate.errors import ApiError, KafkaError
from headgate.quota.key import QuotaType
from headgate.throttle.java import UNLIMITED
from headgate.throttle.overrides import Tags
from headgate.throttle.registry import UNCHARGED, SensorRegistry, Throttle
from headgate.throttle.sensor import LIBRARY_WINDOWS, SampledRate
from headgate.throttle.token_bucket import BucketSensor

STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3}
"""API key (CreateTopics, DeleteTopics, CreatePartitions) to its first strict version."""


class MutationSensor(BucketSensor):
    """One quota-id's bucket, with the rate of mutations over the library's windows (2 x 30 s)."""

    __slots__ = ()

    def charge(self, amount: float, now_ms: int) -> None:
        """Spend tokens and count the mutations."""
        self.last_record_ms = now_ms
        self.rate.record(amount, now_ms)
        self.record(amount, now_ms)


class MutationQuota:
    """
    One request's quota, which lives as long as the request.

    Strict: check, then charge; it refuses while tokens are below zero. Permissive: charge, then
    check; it never refuses.

    Args:
        sensor: of the quota-id; None: nothing is charged, nothing is limited.
        strict: which of the two it is.
        observes: a strict one refuses nothing (``headgate.enforce=observe``). What would have been
            refused is not charged, so that no client owes for it when the quota comes into force;
            metrics show its rate all the same.

    Attributes:
        is_strict: it refuses, or would.
        was_charged: the last ``record`` was charged: not if it was refused, or would have been.
        decided_ms: throttle of the last ``record``, ms: 0 within the quota; None: nothing is
            charged.

    Source: kafka.server.ControllerMutationQuota.
    """

    def __init__(
        self, sensor: MutationSensor | None, *, strict: bool, observes: bool = False
    ) -> None:
        self._sensor = sensor
        self._observes = observes
        self._last_throttle_ms = 0
        self._last_ms = 0
        self.is_strict = strict and sensor is not None
        self.was_charged = True
        self.decided_ms: int | None = None if sensor is None else 0

    def record(self, permits: float, now_ms: int) -> None:
        """
        Charge mutations (partitions); a permissive quota only remembers a violation.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED (strict only); nothing was charged.
        """
        sensor = self._sensor
        if sensor is None:
            return
        if not self.is_strict:
            sensor.charge(permits, now_ms)
        violation_ms = sensor.violation_ms(now_ms)
        self.decided_ms = violation_ms or 0
        if violation_ms is not None:
            self._last_throttle_ms = violation_ms
            self._last_ms = now_ms
        if not self.is_strict:
            return
        self.was_charged = violation_ms is None
        if violation_ms is None:
            sensor.charge(permits, now_ms)
        elif self._observes:
            sensor.rate.record(permits, now_ms)
        else:
            code = KafkaError.THROTTLING_QUOTA_EXCEEDED
            raise ApiError.generic(code, throttle_time_ms=violation_ms)

    @property
    def is_exceeded(self) -> bool:
        """Whether a mutation was refused, or would have been, with a throttle time above 0."""
        return self.is_strict and self._last_throttle_ms > 0

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return how long to mute when the answer is sent at now; it shrinks while waiting."""
        return max(0, self._last_throttle_ms - (now_ms - self._last_ms))


class ControllerMutationQuotaManager(SensorRegistry):
    """The manager of controller_mutation_rate; its windows are ``controller.quota.window``'s."""

    type = QuotaType.CONTROLLER_MUTATION_RATE

    def _make_sensor(self, tags: Tags, bound: float, now_ms: int) -> MutationSensor:
        windows = self.num_samples, self.window_ms
        return MutationSensor(tags, bound, now_ms, windows, SampledRate(*LIBRARY_WINDOWS))

    def quota(
        self, user: str, client_id: str, now_ms: int, *, strict: bool, observes: bool = False
    ) -> MutationQuota:
        """Return the quota of one request; it limits nothing while no quota of the type exists."""
        return MutationQuota(self._find(user, client_id, now_ms), strict=strict, observes=observes)

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> Throttle:
        """
        Charge strictly and return the throttle: above 0 means refused and not charged.

        Source: ControllerMutationQuotaManager.recordAndGetThrottleTimeMs.
        """
        sensor: MutationSensor | None = self._find(user, client_id, now_ms)
        if sensor is None:
            return UNCHARGED
        violation_ms = sensor.violation_ms(now_ms)
        if violation_ms is None:
            sensor.charge(amount, now_ms)
        return Throttle(violation_ms or 0, sensor.user_tag, sensor.client_tag, sensor.limit)

    def measure(self, tags: Tags, now_ms: int) -> float | None:
        """Refill a quota-id's bucket, as reading Kafka's metric does, and return its tokens."""
        self.advance(now_ms)
        sensor: MutationSensor | None = self.sensor(tags)
        return None if sensor is None else sensor.measure(now_ms)

    def peek(self, tags: Tags, now_ms: int) -> float:
        """Return a quota-id's tokens at now without changing anything."""
        sensor: MutationSensor | None = self.sensor(tags)
        return UNLIMITED if sensor is None else sensor.peek(now_ms)
