"""
The wall clock, and how it is set. Pure packages (``quota``, ``throttle``, ``wire``, the gateway's
``charging`` and ``session``) don't use it: they take the time as an argument.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


def skew_ms() -> int:
    """
    Return how far the wall clock is ahead of one that is never set, ms.

    The wall clock is read first. If this process is suspended between the two readings, the wall
    clock seems set back, and at the next call set forward again.
    """
    wall_ns = time.time_ns()
    return (wall_ns - time.monotonic_ns()) // 1_000_000
