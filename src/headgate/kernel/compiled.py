"""Numba's settings for every kernel, and Java's rounding compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def compiled(function: Callable[..., Any]) -> Any:
    """
    Compile with IEEE arithmetic kept (no fastmath, division by zero as Java's), without the GIL.

    The machine code is cached on disk, beside the source or in NUMBA_CACHE_DIR.
    """
    return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function)


@compiled
def round_like_java(value: float) -> np.int64:
    """Round half up into a long: Math.round (see :func:`headgate.throttle.java.java_round`)."""
    if value != value:
        return np.int64(0)
    if value >= 9.223372036854775807e18:
        return np.int64(9223372036854775807)
    if value <= -9.223372036854775808e18:
        return np.int64(-9223372036854775807) - np.int64(1)
    whole = np.floor(value)
    if value - whole >= 0.5:
        whole += 1.0
    return np.int64(whole)
