"""
Token buckets over whole arrays, bit for bit :class:`headgate.throttle.token_bucket.TokenBucket`.

OP_RECORD is the permissive way (charge, then check), OP_STRICT the strict one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.kernel.codes import EXPIRY_MS, EXPIRY_PERIOD_MS, LONG_MAX, UNLIMITED
from headgate.kernel.compiled import compiled, round_like_java
from headgate.kernel.rate import Floats, Ints, batch

Bools = NDArray[np.bool_]


class BucketState:
    """
    The token buckets of many keys, carried from batch to batch.

    Args:
        num_keys: how many keys there are; :meth:`grow` adds more.
        num_samples: controller.quota.window.num; with window_ms the burst, N x W s of the quota.
        window_ms: controller.quota.window.size.seconds x 1000.
        start_ms: when expiry's ticks count from.

    Attributes:
        tokens: what each key holds at ``last_ms``.
        bound: each key's tokens per second; 2^63 - 1 as a double where none was set.
    """

    no_bound: ClassVar[float] = UNLIMITED

    def __init__(
        self,
        num_keys: int,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        start_ms: int = 0,
    ) -> None:
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.start_ms = start_ms
        self.tokens: Floats = np.empty(0, np.float64)
        self.bound: Floats = np.empty(0, np.float64)
        self.last_ms: Ints = np.empty(0, np.int64)
        self.record_ms: Ints = np.empty(0, np.int64)
        self.exists: Bools = np.empty(0, np.bool_)
        self.grow(num_keys)

    @property
    def num_keys(self) -> int:
        """How many keys there is room for."""
        return len(self.tokens)

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it, as the compiled loops take it."""
        windows = (self.num_samples, self.window_ms, self.start_ms)
        return self.tokens, self.bound, self.last_ms, self.record_ms, self.exists, *windows

    def grow(self, num_keys: int) -> None:
        """Make room for keys up to num_keys - 1; state is kept."""
        add = num_keys - len(self.tokens)
        if add > 0:
            self.tokens = np.concatenate((self.tokens, np.zeros(add)))
            self.bound = np.concatenate((self.bound, np.full(add, self.no_bound)))
            self.last_ms = np.concatenate((self.last_ms, np.zeros(add, np.int64)))
            self.record_ms = np.concatenate((self.record_ms, np.zeros(add, np.int64)))
            self.exists = np.concatenate((self.exists, np.zeros(add, np.bool_)))


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
    keys, times, amounts, ops, bounds = batch(state, key, t_ms, amount, op, bound)
    throttle = np.zeros(len(keys), np.int64)
    tokens = np.zeros(len(keys), np.float64)
    refused = np.zeros(len(keys), np.bool_)
    _replay(
        state.parts,
        keys,
        times,
        amounts,
        ops,
        bounds,
        LONG_MAX if cap_ms is None else cap_ms,
        throttle,
        tokens,
        refused,
    )
    return (throttle, tokens, refused) if details else throttle


@compiled
def _replay(state, keys, times, amounts, ops, bounds, cap_ms, throttle, tokens_out, refused):
    all_tokens, all_bounds, all_lasts, all_records, exists, num_samples, window_ms, start_ms = state
    span_s = num_samples * (window_ms / 1000.0)
    for i in range(len(keys)):
        k = keys[i]
        now = times[i]
        amount = amounts[i]
        op = ops[i] if len(ops) else np.uint8(0)
        if op == 4:
            all_bounds[k] = amount if amount == amount else UNLIMITED
            continue
        if len(bounds):
            all_bounds[k] = bounds[i]
        alive = exists[k]
        if alive and now - all_records[k] > EXPIRY_MS:
            tick = now - (now - start_ms) % EXPIRY_PERIOD_MS
            alive = not tick - all_records[k] > EXPIRY_MS
        if not alive:
            exists[k] = op != 3
            if op == 3:
                tokens_out[i] = np.nan
                continue
            all_tokens[k] = 0.0
            all_lasts[k] = 0
            all_records[k] = now
        if op == 6:
            continue
        bound = all_bounds[k]
        burst = span_s * bound
        tokens = all_tokens[k] + bound * ((now - all_lasts[k]) / 1000.0)
        if not tokens <= burst:
            tokens = burst
        all_lasts[k] = now
        if op == 5 and tokens < 0.0:
            refused[i] = True
        elif op != 3:
            all_records[k] = now
            spent = tokens + amount if op == 2 else tokens - amount
            if op != 5 and spent < 0.0 and op == 0:
                throttle[i] = min(round_like_java(-spent / bound * 1000.0), cap_ms)
            tokens = spent if spent <= burst else burst
        if refused[i]:
            throttle[i] = min(round_like_java(-tokens / bound * 1000.0), cap_ms)
        all_tokens[k] = tokens
        tokens_out[i] = tokens
