"""The compiled loops of the sampled rate; :mod:`headgate.kernel.rate` says what they do."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from headgate.kernel.codes import OP_BOUND, OP_MEASURE, OP_RECORD, OP_TOUCH, OP_UNRECORD
from headgate.kernel.compiled import compiled, expired, round_like_java
from headgate.throttle.java import UNLIMITED
from headgate.throttle.registry import EXPIRY_MS
from headgate.throttle.sensor import MOST_EXACT

# Columns of RateState.hot.
CURRENT, SIZE, START, LAST, OLDEST, QUICK, RECORD, EDGE = range(8)
# Columns of RateState.sums.
VALUE, OTHERS, BOUND, INEXACT = range(4)
NEVER = -(1 << 62)
LIMIT = float(MOST_EXACT)
MOST_SAMPLES = 1000
"""The sums of more samples than this aren't kept as they go."""
CERTAIN = 0.001 * (1.0 - 1e-12)
"""A sum below bound x window in ms x this is surely within the bound: no exact division needed."""


@compiled
def _settle(hot, sums, starts, lasts, values, k, now, num_samples, window_ms):
    """Purge and measure one key; return its sum and window, and prepare its fast path."""
    size = hot[k, SIZE]
    current = hot[k, CURRENT]
    if size == 0:
        # Rate.windowSize asks for the oldest sample, which makes one where there is none.
        size = 1
        hot[k, SIZE] = 1
        hot[k, START] = hot[k, LAST] = now
        starts[k, 0] = now
        values[k, 0] = 0.0
    lasts[k, current] = hot[k, LAST]
    values[k, current] = sums[k, VALUE]
    span = num_samples * window_ms
    exact = sums[k, INEXACT] == 0.0
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
    hot[k, START] = starts[k, current]
    hot[k, LAST] = lasts[k, current]
    sums[k, VALUE] = values[k, current]
    if exact:
        sums[k, OTHERS] = total - values[k, current]
    hot[k, OLDEST] = oldest
    elapsed = now - oldest
    pad = (num_samples - 1) * window_ms
    quick = np.int64(NEVER)
    if elapsed >= 0:
        hot[k, EDGE] = now - elapsed % window_ms
        if exact:
            quick = min(starts[k, current] + window_ms, first + span)
            quick = min(quick, hot[k, RECORD] + EXPIRY_MS)
        if elapsed < pad:
            elapsed = pad + elapsed % window_ms
    else:
        full = np.int64(np.int32(-((-elapsed) // window_ms)))
        if full < num_samples - 1:
            elapsed += (num_samples - 1 - full) * window_ms
    hot[k, QUICK] = quick
    return total, max(elapsed, 1)


@compiled
def _add(hot, sums, starts, lasts, values, k, amount, now, num_samples, window_ms):
    """Record an amount the slow way: open a sample, give up exact sums, if needed."""
    current = hot[k, CURRENT]
    if hot[k, SIZE] == 0:
        hot[k, SIZE] = 1
        hot[k, START] = now
        starts[k, 0] = now
        values[k, 0] = 0.0
        sums[k, VALUE] = 0.0
    elif now - hot[k, START] >= window_ms:
        values[k, current] = sums[k, VALUE]
        lasts[k, current] = hot[k, LAST]
        current = (current + 1) % (num_samples + 1)
        if current >= hot[k, SIZE]:
            current = hot[k, SIZE]
            hot[k, SIZE] = current + 1
        starts[k, current] = now
        values[k, current] = 0.0
        hot[k, CURRENT] = current
        hot[k, START] = now
        sums[k, VALUE] = 0.0
    value = sums[k, VALUE] + amount
    if amount != np.floor(amount) or not -LIMIT < value < LIMIT:
        sums[k, INEXACT] = 1.0
    sums[k, VALUE] = value
    hot[k, LAST] = now
    # If this isn't measured at once, the next measurement has to settle again.
    hot[k, QUICK] = NEVER


@compiled
def slow(state, k, now, amount, op):
    """
    Charge and measure one event without the fast path.

    Returns:
        (whether there is a measurement, sum, window).
    """
    hot, sums, starts, lasts, values, num_samples, window_ms, start_ms = state
    if hot[k, SIZE] < 0 or expired(hot[k, RECORD], now, start_ms):
        if op == OP_MEASURE:
            hot[k, SIZE] = -1
            return False, 0.0, np.int64(1)
        hot[k, CURRENT] = 0
        hot[k, SIZE] = 0
        hot[k, RECORD] = now
        hot[k, QUICK] = NEVER
        sums[k, VALUE] = 0.0
        sums[k, OTHERS] = 0.0
        sums[k, INEXACT] = 1.0 if num_samples > MOST_SAMPLES else 0.0
    if op == OP_TOUCH:
        return False, 0.0, np.int64(1)
    if op != OP_MEASURE:
        hot[k, RECORD] = now
        if op == OP_UNRECORD:
            amount = -amount
        _add(hot, sums, starts, lasts, values, k, amount, now, num_samples, window_ms)
        if op != OP_RECORD:
            return False, 0.0, np.int64(1)
    total, window = _settle(hot, sums, starts, lasts, values, k, now, num_samples, window_ms)
    return True, total, window


@compiled
def quick_window(hot, k, now, pad, window_ms):
    """Return the window, ms, that a charge to the current sample alone is measured over."""
    window = now - hot[k, OLDEST]
    if window < pad:
        edge = hot[k, EDGE]
        if now < edge:  # a measurement in between was later
            edge = now - window % window_ms
        while now - edge >= window_ms:
            edge += window_ms
        hot[k, EDGE] = edge
        return pad + (now - edge)
    return window if window else np.int64(1)


@compiled
def replay(state, keys, times, amounts, ops, bounds, cap_ms, throttle, rates, windows):
    """Replay a batch; arguments as :func:`headgate.kernel.rate.replay_rate` prepares them."""
    hot, sums, _, _, _, num_samples, window_ms, _ = state
    pad = (num_samples - 1) * window_ms
    has_ops = len(ops) > 0
    has_bounds = len(bounds) > 0
    has_rates = len(rates) > 0
    for i in range(len(keys)):
        k = keys[i]
        now = times[i]
        amount = amounts[i]
        op = ops[i] if has_ops else np.uint8(OP_RECORD)
        if op == OP_BOUND:
            sums[k, BOUND] = amount if amount == amount else UNLIMITED
            continue
        if has_bounds:
            sums[k, BOUND] = bounds[i]
        value = sums[k, VALUE] + amount
        if (
            op == OP_RECORD
            and hot[k, LAST] <= now < hot[k, QUICK]
            and amount == np.floor(amount)
            and 0.0 <= value < LIMIT
        ):
            # Nothing but the current sample's sum changes; quick ends before any expiry.
            sums[k, VALUE] = value
            hot[k, LAST] = now
            hot[k, RECORD] = now
            window = quick_window(hot, k, now, pad, window_ms)
            total = sums[k, OTHERS] + value
        else:
            measured, total, window = slow(state, k, now, amount, op)
            if not measured:
                continue
        bound = sums[k, BOUND]
        if not has_rates and total < bound * window * CERTAIN:
            continue
        rate = total / (window / 1000.0)
        if has_rates:
            rates[i] = rate
            windows[i] = window
        if op == OP_RECORD and not rate <= bound:
            ms = round_like_java((rate - bound) / bound * window)
            throttle[i] = min(ms, cap_ms)
