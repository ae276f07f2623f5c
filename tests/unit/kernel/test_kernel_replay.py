"""The array kernel equals the managers' sensors, for any batches, keys and bounds."""

from __future__ import annotations

import pickle
import random
from math import inf
from typing import Any

import numpy as np
import pytest

from headgate.kernel.bucket import BucketState, replay_bucket
from headgate.kernel.codes import (
    OP_BOUND,
    OP_MEASURE,
    OP_NO_CHECK,
    OP_RECORD,
    OP_STRICT,
    OP_TOUCH,
    OP_UNRECORD,
)
from headgate.kernel.rate import RateState, replay_rate
from headgate.quota.entity import QuotaEntity
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.java import UNLIMITED
from headgate.throttle.sensor import SampledRate, throttle_time_ms
from headgate.throttle.token_bucket import TokenBucket, token_throttle_time_ms

T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def trace(seed: int, events: int, keys: int, whole: bool, back: bool) -> list[tuple[Any, ...]]:
    rnd = random.Random(seed)
    now = T0
    rows = []
    for _ in range(events):
        now += rnd.choice((0, 0, 1, 3, 40, 300, 1100, 15_000 if rnd.random() < 0.02 else 9))
        amount = rnd.randrange(5000) if whole else rnd.random() * 5000
        op = rnd.choice((OP_RECORD,) * 8 + (OP_NO_CHECK, OP_UNRECORD, OP_MEASURE, OP_BOUND))
        t_ms = now - (rnd.randrange(12) if back else 0)
        rows.append((rnd.randrange(keys), t_ms, amount, op))
    return rows


def by_sensors(rows: list[tuple[Any, ...]], samples: int, window: int) -> list[tuple[Any, ...]]:
    rates: dict[int, SampledRate] = {}
    bounds: dict[int, float] = {}
    told = []
    for key, now, amount, op in rows:
        if op == OP_BOUND:
            bounds[key] = amount
            told.append((0, 0.0, 0))
            continue
        if op == OP_MEASURE and key not in rates:
            told.append((0, 0.0, 0))
            continue
        rate = rates.setdefault(key, SampledRate(samples, window))
        if op in (OP_NO_CHECK, OP_UNRECORD):
            rate.record(amount if op == OP_NO_CHECK else -amount, now)
            told.append((0, 0.0, 0))
            continue
        value, covered = rate.charge(amount if op == OP_RECORD else None, now)
        bound = bounds.get(key, UNLIMITED)
        over = op == OP_RECORD and not value <= bound
        told.append((throttle_time_ms(value, bound, covered) if over else 0, value, covered))
    return told


def columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    key, t_ms, amount, op = zip(*rows, strict=True)
    return np.array(key), np.array(t_ms), np.array(amount, np.float64), np.array(op, np.uint8)


@pytest.mark.parametrize("back", [False, True], ids=["forward", "stepping back"])
@pytest.mark.parametrize("whole", [True, False], ids=["bytes", "fractions"])
@pytest.mark.parametrize(("samples", "window"), [(11, 1000), (1, 50), (3, 700), (30, 7)])
def test_rates_equal_the_sensors_in_any_cut(
    samples: int, window: int, whole: bool, back: bool
) -> None:
    rows = trace(samples * 31 + window, 4000, 5, whole, back)
    expected = by_sensors(rows, samples, window)
    key, t_ms, amount, op = columns(rows)
    for pieces in (1, 7, 400):
        state = RateState(5, num_samples=samples, window_ms=window)
        told: list[tuple[Any, ...]] = []
        for at in np.array_split(np.arange(len(rows)), pieces):
            out = replay_rate(state, key[at], t_ms[at], amount[at], op=op[at], rates=True)
            told += zip(*(column.tolist() for column in out), strict=True)
            state = pickle.loads(pickle.dumps(state))
        assert told == expected
    # Grouped by key: the order within each key is all that counts.
    order = np.argsort(key, kind="stable")
    grouped = replay_rate(
        RateState(5, num_samples=samples, window_ms=window),
        key[order],
        t_ms[order],
        amount[order],
        op=op[order],
    )
    assert grouped.tolist() == [expected[i][0] for i in order]


def test_a_bound_per_event_and_bound_events_say_the_same() -> None:
    key = np.array([0, 1, 0, 1, 0])
    t_ms = np.full(5, float(T0))  # a journal's times are doubles
    amount = np.full(5, 20_000)
    expected = [10_000, 0, 30_000, 10_000, 50_000]
    bounds = np.array([1000.0, 2000.0])
    per_event = replay_rate(RateState(2), key, t_ms, amount, bound=bounds[key])
    by_op = replay_rate(
        RateState(2),
        np.concatenate(([0, 1], key)),
        np.concatenate(([T0, T0], t_ms)),
        np.concatenate((bounds, amount)),
        op=np.array([OP_BOUND] * 2 + [OP_RECORD] * 5),
    )
    assert per_event.tolist() == by_op[2:].tolist() == expected


@pytest.mark.parametrize("nothing", [np.nan, np.inf, UNLIMITED])
def test_no_bound_no_throttle(nothing: float) -> None:
    assert replay_rate(RateState(1), [0], [T0], [1e15], bound=[nothing]).tolist() == [0]
    set_by_op = replay_rate(
        RateState(1), [0, 0, 0], [T0] * 3, [5.0, nothing, 1e15], op=[OP_BOUND, OP_BOUND, OP_RECORD]
    )
    assert set_by_op.tolist() == [0, 0, 0]


def test_throttles_are_unwrapped_and_capped_where_told() -> None:
    def once(bound: float, cap_ms: int | None = None) -> int:
        return int(replay_rate(RateState(1), [0], [T0], [1e7], bound=[bound], cap_ms=cap_ms)[0])

    assert once(1.0) == 9_999_990_000
    assert once(0.0) == 9223372036854775807
    assert once(1.0, cap_ms=1000) == 1000


def test_keys_grow_and_keep_their_state() -> None:
    state = RateState(1)
    replay_rate(state, [0], [T0], [10_000], bound=[1000.0])
    state.grow(100)
    state.grow(3)
    assert state.num_keys == 100
    assert replay_rate(state, [0, 99], [T0 + 1] * 2, [10_000, 10**9]).tolist() == [9_999, 0]


def test_a_key_idle_for_an_hour_starts_anew_at_the_next_tick() -> None:
    for idle, kept in ((HOUR_MS + 29_999, True), (HOUR_MS + 30_000, False)):
        # Samples longer than the idle time: only expiry can empty them.
        state = RateState(1, num_samples=2, window_ms=10 * HOUR_MS, start_ms=T0)
        out = replay_rate(state, [0, 0], [T0, T0 + idle], [10**9, 0], bound=[1.0, 1.0])
        assert (out[1] > 0) is np.bool_(kept)
        buckets = BucketState(1, num_samples=2, window_ms=10 * HOUR_MS, start_ms=T0)
        _, tokens, _ = replay_bucket(
            buckets, [0, 0], [T0, T0 + idle], [10**6, 0], bound=[1.0, 1.0], details=True
        )
        assert (tokens[1] < 0) is np.bool_(kept)


def test_a_measurement_doesnt_keep_an_idle_key_alive() -> None:
    # Measured just before the tick that drops it, charged just after, within one sample.
    tick = T0 + HOUR_MS + 30_000
    state = RateState(1, num_samples=2, window_ms=100_000, start_ms=T0)
    _, rate, window = replay_rate(
        state,
        [0, 0, 0],
        [T0, tick - 10, tick + 10],
        [10**6, 0, 500],
        op=[OP_RECORD, OP_MEASURE, OP_RECORD],
        rates=True,
    )
    assert (rate[2], window[2]) == (5.0, 100_000)


def test_only_making_a_sensor_lets_the_next_measurement_open_its_first_sample() -> None:
    ops = [OP_MEASURE, OP_TOUCH, OP_MEASURE, OP_RECORD]
    t_ms = [T0, T0, T0 + 1, T0 + 1000]
    _, rate, window = replay_rate(RateState(1), [0] * 4, t_ms, [0, 0, 0, 500], op=ops, rates=True)
    assert window.tolist() == [0, 0, 10_000, 10_999]
    assert rate[3] == 500 / 10.999


@pytest.mark.parametrize(
    ("key", "t_ms", "amount", "more"),
    [
        ([0, 1], [T0, T0], [1, 1], {}),
        ([-1], [T0], [1], {}),
        ([0], [T0, T0], [1], {}),
        ([0], [T0], [1], {"op": [0, 0]}),
        ([0], [T0], [1], {"bound": [1.0, 2.0]}),
    ],
)
def test_arrays_that_dont_fit_are_refused(
    key: list[int], t_ms: list[int], amount: list[int], more: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"keys"):
        replay_rate(RateState(1), key, t_ms, amount, **more)


def test_nothing_to_replay_and_nothing_to_sample() -> None:
    assert replay_rate(RateState(0), [], [], []).tolist() == []
    with pytest.raises(ValueError, match="1 sample of 1 ms at least"):
        RateState(1, num_samples=0)


@pytest.mark.parametrize("strict", [False, True], ids=["permissive", "strict"])
def test_buckets_equal_the_sensors(strict: bool) -> None:
    rnd = random.Random(7)
    buckets = [TokenBucket(3.5, 10, 2000) for _ in range(3)]
    state = BucketState(3, num_samples=10, window_ms=2000)
    rows, expected = [], []
    now = T0
    for _ in range(2000):
        now += rnd.choice((0, 5, 700, 1500))
        key, amount = rnd.randrange(3), rnd.choice((1, 2.5, 30, 0))
        bucket = buckets[key]
        rows.append((key, now, amount, OP_STRICT if strict else OP_RECORD))
        before = bucket.measure(now)
        refused = strict and before < 0
        if not refused:
            bucket.record(amount, now)
        tokens = bucket.peek(now)
        over = refused or (not strict and tokens < 0)
        expected.append((token_throttle_time_ms(tokens, 3.5) if over else 0, tokens, refused))
    key, t_ms, amount, op = columns(rows)
    told: list[tuple[Any, ...]] = []
    for at in np.array_split(np.arange(len(rows)), 9):
        out = replay_bucket(
            state, key[at], t_ms[at], amount[at], op=op[at], bound=[3.5] * len(at), details=True
        )
        told += zip(*(column.tolist() for column in out), strict=True)
        state = pickle.loads(pickle.dumps(state))
    assert told == expected


def test_a_bucket_gives_back_counts_unchecked_and_caps() -> None:
    ops = [OP_BOUND, OP_NO_CHECK, OP_UNRECORD, OP_MEASURE, OP_RECORD]
    ms, tokens, _ = replay_bucket(
        BucketState(1, num_samples=1),
        [0] * 5,
        [T0] * 5,
        [10.0, 30.0, 15.0, 0.0, 25.0],
        op=ops,
        cap_ms=2000,
        details=True,
    )
    assert tokens.tolist() == [0.0, -20.0, -5.0, -5.0, -30.0]
    assert ms.tolist() == [0, 0, 0, 0, 2000]
    assert replay_bucket(BucketState(1), [0], [T0], [1.0]).tolist() == [0]


def test_a_bucket_that_comes_into_force_owes_nothing_when_it_is_replayed_either() -> None:
    manager = ControllerMutationQuotaManager(num_samples=3, window_ms=700, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="alice"), 2.0, T0)
    rnd, now_ms = random.Random(3), T0
    rows: list[tuple[int, int, float, int]] = []
    expected = []
    for _ in range(500):
        now_ms += rnd.choice((0, 10, 400))
        if rnd.random() < 0.05:
            if manager.forgive(now_ms):
                rows += [(0, now_ms, inf, OP_BOUND), (0, now_ms, 2.0, OP_BOUND)]
                expected += [0, 0]
            continue
        quota = manager.quota("alice", "c", now_ms, strict=False)
        amount = float(rnd.randrange(5))
        quota.record(amount, now_ms)
        rows.append((0, now_ms, amount, OP_RECORD))
        expected.append(quota.decided_ms or 0)
    key, t_ms, amounts, ops = columns(rows)
    state = BucketState(1, num_samples=3, window_ms=700)
    bounds = np.full(len(rows), 2.0)
    assert replay_bucket(state, key, t_ms, amounts, op=ops, bound=bounds).tolist() == expected
    assert sum(op == OP_BOUND for *_, op in rows) > 10
