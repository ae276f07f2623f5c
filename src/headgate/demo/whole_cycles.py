"""
The mean rate of a saturated client over whole cycles of its saw-tooth.

A client under a sampled quota sends a window's worth at once, is slow until that burst has left
the window, and starts again: its rate over time is a saw-tooth. Over whole windows the mean is its
quota. Over a span of another length it is up to a burst more or less. So the mean is taken over as
many whole windows as fit, for every start within one window, and these means are averaged. The
first two windows are left out: the first burst meets an empty window, and the saw-tooth settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SKIPPED: Final = 2
"""Windows left out at the start."""


def whole_cycles(
    times_ms: Sequence[float], amounts: Sequence[float], cycle_ms: int
) -> tuple[int, float] | None:
    """
    Return the mean rate over whole windows.

    Args:
        times_ms: of the charges, ascending.
        amounts: charged.
        cycle_ms: the quota window: samples times their length.

    Returns:
        How many whole windows each mean covers, and the amount per second; None where not even one
        window fits.
    """
    if not times_ms:
        return None
    start = times_ms[0] + SKIPPED * cycle_ms
    count = int((times_ms[-1] - start) // cycle_ms) - 1
    if count < 1:
        return None
    # A charge counts in every mean whose span covers it: those begun after `time - span` and before
    # `time`, within one window from the start.
    span = count * cycle_ms
    total = 0.0
    for time_ms, amount in zip(times_ms, amounts, strict=True):
        since = time_ms - start
        covered = min(since, cycle_ms) - max(0.0, since - span)
        if covered > 0:
            total += amount * covered
    return count, total / cycle_ms / (span / 1000)
