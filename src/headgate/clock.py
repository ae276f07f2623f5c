"""
The wall clock. Pure packages (``quota``, ``throttle``, ``wire``, the gateway's ``charging`` and
``session``) don't use it: they take the time as an argument.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000
