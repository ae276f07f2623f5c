"""
Work of the gateway's own beside its clients' connections: its tasks, threads and failures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headgate.gateway.log import get_logger
from headgate.gateway.loop.slices import Slices
from headgate.gateway.loop.watcher import Watcher

log = get_logger("headgate.gateway")

T = TypeVar("T")


class Tasks:
    """
    The tasks that end with the gateway.

    Args:
        watcher: measures every step of them.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure_minute: int | None = None

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something until it ends or the gateway does."""
        task = asyncio.get_running_loop().create_task(self._watcher.watched(work))
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


class OwnWork:
    """
    What all of a gateway's own work on its loop goes through.

    Attributes:
        watcher: measures every piece of it.
        slices: where long work is done.
        tasks: what ends with the gateway.
    """

    def __init__(self) -> None:
        self.watcher = Watcher()
        self.slices = Slices(watcher=self.watcher)
        self.tasks = Tasks(self.watcher)


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
