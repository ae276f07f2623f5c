"""
New producer ids per user: KIP-936, which Kafka doesn't have.

Each user has a cache of the producer ids seen lately: a Bloom filter per layer, at most two layers
alive, dropped by time. A produce request with ids the cache lacks charges their number to the
user's token bucket; below zero tokens the client is told to wait. Nothing is ever refused.

The KIP is a draft with gaps; docs/explanation/throttle.md says how they are filled.

Memory per user is bounded: two layers of at most 2^20 ids take 7 MB together, the usual 1,000 ids
3 KB. With the default windows it takes 190,000 new ids a second to reach the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final, Protocol, Unpack

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.steps import Work
from headgate.throttle.bloom import ScalableBloomFilter
from headgate.throttle.overrides import Tags
from headgate.throttle.registry import UNCHARGED, Common, SensorRegistry, Throttle
from headgate.throttle.sensor import NEVER, SampledRate
from headgate.throttle.token_bucket import BucketSensor

CLEANUP_INTERVAL_MS: Final = 10
"""producer.id.quota.cache.cleanup.scheduler.interval.ms."""
_FOREVER: Final = 1 << 70
_MOST_KNOWN: Final = 64
"""Ids of a user that are remembered besides, so that they needn't be looked for in two filters, at
2 us each; 6 KB at most."""


class CleanupTask(Protocol):
    """A running schedule."""

    def cancel(self) -> None:
        """Stop it."""


class CleanupScheduler(Protocol):
    """The shell's clock and timer; the manager itself has neither."""

    def now_ms(self) -> int:
        """Return epoch ms."""

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int, interval_ms: int
    ) -> CleanupTask:
        """Run a task after delay_ms, and then every interval_ms."""


class TimedIds:
    """
    The producer ids of one user, in layers that die of age.

    A layer takes new ids for half a window and is consulted for one; then it is gone, swept or
    not. An id known only to the older layer isn't copied to the newer one, so a busy id is new
    again once per life of its layer.

    Args:
        window_ms: life of a layer.
        make: makes an empty layer's filter.

    Attributes:
        within: the last decision on a request of the user that had no new ids.
    """

    __slots__ = ("_half_ms", "_known", "_layers", "_make", "_window_ms", "within")

    def __init__(self, window_ms: int, make: Callable[[], ScalableBloomFilter]) -> None:
        self._window_ms = window_ms
        self._half_ms = -(-window_ms // 2)
        self._make = make
        self._layers: list[tuple[int, ScalableBloomFilter]] = []
        self._known: dict[int, int] = {}  # ids, and when the layer dies that has each
        self.within: Throttle | None = None

    def contains(self, producer_id: int, now_ms: int) -> bool:
        """Whether a layer alive at now has the id."""
        return self._layer_of(producer_id, now_ms) is not None

    def add(self, producer_id: int, now_ms: int) -> bool:
        """Put an id into the newest layer unless a live layer has it; return whether it was new."""
        known = self._known
        if now_ms < known.get(producer_id, NEVER):  # a layer loses nothing before it dies
            return False
        layer = self._layer_of(producer_id, now_ms)
        home = self._newest(now_ms) if layer is None else layer
        if layer is None:
            home[1].add(producer_id)
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[producer_id] = home[0] + self._window_ms
        return layer is None

    @property
    def dies_ms(self) -> int:
        """When the last of its layers dies; long ago if it has none."""
        return self._layers[-1][0] + self._window_ms if self._layers else NEVER

    def _layer_of(self, producer_id: int, now_ms: int) -> tuple[int, ScalableBloomFilter] | None:
        """Return the newest living layer that has an id, and since when it is there."""
        for layer in reversed(self._alive(now_ms)):
            if producer_id in layer[1]:
                return layer
        return None

    def _alive(self, now_ms: int) -> list[tuple[int, ScalableBloomFilter]]:
        layers = self._layers
        while layers and now_ms - layers[0][0] >= self._window_ms:
            del layers[0]
            self._known.clear()
        return layers

    def _newest(self, now_ms: int) -> tuple[int, ScalableBloomFilter]:
        layers = self._alive(now_ms)
        if not layers or now_ms - layers[-1][0] >= self._half_ms:
            layers.append((now_ms, self._make()))
        return layers[-1]


def _filter() -> ScalableBloomFilter:
    """Return a layer's filter: two may be asked, and each gets half of the error of 1 in 100."""
    return ScalableBloomFilter(1000, 0.01 / 2)


class ProducerIdQuotaManager(SensorRegistry):
    """
    The manager of producer_ids_rate, and the KIP's cache interface over it.

    Args:
        disposal_scheduler_interval_ms: ms between two sweeps of the cache.
        cleanup_scheduler: runs the sweep ``cleanup-keys``; None: the caller calls :meth:`cleanup`.
        cache_window_ms: producer.id.quota.cache.window.seconds x 1000, the life of an id's layer;
            None: as long as the quota's window (11 s).
        common: as for every manager; the windows are ``producer.id.quota.window``'s.

    Source: KIP-936 "Public Interfaces".
    """

    type = QuotaType.PRODUCER_IDS_RATE

    def __init__(
        self,
        disposal_scheduler_interval_ms: int = CLEANUP_INTERVAL_MS,
        cleanup_scheduler: CleanupScheduler | None = None,
        *,
        cache_window_ms: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        if cache_window_ms is None:
            cache_window_ms = self.num_samples * self.window_ms
        self.cache_window_ms = cache_window_ms
        self._cache: dict[str, TimedIds] = {}
        # When each user of the cache is to be looked at: its first layer's death, or a later one's.
        self._deaths: list[tuple[int, str]] = []
        self._interval_ms = disposal_scheduler_interval_ms
        self.last_new = 0
        """How many new ids the last ``record`` charged."""
        self._scheduler = cleanup_scheduler
        self._task: CleanupTask | None = None
        self._schedule(0)

    # -- quota

    def updating(
        self, entity: QuotaEntity, value: float | None, clock: Callable[[], int]
    ) -> Work[None]:
        """Set or remove the quota of a user or the default user; other entities are ignored."""
        if entity.shape == "user":
            yield from super().updating(entity, value, clock)

    def record(self, user: str, producer_ids: Iterable[int], now_ms: int) -> Throttle:
        """
        Charge a produce request for the producer ids its user's cache lacks.

        Args:
            user: the principal's name, raw.
            producer_ids: those of all its batches; negative ones (not idempotent) don't count.
            now_ms: epoch ms.

        Returns:
            The decision. Ids are remembered even when throttled: a retry isn't charged again. A
            request without new ids is never throttled.
        """
        if now_ms >= self._next_tick_ms:
            self._tick(now_ms)
        if not self._overrides.flags:
            return UNCHARGED
        new = 0
        for producer_id in producer_ids:
            if producer_id >= 0 and self._remember(user, producer_id, now_ms):
                new += 1
        self.last_new = new
        tags = (user, "")
        if not new:
            return self._within(tags)
        sensor: BucketSensor = self._sensor_of_tags(tags, now_ms)
        sensor.last_record_ms = now_ms
        sensor.rate.charge(new, now_ms)  # measured too, which empties old samples
        sensor.record(new, now_ms)
        return Throttle(sensor.violation_ms(now_ms) or 0, user, "", sensor.limit)

    # -- cache, as in the KIP

    def add(self, key: str, value: int, now_ms: int | None = None) -> ProducerIdQuotaManager:
        """
        Remember a producer id, charging nothing.

        Args:
            key: the user.
            value: the producer id.
            now_ms: epoch ms; None: the scheduler's.

        Returns:
            The cache itself, as in the KIP.
        """
        self._remember(key, value, self._now(now_ms))
        return self

    def contains_key_value_pair(self, key: str, value: int, now_ms: int | None = None) -> bool:
        """Whether a live layer of the user has the producer id."""
        ids = self._cache.get(key)
        return ids is not None and ids.contains(value, self._now(now_ms))

    def disposal_scheduler_interval_ms(self, interval_ms: int) -> None:
        """Change the ms between two sweeps; a running schedule is replaced at once."""
        if interval_ms < 1:
            raise ValueError(f"the cleanup interval must be 1 ms at least, not {interval_ms}")
        self._interval_ms = interval_ms
        self._schedule(interval_ms)

    def cleanup(self, now_ms: int | None = None, most: int | None = None) -> int:
        """
        Drop users without a live layer; costs nothing while none is due.

        Decisions never depend on it: dead layers aren't consulted.

        Args:
            now_ms: epoch ms; None: the scheduler's.
            most: users that are looked at; the rest waits for the next time. None: all.

        Returns:
            How many were dropped.
        """
        now, deaths = self._now(now_ms), self._deaths
        dropped = looked = 0
        while deaths and deaths[0][0] <= now and looked != most:
            looked += 1
            _, user = heappop(deaths)
            dies_ms = self._cache[user].dies_ms
            if dies_ms > now:  # it has got another layer since
                heappush(deaths, (dies_ms, user))
            else:
                del self._cache[user]
                dropped += 1
        return dropped

    def idle_ms(self, now_ms: int) -> int:
        """
        Return for how long there is nothing to clean up, in ms: the interval at least.

        An id that comes meanwhile dies a whole window later, so the answer stays right.
        """
        due_ms = self._deaths[0][0] if self._deaths else _FOREVER
        return max(min(due_ms - now_ms, self.cache_window_ms), self._interval_ms)

    def _remember(self, user: str, producer_id: int, now_ms: int) -> bool:
        ids = self._cache.get(user)
        if ids is None:
            ids = self._cache[user] = TimedIds(self.cache_window_ms, _filter)
            heappush(self._deaths, (now_ms + self.cache_window_ms, user))
        return ids.add(producer_id, now_ms)

    def _within(self, tags: Tags) -> Throttle:
        """Return the decision on a request without new ids, one object while the quota stays."""
        bound = self._overrides.bound(tags)
        ids = self._cache.get(tags[0])
        decision = None if ids is None else ids.within
        if decision is None or decision.bound != bound:
            decision = Throttle(0, *tags, bound)
            if ids is not None:
                ids.within = decision
        return decision

    def _now(self, now_ms: int | None) -> int:
        if now_ms is not None:
            return now_ms
        if self._scheduler is None:
            raise ValueError("give now_ms: there is no scheduler whose clock to ask")
        return self._scheduler.now_ms()

    def _schedule(self, delay_ms: int) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._scheduler is not None:
            self._task = self._scheduler.schedule(
                "cleanup-keys", self.cleanup, delay_ms, self._interval_ms
            )

    def _make_sensor(self, tags: Tags, bound: float, now_ms: int) -> BucketSensor:
        windows = self.num_samples, self.window_ms
        sensor = BucketSensor(tags, bound, now_ms, windows, SampledRate(*windows))
        sensor.tokens, sensor.last_ms = sensor.burst, now_ms  # full, whatever the clock counts from
        return sensor
