"""
An asyncio event loop whose time is simulated: no thread, no real time, no selector.

Everything that happens is an event on one heap: timers, arrivals on the network, turns of
processes. Where two are due at the same time, the seed says which comes first. A *host* is a
machine with its clocks. A *process* is what runs on it: the gateway's code runs in a process, and
every callback and task belongs to the process in whose context it was made. So several gateways
share one loop, and each has a clock of its own and can crash between any two callbacks.

Order is what asyncio promises and no more: callbacks of ``call_soon`` run in the order in which
they were registered within their process; timers and sockets that are ready in the same turn come
in any order.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from simulation.seed import Digest, Seed

if TYPE_CHECKING:
    from simulation.network import Network

NS_PER_MS: Final = 1_000_000
START_NS: Final = 1_790_000_000 * 1_000_000_000
"""The wall clock of a host that is right, when a life begins."""
MOST_TURNS_AT_ONCE: Final = 200_000
"""Turns without simulated time: more is a loop that never rests, which is a fault."""

PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("PROCESS")


class Host:
    """
    A machine: its name, its address and its clocks.

    Args:
        loop: the one loop.
        name: of the host.
        address: its IP address.
        offset_ms: how far its wall clock is ahead.
        drift_ppm: how much faster it runs, in millionths.
    """

    def __init__(
        self, loop: SimLoop, name: str, address: str, offset_ms: int = 0, drift_ppm: int = 0
    ) -> None:
        self.loop = loop
        self.name = name
        self.address = address
        self.offset_ns = offset_ms * NS_PER_MS
        self.drift_ppm = drift_ppm
        self.boot_ns = loop.seed.stream("boot", name).randrange(10**9, 10**15)
        self.memory: dict[str, Any] = {}  # what outlives its processes: disks are kept here

    def wall_ns(self) -> int:
        """Return its wall clock, ns of the epoch."""
        now = self.loop.now_ns
        return START_NS + self.offset_ns + now + now * self.drift_ppm // 1_000_000

    def monotonic_ns(self) -> int:
        """Return its monotonic clock."""
        return self.boot_ns + self.loop.now_ns

    def step(self, ms: int) -> None:
        """Set its wall clock forward, or back."""
        self.offset_ns += ms * NS_PER_MS


class Process:
    """
    What runs on a host: callbacks, tasks and timers that live and die together.

    Args:
        host: where.
        name: for the trace.

    Attributes:
        alive: it hasn't ended.
        on_end: called when it ends; with whether it crashed.
        fuse: how many callbacks it may still run before it crashes; None: any number.
        failures: what the loop's exception handler was told.
    """

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.loop = host.loop
        self.name = name
        self.alive = True
        self.ready: deque[asyncio.Handle] = deque()
        self.arrived: list[asyncio.Handle] = []
        self.turn_due = False
        self.busy_until_ns = 0
        self.frozen_until_ns = 0
        self.fuse: int | None = None
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.on_end: list[Callable[[bool], None]] = []
        self.failures: list[dict[str, Any]] = []
        self.handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._cpu_ns = 0
        self.cpu_step_ns = 7_000

    def perf_ns(self) -> int:
        """Return a counter that moves with every look: work takes time."""
        self._cpu_ns += self.cpu_step_ns
        return self.loop.now_ns + self._cpu_ns

    def cpu_ns(self) -> int:
        """Return its processor time."""
        self._cpu_ns += self.cpu_step_ns
        return self._cpu_ns

    def context(self) -> contextvars.Context:
        """Return a context in which what is registered belongs to this process."""
        made = contextvars.Context()
        made.run(PROCESS.set, self)
        return made

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Call something as this process, now."""
        return self.context().run(what, *args)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as this process."""
        return self.loop.create_task(work, context=self.context())

    def freeze(self, ms: float) -> None:
        """Let it stand still: a paused machine, or one that swaps."""
        self.frozen_until_ns = max(self.frozen_until_ns, self.loop.now_ns + int(ms * NS_PER_MS))

    def end(self, *, crashed: bool) -> None:
        """End it, with all that it was about to do."""
        if not self.alive:
            return
        self.alive = False
        self.ready.clear()
        self.arrived.clear()
        self.loop.bury(self)
        for told in self.on_end:
            told(crashed)


class Pollable(Protocol):
    """What the loop can watch with ``add_reader``."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def is_readable(self) -> bool:
        """Whether a reader would be called."""


class SimLoop(asyncio.AbstractEventLoop):
    """
    The loop.

    Args:
        seed: says what isn't promised.

    Attributes:
        now_ns: simulated time since the life began.
        world: the process of all that isn't the product's.
        network: connects hosts; set by ``Network``.
        digest: of what happened.
        halted: why the life was ended early.
    """

    def __init__(self, seed: Seed, keep_trace: int = 0) -> None:
        self.seed = seed
        self.digest = Digest(keep_trace)
        self.now_ns = 0
        self.halted: Any = None
        self._order = seed.stream("order").random
        self._late = seed.stream("lateness").random
        self._shuffle = seed.stream("shuffle").shuffle
        self._jobs = seed.stream("executor")
        self._heap: list[tuple[int, float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0
        self._readers: dict[int, tuple[Process, Callable[..., Any], tuple[Any, ...]]] = {}
        self._queued: set[int] = set()
        self._pollables: dict[int, Pollable] = {}
        self._busy: dict[object, int] = {}  # executors of one thread: until when
        self._graves: list[Any] = []
        self._turns_now = 0
        self._turns_ns = -1
        self._over = False
        self.job_ms: tuple[float, float] = (0.02, 0.5)
        self.network: Network
        self.world = Process(Host(self, "world", "10.0.0.1"), "world")

    # --- events -----------------------------------------------------------------------------

    def at(self, when_ns: int, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen in the world at a time."""
        self._count += 1
        heapq.heappush(self._heap, (when_ns, self._order(), self._count, what, args))

    def after(self, ms: float, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen in the world after some milliseconds."""
        self.at(self.now_ns + int(ms * NS_PER_MS), what, *args)

    def run(self, until_ms: float) -> None:
        """Let simulated time pass until then, or until the life is halted."""
        until_ns = int(until_ms * NS_PER_MS)
        heap, pop = self._heap, heapq.heappop
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while heap and heap[0][0] <= until_ns and self.halted is None:
                when, _, _, what, args = pop(heap)
                if when > self.now_ns:
                    self.now_ns = when
                what(*args)
        finally:
            events._set_running_loop(before)
        if self.halted is None:
            self.now_ns = max(self.now_ns, until_ns)

    def halt(self, why: Any) -> None:
        """End the life after the step that is at work."""
        if self.halted is None:
            self.halted = why

    @property
    def now_ms(self) -> float:
        """Simulated milliseconds since the life began."""
        return self.now_ns / NS_PER_MS

    def process(self) -> Process:
        """Return the process that is at work."""
        return PROCESS.get(self.world)

    # --- turns ------------------------------------------------------------------------------

    def _want_turn(self, process: Process) -> None:
        process.turn_due = True
        self._count += 1
        when = max(self.now_ns, process.busy_until_ns)
        heapq.heappush(self._heap, (when, self._order(), self._count, self._turn, (process,)))

    def arrive(self, process: Process, handle: asyncio.Handle) -> None:
        """Have a callback run at a process's next turn, in any order among those that do."""
        if process.alive:
            process.arrived.append(handle)
            if not process.turn_due:
                self._want_turn(process)

    def _turn(self, process: Process) -> None:
        process.turn_due = False
        if not process.alive:
            return
        if process.frozen_until_ns > self.now_ns:
            process.busy_until_ns = process.frozen_until_ns
            self._want_turn(process)
            return
        self._watch_turns()
        ready = process.ready
        if process.arrived:
            if len(process.arrived) > 1:
                self._shuffle(process.arrived)
            ready.extend(process.arrived)
            process.arrived.clear()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            handle._run()
            if process.fuse is not None:
                process.fuse -= 1
                if process.fuse <= 0:
                    process.end(crashed=True)
            if not process.alive or self.halted is not None:
                return
        process.busy_until_ns = self.now_ns + 20_000
        if (ready or process.arrived) and not process.turn_due:
            self._want_turn(process)

    def _watch_turns(self) -> None:
        if self._turns_ns != self.now_ns:
            self._turns_ns, self._turns_now = self.now_ns, 0
        self._turns_now += 1
        if self._turns_now > MOST_TURNS_AT_ONCE:
            raise RuntimeError("simulated time stands still")

    # --- what asyncio asks of a loop --------------------------------------------------------

    def time(self) -> float:
        return self.process().host.monotonic_ns() / 1e9

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        process = context.get(PROCESS, self.world)
        handle = asyncio.Handle(callback, args, self, context)
        if process.alive and not self._over:
            process.ready.append(handle)
            if not process.turn_due:
                self._want_turn(process)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        when = self.time() + delay
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        # As libuv counts: whole milliseconds of a clock that was read when this turn began. So a
        # timer may be early by almost one, and is late by what the loop is busy with.
        whole = self.now_ns - self.now_ns % NS_PER_MS + max(round(delay * 1000), 0) * NS_PER_MS
        due = max(whole, self.now_ns) + int(self._late() * 300_000)
        self.at(due, self._timer_due, handle)
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_due(self, handle: asyncio.TimerHandle) -> None:
        if not handle._cancelled:
            self.arrive(handle._context.get(PROCESS, self.world), handle)

    def timers(self, process: Process) -> list[asyncio.TimerHandle]:
        """Return a process's timers that are neither due nor cancelled."""
        handles = (args[0] for *_, what, args in self._heap if what == self._timer_due)
        return [one for one in handles if not one._cancelled and one._context[PROCESS] is process]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        if context is None:
            context = contextvars.copy_context()
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        context.get(PROCESS, self.world).tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Run a function inline, at a simulated time: between two callbacks of its process."""
        future = self.create_future()
        context = contextvars.copy_context()
        process = self.process()
        when = self.now_ns + int(self._jobs.uniform(*self.job_ms) * NS_PER_MS)
        if getattr(executor, "_max_workers", 2) == 1:  # one thread: one after the other
            when = max(when, self._busy.get(executor, 0) + 1)
            self._busy[executor] = when

        def job() -> None:
            if not process.alive:
                return
            if process.frozen_until_ns > self.now_ns:
                self.at(process.frozen_until_ns, job)
                return
            try:
                result = context.run(func, *args)
            except BaseException as error:
                done, told = future.set_exception, error
                if isinstance(error, StopIteration):
                    told = RuntimeError(str(error))
            else:
                done, told = future.set_result, result
            if process.alive:
                self.call_soon(self._done, future, done, told, context=context)

        self.at(when, job)
        return future

    @staticmethod
    def _done(future: asyncio.Future[Any], done: Callable[[Any], None], told: Any) -> None:
        if not future.done():
            done(told)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def set_exception_handler(self, handler: Any) -> None:
        self.process().handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody handles it: it is among the process's failures."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self.process()
        if self._over:
            return
        process.failures.append(context)
        self.digest.note("failure", process.name, context.get("message"))
        if process.handler is not None:
            process.handler(self, context)

    # --- readers ----------------------------------------------------------------------------

    def watchable(self, thing: Pollable) -> None:
        """Let ``add_reader`` find something by its descriptor."""
        self._pollables[thing.fileno()] = thing

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        self._readers[fd] = (self.process(), callback, args)
        self.poll(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def poll(self, fd: int) -> None:
        """Something may be readable now."""
        reader = self._readers.get(fd)
        if reader is None or fd in self._queued or not self._pollables[fd].is_readable():
            return
        self._queued.add(fd)
        process = reader[0]
        self.arrive(process, asyncio.Handle(self._read, (fd,), self, process.context()))

    def _read(self, fd: int) -> None:
        self._queued.discard(fd)
        reader = self._readers.get(fd)
        if reader is not None and self._pollables[fd].is_readable():
            reader[1](*reader[2])
            self.poll(fd)

    # --- sockets ----------------------------------------------------------------------------

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.getaddrinfo(host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        return await self.network.create_connection(protocol_factory, host, port, **more)

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Any, sock: Any, **more: Any
    ) -> Any:
        return await self.network.connect_accepted(protocol_factory, sock, **more)

    # --- the end ----------------------------------------------------------------------------

    def bury(self, process: Process) -> None:
        """Keep a dead process's tasks until the life is over, so that none of them runs again."""
        for task in list(process.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._graves.append(task)
        for fd in [fd for fd, reader in self._readers.items() if reader[0] is process]:
            del self._readers[fd]

    def close(self) -> None:
        """The life is over: let go of everything, in silence."""
        self._over = True
        self._heap.clear()
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in [*self._graves, *(t for t in asyncio.all_tasks(self) if not t.done())]:
                task._log_destroy_pending = False
                try:
                    task.get_coro().close()
                except BaseException:  # it is over, whatever it says
                    continue
        finally:
            events._set_running_loop(before)
        self._graves.clear()
        self._readers.clear()
        self._pollables.clear()
