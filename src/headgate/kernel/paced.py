"""
Pacing buckets over whole arrays, bit for bit :class:`headgate.throttle.pacing.PacedQuotaManager`.

They differ from ``bucket``'s: a bound that moves pays out at the old bound first, a clock that is
set back takes nothing away, and a bucket begins full of a burst of its own length.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from headgate.kernel.bucket import BucketState
from headgate.kernel.codes import OP_BOUND, OP_MEASURE, OP_RECORD, OP_TOUCH, OP_UNRECORD
from headgate.kernel.compiled import compiled, expired, round_like_java
from headgate.kernel.states import Ints, batch
from headgate.throttle.pacing import SET_BACK_MS


class PacedState(BucketState):
    """The pacing buckets of many keys, carried from batch to batch."""

    no_bound: ClassVar[float] = inf


def replay_paced(
    state: PacedState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    cap_ms: int | None = None,
) -> Ints:
    """
    Replay a batch of events on pacing buckets; arguments as for ``replay_rate``.

    Where a charge's bound differs from its key's, the bound moved at that moment; ``OP_BOUND``
    (its amount: the new bound) moves it in between. ``cap_ms`` caps one throttle; what is owed
    beyond it stays owed.

    Returns:
        Throttle times in ms (int64, unwrapped).

    Raises:
        ValueError: arrays of different lengths, or a key outside the state.
    """
    given = batch(state, key, t_ms, amount, op, bound, cap_ms)
    _replay(*given)
    throttle: Ints = given[-1]
    return throttle


@compiled
def _refill(tokens, bound, last, now, burst_s):
    """Return the tokens at now."""
    if now > last:
        tokens = tokens + bound * ((now - last) / 1000.0)
        burst = bound * burst_s
        if not tokens < burst:
            tokens = burst
    return tokens


@compiled
def _replay(state, keys, times, amounts, ops, bounds, cap_ms, throttle):
    all_tokens, all_bounds, all_lasts, all_records, exists, num_samples, window_ms, start_ms = state
    burst_s = num_samples * window_ms / 1000.0
    for i in range(len(keys)):
        k = keys[i]
        now = times[i]
        amount = amounts[i]
        op = ops[i] if len(ops) else np.uint8(OP_RECORD)
        bound = bounds[i] if len(bounds) else all_bounds[k]
        if op == OP_BOUND:
            bound = amount
        if not exists[k] or expired(all_records[k], now, start_ms):
            exists[k] = False
            all_bounds[k] = bound
            if op == OP_MEASURE or op == OP_BOUND:  # noqa: SIM109 - `in` is slower here
                continue
            exists[k] = True
            all_tokens[k] = bound * burst_s
            all_lasts[k] = now
        else:
            if op != OP_MEASURE and op != OP_TOUCH and all_lasts[k] - now > SET_BACK_MS:
                all_lasts[k] = now
            if bound != all_bounds[k]:
                tokens = _refill(all_tokens[k], all_bounds[k], all_lasts[k], now, burst_s)
                all_lasts[k] = max(all_lasts[k], now)
                all_bounds[k] = bound
                all_tokens[k] = inf if bound == inf else min(tokens, bound * burst_s)
        if op == OP_MEASURE or op == OP_BOUND:  # noqa: SIM109 - `in` is slower here
            continue
        all_records[k] = now
        if op == OP_TOUCH:
            continue
        if op == OP_UNRECORD:
            all_tokens[k] = min(all_tokens[k] + amount, bound * burst_s)
            continue
        tokens = _refill(all_tokens[k], bound, all_lasts[k], now, burst_s) - amount
        all_lasts[k] = max(all_lasts[k], now)
        all_tokens[k] = tokens
        if tokens < 0.0 and op == OP_RECORD:
            throttle[i] = min(max(round_like_java(-tokens / bound * 1000.0), 0), cap_ms)
