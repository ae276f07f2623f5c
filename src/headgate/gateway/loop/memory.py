"""
When Python's garbage collector works, so that no client waits long for it.

References are counted, and that alone frees nearly all of our objects, closed connections among
them (a test holds that). The collector is there for objects that refer to each other in a circle,
such as an exception and the frame that caught it. It stops everything else while it works, for a
time that grows with the objects it looks at: 50,000 quota-ids are a million.

So it never looks at everything. It looks at young objects often, and now and then at those that
have come since a gateway grew last. When these are many, what is left of them is *settled*: it
stays out of all later looks. A circle that was settled while it was in use isn't freed any more. A
look settles some thousands of objects that stay, and those that are in circles and in use for a
moment are a handful.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

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


class Memory:
    """
    Bounds each look of the collector.

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
