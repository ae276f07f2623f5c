"""
One process per broker under a small supervisor (``headgate serve --process-per-broker``).

The supervisor finds the brokers, starts ``headgate serve --brokers N`` for each, starts one again
when it ends unasked, passes SIGHUP on, and on SIGTERM has all of them drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.cli.output import complain

_AGAIN_S: Final = (0.2, 1.0, 5.0)
"""Wait before a worker that ended is started again: the first times quickly."""
_STEADY_S: Final = 60.0
"""A worker that ran for so long starts again quickly."""


class Supervisor:
    """
    Keep a worker process per broker.

    Args:
        config: the settings file.
        brokers: whom to front.
    """

    def __init__(self, config: Path, brokers: Iterable[int]) -> None:
        self._config = config
        self._brokers = sorted(brokers)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the worst exit status of the last workers."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._signal_all, signal.SIGHUP)
        return max(await asyncio.gather(*(self._keep(broker) for broker in self._brokers)))

    def _stop(self) -> None:
        self._stopping.set()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, broker: int) -> int:
        """Run one worker again and again."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headgate.cli.main",
                "serve",
                "--config",
                str(self._config),
                "--brokers",
                str(broker),
            )
            self._running[broker] = process
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)
            status = await process.wait()
            del self._running[broker]
            if self._stopping.is_set():
                return max(status, 0)  # one that was still starting dies of the signal: fine
            failures = 0 if loop.time() - started > _STEADY_S else failures + 1
            wait = _AGAIN_S[min(failures, len(_AGAIN_S)) - 1]
            complain(
                f"headgate serve: the worker of broker {broker} ended with {status}; "
                f"starting it again in {wait} s"
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return max(status, 0)
