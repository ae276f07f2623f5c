"""The compiled loops of the sampled rate; :mod:`headgate.kernel.rate` says what they do."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from headgate.kernel.codes import EXPIRY_MS, EXPIRY_PERIOD_MS, UNLIMITED
from headgate.kernel.compiled import compiled, round_like_java
from headgate.throttle.sensor import MOST_EXACT

# Columns of RateState.hot.
CURRENT, SIZE, START, LAST, OLDEST, QUICK, RECORD, EDGE = range(8)
# Columns of RateState.sums.
VALUE, OTHERS, BOUND, INEXACT = range(4)
NEVER = -(1 << 62)
LIMIT = float(MOST_EXACT)
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
    size = hot[k, SIZE]
    if size >= 0 and now - hot[k, RECORD] > EXPIRY_MS:
        tick = now - (now - start_ms) % EXPIRY_PERIOD_MS
        if tick - hot[k, RECORD] > EXPIRY_MS:
            size = np.int64(-1)
    if size < 0:
        if op == 3:
            hot[k, SIZE] = -1
            return False, 0.0, np.int64(1)
        hot[k, CURRENT] = 0
        hot[k, SIZE] = 0
        hot[k, RECORD] = now
        hot[k, QUICK] = NEVER
        sums[k, VALUE] = 0.0
        sums[k, OTHERS] = 0.0
        sums[k, INEXACT] = 1.0 if num_samples > 1000 else 0.0
    if op == 6:
        return False, 0.0, np.int64(1)
    if op != 3:
        hot[k, RECORD] = now
        if op == 2:
            amount = -amount
        _add(hot, sums, starts, lasts, values, k, amount, now, num_samples, window_ms)
        if op != 0:
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
        if has_bounds:
            sums[k, BOUND] = bounds[i]
        op = ops[i] if has_ops else np.uint8(0)
        if op == 0 and hot[k, LAST] <= now < hot[k, QUICK] and amount == np.floor(amount):
            value = sums[k, VALUE] + amount
            if 0.0 <= value < LIMIT:
                # Nothing but the current sample's sum changes; quick ends before any expiry.
                sums[k, VALUE] = value
                hot[k, LAST] = now
                hot[k, RECORD] = now
                window = quick_window(hot, k, now, pad, window_ms)
                total = sums[k, OTHERS] + value
                bound = sums[k, BOUND]
                if not has_rates and total < bound * window * CERTAIN:
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
            sums[k, BOUND] = amount if amount == amount else UNLIMITED
            continue
        done, total, window = slow(state, k, now, amount, op)
        if not done:
            continue
        rate = total / (window / 1000.0)
        if has_rates:
            rates[i] = rate
            windows[i] = window
        bound = sums[k, BOUND]
        if op == 0 and not rate <= bound:
            ms = round_like_java((rate - bound) / bound * window)
            throttle[i] = min(ms, cap_ms)
