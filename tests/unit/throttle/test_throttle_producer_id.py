"""Producer ids (KIP-936): layers, filters, quota, and the KIP's own interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.bloom import BloomFilter, ScalableBloomFilter, hash_pair
from headgate.throttle.java import UNLIMITED
from headgate.throttle.overrides import KAFKA_3_9
from headgate.throttle.producer_id import ProducerIdQuotaManager, TimedIds
from headgate.throttle.registry import UNCHARGED, Throttle

CASES = json.loads(
    (Path(__file__).parents[2] / "data" / "cases" / "producer_id_layers.json").read_text()
)
T0 = 1_700_000_000_000
USER = QuotaEntity.of(user="u")


def manager(quota: float | None = 1.0, **settings: object) -> ProducerIdQuotaManager:
    made = ProducerIdQuotaManager(start_ms=T0, **settings)  # type: ignore[arg-type]
    if quota is not None:
        made.update_quota(USER, quota, T0)
    return made


def reading(m: ProducerIdQuotaManager, user: str, now_ms: int) -> tuple[float, float]:
    """Return a user's rate and tokens at now."""
    sensor = m.sensor((user, ""))
    return sensor.rate.peek(now_ms)[0], sensor.peek(now_ms)


@pytest.mark.parametrize("start_ms", [0, T0])
@pytest.mark.parametrize(
    "make", [set, lambda: ScalableBloomFilter(1000, 0.005)], ids=["exact", "bloom"]
)
def test_p8_worked_trace_of_layers(make: Callable[[], Any], start_ms: int) -> None:
    cache = TimedIds(CASES["window_ms"], make)
    for event in CASES["events"]:
        now = start_ms + event["t"]
        assert cache.contains(event["pid"], now) is not event["new"]
        assert cache.add(event["pid"], now) is event["new"], event
        assert len(cache._layers) <= 2


def test_a_busy_id_is_charged_once_per_layer() -> None:
    cache = TimedIds(1000, set)  # type: ignore[arg-type]
    assert sum(cache.add(7, T0 + t) for t in range(0, 10_000, 50)) == 10


def test_936_1_p8_dead_layers_are_not_asked_even_before_the_sweep() -> None:
    m = manager()
    m.add("u", 1, T0)
    assert m.contains_key_value_pair("u", 1, T0 + 10_999)
    assert not m.contains_key_value_pair("u", 1, T0 + 11_000)
    assert (len(m._cache), m.cleanup(T0 + 10_999), len(m._cache)) == (1, 0, 1)
    assert (m.cleanup(T0 + 11_000), len(m._cache)) == (1, 0)


def test_936_3_defaults_are_the_seeds() -> None:
    m = ProducerIdQuotaManager()
    assert (m.num_samples, m.window_ms, m.cache_window_ms) == (11, 1000, 11_000)
    assert m.type is QuotaType.PRODUCER_IDS_RATE
    assert ProducerIdQuotaManager(cache_window_ms=1000).cache_window_ms == 1000


class Scheduler:
    """A scheduler whose time is turned by hand."""

    def __init__(self) -> None:
        self.now = T0
        self.tasks: list[Task] = []

    def now_ms(self) -> int:
        return self.now

    def schedule(
        self, name: str, task: Callable[[], object], delay_ms: int, interval_ms: int
    ) -> Task:
        made = Task(name, task, self.now + delay_ms, interval_ms)
        self.tasks.append(made)
        return made

    def run_until(self, now: int) -> None:
        while True:
            due = [t for t in self.tasks if not t.cancelled and t.next_ms <= now]
            if not due:
                break
            first = min(due, key=lambda t: t.next_ms)
            self.now = first.next_ms
            first.next_ms += first.interval_ms
            first.runs += 1
            first.run()
        self.now = now


class Task:
    def __init__(self, name: str, run: Callable[[], object], next_ms: int, interval: int) -> None:
        self.name, self.run, self.next_ms, self.interval_ms = name, run, next_ms, interval
        self.cancelled = False
        self.runs = 0

    def cancel(self) -> None:
        self.cancelled = True


def test_936_4_936_9_the_kips_interface_on_a_schedule() -> None:
    scheduler = Scheduler()
    m = ProducerIdQuotaManager(10, scheduler)
    (task,) = scheduler.tasks
    assert (task.name, task.interval_ms, task.next_ms) == ("cleanup-keys", 10, T0)
    assert m.add("u", 42) is m
    assert m.contains_key_value_pair("u", 42)
    assert not m.contains_key_value_pair("u", 43)
    assert not m.contains_key_value_pair("v", 42)
    scheduler.run_until(T0 + 10_999)
    assert len(m._cache) == 1
    scheduler.run_until(T0 + 11_010)
    assert len(m._cache) == 0
    m.disposal_scheduler_interval_ms(500)
    assert task.cancelled
    assert scheduler.tasks[-1].interval_ms == 500
    runs = task.runs
    scheduler.run_until(T0 + 13_010)
    assert (task.runs, scheduler.tasks[-1].runs) == (runs, 4)
    with pytest.raises(ValueError, match="1 ms at least"):
        m.disposal_scheduler_interval_ms(0)


def test_without_a_scheduler_time_must_be_given() -> None:
    with pytest.raises(ValueError, match="give now_ms"):
        manager().add("u", 1)


def test_936_5_936_6_936_8_new_ids_are_charged_per_second_and_told_to_wait_never_refused() -> None:
    m = manager(2.0)  # 2 per s, burst 22
    assert m.record("u", range(22), T0) == Throttle(0, "u", "", 2.0)
    assert m.record("u", range(22, 32), T0) == Throttle(5000, "u", "", 2.0)
    assert reading(m, "u", T0) == (3.2, -10.0)
    # Known ids cost nothing and aren't held up; a retry of throttled ids neither (P7).
    assert m.record("u", range(32), T0 + 1).throttle_time_ms == 0
    assert m.record("u", [99], T0 + 5000) == Throttle(500, "u", "", 2.0)


def test_936_5_users_and_the_default_user_only() -> None:
    m = manager(None)
    for other in (
        QuotaEntity.of(client_id="c"),
        QuotaEntity.of(user="u", client_id="c"),
        QuotaEntity.of(ip="10.0.0.1"),
    ):
        m.update_quota(other, 5.0, T0)
    assert not m.enabled
    assert m.record("u", [1], T0) is UNCHARGED
    assert len(m._cache) == 0
    m.update_quota(QuotaEntity.of(user=DEFAULT), 3.0, T0)
    assert m.record("u", [1], T0).bound == 3.0
    m.update_quota(USER, 50.0, T0)
    assert m.record("u", [2], T0).bound == 50.0
    assert m.record("v", [2], T0).bound == 3.0
    m.update_quota(USER, None, T0)
    m.update_quota(QuotaEntity.of(user=DEFAULT), None, T0)
    assert m.record("u", [3], T0) is UNCHARGED
    sticky = manager(5.0, rules=KAFKA_3_9)
    sticky.update_quota(USER, None, T0)
    assert sticky.record("u", [1], T0) == Throttle(0, "u", "", UNLIMITED)


def test_p3_negative_and_repeated_ids_and_none() -> None:
    m = manager(1.0)
    m.record("u", [-1, 5, 5, -1], T0)
    assert reading(m, "u", T0) == (0.1, 10.0)
    assert m.record("u", [], T0) == Throttle(0, "u", "", 1.0)
    assert m.record("u", [-1], T0) == Throttle(0, "u", "", 1.0)
    assert m.sensor(("nobody", "")) is None


def test_users_keep_their_ids_apart() -> None:
    m = manager()
    m.add("a", 1, T0).add("b", 2, T0)
    assert not m.contains_key_value_pair("a", 2, T0)
    assert not m.contains_key_value_pair("b", 1, T0)


def test_a_quota_change_keeps_the_tokens() -> None:
    m = manager(2.0)
    m.record("u", range(32), T0)
    m.update_quota(USER, 10.0, T0)
    assert m.record("u", [99], T0) == Throttle(1100, "u", "", 10.0)


def test_p12_sensors_expire_after_an_idle_hour() -> None:
    m = manager(1.0)
    m.record("u", range(100), T0)
    assert m.expire(T0 + 3_630_000) == [("u", "")]
    assert m.sensor(("u", "")) is None


# -- filters


@pytest.mark.parametrize("count", [1000, 5000, 60_000])
def test_936_11_measured_false_positives_stay_within_one_in_a_hundred(count: int) -> None:
    error_rate = 0.01
    m = ProducerIdQuotaManager()
    # As brokers hand them out: consecutive; half of them in each of two live layers.
    for producer_id in range(count // 2):
        m.add("u", producer_id, T0)
    for producer_id in range(count // 2, count):
        m.add("u", producer_id, T0 + 5_500)
    now = T0 + 5_501
    asked = 40_000
    wrong = sum(m.contains_key_value_pair("u", (1 << 40) + i, now) for i in range(asked))
    assert 0 < wrong / asked <= error_rate


def test_no_false_negative_among_many() -> None:
    ids = ScalableBloomFilter(100, 0.01)
    for producer_id in range(0, 2_000_000, 101):
        ids.add(producer_id)
    assert all(producer_id in ids for producer_id in range(0, 2_000_000, 101))


def size(ids: ScalableBloomFilter) -> int:
    """Return the memory of a filter's bits, in bytes."""
    return sum(len(part._bits) for part in ids._slices)


def is_saturated(ids: ScalableBloomFilter) -> bool:
    """Whether more ids came than the error rate holds for."""
    newest = ids._slices[-1]
    return ids._room <= 0 and newest.count > newest.capacity


def test_memory_is_bounded_and_stated() -> None:
    small = ScalableBloomFilter(1000, 0.005)
    assert size(small) < 1700
    full = ScalableBloomFilter(1000, 0.005, most_ids=4000)
    for producer_id in range(20_000):
        full.add(producer_id)
        if producer_id == 3_999:
            assert not is_saturated(full)
    assert is_saturated(full)
    assert size(full) < 4 * 4000
    assert all(producer_id in full for producer_id in range(20_000))  # never forgotten even so


def test_hashes_are_the_same_in_every_process() -> None:
    code = "from headgate.throttle.bloom import hash_pair; print(hash_pair(123456789))"
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert told.stdout.strip() == str(hash_pair(123456789))
    assert hash_pair(0)[0] == 0xE220A8397B1DCDAF  # the first output of SplitMix64 from seed 0


@pytest.mark.parametrize(("capacity", "error"), [(0, 0.1), (5, 0.0), (5, 1.0)])
def test_filters_of_nothing_are_refused(capacity: int, error: float) -> None:
    with pytest.raises(ValueError, match="no filter for"):
        BloomFilter(capacity, error)


def test_many_producer_ids_of_one_user_are_charged_and_take_what_is_stated() -> None:
    manager = ProducerIdQuotaManager()
    manager.update_quota(QuotaEntity.of(user="alice"), 10.0, 0)
    asked = charged = 0
    for turn in range(200):  # requests of as many ids as one may have, nearly
        ids = range(turn * 250, (turn + 1) * 250)
        manager.record("alice", ids, turn)
        asked += len(ids)
        charged += manager.last_new
    assert sum(size(ids) for _, ids in manager._cache["alice"]._layers) < 300_000
    assert charged >= asked * 0.99
    assert not manager.record("alice", [5], 1_000).throttle_time_ms  # known: never throttled
    assert manager.record("alice", [9_000_000], 1_000).throttle_time_ms > 1_000_000


def test_cleaning_up_looks_at_nobody_before_he_is_due_and_then_at_him_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[TimedIds] = []
    dies = TimedIds.dies_ms

    def counted(self: TimedIds) -> int:
        looked.append(self)
        return dies.fget(self)  # type: ignore[attr-defined, no-any-return]

    m = ProducerIdQuotaManager(start_ms=T0)
    for n in range(1_000):
        m.add(f"u{n}", 1, T0 + n)
    m.add("u0", 2, T0 + 6_000)  # a second layer: the user is kept six seconds longer
    monkeypatch.setattr(TimedIds, "dies_ms", property(counted))
    assert m.idle_ms(T0 + 1_000) == 10_000
    assert (m.cleanup(T0 + 10_999), looked) == (0, [])
    assert m.idle_ms(T0 + 10_999) == 10  # the interval that KIP-936 gives
    assert (m.cleanup(T0 + 11_000), len(looked)) == (0, 1)
    assert (m.cleanup(T0 + 11_005), len(looked)) == (5, 6)
    assert (m.cleanup(T0 + 11_999, 100), m.cleanup(T0 + 11_999)) == (100, 894)
    assert (len(m._cache), m.idle_ms(T0 + 12_000)) == (1, 5_000)
    assert (m.cleanup(T0 + 17_000), len(m._cache)) == (1, 0)
    assert m.idle_ms(T0 + 17_000) == 11_000  # nobody: an id that comes now dies no sooner


@pytest.mark.parametrize(("interval_ms", "wait_ms"), [(1, 11_000), (10, 11_000), (60_000, 60_000)])
def test_936_4_the_cleanup_interval_is_obeyed_as_set(interval_ms: int, wait_ms: int) -> None:
    m = ProducerIdQuotaManager(interval_ms, start_ms=T0)
    m.add("u", 1, T0)
    assert m.idle_ms(T0) == wait_ms
    assert m.idle_ms(T0 + 11_000) == interval_ms


def test_a_filter_holds_a_million_ids_and_then_grows_no_more_unless_told_otherwise() -> None:
    ids = ScalableBloomFilter()
    assert ids.most_ids == 1 << 20
    added = 0
    while not is_saturated(ids):
        newest = ids._slices[-1]
        added += newest.capacity - newest.count
        newest.count = newest.capacity  # as if the layer were full
        ids.add(added)
        added += 1
        assert added < 1 << 21
    assert sum(part.capacity for part in ids._slices) == 1 << 20
    assert added == (1 << 20) + 1
    full = size(ids)
    assert full < 3_600_000  # two layers of it are the 7 MB that a user may take
    for producer_id in range(10_000):
        ids.add(producer_id)
    assert size(ids) == full
    assert all(producer_id in ids for producer_id in range(10_000))
