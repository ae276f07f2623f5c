"""
What time it is: for packages that may ask. The pure ones (``quota``, ``throttle``, ``wire``, the
gateway's ``charging`` and ``session``) have it as an argument.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000
