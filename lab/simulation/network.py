"""
Sockets between simulated hosts, and everything that can go wrong on the way.

An ``End`` is what the kernel keeps for one side of a connection: bytes that have arrived and
aren't read, room for what may be sent, the peer's FIN or reset. Bytes travel in pieces, cut where
the seed says, never reordered within a connection and freely between connections. What TCP does,
it does as Linux does: data that was sent arrives before a FIN or a reset; what was received can
be read before the reset is told; closing a socket with unread data resets; data for a closed
socket resets; a partition only delays, unless it lasts.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from simulation.loop import NS_PER_MS, Host, Process, SimLoop
from simulation.tls import TlsTransport, over_tls
from simulation.transports import SimTransport

FIN: Final = object()
RESET: Final = object()
RETRANSMIT_MS: Final = 200.0
"""After a partition ends, this passes before what was lost is sent again."""
GIVES_UP_MS: Final = 900_000.0
REFUSED: Final = errno.ECONNREFUSED


class Way:
    """
    One direction of a connection: how long bytes take, and in which pieces they come.

    Args:
        chance: of this direction.
        latency_ms: shortest and longest.
        bytes_per_ms: bandwidth; 0: without bound.
        cut: the share of sends that arrive in several pieces.
    """

    __slots__ = ("bytes_per_ms", "chance", "cut", "free_ns", "latency_ms")

    def __init__(
        self,
        chance: random.Random,
        latency_ms: tuple[float, float] = (0.05, 0.4),
        bytes_per_ms: float = 0.0,
        cut: float = 0.1,
    ) -> None:
        self.chance = chance
        self.latency_ms = latency_ms
        self.bytes_per_ms = bytes_per_ms
        self.cut = cut
        self.free_ns = 0  # when the last byte so far has left

    def pieces(self, data: bytes) -> list[bytes]:
        """Cut bytes as a network might."""
        size = len(data)
        if size < 2 or self.chance.random() >= self.cut:
            return [data]
        if size <= 40 and self.chance.random() < 0.3:
            return [data[i : i + 1] for i in range(size)]
        count = self.chance.randint(1, 3)
        # Heads and tails of frames are where cutting hurts.
        near = [self.chance.randint(1, min(size - 1, 64)) for _ in range(count)]
        marks = sorted(
            {at if self.chance.random() < 0.5 else self.chance.randint(1, size - 1) for at in near}
        )
        return [data[a:b] for a, b in itertools.pairwise([0, *marks, size])]

    def arrival_ns(self, now_ns: int, size: int) -> int:
        """Say when a piece that is sent now arrives."""
        low, high = self.latency_ms
        begun = max(now_ns, self.free_ns)
        if self.bytes_per_ms:
            begun += int(size / self.bytes_per_ms * NS_PER_MS)
        self.free_ns = begun
        return begun + int((low + self.chance.random() * (high - low)) * NS_PER_MS)


class End:
    """
    One side of a connection, in its host's kernel; the gateway's side looks like a socket.

    Attributes:
        peer: the other side.
        received: bytes that arrived, in pieces.
        unread: how many.
        ended: the peer's FIN has arrived.
        error: what reading or writing says now.
        capacity: most bytes that may be on their way to this side or unread here.
        on_readable, on_writable: called when there is something to read, room to write.
        on_sent, on_read: taps: called with bytes that this side's owner sent, or read.
        on_closed: likewise, when this side closes.
    """

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, net: Network, host: Host, name: tuple[str, int], way: Way) -> None:
        self.net = net
        self.host = host
        self.name = name
        self.way = way  # from here to the peer
        self.peer: End = self
        self.fd = net.new_fd(self)
        self.received: deque[bytes] = deque()
        self.unread = 0
        self.on_the_way = 0  # sent by the peer, not read here
        self.capacity = 131_072
        self.ended = False
        self.error: OSError | None = None
        self.sent_fin = False
        self.closed = False
        self.starved = False  # this side wanted to write and could not
        self.low_water = 1
        self.vanished = False  # its host lost its power: nothing comes from here any more
        self.on_readable: Callable[[], None] = _nothing
        self.on_writable: Callable[[], None] = _nothing
        self.on_sent: Callable[[bytes], None] | None = None
        self.on_read: Callable[[bytes], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.watchers: dict[Any, None] = {}
        self._arrivals: deque[Any] = deque()
        self._last_ns = 0

    # --- the owner's side -------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor; -1 when it is closed."""
        return -1 if self.closed else self.fd

    def is_readable(self) -> bool:
        """Whether reading would say something."""
        if self.closed:
            return False
        return self.unread >= self.low_water or self.ended or self.error is not None

    def room(self) -> int:
        """Return how many bytes can be sent now."""
        return self.peer.capacity - self.peer.on_the_way

    def send(self, data: Any) -> int:
        """Send as much as there is room for; return how many bytes."""
        if self.error is not None:
            raise self.error
        if self.sent_fin or self.closed:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        count = min(len(data), self.room())
        if count < len(data):
            self.starved = True
        if count <= 0:
            return 0
        sent = bytes(data[:count])
        if self.on_sent is not None:
            self.on_sent(sent)
        self.peer.on_the_way += count
        for piece in self.way.pieces(sent):
            self._travel(piece, len(piece))
        return count

    def recv(self, most: int) -> bytes | None:
        """Read; b"" at the end, None when there is nothing yet."""
        if self.unread:
            taken = []
            left = most
            while self.received and left > 0:
                piece = self.received.popleft()
                if len(piece) > left:
                    self.received.appendleft(piece[left:])
                    piece = piece[:left]
                taken.append(piece)
                left -= len(piece)
            data = b"".join(taken)
            self.unread -= len(data)
            self.on_the_way -= len(data)
            if self.on_read is not None:
                self.on_read(data)
            peer = self.peer
            if peer.starved and not peer.closed:
                peer.starved = False
                latency = int(self.way.latency_ms[0] * NS_PER_MS)
                self.net.loop.at(self.net.loop.now_ns + latency, peer._window)
            return data
        if self.error is not None:
            raise self.error
        return b"" if self.ended else None

    def shutdown(self, _how: int = 0) -> None:
        """Say that nothing more comes."""
        if not self.sent_fin and not self.closed:
            self.sent_fin = True
            self._travel(FIN, 0)

    def close(self) -> None:
        """Close; unread data makes that a reset."""
        if self.closed:
            return
        if self.unread:
            self.closed = True
            self._travel(RESET, 0)
        else:
            self.shutdown()
            self.closed = True
        self.net.gone(self)

    def reset(self) -> None:
        """Close with a reset, as with SO_LINGER 0; what was sent and hasn't arrived is lost."""
        if self.closed:
            return
        self.closed = True
        peer = self.peer
        lost = sum(len(piece) for piece in peer._arrivals if isinstance(piece, bytes))
        peer._arrivals.clear()
        peer.on_the_way -= lost
        self._travel(RESET, 0)
        self.net.gone(self)

    def vanish(self) -> None:
        """Lose power: nothing is said to the peer, nor ever again."""
        self.vanished = self.closed = True
        self.net.gone(self)

    # --- what code that thinks it has a socket asks -----------------------------------------

    def setblocking(self, _flag: bool) -> None:
        """Do nothing: nothing here blocks."""

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        """Take SO_RCVLOWAT; the rest has no meaning here."""
        if option == socket.SO_RCVLOWAT:
            self.low_water = max(value, 1)
            if self.is_readable():
                self.on_readable()

    def getsockname(self) -> tuple[str, int]:
        """Return this side's address."""
        return self.name

    def getpeername(self) -> tuple[str, int]:
        """Return the peer's address."""
        return self.peer.name

    # --- the wire ---------------------------------------------------------------------------

    def _travel(self, what: Any, size: int) -> None:
        """Send a piece, a FIN or a reset to the peer, behind all that was sent before."""
        peer, loop = self.peer, self.net.loop
        when = max(self.way.arrival_ns(loop.now_ns, size), peer._last_ns)
        peer._last_ns = when
        peer._arrivals.append(what)
        loop.at(when, peer._arrive)

    def _arrive(self) -> None:
        if not self._arrivals:
            return  # a reset overtook it
        loop = self.net.loop
        blocked_ns = self.net.blocked_until(self.peer.host, self.host)
        if self.peer.vanished and not self.peer.closed:
            return
        if blocked_ns > loop.now_ns:
            wait = int(RETRANSMIT_MS * self.peer.way.chance.random() * NS_PER_MS)
            self._last_ns = max(self._last_ns, blocked_ns + wait)
            loop.at(self._last_ns, self._arrive)
            return
        what = self._arrivals.popleft()
        if self.vanished:
            return
        if what is FIN:
            self.ended = True
        elif what is RESET:
            self._broken(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif self.closed:
            self.on_the_way -= len(what)
            if self.peer.error is None and not self.peer.closed:
                self._travel(RESET, 0)
            return
        else:
            self.received.append(what)
            self.unread += len(what)
        if self.closed:
            return
        for watcher in list(self.watchers):
            watcher.look()
        if self.is_readable():
            self.on_readable()

    def _broken(self, error: OSError) -> None:
        if self.error is None:
            self.error = error
        self.on_writable()

    def _window(self) -> None:
        if not self.closed:
            self.on_writable()


def _nothing() -> None:
    """Nobody listens."""


class Listener:
    """A listening socket; looks like one to the acceptor."""

    family = socket.AF_INET

    def __init__(self, net: Network, process: Process, address: tuple[str, int], most: int) -> None:
        self.net = net
        self.process = process
        self.address = address
        self.backlog: deque[End] = deque()
        self.most = most
        self.fd = net.new_fd(self)
        self.closed = False
        net.loop.watchable(self)

    def fileno(self) -> int:
        """Return the descriptor; -1 when it is closed."""
        return -1 if self.closed else self.fd

    def getsockname(self) -> tuple[str, int]:
        """Return where it listens."""
        return self.address

    def getsockopt(self, _level: int, _option: int) -> int:
        """Say that it listens (SO_ACCEPTCONN)."""
        return int(not self.closed)

    def setsockopt(self, *_: Any) -> None:
        """Do nothing: sizes of buffers are drawn."""

    def is_readable(self) -> bool:
        """Whether a connection waits."""
        return bool(self.backlog) and not self.closed

    def poll(self, _ms: int) -> list[int]:
        """Answer as ``select.poll`` would."""
        return [self.fd] if self.is_readable() else []

    def accept(self) -> tuple[End, tuple[str, int]]:
        """Take a connection."""
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody waits")
        end = self.backlog.popleft()
        return end, end.peer.name

    def close(self) -> None:
        """Let go of the port; who waits is reset."""
        if self.closed:
            return
        self.closed = True
        if self.net.listeners.get(self.address) is self:
            del self.net.listeners[self.address]
        for end in self.backlog:
            end.reset()
        self.backlog.clear()


class Network:
    """
    All hosts, ports and connections of a life.

    Args:
        loop: the loop.

    Attributes:
        listeners: by address.
        ends: that are open.
        make_way: draws a direction of a new connection; replaced by faults.
        names: addresses of host names.
        seen: how often each thing happened, for the run's figures.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        loop.network = self
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ends: dict[End, None] = {}
        self.names: dict[str, str] = {"localhost": "127.0.0.1"}
        self.by_fd: dict[int, Any] = {}
        self._fds = itertools.count(1_000)
        self._ports = itertools.count(40_000)
        self._connections = itertools.count(1)
        self._cuts: dict[frozenset[str], int] = {}
        self.make_way: Callable[[int, Host, Host, random.Random], Way] = lambda *args: Way(args[3])
        self.capacity: Callable[[random.Random], int] = lambda chance: 131_072
        self.on_transport: Callable[[SimTransport | TlsTransport, Process], None] | None = None

    def new_fd(self, thing: Any) -> int:
        """Return a descriptor for something."""
        fd = next(self._fds)
        self.by_fd[fd] = thing
        return fd

    def gone(self, end: End) -> None:
        """A side has closed."""
        self.ends.pop(end, None)
        self.by_fd.pop(end.fd, None)
        if end.on_closed is not None:
            end.on_closed()

    # --- partitions -------------------------------------------------------------------------

    def cut(self, one: Host, other: Host, ms: float) -> None:
        """Let nothing pass between two hosts for a while."""
        pair = frozenset((one.name, other.name))
        until = self.loop.now_ns + int(ms * NS_PER_MS)
        self._cuts[pair] = max(self._cuts.get(pair, 0), until)

    def blocked_until(self, one: Host, other: Host) -> int:
        """Return when something may pass between two hosts again."""
        return self._cuts.get(frozenset((one.name, other.name)), 0) if self._cuts else 0

    def bring_back(self) -> None:
        """Let hosts that lost their power answer again: with a reset, as they know of nothing."""
        for end in list(self.ends):
            if end.peer.vanished and not end.closed:
                end._broken(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
                end.on_readable()

    # --- listening and connecting -----------------------------------------------------------

    def listen(self, process: Process, host: str, port: int, backlog: int = 50) -> Listener:
        """Open a port of a process's host."""
        address = process.host.address if host in ("", "0.0.0.0", "::") else self._resolve(host)
        if not port:
            port = next(self._ports)
        if (address, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        made = self.listeners[address, port] = Listener(self, process, (address, port), backlog)
        process.on_end.append(lambda _: made.close())
        return made

    def _resolve(self, name: str) -> str:
        found = self.names.get(name)
        if found is not None:
            return found
        if name.replace(".", "").isdigit():
            return name
        raise socket.gaierror(socket.EAI_NONAME, f"{name}: no such host")

    async def getaddrinfo(self, host: Any, port: Any) -> Any:
        """Look a name up."""
        await asyncio.sleep(0.001)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self._resolve(host), port or 0))]

    def connect(
        self,
        host: Host,
        where: tuple[str, int],
        done: Callable[[End | OSError], None],
        source: str = "",
    ) -> None:
        """
        Connect from a host.

        Args:
            host: which.
            where: address and port.
            done: called once with this side, or with what failed.
            source: the address to come from, if it isn't the host's.
        """
        number = next(self._connections)
        chance = self.loop.seed.stream("connection", number)
        latency = 0.1 + chance.random() * 0.4

        def knock() -> None:
            listener = self.listeners.get(where)
            there = None if listener is None else listener.process.host
            if there is not None and self.blocked_until(host, there) > self.loop.now_ns:
                self.loop.after(1_000.0, knock)  # as SYN is sent again
                return
            if where in self.silent:
                return  # nobody answers, not even with a refusal
            if listener is None or there is None:
                self.loop.after(
                    latency, done, ConnectionRefusedError(REFUSED, os.strerror(REFUSED))
                )
                return
            if len(listener.backlog) >= listener.most + 1:
                self.loop.after(1_000.0, knock)
                return
            out = self.make_way(number, host, there, chance)
            back = self.make_way(number, there, host, chance)
            near = End(self, host, (source or host.address, next(self._ports)), out)
            far = End(self, there, where, back)
            near.peer, far.peer = far, near
            near.capacity, far.capacity = self.capacity(chance), self.capacity(chance)
            self.ends[near] = self.ends[far] = None
            listener.backlog.append(far)
            self.loop.poll(listener.fd)
            listener.process.on_end.append(lambda _: far.close())
            self.loop.after(latency, done, near)

        self.loop.after(latency, knock)

    silent: frozenset[tuple[str, int]] = frozenset()
    """Addresses that answer nothing at all, not even a refusal."""

    async def create_connection(
        self, factory: Any, host: str, port: int, *, ssl: Any = None, **more: Any
    ) -> Any:
        """Do as the loop's ``create_connection``."""
        process = self.loop.process()
        waiter = self.loop.create_future()
        given_up = []

        def done(found: End | OSError) -> None:
            if isinstance(found, End) and (given_up or not process.alive):
                found.close()
                return
            if isinstance(found, End):
                process.on_end.append(lambda _: found.close())
            process.run(self._settle, waiter, found)

        self.connect(process.host, (self._resolve(host), port), done)
        try:
            end = await waiter
        except asyncio.CancelledError:
            given_up.append(True)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().close()
            raise
        return await self._adopt(factory, end, process, ssl, more)

    def _settle(self, waiter: asyncio.Future[End], found: End | OSError) -> None:
        if waiter.done():
            if isinstance(found, End):
                found.close()
        elif isinstance(found, End):
            waiter.set_result(found)
        else:
            waiter.set_exception(found)

    async def connect_accepted(
        self, factory: Any, sock: End, *, ssl: Any = None, **more: Any
    ) -> Any:
        """Do as the loop's ``connect_accepted_socket``."""
        more["server_side"] = True
        return await self._adopt(factory, sock, self.loop.process(), ssl, more)

    async def _adopt(
        self, factory: Any, end: End, process: Process, context: Any, more: dict[str, Any]
    ) -> Any:
        protocol = factory()
        waiter = self.loop.create_future()
        transport: SimTransport | TlsTransport
        if context is None:
            transport = SimTransport(self.loop, process, end, protocol, waiter)
        else:
            transport = over_tls(self.loop, process, end, protocol, waiter, context, **more)
        if self.on_transport is not None:
            self.on_transport(transport, process)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol
