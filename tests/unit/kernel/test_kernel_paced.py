"""The pacing kernel: equal to the managers' buckets, whatever their bounds do."""

from __future__ import annotations

import random
from math import inf

import numpy as np
import pytest

from headgate.kernel.codes import OP_BOUND, OP_RECORD, OP_TOUCH, OP_UNRECORD
from headgate.kernel.paced import PacedState, replay_paced
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.java import UNLIMITED
from headgate.throttle.pacing import PacedQuotaManager

T0 = 1_700_000_000_000
USERS = ("a", "b", "c")


STEPS = {
    "goes": (0, 0, 1, 9, 120, 900, -5, 2),
    "is idle": (0, 0, 1, 9, 120, 900, -5, *[2] * 800, 4_000_000),
    "is set back": (0, 0, 1, 9, 120, 900, -5, *[2] * 80, -600_000),
}
"""What a clock does between two events, ms."""


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("clock", STEPS)
def test_replayed_events_of_moving_bounds_give_the_managers_throttles(
    seed: int, pieces: int, clock: str
) -> None:
    rng = random.Random(seed)
    manager = PacedQuotaManager(
        QuotaType.PRODUCER_BYTE_RATE, period_ms=2000, burst_ms=750, start_ms=T0
    )
    rows: list[tuple[int, int, float, int, float]] = []
    expected: list[int] = []

    def moved(tags: tuple[str, str], bound: float, now_ms: int) -> None:
        bound = bound if bound < UNLIMITED else inf  # as a journal has it
        rows.append((USERS.index(tags[0]), now_ms, bound, OP_BOUND, bound))
        expected.append(0)

    manager.moved = moved
    for user in USERS:
        manager.update_quota(QuotaEntity.of(user=user), 4000.0, T0)
    now = T0
    for _ in range(3000):
        now += rng.choice(STEPS[clock])
        user = rng.choice(USERS)
        dice = rng.random()
        if dice < 0.1:
            bound = rng.choice([0.0, 3.5, 700.0, 4000.0, float("inf")])
            manager.assign({(user, ""): bound}, now, now + rng.choice([50, 5000]))
            continue
        if dice < 0.15:
            manager.update_quota(QuotaEntity.of(user=user), rng.choice([90.0, 4000.0]), now)
            continue
        if dice < 0.17:
            manager.forgive(now, frozenset({user}))
            continue
        amount = float(rng.randrange(3000))
        before = len(rows)
        if dice < 0.22:
            decision, op = manager.unrecord(user, "x", amount, now), OP_UNRECORD
        else:
            decision, op = manager.record(user, "x", amount, now), OP_RECORD
        # A bound that lapsed in the charge moved before it.
        assert all(row[3] == OP_BOUND for row in rows[before:])
        rows.append((USERS.index(user), now, amount, op, decision.bound))
        expected.append(decision.throttle_time_ms)
    state = PacedState(0, num_samples=1, window_ms=750, start_ms=T0)
    state.grow(len(USERS))
    given: list[int] = []
    for part in np.array_split(np.arange(len(rows)), pieces):
        key, t, amounts, ops, bounds = zip(*(rows[i] for i in part), strict=True)
        given += replay_paced(
            state, key, t, amounts, op=np.array(ops), bound=bounds, cap_ms=4000
        ).tolist()
    assert given == expected
    assert sum(ms > 0 for ms in expected) > 100


def test_by_hand_a_lower_bound_leaves_what_was_owed_and_caps_what_was_saved() -> None:
    state = PacedState(2, num_samples=1, start_ms=T0)
    key = [0, 0, 0, 1, 1, 1]
    t = [T0, T0 + 100, T0 + 100, T0, T0, T0]
    amount = [1500.0, 200.0, 0.0, 0.0, 100.0, 301.0]
    op = [OP_RECORD, OP_BOUND, OP_RECORD, OP_TOUCH, OP_BOUND, OP_RECORD]
    bound = [1000.0, 200.0, 200.0, 1000.0, 100.0, 100.0]
    # 500 owed; 100 ms at 1000 repay 100; the other 400 take 2 s at 200.
    # A full bucket of 1000 becomes a full bucket of 100: 201 are owed.
    given = replay_paced(state, key, t, amount, op=op, bound=bound)
    assert given.tolist() == [500, 0, 2000, 0, 0, 2010]


def test_a_bucket_idle_for_an_hour_begins_anew() -> None:
    state = PacedState(1, num_samples=1, start_ms=T0)
    late = T0 + 3_600_000 + 30_000
    given = replay_paced(
        state, [0, 0, 0], [T0, late, late + 1], [1e9, 1.0, 1000.0], bound=[0.5, 0.5, 0.5]
    )
    assert given.tolist() == [1_999_999_999_000, 1000, 2_000_999]
