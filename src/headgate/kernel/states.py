"""
What the sensors of many keys hold, and a batch of events as the compiled loops take it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.throttle.java import LONG_MAX

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_OPS = np.empty(0, np.uint8)
_NO_FLOATS = np.empty(0, np.float64)


class KeyStates(ABC):
    """
    The sensors of many keys, carried from batch to batch.

    Args:
        num_keys: how many keys there are; :meth:`grow` adds more.
        num_samples: quota.window.num, or controller.quota.window.num.
        window_ms: the window's size in ms; a bucket's burst is num_samples x window_ms of its
            bound.
        start_ms: when expiry's ticks count from.
    """

    def __init__(
        self,
        num_keys: int,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        start_ms: int = 0,
    ) -> None:
        if num_samples < 1 or window_ms < 1:
            raise ValueError(f"need 1 sample of 1 ms at least, not {num_samples} of {window_ms} ms")
        self.num_samples = num_samples
        self.window_ms = window_ms
        self.start_ms = start_ms
        self._arrays = self._fresh(num_keys)

    @abstractmethod
    def _fresh(self, count: int) -> tuple[NDArray[Any], ...]:
        """Return the arrays of keys that have no sensor."""

    @property
    def num_keys(self) -> int:
        """How many keys there is room for."""
        return len(self._arrays[0])

    @property
    def parts(self) -> tuple[Any, ...]:
        """All of it, as the compiled loops take it."""
        return *self._arrays, self.num_samples, self.window_ms, self.start_ms

    def grow(self, num_keys: int) -> None:
        """Make room for keys up to num_keys - 1; state is kept, room is doubled when short."""
        have = self.num_keys
        if num_keys > have:
            add = max(num_keys, min(2 * have, have + (1 << 20))) - have
            both = zip(self._arrays, self._fresh(add), strict=True)
            self._arrays = tuple(map(np.concatenate, both))

    def copy_key(self, key: int, to: int) -> None:
        """Let another key go on from where this one is."""
        for array in self._arrays:
            array[to] = array[key]


def batch(
    state: KeyStates,
    key: ArrayLike,
    t_ms: ArrayLike,
    amount: ArrayLike,
    op: ArrayLike | None,
    bound: ArrayLike | None,
    cap_ms: int | None,
) -> tuple[Any, ...]:
    """
    Return a loop's arguments, checked; ``replay_rate`` says what is given.

    Returns:
        State, keys, times, amounts, ops, bounds, cap, and last the throttle times to fill.

    Raises:
        ValueError: arrays of different lengths, or a key outside the state.
    """
    keys = np.ascontiguousarray(key, np.int64)
    times = np.ascontiguousarray(t_ms, np.int64)
    amounts = np.ascontiguousarray(amount, np.float64)
    ops = NO_OPS if op is None else np.ascontiguousarray(op, np.uint8)
    bounds = _NO_FLOATS if bound is None else np.ascontiguousarray(bound, np.float64)
    count = len(keys)
    wrong = [len(a) for a in (times, amounts) if len(a) != count]
    if wrong or len(ops) not in (0, count) or len(bounds) not in (0, count):
        raise ValueError(f"{count} keys, but other arrays of a batch have other lengths")
    if count and not (keys.min() >= 0 and keys.max() < state.num_keys):
        raise ValueError(f"keys must be 0 to {state.num_keys - 1}; call grow() for more")
    cap = LONG_MAX if cap_ms is None else cap_ms
    return state.parts, keys, times, amounts, ops, bounds, cap, np.zeros(count, np.int64)
