"""
One process per broker under a small supervisor (``headgate serve --process-per-broker``).

The supervisor finds the brokers, starts ``headgate serve --brokers N`` for each, starts one again
when it ends unasked, kills and starts again one that hangs, follows the cluster as brokers are
added, passes SIGHUP on, and on SIGTERM has all of them drain. It shows the health and metrics of
all of them at ``headgate.http.listener``, and divides cluster-wide quotas over them by demand.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli import exit_codes
from headgate.cli.serve.console import console_beside
from headgate.cli.serve.exit_limit import AGAIN_S, STEADY_S, exit_limit_s
from headgate.clock import now_ms
from headgate.config import load_settings
from headgate.config.reloading import take_over
from headgate.errors import ConfigError
from headgate.gateway.cluster.discovery import GatewayError
from headgate.gateway.fleet.fleet import HUNG, Fleet
from headgate.gateway.fleet.pipe import Status, socket_pair
from headgate.gateway.health_and_metrics import HttpListener
from headgate.gateway.log import get_logger
from headgate.gateway.splits.supervised import SupervisedSplits

if TYPE_CHECKING:
    from headgate.config import HostPort
    from headgate.config.settings import Settings

log = get_logger("headgate.supervisor")

_OWN_END_S: Final = 2.0
"""A worker that doesn't end in time ends itself. One that can't is killed this much later."""


class Supervisor:
    """
    Keep a worker process per broker.

    Args:
        config: the settings file.
        settings: as read from it.
        brokers: those that are fronted at first.
        verbose: whether workers log every decision of note.
        http: where health and metrics are shown, instead of ``headgate.http.listener``.
    """

    def __init__(
        self,
        config: Path,
        settings: Settings,
        brokers: Iterable[int],
        *,
        verbose: bool = False,
        http: HostPort | None = None,
    ) -> None:
        self._http = http or settings.http_listener
        self._config = config
        self._settings = settings
        self._verbose = verbose
        self.fleet = Fleet(brokers)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._keepers: dict[int, asyncio.Task[int]] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """
        Run until SIGTERM or SIGINT; returns the worst exit status of the last workers.

        Raises:
            GatewayError: the HTTP listener's port can't be opened.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        http = self._open_http()
        for broker in self.fleet.brokers:
            self._front(broker)
        tasks = [loop.create_task(self._follow())]
        if self._settings.splits == "local":
            splits = SupervisedSplits(self.fleet.ask, self._settings.splits_period_ms, now_ms)
            tasks.append(loop.create_task(splits.run()))
        try:
            async with console_beside(self._settings, self._config, log):
                await self._stopping.wait()
            return max(await asyncio.gather(*self._keepers.values()), default=0)
        finally:
            for task in tasks:
                task.cancel()
            if http is not None:
                await http.close()

    def _open_http(self) -> HttpListener | None:
        where = self._http
        if where is None:
            return None
        try:
            http = HttpListener(where, self.fleet)
        except OSError as error:
            raise GatewayError(
                f"headgate.http.listener (or --http) can't listen on {where}: "
                f"{error.strerror or error}"
            ) from error
        http.start()
        log.info("health and metrics", at=f"{http.address[0]}:{http.address[1]}")
        return http

    async def _follow(self) -> None:
        """Start a worker for each broker that joins the cluster."""
        while True:
            await asyncio.sleep(self._settings.upstream_refresh_ms / 1000)
            try:
                statuses = await self.fleet.statuses()
            except Exception:
                log.exception("workers couldn't be asked for new brokers")
                continue
            for status in statuses.values():
                for broker in status.brokers if isinstance(status, Status) else ():
                    if broker not in self._keepers and not self._stopping.is_set():
                        log.info("a broker has joined the cluster", broker=broker)
                        self._front(broker)

    def _front(self, broker: int) -> None:
        self._keepers[broker] = asyncio.get_running_loop().create_task(self._keep(broker))

    def _stop(self) -> None:
        self._stopping.set()
        self._signal_all(signal.SIGTERM)

    def _reload(self) -> None:
        """Let workers read the file again; this process reads from it how long they may drain."""
        with contextlib.suppress(ConfigError, OSError):  # the workers say what is wrong with it
            self._settings, _ = take_over(self._settings, load_settings(self._config))
        self._signal_all(signal.SIGHUP)

    def _signal_all(self, number: int) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _start(self, broker: int) -> asyncio.subprocess.Process:
        """Start a worker, and connect to it by a pair of sockets."""
        ours, theirs = socket_pair()
        command = [
            sys.executable,
            "-m",
            "headgate.cli.main",
            "serve",
            "--config",
            str(self._config),
        ]
        command += ["--brokers", str(broker), "--supervisor-fd", str(theirs.fileno())]
        command += ["--verbose"] if self._verbose else []
        with theirs, _closed_on_error(ours):
            process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        await self.fleet.start(broker, ours)
        return process

    async def _keep(self, broker: int) -> int:
        """Run one worker again and again."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            status, killed = await self._run(broker)
            if self._stopping.is_set():
                # One that was still starting dies of the signal: fine.
                return exit_codes.FAILED if killed else max(status, 0)
            self.fleet.lost(broker, "hung" if killed else "ended")
            failures = 0 if loop.time() - started > STEADY_S else failures + 1
            wait = AGAIN_S[min(max(failures, 1), len(AGAIN_S)) - 1]
            log.error("a worker ended; it is started again", broker=broker, status=status,
                      wait_s=wait)  # fmt: skip
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return max(status, 0)

    async def _run(self, broker: int) -> tuple[int, bool]:
        """Run one worker once; returns its status, and whether it was killed from here."""
        try:
            process = await self._start(broker)
        except OSError as error:  # as when memory or process ids run out
            log.error("a worker can't be started", broker=broker, error=str(error))
            self.fleet.left(broker, f"can't be started: {error}")
            return exit_codes.FAILED, False
        self._running[broker] = process
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        killed: list[str] = []
        watching = asyncio.get_running_loop().create_task(self._watch(broker, process, killed))
        status = await process.wait()
        watching.cancel()
        del self._running[broker]
        self.fleet.left(broker, f"not running, ended with {status}")
        return status, bool(killed)

    async def _watch(
        self, broker: int, process: asyncio.subprocess.Process, killed: list[str]
    ) -> None:
        """Kill a worker that hangs, while it works or while it ends; note why in ``killed``."""
        timeout_ms = self._settings.worker_hang_timeout_ms
        if not timeout_ms:
            return

        def exit_s() -> float:  # as of then: SIGHUP may have changed it
            return exit_limit_s(self._settings) + _OWN_END_S

        why = await self.fleet.until_stuck(broker, timeout_ms / 1000, self._stopping, exit_s)
        killed.append(why)
        if why == HUNG:
            log.error("a worker hangs; it is killed", broker=broker, worker_pid=process.pid,
                      silent_ms=timeout_ms)  # fmt: skip
        else:
            log.error("a worker doesn't end; it is killed", broker=broker, worker_pid=process.pid,
                      waited_ms=round(exit_s() * 1000))  # fmt: skip
        with contextlib.suppress(ProcessLookupError):
            process.kill()


@contextlib.contextmanager
def _closed_on_error(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sock.close()
        raise
