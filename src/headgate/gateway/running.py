"""
Ways to run a gateway: on a loop and thread of its own (tests, notebooks and the demo), or as a
worker process that answers its supervisor's questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import uvloop

from headgate.gateway.fleet.pipe import (
    BEAT,
    HELLO,
    METRICS,
    NOTHING,
    SILENT,
    SILENT_DECODER,
    LineLost,
    Pipe,
    Status,
)
from headgate.gateway.log import get_logger
from headgate.gateway.server import Gateway
from headgate.gateway.splits.supervised import ASSIGN, OBSERVE

if TYPE_CHECKING:
    from headgate.metrics.samples import BrokerView

log = get_logger("headgate.gateway")

JOIN_S: Final = 30.0
"""How long the thread may take to end after the drain timeout."""


class GatewayThread:
    """
    A gateway on a loop and thread of its own; a context manager.

    Args:
        make: builds the gateway; called on the thread.
    """

    def __init__(self, make: Callable[[], Gateway]) -> None:
        self._make = make
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._drain_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-gateway", daemon=True)
        self.gateway: Gateway

    def _run(self) -> None:
        uvloop.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.gateway = self._make()
            await self.gateway.start()
        except BaseException as error:
            self._error = error
            self._started.set()
            return
        self._started.set()
        await self._stop.wait()
        await self.gateway.stop(self._drain_ms)

    def start(self) -> Self:
        """Start, and return when the ports are open; raises what the start raised."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function on the loop's thread and return its value, or its coroutine's."""
        assert self._loop is not None

        async def run() -> Any:
            value = function()
            return await value if inspect.iscoroutine(value) else value

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def bootstrap(self, listener: str) -> str:
        """Return ``host:port,…`` as clients of a listener are told."""
        return self.gateway.bootstrap(listener)

    def views(self) -> Iterable[BrokerView]:
        """Return what the metrics are read from, as of now."""
        views: list[BrokerView] = self.call(self.gateway.health.views)
        return views

    def stop(self, drain_ms: int | None = None) -> None:
        """
        Stop; may be called twice.

        A gateway that doesn't end, because a store or the journal hangs, is left running until the
        process ends. The log says so.

        Args:
            drain_ms: how long requests in flight may take; by default as the settings say.
        """
        self._drain_ms = drain_ms
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(self._join_s())
        if self._thread.is_alive():
            log.error("the gateway's thread doesn't end; it is left behind")

    def _join_s(self) -> float:
        drain_ms = self._drain_ms
        if drain_ms is None:
            drain_ms = self.gateway.settings.drain_timeout_ms if hasattr(self, "gateway") else 0
        return drain_ms / 1000 + JOIN_S

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()


_HELLO_S: Final = 60.0
_SILENT_S: Final = 5.0
"""The supervisor asks all workers for this, for two seconds at most."""


class WorkerEnd:
    """
    Answer a supervisor for one gateway.

    Args:
        gateway: the worker's.
        on_orphaned: called when the supervisor is gone.
    """

    def __init__(self, gateway: Gateway, on_orphaned: Callable[[], None]) -> None:
        self._gateway = gateway
        self._on_orphaned = on_orphaned
        self._pipe = Pipe(self._answer)
        self._task: asyncio.Task[None] | None = None
        gateway.answers.live.silent_elsewhere = self._silent

    def start(self, fd: int) -> None:
        """Answer on an inherited socket until the supervisor is gone."""
        self._task = asyncio.get_running_loop().create_task(self._serve(socket.socket(fileno=fd)))

    async def _serve(self, sock: socket.socket) -> None:
        await self._pipe.open(sock)
        with contextlib.suppress(LineLost):
            await self._pipe.ask(HELLO, NOTHING, _HELLO_S)
        await self._pipe.closed.wait()
        self._on_orphaned()

    def close(self) -> None:
        """Hang up."""
        self._pipe.close()

    async def _silent(self) -> Mapping[int, str]:
        """Ask which brokers don't answer; nothing is known if the supervisor doesn't."""
        try:
            return SILENT_DECODER.decode(await self._pipe.ask(SILENT, NOTHING, _SILENT_S))
        except (LineLost, msgspec.MsgspecError):
            return {}

    async def _answer(self, question: str, body: bytes) -> bytes:
        gateway = self._gateway
        if question == BEAT:
            return NOTHING
        if question == METRICS:
            return msgspec.msgpack.encode(await gateway.health.rendered())
        if question == OBSERVE:
            return await gateway.splits.observe()
        if question == ASSIGN:
            await gateway.splits.assign(body)
            return NOTHING
        health = gateway.health
        status = Status(health.unready(), gateway.exposed(), health.lacks(), health.silent())
        return msgspec.msgpack.encode(status)
