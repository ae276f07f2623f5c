"""Several limits in one pass: the same sums as a replay for each limit."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headgate.kernel.codes import OP_MEASURE, OP_NO_CHECK, OP_RECORD, OP_TOUCH, OP_UNRECORD
from headgate.kernel.plans import PlanSums, replay_plans
from headgate.kernel.rate import RateState, replay_rate

T0 = 1_700_000_000_000


@pytest.mark.parametrize("cap_ms", [None, 700])
@pytest.mark.parametrize("whole", [True, False], ids=["bytes", "fractions"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_limits_in_one_pass_give_what_each_gives_alone(
    seed: int, whole: bool, cap_ms: int | None
) -> None:
    rnd = random.Random(seed)
    heads, keys, plans, count = 7, 4, 5, 4000
    key = np.array([h % keys for h in range(heads)])
    group = np.array([h // 2 for h in range(heads)])
    bounds = np.array([[rnd.choice((20.0, 400.0, np.inf)) for _ in range(plans)] for _ in key])
    head = np.array([rnd.randrange(heads) for _ in range(count)], np.int32)
    steps = [rnd.choice((0, 0, 1, 3, 40, 300, 1100, 15_000)) for _ in range(count)]
    t_ms = T0 + np.cumsum(steps) - np.array([rnd.randrange(12) for _ in range(count)])
    amount = np.array([rnd.random() * 5000 for _ in range(count)])
    amount = np.floor(amount) if whole else amount
    kinds = (OP_RECORD,) * 8 + (OP_NO_CHECK, OP_UNRECORD, OP_MEASURE, OP_TOUCH)
    op = np.array([rnd.choice(kinds) for _ in range(count)], np.uint8)
    sums, state = PlanSums(plans), RateState(keys)
    sums.grow(max(group) + 1)
    for at in np.array_split(np.arange(count), 9):
        replay_plans(
            state,
            sums,
            head[at],
            t_ms[at],
            amount[at],
            key=key,
            group=group,
            bounds=bounds,
            plans=range(plans),
            op=op[at],
            cap_ms=cap_ms,
        )
    throttled = 0
    for plan in range(plans):
        throttle = replay_rate(
            RateState(keys),
            key[head],
            t_ms,
            amount,
            op=op,
            bound=bounds[head, plan],
            cap_ms=cap_ms,
        )
        throttled += int((throttle > 0).sum())
        for g in range(max(group) + 1):
            mine = throttle[group[head] == g]
            given = [(mine > 0).sum(), mine.sum(), mine.max()]
            assert sums.given[g, plan].tolist() == given
            hit = (throttle > 0) & (group[head] == g)
            assert sums.delayed[g, plan] == pytest.approx(amount[hit].sum())
    assert throttled > 2000


def test_a_limit_that_isnt_there_gives_nothing_and_a_head_left_out_charges_nothing() -> None:
    sums = PlanSums(2)
    sums.grow(2)
    bounds = np.array([[np.nan, 1000.0], [1.0, 1.0]])
    head = np.array([1, 0, 1], np.int32)
    replay_plans(
        RateState(1),
        sums,
        head,
        np.full(3, T0),
        np.array([1e9, 20_000.0, 1e9]),
        key=np.array([0, -1])[::1],
        group=np.array([0, 1]),
        bounds=bounds,
        plans=range(2),
    )
    assert sums.given.tolist() == [[[0, 0, 0], [1, 10_000, 10_000]], [[0, 0, 0], [0, 0, 0]]]
    assert sums.delayed.tolist() == [[0.0, 20_000.0], [0.0, 0.0]]


def test_decisions_made_elsewhere_add_up_the_same_way() -> None:
    sums = PlanSums(2)
    sums.grow(3)
    group = np.array([2, 0, 2, 2])
    sums.add(1, group, np.array([5, 0, 7, 1]), np.array([1.0, 2.0, 3.0, 4.0]))
    sums.add(1, group, np.zeros(4, np.int64), np.ones(4))
    assert sums.given[:3, 1].tolist() == [[0, 0, 0], [0, 0, 0], [3, 13, 7]]
    assert sums.delayed[:3, 1].tolist() == [0.0, 0.0, 8.0]
    assert not sums.given[:, 0].any()


def test_a_key_or_group_without_room_is_refused() -> None:
    for key, group in ((1, 0), (0, 1)):
        sums = PlanSums(1)
        sums.grow(1)
        with pytest.raises(ValueError, match="grow"):
            replay_plans(
                RateState(1),
                sums,
                np.zeros(1, np.int32),
                np.array([T0]),
                np.ones(1),
                key=np.array([key]),
                group=np.array([group]),
                bounds=np.ones((1, 1)),
                plans=range(1),
            )


def test_a_key_goes_on_from_where_another_is() -> None:
    state = RateState(2)
    replay_rate(state, [0], [T0], [20_000], bound=[1000.0])
    state.copy_key(0, 1)
    both = replay_rate(state, [0, 1], [T0, T0], [0, 0], bound=[1000.0, 1000.0])
    assert both.tolist() == [10_000, 10_000]
