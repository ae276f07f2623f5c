"""
Tell a worker that hangs from one that is busy, and from a supervisor that was asleep itself.

A worker answers a heartbeat from its event loop, so a worker that answers is serving. Any answer
counts, also a late one: under load a heartbeat may take long, and only silence means that the
worker hangs. The silence is counted in steps of a fixed length, however long a step really took. So
time in which the supervisor, the machine or the container was suspended doesn't count.

A worker that is ending has a bound too, whether its loop still runs or not: the time for draining,
and then the time that it may be silent. After that it ends itself (``ExitGuard``). If even that
hangs, its supervisor kills it (``until_stuck``).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

from headgate.gateway.fleet.pipe import LineLost, Pipe
from headgate.gateway.fleet.questions import BEAT, NOTHING

STEPS: Final = 10
"""Beats that must go unheard, one after the other."""
STARTING_S: Final = 120.0
"""How long a worker may take to say its first word: it loads its modules, and asks the store."""
HUNG: Final = "hung"
EXITING: Final = "exiting"
KILLS: Final = (HUNG, EXITING)
"""Why a worker is killed: it says nothing; it doesn't end."""


async def until_hung(
    pipe: Pipe,
    timeout_s: float,
    starting_s: float = STARTING_S,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """
    Wait until the other side of a line hangs.

    Args:
        pipe: the line, open.
        timeout_s: how long a worker may say nothing, in seconds.
        starting_s: the same until its first word, if that is longer.
        clock: seconds, of a clock that is never set.

    Returns:
        True: it has said nothing for so long. False: the line has ended.
    """
    step = timeout_s / STEPS
    heard, silent = pipe.heard, 0.0
    while not pipe.closed.is_set():
        began = clock()
        with contextlib.suppress(LineLost):
            await pipe.ask(BEAT, NOTHING, step)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(began + step - clock(), 0.0)):
                await pipe.closed.wait()
        if pipe.heard != heard:
            heard, silent = pipe.heard, 0.0
            continue
        silent += min(clock() - began, step)
        # A hair less than all steps: they are sums of floats.
        if silent >= 0.999 * (timeout_s if heard else max(timeout_s, starting_s)):
            return True
    return False


async def until_stuck(
    silent: Awaitable[bool], stopping: asyncio.Event, exit_s: float | Callable[[], float]
) -> str:
    """
    Wait until a worker has to be killed; cancelled when its process ends.

    Args:
        silent: says True when the worker hangs, False when its line has ended (``until_hung``).
        stopping: set when all workers were told to end.
        exit_s: how long one may take to end, from then on or from the end of its line; seconds, or
            a function that is called at that time and returns them.

    Returns:
        Why, of ``KILLS``.
    """
    hung = asyncio.ensure_future(silent)
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((hung, told), return_when=asyncio.FIRST_COMPLETED)
        if not hung.done():
            await asyncio.wait((hung,), timeout=exit_s() if callable(exit_s) else exit_s)
            if not hung.done():
                return EXITING
        if hung.result():
            return HUNG
        await asyncio.sleep(exit_s() if callable(exit_s) else exit_s)
        return EXITING
    finally:
        hung.cancel()
        told.cancel()


class ExitGuard:
    """
    End this process if it was told to end and doesn't in time.

    A thread of its own watches: a loop that doesn't run any more, a thread that can't be joined or
    a store that never lets go is no hindrance.

    Args:
        end: ends the process; called on the guard's thread with the seconds that were allowed.
    """

    def __init__(self, end: Callable[[float], None]) -> None:
        self._end = end
        self._timer: threading.Timer | None = None

    def arm(self, limit_s: float) -> None:
        """
        The process was told to end; being told again gives it no more time.

        Args:
            limit_s: how long it may take, in seconds; 0: as long as it likes.
        """
        if self._timer is None and limit_s > 0:
            self._timer = threading.Timer(limit_s, self._end, (limit_s,))
            self._timer.daemon = True  # what it waits for is the process's end
            self._timer.start()
