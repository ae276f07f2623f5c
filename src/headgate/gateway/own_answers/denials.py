"""
Refuse whole requests: small ones here, large ones in a separate process.

A user without permission can't make the event loop read or write more than a few kilobytes of a
request.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from headgate.errors import RemoteProtocolError
from headgate.wire.messages.denied import denied

if TYPE_CHECKING:
    from headgate.gateway.session.commands import Ask

SMALL_BYTES: Final = 2_048
"""Requests that are read at once: one or two milliseconds, answer included."""
MOST_WAITING: Final = 8
"""Large requests, up to a mebibyte each, that may wait. The connection of one more is closed."""
_LONGEST_S: Final = 30.0
_PROGRAM: Final = "from headgate.wire.messages.denied import main; main()"


class Denials:
    """Refuses requests that name what they ask for, one large one at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-denial")
        self._free = asyncio.Semaphore(1)
        self._waiting = 0

    async def answer(self, ask: Ask, calls: str) -> bytes:
        """
        Refuse what was asked with CLUSTER_AUTHORIZATION_FAILED.

        Args:
            ask: the request; its principal may not ask this.
            calls: ``denied.RELEASED`` or ``denied.DRAFT``.

        Returns:
            The answer's frame.

        Raises:
            RemoteProtocolError: it doesn't parse, or too many are being refused.
        """
        key, version = ask.plan.key, ask.plan.version
        if len(ask.frame) <= SMALL_BYTES:
            return denied(calls, key, version, ask.frame)
        if self._waiting >= MOST_WAITING:
            raise RemoteProtocolError(
                f"{len(ask.frame)} bytes of User:{ask.principal}, without permission, behind "
                f"{MOST_WAITING} others like it",
                reason="refused",
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, _beside, calls, key, version, ask.frame)
        # If the client hangs up now, its request must still be done before the next one begins.
        work.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(work)

    def close(self) -> None:
        """Refuse no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _beside(calls: str, key: int, version: int, frame: bytes) -> bytes:
    """Refuse in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, calls, str(key), str(version)],
        input=frame,
        capture_output=True,
        timeout=_LONGEST_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
        reason, _, text = said[-1].partition(": ")
        raise RemoteProtocolError(text or reason, reason=reason if text else "malformed")
    return done.stdout
