"""Long mutes, drained gateways, lost stores, and clients that stay idle."""

from __future__ import annotations

import contextlib
import gc
import logging
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from headgate.embedded.process import accepts
from headgate.errors import StoreError
from headgate.gateway import GatewayThread
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.transports import BrokerSide, ClientSide
from headgate.gateway.session.session import Session
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store

from .gateway_kit import wait_for
from .scripted_upstream import (
    SLOW,
    VERSIONS,
    Start,
    Upstream,
    connect,
    links,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]

TEN_MINUTES_WORTH = 610_000
"""Bytes at 1,000 a second: ten minutes, above the window's ten seconds."""


# --- A long mute


def mute_and_return(
    gateway: GatewayThread,
    upstream: Upstream,
    dial: Callable[[], socket.socket],
    times: int,
    stay: Callable[[], None],
) -> None:
    """
    Come back ``times`` times while muted, each time in another state, and see what is held.

    Args:
        stay: what passes between coming and going.
    """
    for number in range(times):
        # An end comes behind what this side's system still holds for a peer that reads no more.
        resets = number % 2 == 1 or number % 3 == 2
        with dial() as client:
            # While the one before is seen to be open, this one is another, which owes nothing.
            wait_for(lambda: gateway.call(lambda: links(gateway)) == 1, "the one before to go")
            client.sendall(produce(TEN_MINUTES_WORTH))
            if number == 0:
                assert int.from_bytes(read_answer(client)[-4:], "big") > 590_000
            else:  # the mute of the one before is its own: its request is held
                client.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    client.recv(1)
            if number % 3 == 1:
                client.sendall(produce(60_000, 2))  # held
            elif number % 3 == 2:
                with contextlib.suppress(TimeoutError):
                    client.settimeout(0.3)
                    client.sendall(produce(900_000, 2))  # so much that nothing more is read
            stay()
            wait_for(lambda: gateway.call(lambda: links(gateway)) <= 2, "the one before to go")
            if resets:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the last one to go")
    wait_for(lambda: len(upstream._writers) == 0, "the upstream connections to go")
    assert gateway.gateway.brokers[1].quotas.total == 0


def test_a_muted_client_that_reconnects_again_and_again_is_held_once(
    start: Start, upstream: Upstream
) -> None:
    gateway = start(SLOW)
    mute_and_return(gateway, upstream, lambda: connect(gateway), 9, lambda: None)


def test_a_muted_tls_client_that_reconnects_again_and_again_is_held_once(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(server))
    gateway = start(
        SLOW,
        listeners="TLS://127.0.0.1:0",
        **{
            "listener.security.protocol.map": "TLS:SSL",
            "headgate.upstream.security.protocol": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server),
        },
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def dial() -> socket.socket:
        return context.wrap_socket(connect(gateway, "TLS"), server_hostname="localhost")

    mute_and_return(gateway, upstream, dial, 6, lambda: None)


@pytest.mark.slow
def test_a_ten_minute_mute_holds_two_connections_of_a_client_that_returns_every_30_s(
    start: Start, upstream: Upstream
) -> None:
    gateway = start(SLOW)

    def half_a_minute() -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            assert gateway.call(lambda: links(gateway)) <= 2
            assert len(upstream._writers) <= 3  # the gateway's own questions may be among them
            time.sleep(0.5)

    mute_and_return(gateway, upstream, lambda: connect(gateway), 20, half_a_minute)


# --- A drained gateway and its successor


class Clients:
    """Raw producers that pipeline requests, reconnect when closed, and count answers."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.stop = threading.Event()
        self.answered: list[int] = []
        self._threads = [threading.Thread(target=self._talk, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _talk(self, number: int) -> None:
        correlation = number * 1_000_000
        while not self.stop.is_set():
            try:
                sock = socket.create_connection(("127.0.0.1", self.port), 10)
            except OSError:
                time.sleep(0.01)  # nobody listens for a moment
                continue
            with sock:
                sock.settimeout(60)
                waiting = b""
                with contextlib.suppress(ConnectionError):
                    while not self.stop.is_set():
                        for _ in range(5):
                            correlation += 1
                            sock.sendall(produce(300, correlation))
                        owed = 5
                        while owed:
                            piece = sock.recv(65_536)
                            if not piece:
                                raise ConnectionError
                            waiting += piece
                            while len(waiting) >= 8:
                                size, answer = struct.unpack_from(">ii", waiting)
                                if len(waiting) < 4 + size:
                                    break
                                waiting = waiting[4 + size :]
                                self.answered.append(answer)
                                owed -= 1

    def join(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()


def test_every_request_that_reached_the_broker_is_answered_when_gateways_replace_each_other(
    start: Start, upstream: Upstream, tmp_path: Path, free_port: int
) -> None:
    path = f"sqlite:{tmp_path / 'quotas.db'}"
    here = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port}", "headgate__lease__ttl__ms": "6000"}
    stores = [open_store(path) for _ in range(4)]
    active = start(store=stores[0], headgate__worker__id="worker-0", **here)
    clients = Clients(free_port, 4)
    try:
        for number, store in enumerate(stores[1:], 1):
            successor = start(store=store, headgate__worker__id=f"worker-{number}", **here)
            assert successor.gateway.not_ready() == "standing by"
            before = len(clients.answered)
            wait_for(lambda b=before: len(clients.answered) > b + 100, "requests to go on", 60)  # type: ignore[misc]
            active.stop(20_000)
            wait_for(lambda s=successor: s.call(lambda: s.gateway.brokers), "the successor", 60)  # type: ignore[misc]
            active = successor
        before = len(clients.answered)
        wait_for(lambda: len(clients.answered) > before + 100, "requests to go on", 60)
    finally:
        clients.join()
    active.stop(20_000)
    for store in stores:
        store.close()
    seen, answered = sorted(upstream.correlations), sorted(clients.answered)
    assert len(set(answered)) == len(answered)
    assert seen == answered


# --- A store that goes away


class Fickle:
    """A store that can't be reached while ``away`` is set."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.away = threading.Event()
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "availability":
            trouble = "the store is away" if self.away.is_set() else found.trouble
            return SimpleNamespace(trouble=trouble, silent=found.silent, refuses=found.refuses)
        if name in ("leases", "history", "broker_settings"):
            return Part(found, self)
        return found if not callable(found) or name == "watch" else self.asking(found)

    def asking(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that is refused while the store is away."""

        def ask(*args: Any, **named: Any) -> Any:
            if self.away.is_set():
                self.refused += 1
                raise StoreError("the store is away", retriable=True)
            return act(*args, **named)

        return ask


class Part:
    """What a store that may be away holds."""

    def __init__(self, part: Any, store: Fickle) -> None:
        self._part, self._store = part, store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found) or name == "watch":
            return found
        asking = self._store.asking(found)
        return asking if name != "take" else lambda *args: self._lent(asking(*args))

    def _lent(self, lease: Any) -> Lent | None:
        return None if lease is None else Lent(lease, self._store)


class Lent:
    """A lease of a store that may be away."""

    def __init__(self, lease: Any, store: Fickle) -> None:
        self.epoch = lease.epoch
        self.renew, self.release = store.asking(lease.renew), store.asking(lease.release)


def test_while_the_store_is_away_the_last_quotas_stay_and_the_gateway_says_so(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.gateway")
    plain = open_store(f"sqlite:{tmp_path / 'quotas.db'}")
    plain.alter([QuotaAlteration.of(QuotaEntity.of(user="ANONYMOUS"), (Op(PRODUCER, 1_000.0),))])
    store = Fickle(plain)
    gateway = start(store=store, headgate__lease__ttl__ms="1000")
    wait_for(lambda: gateway.gateway.table.entities, "the store's quotas")

    def store_up() -> bool:
        return next(iter(gateway.views())).meters.store_up

    assert store_up()
    store.away.set()
    wait_for(lambda: not store_up(), "the gateway to say that the store is away")
    wait_for(lambda: "the last quotas stay" in caplog.text, "the log to say so")
    with connect(gateway) as client:
        client.sendall(produce(50_000))
        assert 30_000 < int.from_bytes(read_answer(client)[-4:], "big") <= 40_000
    # Alone it goes on for longer than its lease lasts, which is three renewals.
    refused = store.refused
    wait_for(lambda: store.refused > refused + 6, "the lease to run out")
    assert set(gateway.gateway.brokers) == {1}
    store.away.clear()
    wait_for(store_up, "the gateway to see the store again")
    gateway.stop(0)
    plain.close()


# --- Memory of connections


def test_a_connection_that_ends_is_gone_without_the_collector(
    start: Start, upstream: Upstream
) -> None:
    gateway = start(SLOW)

    def talk(end: Callable[[socket.socket], None]) -> None:
        with connect(gateway) as client:
            client.sendall(VERSIONS)
            read_answer(client)
            client.sendall(produce(300))
            read_answer(client)
            assert alive() == 4
            end(client)

    def alive() -> int:
        kinds = (Link, Session, ClientSide, BrokerSide)
        return sum(issubclass(type(found), kinds) for found in gc.get_objects())

    def reset(client: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def nonsense(client: socket.socket) -> None:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b""

    def broker_goes(client: socket.socket) -> None:
        upstream._loop.call_soon_threadsafe(
            lambda: [writer.transport.abort() for writer in list(upstream._writers)]
        )
        assert client.recv(1) == b""

    ways: list[Callable[[socket.socket], None]] = [
        lambda client: None,
        lambda client: client.sendall(produce(300)[:100]),
        reset,
        nonsense,
        broker_goes,
    ]
    gc.collect()
    gc.disable()
    try:
        for end in ways:
            talk(end)
            wait_for(lambda: alive() == 0, "the connection's memory to be free")
    finally:
        gc.enable()


# --- Ten thousand idle clients

DIAL = """
import resource, socket, struct, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
ports = list(map(int, sys.argv[1:]))
VERSIONS = struct.pack(">ihhih", 10, 18, 0, 9, -1)
socks = []
for line in sys.stdin:
    for _ in range(int(line)):
        n = len(socks)
        sock = socket.create_connection(
            ("127.0.0.1", ports[n % len(ports)]), 60, (f"127.0.0.{2 + n % 50}", 0)
        )
        sock.sendall(VERSIONS)
        assert sock.recv(100)
        socks.append(sock)
    print(len(socks), flush=True)
"""
KB_EACH = 10
"""The stated memory of an idle connection: 100 MB for ten thousand of them; 7 are measured."""


A_MOMENT_KB = 5_000
"""What two workers may have more at one look than at another: much of it beside 500 connections."""


def settled_kb(pids: list[int]) -> int:
    """Resident memory of processes when it has stayed as it is for a second."""
    seen: deque[int] = deque(maxlen=10)

    def settled() -> bool:
        seen.append(sum(map(rss_kb, pids)))
        time.sleep(0.1)
        return len(seen) == seen.maxlen and max(seen) - min(seen) < 100

    wait_for(settled, "memory to settle", 120)
    return seen[-1]


def rss_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_take_the_memory_stated_and_give_back_what_they_hold(
    tmp_path: Path, free_ports: Callable[..., list[int]], count: int
) -> None:
    """``headgate serve`` as shipped, a process per broker: each has two descriptors a client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ports = free_ports(2, consecutive=True)
    config = tmp_path / "headgate.properties"
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        one, two = stack.enter_context(Upstream()), stack.enter_context(Upstream())
        one.others, two.others = {2: two.port}, {2: two.port, 1: one.port}
        config.write_text(
            f"listeners=PLAINTEXT://127.0.0.1:{ports[0]}\n"
            f"headgate.upstream=127.0.0.1:{one.port},127.0.0.1:{two.port}\n"
            f"headgate.broker.id.min=1\nheadgate.broker.id.max=2\nheadgate.data.dir={tmp_path}\n"
        )
        serve = [sys.executable, "-m", "headgate.cli.main", "serve", "--process-per-broker"]
        with (tmp_path / "serve.log").open("wb") as log:
            gateway = subprocess.Popen([*serve, "--config", str(config)], stderr=log)
        stack.callback(gateway.wait)
        stack.callback(gateway.terminate)
        wait_for(lambda: all(map(accepts, ports)), "both workers to serve", 120)
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        assert len(workers) == 2
        dialer = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", DIAL, *map(str, ports)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(dialer.kill)

        def dial(more: int) -> None:
            assert dialer.stdin is not None
            assert dialer.stdout is not None
            dialer.stdin.write(f"{more}\n")
            dialer.stdin.flush()
            assert dialer.stdout.readline(), "a connection failed"

        # What the first ones bring with them, 2 MB a worker after some hundred, isn't each one's.
        dial(600)
        memory, files = settled_kb(workers), sum(map(descriptors, workers))
        dial(count)
        used = settled_kb(workers) - memory
        assert sum(map(descriptors, workers)) >= files + 2 * count
        print(f"{count} idle connections: {used / count:.1f} KB each")
        assert used <= KB_EACH * count + A_MOMENT_KB
        with socket.create_connection(("127.0.0.1", ports[0]), 60) as lone:
            lone.sendall(produce(300))
            assert read_answer(lone)[4:8] == struct.pack(">i", 1)
        dialer.kill()
        wait_for(
            lambda: sum(map(descriptors, workers)) <= files, "what they held to be given back", 120
        )
