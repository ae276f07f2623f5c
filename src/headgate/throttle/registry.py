"""
What every manager has: quotas, a sensor per quota-id, which sensor a request is charged to, expiry.

Kafka's task removes sensors every 30 s that had no record for more than an hour. Here each call
first notes which of these ticks have passed, and a sensor found idle before the last of them is
made again, so answers don't depend on when :meth:`SensorRegistry.expire` frees the memory.

Source: SensorAccess and Metrics.ExpireSensorTask in Apache Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypedDict, TypeVar

from headgate.quota.entity import QuotaEntity
from headgate.steps import Work, finish, one_by_one
from headgate.throttle.java import LONG_MAX, UNLIMITED
from headgate.throttle.overrides import KAFKA_4, Overrides, Rules, Tags
from headgate.throttle.sensor import NEVER

EXPIRY_MS = 3_600_000
"""Idle time after which Kafka removes a client's sensors (SensorAccess: 3600 s). Not Final, since
the soak test makes it shorter, to see several generations of sensors in an hour."""
EXPIRY_PERIOD_MS: Final = 30_000
"""How often Kafka looks for them (Metrics: 30 s)."""
SENSORS_AT_ONCE: Final = 16
"""Live sensors that get a new bound in one step. Buckets take longest: the journal notes theirs."""
_FREED_AT_ONCE: Final = 64
"""Pairs of names that are freed whenever one is remembered."""
_MOST_NAMED: Final = 1 << 24
"""Characters of their names: a client-id may have 32,767 bytes."""
_MOST_REMEMBERED: Final = 1 << 17
"""Most pairs (user, client-id) remembered: one quota-id may have any number of client-ids."""

K = TypeVar("K")


class Throttle(NamedTuple):
    """
    A manager's decision.

    Attributes:
        throttle_time_ms: how long to mute, unwrapped (Kafka casts it to 32 bits, the wire clamps);
            0 or less: not throttled.
        user_tag: the user of the quota-id charged, raw; "" where it isn't part of it.
        client_tag: its client-id; "" where it isn't part of it.
        bound: the limit in force; 2^63 - 1 as a double means none.
    """

    throttle_time_ms: int
    user_tag: str
    client_tag: str
    bound: float


UNCHARGED: Final = Throttle(0, "", "", UNLIMITED)
"""The decision while no quota of the type exists: nothing was recorded. Compare with ``is``."""


def freeing_idle(sensors: dict[K, Any], idle_before_ms: Callable[[], int]) -> Iterator[K | None]:
    """
    Free idle sensors one by one: yield the key of each that is freed, else None.

    Args:
        sensors: by any key.
        idle_before_ms: returns the time before which an idle one was charged last, epoch ms.
    """
    for key in one_by_one(sensors):  # not its items: new pairs wake the garbage collector
        sensor = sensors.get(key)
        if sensor is not None and sensor.last_record_ms < idle_before_ms():
            del sensors[key]
            yield key
        else:
            yield None


class Common(TypedDict, total=False):
    """
    What every manager may be given.

    Args:
        num_samples: of a quota's window: ``quota.window.num``, or the type's own setting.
        window_ms: of one of them: ``quota.window.size.seconds`` x 1000, likewise.
        rules: :data:`KAFKA_4` (default) or :data:`KAFKA_3_9`.
        static_default: see :class:`Overrides`.
        start_ms: when Kafka's metrics registry would have started; expiry ticks count from it.
    """

    num_samples: int
    window_ms: int
    rules: Rules
    static_default: float | None
    start_ms: int


class SensorRegistry(ABC):
    """
    Quotas and sensors of one manager. Not thread-safe.

    A subclass says what a sensor is (``_make_sensor``); all have ``user_tag``, ``client_tag``,
    ``last_record_ms``, ``set_bound(bound, now_ms)`` and ``peek(now_ms)``, which returns rate and
    window, or tokens; those with tokens have a ``burst``.

    Args: as :class:`Common` says.

    Attributes:
        max_throttle_ms: the most that one throttle lasts; 2^63 - 1: there is no cap.
        generation: grows when requests may be charged to other sensors than before.
    """

    max_throttle_ms: int = LONG_MAX

    def __init__(
        self,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        rules: Rules = KAFKA_4,
        static_default: float | None = None,
        start_ms: int = 0,
    ) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self._overrides = Overrides(rules, static_default)
        self._exempt: frozenset[str] = frozenset()
        self._sensors: dict[Tags, Any] = {}
        self._charged: dict[Tags, Any] = {}  # (user, client-id) of a request -> its sensor
        self._forgotten: dict[Tags, Any] = {}  # what that was; freeing all of it at once takes long
        self._named = 0  # characters of the names remembered
        self.generation = 0
        self._start_ms = start_ms
        self._next_tick_ms = start_ms + EXPIRY_PERIOD_MS
        self._idle_before_ms = NEVER

    @abstractmethod
    def _make_sensor(self, tags: Tags, bound: float, now_ms: int) -> Any:
        """Make the sensor of a quota-id that is charged for the first time."""

    # -- quotas

    @property
    def flags(self) -> int:
        """Kafka's quotaTypesEnabled: 1 client-id, 2 user, 4 user and client-id."""
        return self._overrides.flags

    @property
    def enabled(self) -> bool:
        """Whether requests are charged at all: a quota of the type exists (or once did, 3.9)."""
        return self._overrides.flags != 0

    def update_quota(self, entity: QuotaEntity, value: float | None, now_ms: int) -> None:
        """
        Set an entity's quota, or remove it with None; samples and tokens are kept.

        Args:
            entity: users, client-ids or both; others are ignored.
            value: the quota in the type's own unit.
            now_ms: the time of the change.
        """
        finish(self.updating(entity, value, lambda: now_ms))

    def updating(
        self, entity: QuotaEntity, value: float | None, clock: Callable[[], int]
    ) -> Work[None]:
        """
        Do as :meth:`update_quota`, in steps: each sensor judges by its old bound or by its new one.

        Args:
            entity: users, client-ids or both; others are ignored.
            value: the quota in the type's own unit; None removes it.
            clock: returns epoch ms; asked again after each step.
        """
        now_ms = clock()
        self.advance(now_ms)
        if self._overrides.update(entity, value):
            self._forget()
        bound = self._overrides.bound
        if entity.has_default:
            for count, tags in enumerate(one_by_one(self._sensors), 1):
                sensor = self._sensors.get(tags)
                if sensor is not None:
                    sensor.set_bound(bound(tags), now_ms)
                if not count % SENSORS_AT_ONCE:
                    yield
                    now_ms = clock()
        else:
            # The names are plain text here, so one pair of tags at most is concerned.
            exact = (str(entity.user or ""), str(entity.client_id or ""))
            found = self._sensors.get(exact)
            if found is not None:
                found.set_bound(bound(exact), now_ms)

    def load(self, quotas: Mapping[QuotaEntity, float], now_ms: int) -> None:
        """Set many quotas, as from a first snapshot."""
        for entity, value in quotas.items():
            self.update_quota(entity, value, now_ms)

    def tags(self, user: str, client_id: str) -> Tags:
        """Return the quota-id, as raw tags, that a request is charged to."""
        tags = self._overrides.tags(user, client_id)
        if user in self._exempt and not tags[0]:
            return user, client_id
        return tags

    def set_exempt(self, users: frozenset[str]) -> None:
        """
        Name users (raw) who are measured and never throttled.

        They are charged to sensors of their own. So what they do under a client-id that others have
        too takes nothing from those others.
        """
        # Differs: Kafka exempts no principals, so it has no such sensors.
        if users != self._exempt:
            self._exempt = users
            self._forget()

    def bound(self, tags: Tags) -> float:
        """Return the limit of tags; 2^63 - 1 as a double where they have none."""
        return self._overrides.bound(tags)

    def bound_in_force(self, tags: Tags) -> float:
        """Return the limit by which tags are charged now; of a divided quota, its part here."""
        return self._overrides.bound(tags)

    # -- sensors

    def advance(self, now_ms: int) -> None:
        """Note that time has come to now: sensors that expire by it are dead, though not freed."""
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)

    def sensor(self, tags: Tags) -> Any:
        """Return the live sensor of tags, None where there is none."""
        sensor = self._sensors.get(tags)
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            return None
        return sensor

    def sensors(self) -> Iterator[Any]:
        """Yield the live sensors, for metrics; reading their ``peek`` changes nothing."""
        idle_before = self._idle_before_ms
        return (s for s in list(self._sensors.values()) if s.last_record_ms >= idle_before)

    def forgive(self, now_ms: int, users: frozenset[str] | None = None) -> list[Tags]:
        """
        Have buckets that come into force owe nothing. What is measured by samples is kept.

        Args:
            now_ms: epoch ms.
            users: owners of the buckets; None: everybody's.

        Returns:
            Tags of the buckets that owed something, or had not long ago.
        """
        owing = [s for s in self._sensors.values() if getattr(s, "tokens", 0.0) < 0.0]
        found = [s for s in owing if users is None or s.user_tag in users]
        for sensor in found:
            sensor.forgive(now_ms)
        return [(sensor.user_tag, sensor.client_tag) for sensor in found]

    @property
    def num_sensors(self) -> int:
        """How many sensors there are, idle ones that weren't freed yet among them."""
        return len(self._sensors)

    def named(self, tags: Tags) -> bool:
        """Whether a quota is set for exactly these tags, not for a default they fall under."""
        return self._overrides.names(tags)

    def names_client_id(self, user: str, client_id: str) -> bool:
        """Whether a quota names this client-id: alone, with the user, or with any user."""
        return self._overrides.names_client_id(user, client_id)

    def counts(self, tags: Tags, now_ms: int) -> bool:
        """Whether anything charged to tags still counts: if not, a new sensor decides alike."""
        sensor = self._sensors.get(tags)
        if sensor is None:
            return False
        reading = sensor.peek(now_ms)
        if isinstance(reading, tuple):
            return bool(reading[0] != 0.0)
        return bool(reading < sensor.burst)

    def drop(self, tags: Tags) -> bool:
        """Forget the sensor of tags, for which nothing counts; return whether there was one."""
        if self._sensors.pop(tags, None) is None:
            return False
        self._forget()
        return True

    def expire(self, now_ms: int) -> list[Tags]:
        """
        Free the sensors that Kafka's task would have removed by now.

        Returns:
            Tags of the sensors freed, for metrics to drop their series. Call it every
            EXPIRY_PERIOD_MS or so; decisions don't depend on it.
        """
        return [tags for tags in self.expiring(now_ms) if tags is not None]

    def expiring(self, now_ms: int) -> Iterator[Tags | None]:
        """Do as ``expire``, sensor by sensor: yield the tags of each that is freed, else None."""
        self.advance(now_ms)
        for tags in freeing_idle(self._sensors, lambda: self._idle_before_ms):
            if tags is not None:
                self._forget()
            yield tags

    def _tick(self, now_ms: int) -> None:
        """Note that all ticks up to now have passed."""
        last = now_ms - (now_ms - self._start_ms) % EXPIRY_PERIOD_MS
        self._next_tick_ms = last + EXPIRY_PERIOD_MS
        self._idle_before_ms = last - EXPIRY_MS

    def _sensor_of_tags(self, tags: Tags, now_ms: int) -> Any:
        """Find or create the sensor of tags."""
        sensor = self._sensors.get(tags)
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._make_sensor(tags, self._overrides.bound(tags), now_ms)
            self._sensors[tags] = sensor
        return sensor

    def _find(self, user: str, client_id: str, now_ms: int) -> Any:
        """Return the sensor that a request is charged to; None while quotas aren't enabled."""
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        sensor = self._charged.get((user, client_id))
        if sensor is None or sensor.last_record_ms < self._idle_before_ms:
            sensor = self._sensor_for(user, client_id, now_ms)
        return sensor

    def _sensor_for(self, user: str, client_id: str, now_ms: int) -> Any:
        """Find or create the sensor a request is charged to; None while quotas aren't enabled."""
        if not self._overrides.flags:
            return None
        sensor = self._sensor_of_tags(self.tags(user, client_id), now_ms)
        forgotten = self._forgotten
        for _ in range(min(_FREED_AT_ONCE, len(forgotten))):
            forgotten.popitem()
        self._named += len(user) + len(client_id)
        if len(self._charged) >= _MOST_REMEMBERED or self._named > _MOST_NAMED:
            self._forget()
            self._named = len(user) + len(client_id)
        self._charged[user, client_id] = sensor
        return sensor

    def _forget(self) -> None:
        """Forget which sensor each request is charged to, so that it is looked up again."""
        self.generation += 1
        if self._charged:
            less, more = sorted((self._charged, self._forgotten), key=len)
            more.update(less)
            self._charged, self._forgotten = {}, more
