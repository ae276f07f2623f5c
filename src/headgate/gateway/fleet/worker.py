"""
A worker's end of the line to its supervisor: what it shows, and what it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.gateway.fleet.pipe import LineLost, Pipe
from headgate.gateway.splits.supervised import ASSIGN, OBSERVE

if TYPE_CHECKING:
    from headgate.gateway.server import Gateway

HELLO: Final = "hello"
"""Asked by the worker: it can be asked from now on."""
BEAT: Final = "beat"
"""Asked again and again: a worker that answers has an event loop that runs."""
STATUS: Final = "status"
METRICS: Final = "metrics"
NOTHING: Final = msgspec.msgpack.encode(None)
_HELLO_S: Final = 60.0


class Status(msgspec.Struct):
    """
    How a worker is.

    Args:
        not_ready: why it doesn't serve; None: it does.
        brokers: those of the cluster that have a port here, whichever worker fronts them.
        note: what it serves without; None: nothing is missing.
    """

    not_ready: str | None
    brokers: list[int]
    note: str | None = None


METRICS_DECODER: Final = msgspec.msgpack.Decoder(dict[str, bytes])
STATUS_DECODER: Final = msgspec.msgpack.Decoder(Status)


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

    async def _answer(self, question: str, body: bytes) -> bytes:
        gateway = self._gateway
        if question == BEAT:
            return NOTHING
        if question == METRICS:
            return msgspec.msgpack.encode(await gateway.shown.drawn())
        if question == OBSERVE:
            return await gateway.splits.observe()
        if question == ASSIGN:
            await gateway.splits.assign(body)
            return NOTHING
        return msgspec.msgpack.encode(
            Status(gateway.not_ready(), gateway.exposed(), gateway.splits.note())
        )
