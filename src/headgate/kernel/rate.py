"""
The sampled rate over whole arrays, bit for bit :class:`headgate.throttle.sensor.SampledRate`.

Per key one row of hot numbers (one cache line) and its N + 1 samples. As in the sensor, sums of
whole numbers are kept as they go; the first fractional or huge amount turns the key to summing its
samples in Kafka's order at every check.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.kernel.codes import EXPIRY_MS, EXPIRY_PERIOD_MS, LONG_MAX, UNLIMITED
from headgate.kernel.compiled import compiled, round_like_java
from headgate.throttle.sensor import MOST_EXACT

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Columns of RateState.hot.
_CURRENT, _SIZE, _START, _LAST, _OLDEST, _QUICK, _RECORD, _EDGE = range(8)
# Columns of RateState.sums.
_VALUE, _OTHERS, _BOUND, _INEXACT = range(4)
_NEVER = -(1 << 62)
_LIMIT = float(MOST_EXACT)
_CERTAIN = 0.001 * (1.0 - 1e-12)
"""Windows in ms times this, times the bound, is surely below what the exact division gives."""
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
        expiry_period_ms: ms between ticks.

    Attributes:
        bound: each key's limit; 2^63 - 1 as a double where none was set.
    """

    def __init__(
        self,
        num_keys: int,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        start_ms: int = 0,
        expiry_period_ms: int = EXPIRY_PERIOD_MS,
    ) -> None:
        if num_samples < 1 or window_ms < 1:
            raise ValueError(f"need 1 sample of 1 ms at least, not {num_samples} of {window_ms} ms")
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.start_ms = start_ms
        self.expiry_period_ms = expiry_period_ms
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
    def bound(self) -> Floats:
        """Each key's limit, as a view that may be written."""
        view: Floats = self.sums[:, _BOUND]
        return view

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes: about 100 + 24 x (N + 1) per key."""
        arrays = (self.hot, self.sums, self.starts, self.lasts, self.values)
        return sum(array.nbytes for array in arrays)

    def grow(self, num_keys: int) -> None:
        """Make room for keys up to num_keys - 1; state is kept, room is doubled when short."""
        have = len(self.hot)
        if num_keys <= have:
            return
        add = max(num_keys, min(2 * have, have + (1 << 20))) - have
        hot = np.zeros((add, 8), np.int64)
        hot[:, _SIZE] = -1  # no sensor
        hot[:, _QUICK] = _NEVER
        sums = np.zeros((add, 4), np.float64)
        sums[:, _BOUND] = UNLIMITED
        if self.num_samples > 1000:
            sums[:, _INEXACT] = 1.0
        slots = (add, self.num_samples + 1)
        self.hot = np.concatenate((self.hot, hot))
        self.sums = np.concatenate((self.sums, sums))
        self.starts = np.concatenate((self.starts, np.zeros(slots, np.int64)))
        self.lasts = np.concatenate((self.lasts, np.zeros(slots, np.int64)))
        self.values = np.concatenate((self.values, np.zeros(slots, np.float64)))


@overload
def replay_rate(
    state: RateState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = ...,
    bound: ArrayLike | None = ...,
    bound_per_key: ArrayLike | None = ...,
    cap_ms: int | None = ...,
    rates: Literal[False] = ...,
) -> Ints: ...
@overload
def replay_rate(
    state: RateState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = ...,
    bound: ArrayLike | None = ...,
    bound_per_key: ArrayLike | None = ...,
    cap_ms: int | None = ...,
    rates: Literal[True],
) -> tuple[Ints, Floats, Ints]: ...
def replay_rate(
    state: RateState,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    *,
    op: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    bound_per_key: ArrayLike | None = None,
    cap_ms: int | None = None,
    rates: bool = False,
) -> Ints | tuple[Ints, Floats, Ints]:
    """
    Replay a batch of events; the package's docstring says what each argument means.

    Args:
        state: grown to the largest key; changed in place.
        key: one code per event.
        t_ms: one time per event, in order within each key.
        amount: one per event.
        op: one per event; None: all OP_RECORD.
        bound: the limit in force at each event.
        bound_per_key: or the limit of each key, kept in the state from now on.
        cap_ms: the longest throttle, None: uncapped.
        rates: whether to return rates and windows as well.

    Returns:
        Throttle times in ms (int64, unwrapped); with ``rates`` also the rate per second and the
        window in ms that each checking or measuring event saw (0 and 0 for the others).

    Raises:
        ValueError: arrays of different lengths, or a key outside the state.
    """
    keys, times, amounts, ops, bounds = batch(state, key, t_ms, amount, op, bound, bound_per_key)
    count = len(keys)
    throttle = np.zeros(count, np.int64)
    rate = np.zeros(count, np.float64) if rates else _NO_FLOATS
    window = np.zeros(count, np.int64) if rates else _NO_INTS
    _replay(
        state.hot,
        state.sums,
        state.starts,
        state.lasts,
        state.values,
        state.num_samples,
        state.window_ms,
        state.start_ms,
        state.expiry_period_ms,
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
    bound_per_key: ArrayLike | None,
) -> tuple[Ints, Ints, Floats, NDArray[np.uint8], Floats]:
    """Return a batch's arrays as the kernels take them, checked; room is made for new bounds."""
    keys = np.ascontiguousarray(key, np.int64)
    times = np.ascontiguousarray(t_ms, np.int64)
    amounts = np.ascontiguousarray(amount, np.float64)
    ops = _NO_OPS if op is None else np.ascontiguousarray(op, np.uint8)
    bounds = _NO_FLOATS if bound is None else np.ascontiguousarray(bound, np.float64)
    if bound_per_key is not None:
        per_key = np.asarray(bound_per_key, np.float64)
        state.grow(len(per_key))
        state.bound[: len(per_key)] = per_key
    count = len(keys)
    wrong = [len(a) for a in (times, amounts) if len(a) != count]
    if wrong or len(ops) not in (0, count) or len(bounds) not in (0, count):
        raise ValueError(f"{count} keys, but other arrays of a batch have other lengths")
    if count and not (keys.min() >= 0 and keys.max() < state.num_keys):
        raise ValueError(f"keys must be 0 to {state.num_keys - 1}; call grow() for more")
    return keys, times, amounts, ops, bounds


@compiled
def _settle(hot, sums, starts, lasts, values, k, now, num_samples, window_ms):
    """Purge and measure one key; return its sum and window, and ready its quick way."""
    size = hot[k, _SIZE]
    current = hot[k, _CURRENT]
    if size == 0:
        # Rate.windowSize asks for the oldest sample, which makes one where there is none.
        size = 1
        hot[k, _SIZE] = 1
        hot[k, _START] = hot[k, _LAST] = now
        starts[k, 0] = now
        values[k, 0] = 0.0
    lasts[k, current] = hot[k, _LAST]
    values[k, current] = sums[k, _VALUE]
    span = num_samples * window_ms
    exact = sums[k, _INEXACT] == 0.0
    oldest = starts[k, 0]
    first = lasts[k, 0]
    total = 0.0
    for i in range(size):
        if now - lasts[k, i] >= span:
            starts[k, i] = now
            lasts[k, i] = now
            values[k, i] = 0.0
        oldest = min(oldest, starts[k, i]) if i else starts[k, 0]
        first = min(first, lasts[k, i]) if i else lasts[k, 0]
        total += values[k, i]
    hot[k, _START] = starts[k, current]
    hot[k, _LAST] = lasts[k, current]
    sums[k, _VALUE] = values[k, current]
    if exact:
        sums[k, _OTHERS] = total - values[k, current]
    hot[k, _OLDEST] = oldest
    elapsed = now - oldest
    pad = (num_samples - 1) * window_ms
    quick = np.int64(_NEVER)
    if elapsed >= 0:
        hot[k, _EDGE] = now - elapsed % window_ms
        if exact:
            quick = min(starts[k, current] + window_ms, first + span)
            quick = min(quick, hot[k, _RECORD] + EXPIRY_MS)
        if elapsed < pad:
            elapsed = pad + elapsed % window_ms
    else:
        full = np.int64(np.int32(-((-elapsed) // window_ms)))
        if full < num_samples - 1:
            elapsed += (num_samples - 1 - full) * window_ms
    hot[k, _QUICK] = quick
    return total, max(elapsed, 1)


@compiled
def _add(hot, sums, starts, lasts, values, k, amount, now, num_samples, window_ms):
    """Record an amount the slow way: open a sample where needed, leave exact sums where needed."""
    current = hot[k, _CURRENT]
    if hot[k, _SIZE] == 0:
        hot[k, _SIZE] = 1
        hot[k, _START] = now
        starts[k, 0] = now
        values[k, 0] = 0.0
        sums[k, _VALUE] = 0.0
    elif now - hot[k, _START] >= window_ms:
        values[k, current] = sums[k, _VALUE]
        lasts[k, current] = hot[k, _LAST]
        current = (current + 1) % (num_samples + 1)
        if current >= hot[k, _SIZE]:
            current = hot[k, _SIZE]
            hot[k, _SIZE] = current + 1
        starts[k, current] = now
        values[k, current] = 0.0
        hot[k, _CURRENT] = current
        hot[k, _START] = now
        sums[k, _VALUE] = 0.0
    value = sums[k, _VALUE] + amount
    if amount != np.floor(amount) or not -_LIMIT < value < _LIMIT:
        sums[k, _INEXACT] = 1.0
    sums[k, _VALUE] = value
    hot[k, _LAST] = now
    # Whatever isn't measured at once leaves the next measurement to settle anew.
    hot[k, _QUICK] = _NEVER


@compiled
def _replay(
    hot,
    sums,
    starts,
    lasts,
    values,
    num_samples,
    window_ms,
    start_ms,
    period_ms,
    keys,
    times,
    amounts,
    ops,
    bounds,
    cap_ms,
    throttle,
    rates,
    windows,
):
    pad = (num_samples - 1) * window_ms
    has_ops = len(ops) > 0
    has_bounds = len(bounds) > 0
    has_rates = len(rates) > 0
    for i in range(len(keys)):
        k = keys[i]
        now = times[i]
        amount = amounts[i]
        if has_bounds:
            sums[k, _BOUND] = bounds[i]
        op = ops[i] if has_ops else np.uint8(0)
        if op == 0 and hot[k, _LAST] <= now < hot[k, _QUICK] and amount == np.floor(amount):
            value = sums[k, _VALUE] + amount
            if 0.0 <= value < _LIMIT:
                # Nothing but the current sample's sum changes; quick ends before any expiry.
                sums[k, _VALUE] = value
                hot[k, _LAST] = now
                hot[k, _RECORD] = now
                window = now - hot[k, _OLDEST]
                if window < pad:
                    edge = hot[k, _EDGE]
                    if now < edge:  # a measurement in between was later
                        edge = now - window % window_ms
                    while now - edge >= window_ms:
                        edge += window_ms
                    hot[k, _EDGE] = edge
                    window = pad + (now - edge)
                elif window == 0:
                    window = np.int64(1)
                total = sums[k, _OTHERS] + value
                bound = sums[k, _BOUND]
                if not has_rates and total < bound * window * _CERTAIN:
                    continue
                rate = total / (window / 1000.0)
                if has_rates:
                    rates[i] = rate
                    windows[i] = window
                if not rate <= bound:
                    ms = round_like_java((rate - bound) / bound * window)
                    throttle[i] = min(ms, cap_ms)
                continue
        if op == 4:
            sums[k, _BOUND] = amount if amount == amount else UNLIMITED
            continue
        size = hot[k, _SIZE]
        if size >= 0 and now - hot[k, _RECORD] > EXPIRY_MS:
            tick = now - (now - start_ms) % period_ms
            if tick - hot[k, _RECORD] > EXPIRY_MS:
                size = np.int64(-1)
        if size < 0:
            if op == 3:
                hot[k, _SIZE] = -1
                continue
            hot[k, _CURRENT] = 0
            hot[k, _SIZE] = 0
            hot[k, _RECORD] = now
            hot[k, _QUICK] = _NEVER
            sums[k, _VALUE] = 0.0
            sums[k, _OTHERS] = 0.0
            sums[k, _INEXACT] = 1.0 if num_samples > 1000 else 0.0
        if op == 6:
            continue
        if op != 3:
            hot[k, _RECORD] = now
            if op == 2:
                amount = -amount
            _add(hot, sums, starts, lasts, values, k, amount, now, num_samples, window_ms)
            if op != 0:
                continue
        total, window = _settle(hot, sums, starts, lasts, values, k, now, num_samples, window_ms)
        rate = total / (window / 1000.0)
        if has_rates:
            rates[i] = rate
            windows[i] = window
        bound = sums[k, _BOUND]
        if op == 0 and not rate <= bound:
            ms = round_like_java((rate - bound) / bound * window)
            throttle[i] = min(ms, cap_ms)
