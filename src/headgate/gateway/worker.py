"""
Answer the supervisor's questions in a worker process, for the gateway that the worker runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.gateway.fleet.pipe import LineLost, Pipe
from headgate.gateway.fleet.questions import (
    BEAT,
    HELLO,
    METRICS,
    NOTHING,
    SILENT,
    SILENT_DECODER,
    Status,
)
from headgate.gateway.splits.supervised import ASSIGN, OBSERVE

if TYPE_CHECKING:
    from headgate.gateway.server import Gateway

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
            return msgspec.msgpack.encode(await gateway.shown.drawn())
        if question == OBSERVE:
            return await gateway.splits.observe()
        if question == ASSIGN:
            await gateway.splits.assign(body)
            return NOTHING
        shown = gateway.shown
        status = Status(shown.unready(), gateway.exposed(), shown.lacks(), shown.silent())
        return msgspec.msgpack.encode(status)
