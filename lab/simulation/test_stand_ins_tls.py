"""
TLS over simulated sockets beside uvloop's own TLS over sockets on loopback.

The scripts of ``test_stand_ins`` that mean something over TLS are played again, and the outcome
has to be uvloop's. The other side is what simulated clients are made of, in front of a socket that
is real or played. And what keeps a life of a seed the same is held: all handshakes are alike in
sizes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from headgate.client.tls import tls_of
from simulation import test_stand_ins as plain
from simulation.certificates import (
    GATE,
    ISSUED,
    client_context,
    keystore,
    serial_of,
    server_context,
)
from simulation.loop import Host, Process, SimLoop
from simulation.network import Network
from simulation.peers import TlsPeer
from simulation.seed import Seed
from simulation.test_stand_ins import Noting, Script

DONE = "through the handshake"
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def context_of(name: str = "a1") -> ssl.SSLContext:
    return server_context(tls_of(keystore(name)), "none")


class Kernel:
    """A real socket, as a simulated peer asks for one."""

    on_readable: Callable[[], None]
    on_writable: Callable[[], None]

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False

    def send(self, data: Any) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    def recv(self, most: int) -> bytes | None:
        try:
            return self.sock.recv(most)
        except BlockingIOError:
            return None

    def close(self) -> None:
        self.closed = True
        self.sock.close()

    def reset(self) -> None:
        self.closed = True
        plain.RealPeer(self.sock).reset()


class Other:
    """The other side of a script; it reads when it is told to, but for the handshake."""

    def __init__(self, end: Any, trusted: str, *, old: bool) -> None:
        self.sock = end
        self.got = 0
        self.end = self.told = ""
        context = client_context(trusted, old=old)
        self.peer = TlsPeer(end, self._data, self._gone, context, GATE, self._shaken)

    def _shaken(self, error: str) -> None:
        self.told = error or DONE
        self.peer.reads = False

    def _data(self, data: bytes) -> None:
        self.got += len(data)

    def _gone(self, how: str) -> None:
        self.end = "reset" if "reset" in how else how

    def read(self) -> None:
        self.peer.reads = True
        self.peer.look()
        self.peer.reads = False

    def turn(self) -> None:
        """Do what a kernel's news would make it do."""
        self.peer.look()
        self.peer._writable()

    def send(self, data: bytes) -> None:
        self.peer.send(data)

    def close(self) -> None:
        self.peer.close()

    def reset(self) -> None:
        self.peer.reset()

    def leave(self) -> None:
        """Close the socket without TLS's goodbye."""
        self.sock.close()


def leaves_without_a_goodbye(a: Noting, peer: Any) -> Iterator[None]:
    peer.send(b"hello")
    yield
    peer.leave()
    yield


def leaves_without_a_goodbye_while_paused(a: Noting, peer: Any) -> Iterator[None]:
    a.transport.pause_reading()
    peer.send(b"hello")
    yield
    peer.leave()
    yield
    a.notes.append("resumes reading")
    a.transport.resume_reading()
    yield


SCRIPTS: list[Script] = [
    plain.hangs_up, plain.says_goodbye, plain.does_not_read, plain.closes_while_full,
    plain.aborts_while_full, plain.is_reset, plain.is_reset_while_full, plain.pauses,
    plain.is_left_while_paused, plain.closes_with_unread, plain.talks_to_the_dead,
    leaves_without_a_goodbye, leaves_without_a_goodbye_while_paused,
]  # fmt: skip


def _outcome(a: Noting, peer: Other) -> dict[str, Any]:
    return {"notes": list(a.notes), "got": a.got, "peer got": peer.got, "peer saw": peer.end,
            "told": peer.told}  # fmt: skip


async def _really(script: Script, old: bool, trusted: str = "a") -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    a, peer = Noting(high=65_536), Other(Kernel(theirs), trusted, old=old)
    taken = asyncio.ensure_future(
        loop.connect_accepted_socket(lambda: a, ours, ssl=context_of(), ssl_handshake_timeout=5.0)
    )
    while not (peer.told and taken.done()):
        peer.turn()
        await asyncio.sleep(0.002)
    if taken.exception() is None:
        for _ in script(a, peer):
            peer.peer._writable()
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.02)
    outcome = _outcome(a, peer)
    if a.transport is not None and not a.lost:
        a.transport.abort()
    theirs.close()
    await asyncio.sleep(0.02)
    return outcome


def _simulated(script: Script, old: bool, number: int, trusted: str = "a") -> dict[str, Any]:
    loop = SimLoop(Seed(number))
    net = Network(loop)
    here, there = Host(loop, "here", GATE), Host(loop, "there", "10.0.0.3")
    process = Process(here, "here")
    listener = net.listen(process, "", 9)
    ends: list[Any] = []
    net.connect(there, listener.address, ends.append)
    loop.run(5)
    a, peer = Noting(high=65_536), Other(ends[0], trusted, old=old)

    async def take() -> None:
        with contextlib.suppress(ssl.SSLError):
            await loop.connect_accepted_socket(
                lambda: a, listener.accept()[0], ssl=context_of(), ssl_handshake_timeout=5.0
            )

    process.spawn(take())
    loop.run(50)
    at = 50.0

    def play() -> None:
        with contextlib.suppress(StopIteration):
            next(steps)

    steps = script(a, peer)
    for _ in range(200 if peer.told == DONE else 0):
        process.run(play)
        at += 20
        loop.run(at)
    outcome = _outcome(a, peer)
    assert not process.failures
    loop.close()
    return outcome


def _on_uvloop(script: Script, old: bool, trusted: str = "a") -> dict[str, Any]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_really(script, old, trusted))


@pytest.mark.parametrize("old", [False, True], ids=["TLS 1.3", "TLS 1.2"])
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.__name__ for script in SCRIPTS])
def test_tls_does_as_the_real_one(script: Script, old: bool) -> None:
    really = _on_uvloop(script, old)
    assert really["told"] == DONE
    for number in range(4):
        assert _simulated(script, old, number) == really, number


@pytest.mark.parametrize("old", [False, True], ids=["TLS 1.3", "TLS 1.2"])
def test_who_trusts_another_authority_is_refused_alike(old: bool) -> None:
    really = _on_uvloop(plain.hangs_up, old, "b")
    assert really["told"] == UNTRUSTED
    assert _simulated(plain.hangs_up, old, 1, "b") == really


class Pipe:
    """A socket that keeps what is sent."""

    def __init__(self) -> None:
        self.closed = False
        self.sent: list[bytes] = []

    def send(self, data: Any) -> int:
        self.sent.append(bytes(data))
        return len(data)

    def close(self) -> None:
        self.closed = True


def shake(name: str, trusted: str, *, old: bool) -> tuple[list[int], str, int]:
    """Return the sizes of a handshake's messages and of one after it, what failed, the serial."""
    told: list[str] = []
    ends: list[Any] = [Pipe(), Pipe()]
    server = TlsPeer(ends[0], lambda _: None, lambda _: None, context_of(name))
    client = TlsPeer(
        ends[1], lambda _: None, lambda _: None,
        client_context(trusted, old=old), GATE, told.append,
    )  # fmt: skip
    client.send(b"x" * 1_000)
    sizes = []
    for _ in range(4):
        for end, peer in ((ends[1], server), (ends[0], client)):
            said, end.sent = b"".join(end.sent), []
            sizes.append(len(said))
            if said and not peer.gone:
                peer._came(said)
    return sizes, told[0], 0 if told[0] else client.certificate


@pytest.mark.parametrize("old", [False, True], ids=["TLS 1.3", "TLS 1.2"])
@pytest.mark.parametrize("name", ISSUED)
@pytest.mark.parametrize("trusted", ["a", "b", "ab"])
def test_handshakes_are_alike_in_sizes(name: str, trusted: str, old: bool) -> None:
    first = shake(name, trusted, old=old)
    if ISSUED[name] in trusted:
        assert first[1:] == ("", serial_of(name))
    else:
        assert first[1:] == (UNTRUSTED, 0)
    assert sum(first[0]) > 500
    for _ in range(25):
        assert shake(name, trusted, old=old) == first
