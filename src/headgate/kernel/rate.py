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
from headgate.kernel.rate_loop import BOUND, INEXACT, NEVER, QUICK, SIZE
from headgate.kernel.states import KeyStates, batch
from headgate.throttle.java import UNLIMITED


class RateState(KeyStates):
    """The sampled rates of many keys, carried from batch to batch."""

    def _fresh(self, count: int) -> tuple[NDArray[Any], ...]:
        hot = np.zeros((count, 8), np.int64)
        hot[:, SIZE] = -1  # no sensor
        hot[:, QUICK] = NEVER
        sums = np.zeros((count, 4), np.float64)
        sums[:, BOUND] = UNLIMITED
        sums[:, INEXACT] = self.num_samples > loop.MOST_SAMPLES
        slots = (count, self.num_samples + 1)
        starts, lasts = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        return hot, sums, starts, lasts, np.zeros(slots, np.float64)


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
    given = batch(state, key, t_ms, amount, op, bound, cap_ms)
    throttle = given[-1]
    count = len(throttle) if rates else 0
    rate, window = np.zeros(count, np.float64), np.zeros(count, np.int64)
    loop.replay(*given, rate, window)
    return (throttle, rate, window) if rates else throttle
