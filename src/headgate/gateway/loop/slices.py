"""
Long work on the event loop, in slices: between two of them other connections are served.

Such work is a generator that yields wherever it may be left for a while. All work of a loop takes
turns, one slice in each turn of the loop. So twenty large questions hold other connections up for
no longer at a time than one. (A thread would be no help: it holds the interpreter for five
milliseconds at a time, and as long as a library's function runs.)
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from headgate.gateway.loop.watcher import Watcher
from headgate.steps import Work, look_at_young

SLICE_NS: Final = 250_000
"""The longest slice of a loop that has little else to do: it ends with the step that reaches this.
No step may take much longer."""

LEAST_NS: Final = 25_000
"""
The shortest slice. A request and its answer may each wait for a slice, so even a client that is
alone with the work is delayed by this. An empty turn of the loop takes a fifth of it.
"""

YOUNG_NS: Final = 1_000_000
"""Work after which the garbage collector looks at what it made."""

SHARE: Final = 4
"""A slice takes a quarter of the time that others had since the last: both sides get on."""

LOADED: Final = 8
"""Where others take long for a turn, a slice may be an eighth of its share, a 32nd of that turn: a
flood of requests mustn't make a scrape take minutes."""

MOST_NS: Final = 2_000_000
"""Even then no slice is longer than this."""

T = TypeVar("T")


class Slices:
    """
    The long work of one event loop.

    Args:
        slice_ns: how long a slice may take at most, in nanoseconds.
        clock: nanoseconds that never go back.
        watcher: measures every slice.
        look: called after each ``YOUNG_NS`` of work, which makes some thousand objects.

    Attributes:
        count: slices so far.
    """

    def __init__(
        self,
        slice_ns: int = SLICE_NS,
        clock: Callable[[], int] = time.perf_counter_ns,
        watcher: Watcher | None = None,
        look: Callable[[], None] = look_at_young,
    ) -> None:
        self._watcher = watcher or Watcher()
        self._slice_ns = slice_ns
        self._clock = clock
        self._waiting: deque[tuple[Work[Any], asyncio.Future[Any]]] = deque()
        self._turning = False
        self._left_ns = 0  # when the last slice ended
        self._look = look
        self._unseen_ns = 0  # how long slices have taken since the last look
        self.count = 0

    async def run(self, work: Work[T]) -> T:
        """
        Do work in slices.

        Returns:
            What the generator returns; what it raises is raised. If nobody waits for it any more
            the rest isn't done.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._waiting.append((work, done))
        if not self._turning:
            self._turning = True
            self._left_ns = self._clock()
            loop.call_soon(self._turn, loop)
        return await done

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        work, done = self._waiting.popleft()
        try:
            if done.cancelled():
                work.close()
            else:
                with self._watcher.watching():
                    more = self._slice(work, done)
                    if self._unseen_ns >= YOUNG_NS:
                        self._unseen_ns = 0
                        self._look()
                if more:
                    self._waiting.append((work, done))
        finally:
            self._turning = bool(self._waiting)
            if self._turning:
                loop.call_soon(self._turn, loop)

    def _slice(self, work: Work[T], done: asyncio.Future[T]) -> bool:
        """Do one slice; return whether there is more."""
        self.count += 1
        clock = self._clock
        began = clock()
        theirs = (began - self._left_ns) // SHARE
        most = max(self._slice_ns, min(theirs // LOADED, MOST_NS))
        until = began + min(most, max(LEAST_NS, theirs))
        try:
            next(work)
            while clock() < until:
                next(work)
        except StopIteration as end:
            done.set_result(end.value)
            return False
        except Exception as error:
            done.set_exception(error)
            return False
        finally:
            self._left_ns = clock()
            self._unseen_ns += self._left_ns - began
        return True
