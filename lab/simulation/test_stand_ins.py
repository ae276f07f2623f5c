"""
The simulated transport beside asyncio's and uvloop's own: the same callbacks in the same order.

Each script is played three times: on loopback under both real loops, and in the simulation. A
script is a generator that does something and yields until all has come to rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from kit.wire_oracles import kio_decode
from simulation import speech as say
from simulation.loop import Host, Process, SimLoop
from simulation.network import End, Network
from simulation.seed import Seed

MUCH = 8_000_000


class Noting(asyncio.BufferedProtocol):
    """Notes every callback."""

    def __init__(self, *, at_once: str = "", keeps_open: bool = False, high: int = 0) -> None:
        self.notes: list[str] = []
        self.buffer = bytearray(262_144)
        self.got = 0
        self.transport: Any = None
        self.lost = False
        self._at_once = at_once
        self._keeps_open = keeps_open
        self._high = high

    def connection_made(self, transport: Any) -> None:
        self.notes.append("made")
        self.transport = transport
        transport.set_write_buffer_limits(high=self._high)
        if self._at_once:
            getattr(transport, self._at_once)()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.got:
            self.notes.append("first bytes")
        self.got += nbytes

    def eof_received(self) -> bool:
        self.notes.append("eof")
        return self._keeps_open

    def pause_writing(self) -> None:
        self.notes.append("pause")

    def resume_writing(self) -> None:
        self.notes.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        kind = "broken" if isinstance(exc, OSError) else type(exc).__name__
        self.notes.append("lost" if exc is None else f"lost: {kind}")

    def write(self, size: int) -> None:
        self.notes.append("writes")
        self.transport.write(bytes(size))
        self.notes.append("wrote")


class RealPeer:
    """The other side, as a plain socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self.got = 0
        self.end = ""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while not self.end:
                try:
                    data = self.sock.recv(1 << 20)
                except ConnectionResetError:
                    self.end = "reset"
                    return
                if not data:
                    self.end = "eof"
                self.got += len(data)

    def close(self) -> None:
        self.sock.close()

    def shutdown(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class PlayedPeer:
    """The other side, simulated: a plain socket as well."""

    def __init__(self, end: End) -> None:
        self.got = 0
        self.end = ""
        self.sock = end

    def send(self, data: bytes) -> None:
        assert self.sock.send(data) == len(data)

    def read(self) -> None:
        while not self.end:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                self.end = "reset"
                return
            if data is None:
                return
            if not data:
                self.end = "eof"
            self.got += len(data)

    def close(self) -> None:
        self.sock.close()

    def shutdown(self) -> None:
        self.sock.shutdown()

    def reset(self) -> None:
        self.sock.reset()


Script = Callable[[Noting, Any], Iterator[None]]


def hangs_up(a: Noting, peer: Any) -> Iterator[None]:
    peer.send(b"hello")
    yield
    peer.close()
    yield


def says_goodbye(a: Noting, peer: Any) -> Iterator[None]:
    a.write(5)
    a.transport.close()
    yield
    peer.read()
    yield


def takes_much(peer: Any) -> Iterator[None]:
    """The peer reads until all is there."""
    for _ in range(500):
        if peer.got < MUCH:
            peer.read()
            yield
    peer.read()
    yield


def does_not_read(a: Noting, peer: Any) -> Iterator[None]:
    a.write(MUCH)
    yield
    yield from takes_much(peer)


def closes_while_full(a: Noting, peer: Any) -> Iterator[None]:
    a.write(MUCH)
    a.transport.close()
    yield
    yield from takes_much(peer)


def aborts_while_full(a: Noting, peer: Any) -> Iterator[None]:
    a.write(MUCH)
    yield
    if not a.lost:
        a.transport.abort()
    yield


def is_reset(a: Noting, peer: Any) -> Iterator[None]:
    peer.reset()
    yield


def is_reset_while_full(a: Noting, peer: Any) -> Iterator[None]:
    a.write(MUCH)
    yield
    peer.reset()
    yield


def pauses(a: Noting, peer: Any) -> Iterator[None]:
    a.transport.pause_reading()
    peer.send(b"hello")
    yield
    a.notes.append("resumes reading")
    a.transport.resume_reading()
    yield


def is_left_while_paused(a: Noting, peer: Any) -> Iterator[None]:
    a.transport.pause_reading()
    peer.send(b"hello")
    peer.close()
    yield
    a.notes.append("resumes reading")
    a.transport.resume_reading()
    yield


def half_closes(a: Noting, peer: Any) -> Iterator[None]:
    a.write(7)
    a.transport.write_eof()
    yield
    peer.read()
    yield
    peer.send(b"still here")
    yield
    peer.close()
    yield


def peer_half_closes(a: Noting, peer: Any) -> Iterator[None]:
    peer.shutdown()
    yield
    if not a.lost:
        a.write(9)
        yield
        peer.read()
        a.transport.close()
        yield


def closes_with_unread(a: Noting, peer: Any) -> Iterator[None]:
    a.transport.pause_reading()
    peer.send(b"unheard")
    yield
    a.transport.close()
    yield
    peer.read()
    yield


def talks_to_the_dead(a: Noting, peer: Any) -> Iterator[None]:
    a.transport.pause_reading()
    peer.close()
    yield
    a.write(10)
    yield
    a.write(10)
    yield


def does_nothing(a: Noting, peer: Any) -> Iterator[None]:
    yield
    peer.read()
    yield


CASES: list[tuple[str, Script, dict[str, Any]]] = [
    *((script.__name__, script, {}) for script in (
        hangs_up, says_goodbye, does_not_read, closes_while_full, aborts_while_full, is_reset,
        is_reset_while_full, pauses, is_left_while_paused, half_closes, peer_half_closes,
        closes_with_unread, talks_to_the_dead,
    )),
    ("peer_half_closes, kept open", peer_half_closes, {"keeps_open": True}),
    ("hangs_up, kept open", hangs_up, {"keeps_open": True}),
    ("does_not_read, some buffered", does_not_read, {"high": 65_536}),
    ("closes_while_full, some buffered", closes_while_full, {"high": 65_536}),
    ("aborts at once", does_nothing, {"at_once": "abort"}),
    ("closes at once", does_nothing, {"at_once": "close"}),
    ("pauses at once", hangs_up, {"at_once": "pause_reading"}),
]  # fmt: skip


def _outcome(a: Noting, peer: Any) -> dict[str, Any]:
    return {"notes": list(a.notes), "got": a.got, "peer got": peer.got, "peer saw": peer.end}


async def _really(script: Script, options: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    a, peer = Noting(**options), RealPeer(theirs)
    await loop.connect_accepted_socket(lambda: a, ours)
    for _ in script(a, peer):
        await asyncio.sleep(0.02)
    for _ in range(5):
        await asyncio.sleep(0)
    outcome = _outcome(a, peer)
    if not a.lost:
        a.transport.abort()
    peer.sock.close()
    await asyncio.sleep(0.02)
    return outcome


def _simulated(script: Script, options: dict[str, Any], number: int) -> dict[str, Any]:
    loop = SimLoop(Seed(number))
    net = Network(loop)
    here, there = Host(loop, "here", "10.0.0.2"), Host(loop, "there", "10.0.0.3")
    process = Process(here, "here")
    listener = net.listen(process, "", 9)
    ends: list[Any] = []
    net.connect(there, listener.address, ends.append)
    loop.run(5)
    a, peer = Noting(**options), PlayedPeer(ends[0])

    async def take() -> None:
        await loop.connect_accepted_socket(lambda: a, listener.accept()[0])

    process.spawn(take())
    loop.run(10)
    at = 10.0

    def play() -> None:
        with contextlib.suppress(StopIteration):
            next(steps)

    steps = script(a, peer)
    for _ in range(200):
        process.run(play)
        at += 20
        loop.run(at)
    outcome = _outcome(a, peer)
    loop.close()
    return outcome


@pytest.mark.parametrize(("script", "options"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_transport_does_as_the_real_ones(script: Script, options: dict[str, Any]) -> None:
    runner = asyncio.Runner()
    with runner:
        asyncios = runner.run(_really(script, options))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        uvloops = runner.run(_really(script, options))
    for number in range(20):
        simulated = _simulated(script, options, number)
        assert simulated in (asyncios, uvloops), (number, asyncios, uvloops)


def test_epoll_tells_a_hang_up_once_and_data_never() -> None:
    """Against ``select.epoll`` itself: EPOLLRDHUP with EPOLLONESHOT."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    real = select.epoll()
    real.register(ours.fileno(), select.EPOLLRDHUP | select.EPOLLONESHOT)
    theirs.send(b"data")
    time.sleep(0.01)
    really = [len(real.poll(0))]
    theirs.close()
    time.sleep(0.01)
    really += [len(real.poll(0)), len(real.poll(0))]
    real.close()
    ours.close()

    loop = SimLoop(Seed(1))
    net = Network(loop)
    here, there = Host(loop, "here", "10.0.0.2"), Host(loop, "there", "10.0.0.3")
    process = Process(here, "here")
    listener = net.listen(process, "", 9)
    ends: list[Any] = []
    net.connect(there, listener.address, ends.append)
    loop.run(5)
    from simulation.transports import SimEpoll

    epoll = SimEpoll(loop)
    epoll.register(listener.accept()[0].fileno(), 0)
    ends[0].send(b"data")
    loop.run(10)
    played = [len(epoll.poll(0))]
    ends[0].close()
    loop.run(20)
    played += [len(epoll.poll(0)), len(epoll.poll(0))]
    loop.close()
    assert played == really == [0, 1, 0]


def test_share_fetches_are_as_kafkas_schemas_say() -> None:
    asked = say.share_fetch(5, "app", 2, 500, 9_000)
    head = say.head_of(asked)
    assert say.read_share_fetch(asked, head) == 9_000
    read = kio_decode(say.SHARE_FETCH, 1, False, asked[head.body :])
    assert (read.max_bytes, read.topics[0].partitions[0].partition_index) == (9_000, 2)
    told = kio_decode(say.SHARE_FETCH, 1, True, say.share_answer(5, 2, b"x" * 70)[9:])
    assert told.responses[0].partitions[0].records == b"x" * 70
