"""
The sampled rate over whole arrays, bit for bit :class:`headgate.throttle.sensor.SampledRate`.

Per key one row of hot numbers (one cache line) and its N + 1 samples. As in the sensor, sums of
whole numbers are kept as they go; the first fractional or huge amount turns the key to summing its
samples in Kafka's order at every check.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.kernel import rate_loop as loop
from headgate.kernel.codes import LONG_MAX, UNLIMITED
from headgate.kernel.rate_loop import BOUND, INEXACT, NEVER, QUICK, SIZE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_NO_OPS = np.empty(0, np.uint8)
_NO_FLOATS = np.empty(0, np.float64)
_NO_INTS = np.empty(0, np.int64)


class RateState:
    """
    The sampled rates of many keys, carried from batch to batch.

    Args:
        num_keys: how many keys there are; :meth:`grow` adds more.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
        start_ms: when expiry's ticks count from.
    """

    def __init__(
        self,
        num_keys: int,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        start_ms: int = 0,
    ) -> None:
        if num_samples < 1 or window_ms < 1:
            raise ValueError(f"need 1 sample of 1 ms at least, not {num_samples} of {window_ms} ms")
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.start_ms = start_ms
        self.hot: Ints = np.empty((0, 8), np.int64)
        self.sums: Floats = np.empty((0, 4), np.float64)
        self.starts: Ints = np.empty((0, num_samples + 1), np.int64)
        self.lasts: Ints = np.empty((0, num_samples + 1), np.int64)
        self.values: Floats = np.empty((0, num_samples + 1), np.float64)
        self.grow(num_keys)

    @property
    def num_keys(self) -> int:
        """How many keys there is room for."""
        return len(self.hot)

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it, as the compiled loops take it."""
        windows = (self.num_samples, self.window_ms, self.start_ms)
        return self.hot, self.sums, self.starts, self.lasts, self.values, *windows

    def grow(self, num_keys: int) -> None:
        """Make room for keys up to num_keys - 1; state is kept, room is doubled when short."""
        have = len(self.hot)
        if num_keys <= have:
            return
        add = max(num_keys, min(2 * have, have + (1 << 20))) - have
        hot = np.zeros((add, 8), np.int64)
        hot[:, SIZE] = -1  # no sensor
        hot[:, QUICK] = NEVER
        sums = np.zeros((add, 4), np.float64)
        sums[:, BOUND] = UNLIMITED
        if self.num_samples > 1000:
            sums[:, INEXACT] = 1.0
        slots = (add, self.num_samples + 1)
        self.hot = np.concatenate((self.hot, hot))
        self.sums = np.concatenate((self.sums, sums))
        self.starts = np.concatenate((self.starts, np.zeros(slots, np.int64)))
        self.lasts = np.concatenate((self.lasts, np.zeros(slots, np.int64)))
        self.values = np.concatenate((self.values, np.zeros(slots, np.float64)))

    def copy_key(self, key: int, to: int) -> None:
        """Let another key go on from where this one is."""
        for array in self.parts[:5]:
            array[to] = array[key]


def replay_rate(
    state: RateState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    cap_ms: int | None = None,
    rates: bool = False,
) -> Any:
    """
    Replay a batch of events; the package's docstring says what each argument means.

    Args:
        state: grown to the largest key; changed in place.
        key: one code per event.
        t_ms: one time per event, in order within each key.
        amount: one per event.
        op: one per event; None: all OP_RECORD.
        bound: the limit in force at each event; None: as OP_BOUND last set it.
        cap_ms: the longest throttle, None: uncapped.
        rates: whether to return rates and windows as well.

    Returns:
        Throttle times in ms (int64, unwrapped); with ``rates`` also the rate per second and the
        window in ms that each checking or measuring event saw (0 and 0 for the others).

    Raises:
        ValueError: arrays of different lengths, or a key outside the state.
    """
    keys, times, amounts, ops, bounds = batch(state, key, t_ms, amount, op, bound)
    count = len(keys)
    throttle = np.zeros(count, np.int64)
    rate = np.zeros(count, np.float64) if rates else _NO_FLOATS
    window = np.zeros(count, np.int64) if rates else _NO_INTS
    loop.replay(
        state.parts,
        keys,
        times,
        amounts,
        ops,
        bounds,
        LONG_MAX if cap_ms is None else cap_ms,
        throttle,
        rate,
        window,
    )
    return (throttle, rate, window) if rates else throttle


def batch(
    state: Any,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    op: ArrayLike | None,
    bound: ArrayLike | None,
) -> tuple[Ints, Ints, Floats, NDArray[np.uint8], Floats]:
    """Return a batch's arrays as the kernels take them, checked."""
    keys = np.ascontiguousarray(key, np.int64)
    times = np.ascontiguousarray(t_ms, np.int64)
    amounts = np.ascontiguousarray(amount, np.float64)
    ops = _NO_OPS if op is None else np.ascontiguousarray(op, np.uint8)
    bounds = _NO_FLOATS if bound is None else np.ascontiguousarray(bound, np.float64)
    count = len(keys)
    wrong = [len(a) for a in (times, amounts) if len(a) != count]
    if wrong or len(ops) not in (0, count) or len(bounds) not in (0, count):
        raise ValueError(f"{count} keys, but other arrays of a batch have other lengths")
    if count and not (keys.min() >= 0 and keys.max() < state.num_keys):
        raise ValueError(f"keys must be 0 to {state.num_keys - 1}; call grow() for more")
    return keys, times, amounts, ops, bounds
