"""
An event loop on a thread of its own, for callers that aren't coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """
    Runs coroutines for other threads.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, wait for it, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def beside(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for one of another event loop; to cancel that one cancels this one."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close(self) -> None:
        """End the loop and its thread."""
        try:
            self.run(self.loop.shutdown_default_executor())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
