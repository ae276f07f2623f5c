"""
The line between a worker process and its supervisor: questions and answers over a socket pair.

Each side may ask; an answer bears its question's number. Frames are a length and MessagePack. The
line ends with either process, and nobody else can get at it: it has no name and no port.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from headgate.gateway.log import get_logger

log = get_logger("headgate.gateway")

_MOST_BYTES: Final = 1 << 28
"""A report of a million series is about 200 MB; a frame that claims more isn't valid."""
_LENGTH: Final = 4


class Message(msgspec.Struct, array_like=True):
    """
    One frame.

    Args:
        number: of the question, also in its answer.
        question: what is asked; "" in an answer.
        body: MessagePack of whatever the question or the answer says.
    """

    number: int
    question: str
    body: msgspec.Raw


class LineLost(Exception):
    """The other process is gone, or didn't answer in time."""


class Pipe:
    """
    One side of the line.

    Args:
        answer: called with a question and its body; returns the answer's body.

    Attributes:
        closed: set when the line has ended.
        heard: how many frames have come, whatever they say.
    """

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self._answer = answer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self.closed = asyncio.Event()
        self.heard = 0

    async def open(self, sock: socket.socket) -> None:
        """Speak over a connected socket from now on."""
        reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        self._spawn(self._read(reader))

    async def ask(self, question: str, body: bytes, timeout_s: float) -> bytes:
        """
        Ask the other side.

        Raises:
            LineLost: there is no answer.
        """
        if self._writer is None or self.closed.is_set():
            raise LineLost("gone")
        number = next(self._numbers)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            async with asyncio.timeout(timeout_s):
                self._send(Message(number, question, msgspec.Raw(body)))
                return await answered
        except TimeoutError:
            raise LineLost(f"no answer within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]

    def close(self) -> None:
        """Hang up."""
        self._lost()
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, message: Message) -> None:
        assert self._writer is not None
        frame = msgspec.msgpack.encode(message)
        self._writer.write(len(frame).to_bytes(_LENGTH, "big"))
        self._writer.write(frame)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.msgpack.Decoder(Message)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_LENGTH), "big")
                if size > _MOST_BYTES:
                    break
                message = decoder.decode(await reader.readexactly(size))
                self.heard += 1
                if message.question:
                    self._spawn(self._reply(message))
                elif (waiting := self._waiting.get(message.number)) and not waiting.done():
                    waiting.set_result(bytes(message.body))
        except (EOFError, OSError, msgspec.DecodeError):
            pass
        self._lost()

    async def _reply(self, message: Message) -> None:
        try:
            body = await self._answer(message.question, bytes(message.body))
        except Exception:
            log.exception("a question couldn't be answered", question=message.question)
            return
        if not self.closed.is_set():
            self._send(Message(message.number, "", msgspec.Raw(body)))

    def _lost(self) -> None:
        self.closed.set()
        if self._writer is not None:
            self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LineLost("gone"))


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends; the second is to be inherited by a worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


HELLO: Final = "hello"
"""Asked by the worker: it can be asked from now on."""
BEAT: Final = "beat"
"""Asked again and again: a worker that answers has an event loop that runs."""
STATUS: Final = "status"
SILENT: Final = "silent"
"""Asked by the worker: why brokers don't answer, whichever workers front them, by id."""
METRICS: Final = "metrics"
NOTHING: Final = msgspec.msgpack.encode(None)


class Status(msgspec.Struct):
    """
    How a worker is.

    Args:
        not_ready: why it doesn't serve, whether its brokers answer or not; None: it does.
        brokers: those of the cluster that have a port here, whichever worker fronts them.
        note: what it serves without; None: nothing is missing.
        silent: why its broker doesn't answer, by its id; empty: it does.
    """

    not_ready: str | None
    brokers: list[int]
    note: str | None = None
    silent: dict[int, str] = {}


METRICS_DECODER: Final = msgspec.msgpack.Decoder(dict[str, bytes])
STATUS_DECODER: Final = msgspec.msgpack.Decoder(Status)
SILENT_DECODER: Final = msgspec.msgpack.Decoder(dict[int, str])
