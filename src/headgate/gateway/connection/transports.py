"""
The two ends of a client's connection on the event loop: reading, writing, lending buffers.

These are protocol callbacks, never streams. Both sides read into the loop's one buffer, which is
handed on as it is. Nearly every write is done at once, and the buffer is used again. A write that
has to wait keeps the buffer, and the loop goes on with another one. TLS transports get a copy, in
small pieces: what they took, nobody can count any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.gateway.connection.gathering import MANY_UNANSWERED, Gathering
from headgate.gateway.connection.pool import ConnectionKind, ReadBuffer

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session

WATCHED_BYTES: Final = 4_096
"""The smallest read whose work is measured."""
GOODBYE_S: Final = 0.3
"""How long a drained client may take to close its connection."""
TLS_PIECE_BYTES: Final = 65_536
"""TLS hands all that it is given to the transport beneath it at once, however much waits there
already. So it is given no more than this at a time, and nothing while anything waits in it."""
BENEATH_TLS_BYTES: Final = 131_072
"""What waits beneath TLS before it waits in TLS itself: uvloop's mark of 64 KiB, and a piece."""
UNREAD_TLS_BYTES: Final = (20_480, 32_768)
"""TLS reads on below the first and no further from the second on while we don't read, of 256 KiB
by default. The first must be more than a record, which can't be read before it is whole."""
LINGER_S: Final = 5.0
"""How long a closed connection may take to drain before it is aborted."""

_cpu_ns: Final = time.thread_time_ns
_perf_ns: Final = time.perf_counter_ns
_wall_ns: Final = time.time_ns
"""Used for every read: calling ``headgate.clock`` would cost as much again."""


class Joined(Protocol):
    """What a side asks of the link that joins it to the other one."""

    session: Session
    client: ClientSide
    broker: BrokerSide
    bytes_in: int
    bytes_out: int
    closed: str | None

    def settle(self) -> None:
        """Write what the session has to say and do what it commands."""

    def weigh(self) -> None:
        """Tell the pool what is held here."""

    def client_reading(self) -> None:
        """Read from the client unless something keeps it from that."""

    def broker_reading(self, on: bool) -> None:
        """Read from the broker, or don't."""

    def stalled(self, on: bool) -> None:
        """The client's side is full, or was."""

    def lost(self, side: object, exc: Exception | None) -> None:
        """A side's connection has gone."""


class _Side(asyncio.BufferedProtocol):
    """
    What both sides have in common: a buffered protocol that reads into the loop's one buffer.
    """

    #: Whether what TLS doesn't take waits here, where it is counted; else it waits in TLS.
    counts_tls = False

    __slots__ = (
        "backlog",
        "behind",
        "buffer",
        "freely",
        "full",
        "gathering",
        "lent",
        "linger",
        "link",
        "owed",
        "tls",
        "transport",
    )

    def __init__(self, link: Joined, buffer: ReadBuffer) -> None:
        self.link = link
        self.buffer = buffer
        self.transport: Any = None
        self.full = False  # the other end takes less than we have
        self.lent: list[bytearray] = []
        self.owed = 0  # bytes that wait to be sent
        self.tls = False
        self.backlog: deque[memoryview] | tuple[()] = ()  # what TLS hasn't taken yet
        self.behind = 0  # bytes that the backlog keeps in memory
        self.linger: asyncio.TimerHandle | None = None  # aborts it, once it was closed
        # Used by one side each. Constructors of their own would cost every connection two calls.
        self.freely = False  # the client's: what comes need not be read in small pieces
        self.gathering: Gathering | None = None  # the broker's, once many answers were due

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; whatever can't be sent at once stops the other side."""
        self.transport = transport
        self.tls = transport.get_extra_info("sslcontext") is not None
        limit: Any = transport
        if self.tls:
            if self.counts_tls:
                self.backlog = deque()
                # With 0 uvloop's TLS would pause at each write, and might never resume.
                limit.set_write_buffer_limits(high=1, low=0)
            low, high = UNREAD_TLS_BYTES
            limit.set_read_buffer_limits(high=high, low=low)
        else:
            limit.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Read into the loop's buffer."""
        return self.buffer.memory

    def send(self, pieces: list[Any]) -> None:
        """Write pieces and empty the list; a write that has to wait borrows the read buffer."""
        transport = self.transport
        if transport is None or transport.is_closing():
            pieces.clear()
            return
        if self.tls and self.counts_tls:
            self._send_tls(b"".join(pieces))
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

    def _send_tls(self, data: bytes) -> None:
        if len(data) <= TLS_PIECE_BYTES and not self.full:
            self.transport.write(data)
        else:
            self.backlog.append(memoryview(data))  # type: ignore[union-attr]
            self.behind += len(data)
            self._pass_on()
        if self.full:
            self._count_tls()

    def _pass_on(self) -> None:
        """Give TLS what it takes of the backlog."""
        backlog: Any = self.backlog
        while backlog and not self.full:
            piece: Any = backlog[0]
            if len(piece) > TLS_PIECE_BYTES:
                backlog[0] = piece[TLS_PIECE_BYTES:]
            else:
                del backlog[0]
                self.behind -= len(piece.obj)  # a part of it kept the whole
            self.transport.write(piece[:TLS_PIECE_BYTES])

    def _count_tls(self) -> None:
        self.owed = self.behind + self.transport.get_write_buffer_size() + BENEATH_TLS_BYTES
        self.link.weigh()

    def drained(self) -> None:
        """
        All was sent: what was lent comes back.

        With a backlog the side may be ``full`` again.
        """
        self.full = False
        if self.backlog:
            self._pass_on()
            if self.full:
                self._count_tls()
                return
        if self.lent:
            self.buffer.take_back(self.lent)
        if self.owed:
            self.owed = 0
            self.link.weigh()

    def close(self) -> None:
        """
        Send what is left, then close; abort if the peer doesn't take it.

        TLS waits for the peer's goodbye as well, for half a minute. Meanwhile the
        descriptor is still there, while limits count the connection as closed.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        for piece in self.backlog:
            transport.write(piece)
        transport.close()
        if self.tls or transport.get_write_buffer_size():
            self.linger = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

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
        self.linger = asyncio.get_running_loop().call_later(GOODBYE_S, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """This side has gone, and the other with it."""
        if self.linger is not None:
            self.linger.cancel()  # it keeps the transport's memory
        try:
            link = self.link
        except AttributeError:  # it was released before
            return
        if link.closed is None:
            link.lost(self, exc)
        self.release()
        if self is link.client and link.broker.transport is None and link.closed is not None:
            link.broker.release()  # it was never connected, or went before

    def release(self) -> None:
        """
        Let go of the link, which holds this side too.

        A link's memory is then free when the link ends. The garbage collector would free what has
        lived for some minutes only in its rarest round.
        """
        try:
            del self.link
        except AttributeError:  # it was released before
            return
        self.transport = None
        self.lent.clear()
        self.backlog = ()
        self.owed = 0
        if self.gathering is not None:
            self.gathering.close()


class ClientSide(_Side):
    """The side the client is on."""

    __slots__ = ()

    counts_tls = True  # clients may read nothing for as long as they like; brokers read

    def get_buffer(self, sizehint: int) -> Any:
        """
        Read into the loop's buffer.

        Only a small piece of it is used before the client is known. The same holds for a client
        that is made to wait, since what it sends is held, if such clients hold much already.
        """
        if self.freely:
            return self.buffer.memory
        session = self.link.session
        if not session.known:
            return self.buffer.small
        self.freely = not session.made_to_wait
        if self.freely or not self.buffer.pool.scarce(ConnectionKind.OURS):
            return self.buffer.memory
        return self.buffer.small

    def buffer_updated(self, nbytes: int) -> None:
        """Give the session what came and write what it has to say: the hot path."""
        link = self.link
        session = link.session
        watched = _cpu_ns() if nbytes >= WATCHED_BYTES else 0
        started = _perf_ns() if session.rules.counts_requests else 0
        link.bytes_in += nbytes
        session.client_data(self.buffer.view[:nbytes], _wall_ns() // 1_000_000)
        if session.to_broker:
            link.broker.send(session.to_broker)
        if session.commands or session.to_client:
            link.settle()
        elif session.retains:
            link.weigh()
        if started:
            session.account_client(_perf_ns() - started)
        if watched:
            self.buffer.stall_meter.note(_cpu_ns() - watched)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.broker_reading(False)
        self.link.stalled(True)

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.drained()
        if not self.full:
            self.link.broker_reading(True)
            self.link.stalled(False)


class BrokerSide(_Side):
    """The side the broker is on."""

    __slots__ = ("__weakref__",)

    def buffer_updated(self, nbytes: int) -> None:
        """Give the session what came and write what it has to say: the hot path."""
        link = self.link
        session = link.session
        watched = _cpu_ns() if nbytes >= WATCHED_BYTES else 0
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
        elif session.retains:
            link.weigh()
        if before > MANY_UNANSWERED and self.gathering is None and not self.tls:
            self.gathering = Gathering.of(self.transport)
        if self.gathering is not None:
            self.gathering.answered(before, len(unanswered), nbytes, now_ms)
        if started:
            session.account_broker(_perf_ns() - started, now_ms)
        if watched:
            self.buffer.stall_meter.note(_cpu_ns() - watched)

    def pause_writing(self) -> None:
        """This side is full: the other one isn't read."""
        self.full = True
        self.link.client_reading()

    def resume_writing(self) -> None:
        """This side has drained: the other one is read again."""
        self.drained()
        self.link.client_reading()
