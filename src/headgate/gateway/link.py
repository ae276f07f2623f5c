"""
One client connection on the event loop: two transports, a session between them.

Protocol callbacks, never streams. Both sides read into one buffer per loop, which is handed on as
it is: a write that leaves nothing behind (nearly all) lets the buffer be used again, one that
does takes the buffer with it and the loop goes on with a new one. TLS transports are given a copy.

Backpressure: the high-water mark is 0, so a side that can't take everything at once stops the
reading of the other side until it has drained; a link keeps at most a buffer per direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.commands import Ask, Close, PauseClient, ResumeClient, WakeAt

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.hangup import HangupWatch
    from headgate.gateway.session import Session

READ_BUFFER_BYTES: Final = 262_144
"""As libuv reads: larger gains nothing, smaller costs more calls at 1 MB frames."""
GOODBYE_S: Final = 0.3
"""How long a drained client may take to hang up by itself."""
MANY_UNANSWERED: Final = 8
"""From so many on, answers may wait for each other a moment; producers have 5 by default."""
SMALL_ANSWER_BYTES: Final = 512
"""Larger answers are worth a read of their own."""
MOST_GATHERED_BYTES: Final = 16_384
GATHER_S: Final = 0.001
"""How long an answer may wait for others (the loop's timers may take one millisecond more)."""
SPARE_BUFFERS: Final = 32
"""Buffers kept for the next time they are lent: 8 MiB."""
LINGER_S: Final = 5.0
"""How long a closed connection may take to drain before it is aborted."""

_perf_ns = time.perf_counter_ns
_wall_ns = time.time_ns


class ReadBuffer:
    """
    The buffer that all links of one loop read into, one at a time.

    Memory that a write still needs is lent to it and comes back when the write is done: making it
    anew each time would cost as much as the relaying (page faults).
    """

    __slots__ = ("_spare", "memory", "view")

    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self.memory = bytearray(READ_BUFFER_BYTES)
        self.view = memoryview(self.memory)

    def lend(self) -> bytearray:
        """Leave the memory to a write that still needs it; go on with other memory."""
        lent = self.memory
        self.memory = self._spare.pop() if self._spare else bytearray(READ_BUFFER_BYTES)
        self.view = memoryview(self.memory)
        return lent

    def take_back(self, lent: list[bytearray]) -> None:
        """Take memory back that no write needs any more."""
        room = SPARE_BUFFERS - len(self._spare)
        self._spare.extend(lent[:room])
        lent.clear()


class _Side(asyncio.BufferedProtocol):
    """What both sides have in common."""

    __slots__ = ("buffer", "full", "lent", "link", "tls", "transport")

    def __init__(self, link: Link, buffer: ReadBuffer) -> None:
        self.link = link
        self.buffer = buffer
        self.transport: Any = None
        self.full = False  # the other end takes less than we have
        self.lent: list[bytearray] = []
        self.tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; whatever can't be sent at once stops the other side."""
        self.transport = transport
        self.tls = transport.get_extra_info("sslcontext") is not None
        if not self.tls:
            transport.set_write_buffer_limits(high=0)  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> bytearray:
        """Read into the loop's buffer."""
        return self.buffer.memory

    def eof_received(self) -> bool:
        """A peer that won't say more is gone, as for a broker."""
        return False

    def send(self, pieces: list[Any]) -> None:
        """Write pieces and empty the list; the read buffer goes along if it has to wait."""
        transport = self.transport
        if transport is None or transport.is_closing():
            pieces.clear()
            return
        if self.tls:
            transport.write(b"".join(pieces))
        elif len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        pieces.clear()
        if self.full:
            self.lent.append(self.buffer.lend())

    def close(self) -> None:
        """Send what is left, then close; abort if the peer doesn't take it."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def say_goodbye(self) -> None:
        """
        Say that nothing more comes and leave the closing to the peer, for a moment.

        Closing at once would reset the connection if the peer's next request is already here, and
        a reset takes back answers that the peer hasn't read yet.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self.tls:
            self.close()
            return
        transport.resume_reading()
        transport.write_eof()
        asyncio.get_running_loop().call_later(GOODBYE_S, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """This side has gone, and the other with it."""
        link = getattr(self, "link", None)
        if link is not None:
            link.lost("client" if self is link.client else "broker", exc)
            self.release()
            if link.broker.transport is None:  # it never was, or has gone before
                link.broker.release()

    def release(self) -> None:
        """
        Let go of the link, which holds this side too.

        So a link's memory is free when it ends. Left to the collector, what has lived for some
        minutes would stay until its rarest round.
        """
        self.transport = None
        self.lent.clear()
        if hasattr(self, "link"):
            del self.link


class ClientSide(_Side):
    """The side the client is on."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the link."""
        super().connection_made(transport)
        self.link.client_connected()

    def buffer_updated(self, nbytes: int) -> None:
        """Give the session what came and write what it has to say: the hot path."""
        link = self.link
        session = link.session
        started = _perf_ns() if session.rules.counts_requests else 0
        link.bytes_in += nbytes
        session.client_data(self.buffer.view[:nbytes], _wall_ns() // 1_000_000)
        if session.to_broker:
            link.broker.send(session.to_broker)
        if session.commands or session.to_client:
            link.settle()
        if started:
            session.account_client(_perf_ns() - started)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.broker_reading(False)

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.full = False
        if self.lent:
            self.buffer.take_back(self.lent)
        self.link.broker_reading(True)


class BrokerSide(_Side):
    """
    The side the broker is on.

    A client with many unanswered requests gets its answers in fewer, larger pieces: the kernel is
    told to wake us when about half of what is due has come (SO_RCVLOWAT), not at each answer. Half
    of it leaves the other half for the broker to work on; and what is stuck below the mark because
    the next answer takes its time is fetched by a timer.
    """

    __slots__ = ("_raw", "gathering", "read_ms", "reads")

    def __init__(self, link: Link, buffer: ReadBuffer) -> None:
        super().__init__(link, buffer)
        self.gathering = False  # a low-water mark is set, and the timer runs
        self.read_ms = 0  # when something was last read while many were unanswered
        self.reads = 0
        self._raw: socket.socket | None = None

    def gather(self, answers: int, size: int) -> None:
        """
        Read again when half of the answers due are here; 0: at the next one.

        Args:
            answers: how many are due.
            size: of one, about, in bytes.
        """
        if size > SMALL_ANSWER_BYTES or self.tls:
            answers = 0
        if not answers and not self.gathering:
            return
        raw = self._raw
        if raw is None:
            sock = self.transport.get_extra_info("socket")
            if sock is None or sys.platform != "linux":
                return
            # uvloop would make a copy of the descriptor at every setsockopt.
            raw = self._raw = socket.socket(fileno=os.dup(sock.fileno()))
        low = min(answers * size // 2, MOST_GATHERED_BYTES)
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(low, 1))
        self.reads += 1
        if answers and not self.gathering:
            self.gathering = True
            asyncio.get_running_loop().call_later(GATHER_S, self._gathered, self.reads)
        elif not answers:
            self.gathering = False

    def _gathered(self, reads: int) -> None:
        """Let nothing wait below the mark for longer than a moment."""
        if not self.gathering or self._raw is None:
            return
        if reads == self.reads:
            self.gather(0, 0)
        else:
            asyncio.get_running_loop().call_later(GATHER_S, self._gathered, self.reads)

    def release(self) -> None:
        """Close what was opened besides the transport."""
        super().release()
        self.gathering = False
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def buffer_updated(self, nbytes: int) -> None:
        """Give the session what came and write what it has to say: the hot path."""
        link = self.link
        session = link.session
        started = _perf_ns() if session.rules.counts_requests else 0
        now_ms = _wall_ns() // 1_000_000
        link.bytes_out += nbytes
        unanswered = session.unanswered
        before = len(unanswered)
        session.broker_data(self.buffer.view[:nbytes], now_ms)
        if session.to_client:
            link.client.send(session.to_client)
        if session.commands or session.to_broker:
            link.settle()
        if before > MANY_UNANSWERED or self.gathering:
            left = len(unanswered)
            if left >= MANY_UNANSWERED and before > left and now_ms - self.read_ms <= 1:
                self.gather(left, nbytes // (before - left))
            elif self.gathering:
                self.gather(0, 0)
            self.read_ms = now_ms
        if started:
            session.account_broker(_perf_ns() - started, now_ms)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.client_reading()

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.full = False
        if self.lent:
            self.buffer.take_back(self.lent)
        self.link.client_reading()


class Link:
    """
    A client's connection and its upstream twin.

    Args:
        session: decides everything.
        buffer: the loop's read buffer.
        hangup: tells of clients that go while nothing is read from them.
        on_ask: answers an ``Ask``; called with the link and the question.
        on_closed: called once, with the link, the reason and a detail.
    """

    __slots__ = (
        "_hangup",
        "_on_ask",
        "_on_closed",
        "_paused",
        "broker",
        "bytes_in",
        "bytes_out",
        "client",
        "closed",
        "connected",
        "kept",
        "opened_ms",
        "session",
        "tasks",
    )

    def __init__(
        self,
        session: Session,
        buffer: ReadBuffer,
        hangup: HangupWatch,
        on_ask: Callable[[Link, Ask], None],
        on_closed: Callable[[Link, str, str], None],
    ) -> None:
        self.session = session
        self.client = ClientSide(self, buffer)
        self.broker = BrokerSide(self, buffer)
        self.bytes_in = self.bytes_out = 0
        self.opened_ms = _wall_ns() // 1_000_000
        self.closed: str | None = None
        self.connected: Callable[[], None] | None = None
        self.tasks: set[Any] = set()
        self.kept: Any = None  # lives as long as the link
        self._paused = False
        self._hangup = hangup
        self._on_ask = on_ask
        self._on_closed = on_closed

    def client_connected(self) -> None:
        """The client's transport is up, TLS included."""
        if self.connected is not None:
            self.connected()

    def upstream_ready(self) -> None:
        """The broker's transport is up."""
        self.session.upstream_ready(_wall_ns() // 1_000_000)
        self.settle()

    def settle(self) -> None:
        """Write what the session has to say and do what it commands, until it has nothing left."""
        session = self.session
        while True:
            if session.to_client:
                self.client.send(session.to_client)
            if session.to_broker:
                self.broker.send(session.to_broker)
            if not session.commands:
                return
            commands = session.commands
            session.commands = []
            for command in commands:
                kind = command.__class__
                if kind is WakeAt:
                    self._wake_at(command.t_ms)  # type: ignore[union-attr]
                elif kind is Ask:
                    self._on_ask(self, command)  # type: ignore[arg-type]
                elif kind is PauseClient:
                    self._paused = True
                    self.client_reading()
                    if self.client.transport is not None:
                        self._hangup.watch(self)
                elif kind is ResumeClient:
                    self._paused = False
                    self._hangup.forget(self)
                    self.client_reading()
                elif kind is Close:
                    self.close(command.reason, command.detail)  # type: ignore[union-attr]

    def answer(self, ask: Ask, frame: bytes) -> None:
        """Answer a question ourselves."""
        self.session.answer(ask, frame, _wall_ns() // 1_000_000)
        self.settle()

    def forward(
        self, ask: Ask, frame: bytes, merge: Callable[[bytes], bytes] | None = None
    ) -> None:
        """Pass a question on to the broker."""
        self.session.forward(ask, frame, merge)
        self.settle()

    def resume(self, ask: Ask) -> None:
        """Go on with a client whose token's owner was looked up."""
        self.session.resume(ask, _wall_ns() // 1_000_000)
        self.settle()

    def client_reading(self) -> None:
        """Read from the client unless the session or the broker's side is full."""
        transport = self.client.transport
        if transport is None or transport.is_closing():
            return
        if self._paused or self.broker.full:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def broker_reading(self, on: bool) -> None:
        """Read from the broker unless the client's side is full."""
        transport = self.broker.transport
        if transport is None or transport.is_closing():
            return
        if on:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _wake_at(self, t_ms: int) -> None:
        delay_ms = t_ms - _wall_ns() // 1_000_000
        # The loop's timers have whole milliseconds and may be early by one; the session asks again.
        asyncio.get_running_loop().call_later(max(delay_ms, 1) / 1000, self._wake)

    def _wake(self) -> None:
        if self.closed is None:
            self.session.wake(_wall_ns() // 1_000_000)
            self.settle()

    def lost(self, side: str, exc: Exception | None) -> None:
        """One side's connection has gone."""
        if self.closed is not None:
            return
        identity = self.session.identity
        if side == "client":
            self.close("client-gone", str(exc or ""))
        elif identity.close_reason is not None:
            self.close(identity.close_reason, identity.close_text)
        else:
            self.close("upstream-gone", str(exc or ""))

    def close(self, reason: str, detail: str = "") -> None:
        """Close both sides, once; what the client is still owed is sent first."""
        if self.closed is not None:
            return
        self.closed = reason
        if self.session.closed is None:
            self.session.closed = Close(reason, detail)
            self.session.abandon()
        self._hangup.forget(self)
        for task in self.tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            if reason == "client-gone":
                self.client.abort()
            elif reason == "drained":
                self.client.say_goodbye()
            else:
                self.client.close()
            # A half-sent request must not look like a whole one's end: just go.
            self.broker.abort()
        self._on_closed(self, reason, detail)
