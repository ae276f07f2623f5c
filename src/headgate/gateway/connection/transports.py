"""
The two ends of a client connection on the event loop: reading, writing, and letting buffers go.

Protocol callbacks, never streams. Both sides read into one buffer per loop, which is handed on as
it is: a write that leaves nothing behind (nearly all) lets the buffer be used again, one that
does takes the buffer with it and the loop goes on with a new one. TLS transports are given a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import now_ms
from headgate.gateway.connection.pool import MINIMUM_BYTES, Kind, Pool

if TYPE_CHECKING:
    from headgate.gateway.connection.link import Link

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

_perf_ns: Final = time.perf_counter_ns


class ReadBuffer:
    """
    The buffer that all links of one loop read into, one at a time, and the pool of what they hold.

    Memory that a write still needs is lent to it and comes back when the write is done: making it
    anew each time would cost as much as the relaying (page faults).
    """

    __slots__ = ("_size", "_spare", "memory", "pool", "small", "view")

    def __init__(self, pool_bytes: int = 1 << 27) -> None:
        self.pool = Pool(pool_bytes, self._narrow)
        self._spare: list[bytearray] = []
        self._size = READ_BUFFER_BYTES
        self._use(bytearray(READ_BUFFER_BYTES))

    def _use(self, memory: bytearray) -> None:
        self.memory = memory
        self.view = memoryview(memory)
        self.small = self.view[:MINIMUM_BYTES]

    def _narrow(self, full: bool) -> None:
        """Read in pieces that are small, while the pool is full."""
        self._size = MINIMUM_BYTES if full else READ_BUFFER_BYTES
        self._spare.clear()
        self._use(bytearray(self._size))

    def lend(self) -> bytearray:
        """Leave the memory to a write that still needs it; go on with other memory."""
        lent = self.memory
        self._use(self._spare.pop() if self._spare else bytearray(self._size))
        return lent

    def take_back(self, lent: list[bytearray]) -> None:
        """Take memory back that no write needs any more."""
        room = SPARE_BUFFERS - len(self._spare)
        self._spare.extend(memory for memory in lent[:room] if len(memory) == self._size)
        lent.clear()


class _Side(asyncio.BufferedProtocol):
    """
    What both sides have in common: a buffered protocol that reads into the loop's one buffer.
    """

    __slots__ = ("buffer", "full", "lent", "link", "owed", "tls", "transport")

    def __init__(self, link: Link, buffer: ReadBuffer) -> None:
        self.link = link
        self.buffer = buffer
        self.transport: Any = None
        self.full = False  # the other end takes less than we have
        self.lent: list[bytearray] = []
        self.owed = 0  # bytes that wait to be sent
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

    def buffer_updated(self, nbytes: int) -> None:
        """Take what is in the loop's buffer."""
        raise NotImplementedError

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
            self.owed = max(sum(map(len, self.lent)), transport.get_write_buffer_size())
            self.link.weigh()

    def drained(self) -> None:
        """All was sent: what was lent comes back."""
        self.full = False
        if self.lent:
            self.buffer.take_back(self.lent)
        if self.owed:
            self.owed = 0
            self.link.weigh()

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
        self.owed = 0
        if hasattr(self, "link"):
            del self.link


class ClientSide(_Side):
    """The side the client is on."""

    __slots__ = ("freely",)

    def __init__(self, link: Link, buffer: ReadBuffer) -> None:
        super().__init__(link, buffer)
        self.freely = False  # what comes is nobody's burden

    def get_buffer(self, sizehint: int) -> Any:
        """
        Read into the loop's buffer.

        Into a small piece of it before the client is known, and while it is made to wait when those
        hold much already: what is read is held then.
        """
        if self.freely:
            return self.buffer.memory
        session = self.link.session
        if not session.known:
            return self.buffer.small
        self.freely = not session.made_to_wait
        if self.freely or not self.buffer.pool.scarce(Kind.OURS):
            return self.buffer.memory
        return self.buffer.small

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
        session.client_data(self.buffer.view[:nbytes], now_ms())
        if session.to_broker:
            link.broker.send(session.to_broker)
        if session.commands or session.to_client:
            link.settle()
        elif session.retains:
            link.weigh()
        if started:
            session.account_client(_perf_ns() - started)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.broker_reading(False)
        self.link.stalled(True)

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.drained()
        self.link.broker_reading(True)
        self.link.stalled(False)


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
        now = now_ms()
        link.bytes_out += nbytes
        unanswered = session.unanswered
        before = len(unanswered)
        session.broker_data(self.buffer.view[:nbytes], now)
        if session.to_client:
            link.client.send(session.to_client)
        if session.commands or session.to_broker:
            link.settle()
        elif session.retains:
            link.weigh()
        if before > MANY_UNANSWERED or self.gathering:
            left = len(unanswered)
            if left >= MANY_UNANSWERED and before > left and now - self.read_ms <= 1:
                self.gather(left, nbytes // (before - left))
            elif self.gathering:
                self.gather(0, 0)
            self.read_ms = now
        if started:
            session.account_broker(_perf_ns() - started, now)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.client_reading()

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.drained()
        self.link.client_reading()
