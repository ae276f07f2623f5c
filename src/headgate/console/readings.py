"""
Readings of a journal for pages: one at a time, kept for half a minute or longer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")

MOST_KEPT: Final = 30
"""Readings; each is 1 MB or 2 at most."""
MOST_WAITING: Final = 8
"""Readings under way or waiting; a page that comes then is drawn without one, for now."""
FRESH_S: Final = 30.0
PART: Final = 9
"""A reading is used for this many times what it took, and at least for ``FRESH_S``."""
SOON_S: Final = 0.15
"""How long a page waits for its first reading."""


@dataclass(slots=True)
class _CachedReading:
    """A reading, the one under way, and when the next is due (the event loop's clock)."""

    read: Any = None
    due: float = 0.0
    reading: asyncio.Task[None] | None = field(default=None, repr=False)


class Readings:
    """
    What was read for each question.

    A page doesn't wait for a reading: it shows what was read so far, and the rest when it is asked
    for again.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _CachedReading] = OrderedDict()
        self._turn = CapacityLimiter(1)
        self._waiting = 0

    def of(self, question: Hashable, read: Callable[[], T]) -> T | None:
        """
        Return the last answer to a question; if it is old, start another reading.

        Args:
            question: what is asked; the same question has the same ``read``.
            read: answers it, on a thread; mustn't raise.

        Returns:
            The last answer; None: there is none yet.
        """
        kept = self._kept.setdefault(question, _CachedReading())
        self._kept.move_to_end(question)
        loop = asyncio.get_running_loop()
        if kept.reading is None and loop.time() >= kept.due and self._waiting < MOST_WAITING:
            self._waiting += 1
            kept.reading = loop.create_task(self._read(kept, read))
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        found: T | None = kept.read
        return found

    async def soon(self, question: Hashable, read: Callable[[], T]) -> T | None:
        """Return the same as ``of``, but wait a moment for a first answer."""
        found = self.of(question, read)
        kept = self._kept[question]
        if found is None and kept.reading is not None:
            await asyncio.wait({kept.reading}, timeout=SOON_S)
            found = kept.read
        return found

    async def _read(self, kept: _CachedReading, read: Callable[[], T]) -> None:
        began = 0.0

        def reading() -> T:
            nonlocal began
            began = time.monotonic()
            return read()

        try:
            kept.read = await to_thread.run_sync(reading, limiter=self._turn)
        finally:
            self._waiting -= 1
            took = time.monotonic() - began if began else 0.0
            kept.due = asyncio.get_running_loop().time() + max(FRESH_S, PART * took)
            kept.reading = None
