"""Threads without threads: a fiber runs until it waits, and then simulated time goes on."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from simulation.loop import Process, SimLoop

NEEDED: Final = (
    "headgate.gateway.splits.streamed",
    "headgate.store.sqlite.store",
    "headgate.usage.writer",
    "headgate.usage.reader",
)
"""Modules that the product loads when it needs them."""


class Killed(BaseException):
    """The process is no more: nothing in it may do anything from now on."""


class Fiber(greenlet):
    """
    A thread of a simulated process, the one that makes it.

    Args:
        work: what it does.
        name: for a reader.
    """

    def __init__(self, work: Callable[[], Any], name: str = "") -> None:
        super().__init__(self._main)
        loop: Any = asyncio.get_running_loop()
        self.loop: SimLoop = loop
        self.process: Process = loop.process()
        self.name = name
        self._work = work
        self._turn = 0
        self.ended = False
        self.ident = id(self)
        self.gr_context = contextvars.copy_context()
        self._context = self.process.context()
        self.process.host.memory.setdefault("fibers", []).append(self)

    def _main(self) -> None:
        try:
            self._work()
        except (Killed, GreenletExit):
            pass
        except BaseException:
            if self.process.alive:
                raise
        finally:
            self.ended = True
            self.process.host.memory["fibers"].remove(self)

    def begin(self) -> None:
        """Run from the process's next turn on."""
        self.wake(self.waker())

    def wake(self, waker: Callable[[], None]) -> None:
        """Go on at the process's next turn, which may be never."""
        self.loop.call_soon(waker, context=self._context)

    def _go(self, turn: int) -> None:
        """Go on, unless that was done already or the process is dead."""
        if turn == self._turn and not self.ended and self.process.alive:
            self._turn += 1
            self.parent = getcurrent()
            self.switch()

    def waker(self) -> Callable[[], None]:
        """Return what ends the wait that begins now; calling it late or twice does nothing."""
        turn = self._turn
        return lambda: self._go(turn)

    def wait(self) -> None:
        """Let the loop go on until somebody calls the waker."""
        self.parent.switch()

    def check(self) -> None:
        """End here if the process is dead."""
        if not self.process.alive:
            raise Killed


def bury(host: Any) -> None:
    """A life is over: end what is left of a host's fibers."""
    for fiber in list(host.memory.get("fibers", ())):
        fiber.parent = getcurrent()
        fiber.throw(GreenletExit)


def here() -> Fiber:
    """Return the fiber that runs; a loop must never wait as a thread does."""
    fiber = getcurrent()
    assert isinstance(fiber, Fiber), "the event loop would wait for a thread, a lock or a store"
    return fiber


def running() -> Any:
    """Return who runs: a fiber, or the loop of a process."""
    fiber = getcurrent()
    if isinstance(fiber, Fiber):
        return fiber
    loop: Any = asyncio.get_running_loop()
    return loop.process()


def sleep(seconds: float) -> None:
    """Wait in simulated time; for fibers."""
    fiber = here()
    fiber.loop.call_later(seconds, fiber.waker())
    fiber.wait()


class Event:
    """See ``threading.Event``."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[tuple[Fiber, Callable[[], None]]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for fiber, waker in waiting:
            fiber.wake(waker)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            fiber = here()
            waker = fiber.waker()
            self._waiting.append((fiber, waker))
            if timeout is not None:
                fiber.loop.call_later(timeout, waker)
            fiber.wait()
        return self._set


class RLock:
    """See ``threading.RLock``; a plain lock is one as well: nobody here takes it twice."""

    def __init__(self) -> None:
        self._owner: Any = None
        self._count = 0
        self._waiting: deque[tuple[Fiber, Callable[[], None]]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = running()
        while self._owner is not None and self._owner is not me:
            if not blocking:
                return False
            fiber = here()
            self._waiting.append((fiber, fiber.waker()))
            fiber.wait()
        self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count:
            return
        self._owner = None
        while self._waiting:
            fiber, waker = self._waiting.popleft()
            if fiber.process.alive:
                fiber.wake(waker)
                return

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()


class Thread:
    """See ``threading.Thread``."""

    def __init__(
        self,
        target: Callable[..., Any],
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool = True,
    ) -> None:
        self._target = lambda: target(*args)
        self.name = name
        self._fiber: Fiber | None = None
        self._done = Event()

    @property
    def ident(self) -> int | None:
        return None if self._fiber is None else self._fiber.ident

    def start(self) -> None:
        def work() -> None:
            self._target()
            self._done.set()

        self._fiber = Fiber(work, self.name)
        self._fiber.begin()

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)


class Threading:
    """What stands in for the module ``threading`` where the product's threads are simulated."""

    Event = Event
    Lock = RLock
    RLock = RLock
    Thread = Thread
    Timer = threading.Timer
    TIMEOUT_MAX = threading.TIMEOUT_MAX

    @staticmethod
    def current_thread() -> Any:
        fiber = getcurrent()
        return fiber if isinstance(fiber, Fiber) else None


class FiberLoop(SimLoop):
    """The loop, with executors that run what they are given in fibers, as many as they may."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """See ``asyncio``; what is run may wait in simulated time."""
        if getattr(executor, "_shutdown", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        done = self.create_future()
        memory = self.process().host.memory
        pool = memory.setdefault(("pool", executor), Pool(executor))
        pool.take(lambda: self._job(pool, done, lambda: func(*args)))
        return done

    def _job(self, pool: Pool, done: asyncio.Future[Any], function: Callable[[], Any]) -> None:
        sleep(self._jobs.uniform(*self.job_ms) / 1000)
        if done.cancelled() or pool.closed:
            return  # as a pool does with what hasn't begun
        try:
            result = function()
        except (Killed, GreenletExit):
            raise
        except BaseException as error:
            self.call_soon(self._done, done, done.set_exception, error)
        else:
            self.call_soon(self._done, done, done.set_result, result)


class Pool:
    """
    An executor: at most as many fibers at a time as it has threads.

    Args:
        executor: the product's; None: the loop's own.
    """

    def __init__(self, executor: ThreadPoolExecutor | None) -> None:
        self._executor = executor
        self._most = getattr(executor, "_max_workers", 1 << 30)
        self._busy = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def closed(self) -> bool:
        """Whether it was shut down."""
        return bool(getattr(self._executor, "_shutdown", False))

    def take(self, work: Callable[[], None]) -> None:
        """Run something as soon as there is a thread for it."""

        def run() -> None:
            try:
                work()
            except GreenletExit:  # the life is over
                self._waiting.clear()
                raise
            finally:
                self._busy -= 1
                if self._waiting and here().process.alive:
                    self._begin(self._waiting.popleft())

        if self._busy < self._most:
            self._begin(run)
        else:
            self._waiting.append(run)

    def _begin(self, run: Callable[[], None]) -> None:
        self._busy += 1
        Fiber(run, "executor").begin()


def places() -> list[tuple[Any, str, Any]]:
    """Return every module of the product that uses threads, with what stands in for them."""
    for name in NEEDED:
        importlib.import_module(name)
    return [
        (module, "threading", Threading)
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] == "headgate" and getattr(module, "threading", None) is threading
    ]
