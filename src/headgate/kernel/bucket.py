"""
Token buckets over whole arrays, bit for bit :class:`headgate.throttle.token_bucket.TokenBucket`.

OP_RECORD is the permissive way (charge, then check), OP_STRICT the strict one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.kernel.codes import (
    OP_BOUND,
    OP_MEASURE,
    OP_RECORD,
    OP_STRICT,
    OP_TOUCH,
    OP_UNRECORD,
)
from headgate.kernel.compiled import compiled, expired, round_like_java
from headgate.kernel.states import KeyStates, batch
from headgate.throttle.java import UNLIMITED


class BucketState(KeyStates):
    """The token buckets of many keys, carried from batch to batch."""

    no_bound: ClassVar[float] = UNLIMITED

    def _fresh(self, count: int) -> tuple[NDArray[Any], ...]:
        tokens, bound = np.zeros(count), np.full(count, self.no_bound)
        last_ms, record_ms = np.zeros(count, np.int64), np.zeros(count, np.int64)
        return tokens, bound, last_ms, record_ms, np.zeros(count, np.bool_)


def replay_bucket(
    state: BucketState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    cap_ms: int | None = None,
    details: bool = False,
) -> Any:
    """
    Replay a batch of events on token buckets; arguments as for ``replay_rate``.

    Returns:
        Throttle times in ms (int64, unwrapped), above 0 while tokens are below zero; with
        ``details`` also the tokens after each event (NaN where no bucket was), and whether it was
        refused (OP_STRICT).

    Raises:
        ValueError: arrays of different lengths, or a key outside the state.
    """
    given = batch(state, key, t_ms, amount, op, bound, cap_ms)
    throttle = given[-1]
    tokens, refused = np.zeros(len(throttle), np.float64), np.zeros(len(throttle), np.bool_)
    _replay(*given, tokens, refused)
    return (throttle, tokens, refused) if details else throttle


@compiled
def _replay(state, keys, times, amounts, ops, bounds, cap_ms, throttle, tokens_out, refused):
    all_tokens, all_bounds, all_lasts, all_records, exists, num_samples, window_ms, start_ms = state
    span_s = num_samples * (window_ms / 1000.0)
    for i in range(len(keys)):
        k = keys[i]
        now = times[i]
        amount = amounts[i]
        op = ops[i] if len(ops) else np.uint8(OP_RECORD)
        if op == OP_BOUND:
            all_bounds[k] = amount if amount == amount else UNLIMITED
            if amount == inf and exists[k]:
                all_tokens[k] = inf
                all_lasts[k] = now
            continue
        if len(bounds):
            all_bounds[k] = bounds[i]
        if not exists[k] or expired(all_records[k], now, start_ms):
            exists[k] = op != OP_MEASURE
            if op == OP_MEASURE:
                tokens_out[i] = np.nan
                continue
            all_tokens[k] = 0.0
            all_lasts[k] = 0
            all_records[k] = now
        if op == OP_TOUCH:
            continue
        bound = all_bounds[k]
        burst = span_s * bound
        tokens = all_tokens[k] + bound * ((now - all_lasts[k]) / 1000.0)
        if not tokens <= burst:
            tokens = burst
        all_lasts[k] = now
        if op == OP_STRICT and tokens < 0.0:
            refused[i] = True
        elif op != OP_MEASURE:
            all_records[k] = now
            spent = tokens + amount if op == OP_UNRECORD else tokens - amount
            if op == OP_RECORD and spent < 0.0:
                throttle[i] = min(round_like_java(-spent / bound * 1000.0), cap_ms)
            tokens = spent if spent <= burst else burst
        if refused[i]:
            throttle[i] = min(round_like_java(-tokens / bound * 1000.0), cap_ms)
        all_tokens[k] = tokens
        tokens_out[i] = tokens
