"""
The gateway's own work on its event loop: tasks, slices of long work, threads, and how long all of
it holds clients up; and bounds for Python's garbage collector.

Long work is a generator that yields wherever it may be left for a while. All work of a loop takes
turns, one slice in each turn of the loop. So twenty large questions hold other connections up for
no longer at a time than one. (A thread would be no help: it holds the interpreter for five
milliseconds at a time, and as long as a library's function runs.)
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from headgate.gateway.log import get_logger
from headgate.steps import Work, look_at_young

log = get_logger("headgate.gateway")

SLOW_NS: Final = 10_000_000
"""Nothing of ours may take longer than this at a time."""
WINDOW_S: Final = 60.0
"""The longest of the last one to two minutes is shown."""


class StallMeter:
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
        return _Measured(work, self)

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


class _Measured(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are measured."""

    __slots__ = ("_stall_meter", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], stall_meter: StallMeter) -> None:
        self._work = work
        self._stall_meter = stall_meter

    def send(self, value: Any) -> Any:
        with self._stall_meter.watching():
            return self._work.send(value)

    def throw(self, *what: Any) -> Any:
        with self._stall_meter.watching():
            return self._work.throw(*what)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()


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


class TimeSlices:
    """
    The long work of one event loop.

    Args:
        slice_ns: how long a slice may take at most, in nanoseconds.
        clock: nanoseconds that never go back.
        stall_meter: measures every slice.
        look: called after each ``YOUNG_NS`` of work, which makes some thousand objects.

    Attributes:
        count: slices so far.
    """

    def __init__(
        self,
        slice_ns: int = SLICE_NS,
        clock: Callable[[], int] = time.perf_counter_ns,
        stall_meter: StallMeter | None = None,
        look: Callable[[], None] = look_at_young,
    ) -> None:
        self._stall_meter = stall_meter or StallMeter()
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
                with self._stall_meter.watching():
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


LOOKS_AT_ONCE: Final = 16
"""Connections that look again in one turn of the loop: an eighth of a millisecond each."""


class Looks:
    """Connections of one loop that are called look again, some in each turn of it."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()

    def add(self, look: Callable[[], None]) -> None:
        """Have one look again soon: who calls it may be in the middle of work."""
        self._due.append(look)
        if len(self._due) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        due = self._due
        try:
            for _ in range(min(LOOKS_AT_ONCE, len(due))):
                try:
                    due[0]()
                finally:
                    due.popleft()
        finally:
            if due:
                asyncio.get_running_loop().call_soon(self._turn)


class Tasks:
    """
    The tasks that end with the gateway.

    Args:
        stall_meter: measures every step of them.
    """

    def __init__(self, stall_meter: StallMeter) -> None:
        self._stall_meter = stall_meter
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure_minute: int | None = None

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something until it ends or the gateway does."""
        task = asyncio.get_running_loop().create_task(self._stall_meter.watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks: the gateway ends."""
        for task in list(self._tasks):
            task.cancel()

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """
        Log that a callback failed, at most once a minute.

        Its connection is lost, and a client that connects again at once may fail again at once.
        """
        minute = int(time.monotonic() // 60)
        if self._failure_minute == minute:
            return
        self._failure_minute = minute
        log.error("callback failed", what=context.get("message"), exc_info=context.get("exception"))

    def log_failure(self, what: str, error: Exception) -> None:
        """Log that a round of endless work failed, at most once a minute."""
        self.failed(asyncio.get_running_loop(), {"message": what, "exception": error})


class BackgroundWork:
    """
    What all of a gateway's own work on its loop goes through.

    Attributes:
        stall_meter: measures every piece of it.
        slices: where long work is done.
        tasks: what ends with the gateway.
    """

    def __init__(self) -> None:
        self.stall_meter = StallMeter()
        self.slices = TimeSlices(stall_meter=self.stall_meter)
        self.tasks = Tasks(self.stall_meter)


class Threads:
    """
    A few threads for what may wait; the event loop never does.

    Args:
        count: how many.
        name: of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function on one of them."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Take no further work; don't wait for work that has begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


YOUNG: Final = 250
"""New objects after which the collector looks at those alone. Python takes one off this count for
each object that is freed, old or new. So where new objects replace old ones, it looks at more."""
TIMES: Final = 1
"""After two such looks the next one takes in what they left, so it is at three times ``YOUNG``.
What is left then is old."""
OLD: Final = 3
"""After this many of those the next one takes in what is old and not settled: some 2,500 objects
more each time, at most a quarter more than were left the last time."""
MOST_OLD: Final = 4_000
"""Old objects that a look may leave, in half a ms to three ms; more than that are settled."""


class GarbageBounds:
    """
    Bounds each look of Python's garbage collector, so that no client waits long for it.

    References are counted, and that alone frees nearly all of our objects, closed connections among
    them (a test holds that). The collector is there for objects that refer to each other in a
    circle, such as an exception and the frame that caught it. It stops everything else while it
    works, for a time that grows with the objects it looks at: 50,000 quota-ids are a million.

    So it never looks at everything. It looks at young objects often, and now and then at those that
    have come since a gateway grew last. When these are many, what is left of them is *settled*: it
    stays out of all later looks. A circle that was settled while it was in use isn't freed any
    more. A look settles some thousands of objects that stay, and those that are in circles and in
    use for a moment are a handful.

    Args:
        note: called with how long a look took, in ns of CPU time.
    """

    def __init__(self, note: Callable[[int], None] = lambda _took_ns: None) -> None:
        self._note = note
        self._began_ns = 0

    def settle(self) -> None:
        """Begin, when a gateway has started: what is there now stays, and is never looked at."""
        gc.collect()
        gc.freeze()
        gc.collect()  # of nearly nothing: Python puts looks off until a quarter more is there
        gc.set_threshold(YOUNG, TIMES, OLD)
        gc.callbacks.append(self._looks)

    def end(self) -> None:
        """Let Python decide again."""
        gc.callbacks.remove(self._looks)

    def _looks(self, phase: str, info: dict[str, int]) -> None:
        """Python calls this before and after each look."""
        if phase == "start":
            self._began_ns = time.thread_time_ns()
            return
        if info["generation"] == 2 and len(gc.get_objects(2)) > MOST_OLD:
            gc.freeze()
        self._note(time.thread_time_ns() - self._began_ns)
