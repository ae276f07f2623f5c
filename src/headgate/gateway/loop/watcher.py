"""
How long each piece of our own work holds the event loop, in CPU time of the loop's thread.

That is what runs again and again, answers, slices, changes of quotas, and large reads: a small one
can't hold much, and to look at the clock for each would cost more than it. CPU time leaves out the
time that the machine spends on other processes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Final

SLOW_NS: Final = 10_000_000
"""Nothing of ours may take longer than this at a time."""
WINDOW_S: Final = 60.0
"""The longest of the last one to two minutes is shown."""


class Watcher:
    """
    The longest pieces of work of one loop.

    Args:
        cpu_ns: CPU time of the calling thread, ns.
        clock: seconds that never go back.

    Attributes:
        slow: pieces that took longer than ``SLOW_NS`` so far.
    """

    def __init__(
        self,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cpu_ns = cpu_ns
        self._clock = clock
        self._since_s = clock()
        self._longest_ns = self._before_ns = 0
        self.slow = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Measure what is done meanwhile, on the loop's thread and without waiting."""
        began_ns = self._cpu_ns()
        try:
            yield
        finally:
            self.note(self._cpu_ns() - began_ns)

    def watched(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return work whose every step, from one waiting to the next, is measured."""
        return _Watched(work, self)

    @property
    def longest_ms(self) -> float:
        """The longest piece of the last one to two minutes."""
        self._turn()
        return max(self._longest_ns, self._before_ns) / 1e6

    def note(self, took_ns: int) -> None:
        """Note a piece of work that was measured, in ns of CPU time."""
        if took_ns > SLOW_NS:
            self.slow += 1
        if took_ns > self._longest_ns:
            self._turn()
            self._longest_ns = max(took_ns, self._longest_ns)

    def _turn(self) -> None:
        """Forget what is longer ago than two windows."""
        passed = self._clock() - self._since_s
        if passed >= WINDOW_S:
            self._before_ns = self._longest_ns if passed < 2 * WINDOW_S else 0
            self._longest_ns = 0
            self._since_s += passed


class _Watched(Coroutine[Any, Any, Any]):
    """A coroutine and a watcher of its steps."""

    __slots__ = ("_watcher", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], watcher: Watcher) -> None:
        self._work = work
        self._watcher = watcher

    def send(self, value: Any) -> Any:
        with self._watcher.watching():
            return self._work.send(value)

    def throw(self, *what: Any) -> Any:
        with self._watcher.watching():
            return self._work.throw(*what)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()
