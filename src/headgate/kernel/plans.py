"""
The sampled rate under several limits at once: one pass, the decisions added up, no array of them.

A sensor's samples don't depend on its limit, so plans in which the same clients share a quota need
its sums only once. Each plan costs a comparison where the lowest limit is passed, and nothing else.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headgate.kernel.codes import OP_RECORD
from headgate.kernel.compiled import compiled, round_like_java
from headgate.kernel.rate import RateState
from headgate.kernel.rate_loop import (
    CERTAIN,
    LAST,
    LIMIT,
    OTHERS,
    QUICK,
    RECORD,
    VALUE,
    quick_window,
    slow,
)
from headgate.kernel.states import NO_OPS, Floats, Ints
from headgate.throttle.java import LONG_MAX


class PlanSums:
    """
    What decisions add up to, by group and plan.

    Args:
        plans: how many plans there are.

    Attributes:
        given: throttled events, their throttle times in ms, and the largest: (groups, plans, 3).
        delayed: amounts of throttled events: (groups, plans).
    """

    def __init__(self, plans: int) -> None:
        self.given: Ints = np.zeros((0, plans, 3), np.int64)
        self.delayed: Floats = np.zeros((0, plans), np.float64)

    def grow(self, groups: int) -> None:
        """Make room for groups up to groups - 1."""
        have = len(self.given)
        if groups > have:
            room = max(groups, 2 * have)
            given = np.zeros((room, *self.given.shape[1:]), np.int64)
            delayed = np.zeros((room, *self.delayed.shape[1:]), np.float64)
            given[:have], delayed[:have] = self.given, self.delayed
            self.given, self.delayed = given, delayed

    def add(self, plan: int, group: Ints, throttle_ms: Ints, amount: Floats) -> None:
        """Add decisions up that were made elsewhere; 0 = not throttled."""
        hit = np.flatnonzero(throttle_ms > 0)
        if not len(hit):
            return
        at, ms, room = group[hit], throttle_ms[hit], len(self.given)
        self.given[:, plan, 0] += np.bincount(at, minlength=room)
        np.add.at(self.given[:, plan, 1], at, ms)
        np.maximum.at(self.given[:, plan, 2], at, ms)
        self.delayed[:, plan] += np.bincount(at, amount[hit], minlength=room)


def replay_plans(
    state: RateState,
    sums: PlanSums,
    head: NDArray[np.int32],
    t_ms: Ints,
    amount: Floats,
    *,
    key: Ints,
    group: Ints,
    bounds: Floats,
    plans: Sequence[int],
    op: NDArray[np.uint8] | None = None,
    cap_ms: int | None = None,
) -> None:
    """
    Replay a batch of events under several limits.

    Args:
        state: grown to the largest key; changed in place (but for its bounds).
        sums: grown to the largest group; added to.
        head: what each event belongs to; indexes ``key``, ``group`` and ``bounds``.
        t_ms: whole ms per event, in order within each key.
        amount: per event.
        key: by head, the sensor's code; -1 leaves the head's events out.
        group: by head, where decisions are added up.
        bounds: by head and plan, the limit; NaN: this plan's decisions aren't wanted.
        plans: which of the plans are meant.
        op: per event, no OP_BOUND among them; None: all OP_RECORD.
        cap_ms: the longest throttle; None: uncapped.

    Raises:
        ValueError: a key or group that there's no room for.
    """
    if len(key) and not (key.max() < state.num_keys and group.max() < len(sums.given)):
        raise ValueError("keys or groups without room; call grow()")
    chosen = np.array(plans, np.int64)
    mine = np.ascontiguousarray(bounds[:, chosen])
    lowest = np.where(np.isnan(mine), np.inf, mine).min(axis=1, initial=np.inf)
    _replay(
        state.parts,
        head,
        t_ms,
        amount,
        NO_OPS if op is None else op,
        key,
        group,
        mine,
        lowest,
        chosen,
        LONG_MAX if cap_ms is None else cap_ms,
        sums.given,
        sums.delayed,
    )


@compiled
def _replay(
    state, heads, times, amounts, ops, keys, groups, bounds, lowest, plans, cap_ms, given, delayed
):
    hot, sums, _, _, _, num_samples, window_ms, _ = state
    pad = (num_samples - 1) * window_ms
    has_ops = len(ops) > 0
    for i in range(len(heads)):
        head = heads[i]
        k = keys[head]
        if k < 0:
            continue
        now = times[i]
        amount = amounts[i]
        op = ops[i] if has_ops else np.uint8(OP_RECORD)
        value = sums[k, VALUE] + amount
        if (
            op == OP_RECORD
            and hot[k, LAST] <= now < hot[k, QUICK]
            and amount == np.floor(amount)
            and 0.0 <= value < LIMIT
        ):
            # As in rate_loop, which says more. A function of both would cost twice the time: Numba
            # counts the references to each array that it is given.
            sums[k, VALUE] = value
            hot[k, LAST] = now
            hot[k, RECORD] = now
            window = quick_window(hot, k, now, pad, window_ms)
            total = sums[k, OTHERS] + value
        else:
            measured, total, window = slow(state, k, now, amount, op)
            if not measured or op != OP_RECORD:
                continue
        if total < lowest[head] * window * CERTAIN:
            continue
        rate = total / (window / 1000.0)
        group = groups[head]
        for column in range(len(plans)):
            bound = bounds[head, column]
            if rate > bound:
                plan = plans[column]
                ms = min(round_like_java((rate - bound) / bound * window), cap_ms)
                if ms > 0:
                    given[group, plan, 0] += 1
                    given[group, plan, 1] += ms
                    if ms > given[group, plan, 2]:
                        given[group, plan, 2] = ms
                    delayed[group, plan] += amount
