"""Numba's settings for every kernel; Java's rounding and a sensor's expiry compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from headgate.throttle.registry import EXPIRY_MS, EXPIRY_PERIOD_MS


def compiled(function: Callable[..., Any]) -> Any:
    """
    Compile with IEEE arithmetic kept (no fastmath, division by zero as Java's), without the GIL.

    The machine code is cached on disk, beside the source or in NUMBA_CACHE_DIR. It contains that of
    the functions it calls, whose files Numba doesn't check. So a change in any module of the
    package has all of them compiled again.
    """
    made = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function)
    file = made._cache._cache_file
    file._source_stamp = (file._source_stamp, _state(Path(function.__code__.co_filename).parent))
    return made


def inlined(function: Callable[..., Any]) -> Any:
    """
    Compile into each caller.

    What is called often is faster so, and has no type of its own for each literal among its
    arguments.
    """
    return numba.njit(inline="always", nogil=True, error_model="numpy")(function)


@functools.cache
def _state(room: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the name, time and size of each source file whose code or constants are compiled."""
    rules = (*room.parent.glob("charged_bytes.py"), *room.parent.glob("time_stamps.py"))
    sources = {Path(__file__), *room.glob("*.py"), *rules}
    # Modules inside an archive aren't files; there Numba's own check of the archive has to do.
    stats = [(source.name, source.stat()) for source in sorted(sources) if source.is_file()]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


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


@compiled
def expired(record_ms: np.int64, now: np.int64, start_ms: np.int64) -> bool:
    """Say whether a sensor is gone: at a tick since, it was idle for too long."""
    if now - record_ms <= EXPIRY_MS:
        return False
    tick = now - (now - start_ms) % EXPIRY_PERIOD_MS
    return bool(tick - record_ms > EXPIRY_MS)
