"""
When Python's garbage collector works, so that no client waits long for it.

References are counted, and that alone frees nearly all of our objects, closed connections among
them (a test holds that). The collector is there for objects that refer to each other in a circle,
such as an exception and the frame that caught it. It stops everything else while it works, for a
time that grows with the objects it looks at: 50,000 quota-ids are a million.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.gateway.log import get_logger

log = get_logger("headgate.gateway")

YOUNG: Final = 250
"""New objects after which the collector looks at those alone. Python takes one off this count for
each object that is freed, old or new. So where new objects replace old ones, it looks at more."""
TIMES: Final = 1
"""After two such looks the next one takes in what they left, so it is at three times ``YOUNG``.
What is left then is old."""
OLD: Final = 200
"""Where memory can't be measured, one look in 200 of those is at all objects."""
_NEVER: Final = 1 << 30
GROWN: Final = 1.5
"""Old objects are looked at when memory is 1.5 times what it was after the last time. So circles
among them can't hold more than a third of it, and while a gateway grows to ten times its size, it
stops six times for that."""
_LOOK_S: Final = 10.0
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Return how much memory this process has; None where the system doesn't say."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


class Memory:
    """
    Bounds each look of the collector at young objects, and makes those at all objects rare.

    Args:
        resident: returns the bytes of memory that this process has.
    """

    def __init__(self, resident: Callable[[], int | None] = resident_bytes) -> None:
        self._resident = resident
        self._least: float = 0.0

    def settle(self) -> None:
        """Begin, when a gateway has started: what is there now stays, and is never looked at."""
        gc.collect()
        gc.freeze()
        size = self._resident()
        self._least = size or 0.0
        gc.set_threshold(YOUNG, TIMES, OLD if size is None else _NEVER)

    def look(self) -> bool:
        """Look at all objects if memory has grown since the last time; return whether it has."""
        size = self._resident()
        if size is None:
            return False
        self._least = min(self._least, size)
        if size < self._least * GROWN:
            return False
        began_ns = time.perf_counter_ns()
        found = gc.collect()
        took_ms = (time.perf_counter_ns() - began_ns) / 1e6
        self._least = self._resident() or size
        log.info("memory has grown; looked for garbage", mb=size >> 20, found=found,
                 took_ms=round(took_ms, 1))  # fmt: skip
        return True

    async def keep(self) -> None:
        """Look now and then, for as long as the gateway runs."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()
