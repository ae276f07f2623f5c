"""Peers that are slow, silent, garbled or gone: closed at a bound, each with its reason counted."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from headgate.gateway import GatewayThread

from .gateway_kit import wait_for
from .scripted_upstream import (
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


def closed(gateway: GatewayThread, listener: str = "PLAINTEXT") -> dict[str, int]:
    """Closes by their reasons, asked on the loop: there one that a client has seen is counted."""
    found: dict[str, int] = gateway.call(
        lambda: dict(gateway.gateway.brokers[1].meters.listeners[listener].closed)
    )
    return found


def ends(client: socket.socket) -> bool:
    """Whether the gateway ends a connection; fails if it doesn't within a minute."""
    client.settimeout(60)
    try:
        while client.recv(65_536):
            pass
    except TimeoutError:
        raise
    except OSError:
        pass
    return True


@pytest.fixture
def secure(start: Start, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GatewayThread]:
    """A gateway whose TLS listener wants certificates; its parameter: how long it waits, ms."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made = authority.issue_cert("localhost")
    made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    yield start(
        listeners="TLS://127.0.0.1:0",
        listener__security__protocol__map="TLS:SSL",
        headgate__upstream__security__protocol="PLAINTEXT",
        headgate__handshake__timeout__ms=getattr(request, "param", "60000"),
        ssl__client__auth="required",
        ssl__keystore__type="PEM",
        ssl__keystore__location=str(tmp_path / "server.pem"),
        ssl__truststore__type="PEM",
        ssl__truststore__location=str(tmp_path / "ca.pem"),
    )


@pytest.mark.parametrize("secure", ["300"], indirect=True)
def test_who_says_nothing_at_a_tls_port_is_closed(secure: GatewayThread) -> None:
    with connect(secure, "TLS") as client:
        assert ends(client)
    wait_for(lambda: closed(secure, "TLS") == {"handshake-timeout": 1}, "the reason")


def test_who_speaks_no_tls_at_a_tls_port_is_closed(secure: GatewayThread) -> None:
    with connect(secure, "TLS") as client:
        client.sendall(VERSIONS + bytes(100))
        assert ends(client)
    wait_for(lambda: closed(secure, "TLS") == {"tls-failed": 1}, "the reason")
    assert secure.gateway.brokers[1].quotas.total == 0


def test_who_has_no_certificate_where_one_is_wanted_is_closed(
    secure: GatewayThread, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with (
        contextlib.suppress(OSError),
        connect(secure, "TLS") as raw,
        context.wrap_socket(raw, server_hostname="localhost") as client,
    ):
        client.sendall(VERSIONS)
        assert ends(client)
    wait_for(lambda: closed(secure, "TLS") == {"tls-failed": 1}, "the reason")


def test_who_dribbles_before_authentication_is_closed_in_time(start: Start) -> None:
    gateway = start(
        listeners="SASL://127.0.0.1:0",
        listener__security__protocol__map="SASL:SASL_PLAINTEXT",
        headgate__upstream__security__protocol="PLAINTEXT",
        headgate__handshake__timeout__ms="500",
    )
    with connect(gateway, "SASL") as client:
        client.sendall(VERSIONS)
        assert read_answer(client)[4:8] == struct.pack(">i", 9)
        client.sendall(struct.pack(">ihhih", 400_000, 36, 0, 10, -1))  # and then byte by byte
        client.settimeout(0.1)
        until = time.monotonic() + 60
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                client.sendall(b"\0")
                with contextlib.suppress(TimeoutError):
                    if client.recv(1) == b"":
                        break
        assert time.monotonic() < until
    wait_for(lambda: closed(gateway, "SASL") == {"handshake-timeout": 1}, "the reason")


def test_half_a_request_that_never_ends_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.gateway.broker import broker as front

    monkeypatch.setattr(front, "_SLOW_REQUEST_MS", 500)
    gateway = start()
    with connect(gateway) as slow, connect(gateway) as good:
        slow.sendall(produce(100_000)[:50_000])
        good.sendall(VERSIONS)
        assert read_answer(good)[4:8] == struct.pack(">i", 9)
        assert ends(slow)
        assert closed(gateway) == {"slow-request": 1}
        good.sendall(VERSIONS)
        assert read_answer(good)[4:8] == struct.pack(">i", 9)


def test_half_a_request_at_the_end_of_a_drain_is_cut_off_and_said(start: Start) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(produce(100_000)[:50_000])
        wait_for(lambda: gateway.call(lambda: links(gateway)) == 1, "the connection")
        front = gateway.gateway.brokers[1]
        wait_for(
            lambda: gateway.call(lambda: any(k.session.begun for k in front.links)),
            "the half",
        )
        began = time.monotonic()
        gateway.stop(300)
        assert time.monotonic() - began < 30
        assert ends(client)
    assert front.meters.listeners["PLAINTEXT"].closed == {"drain-timeout": 1}


def test_a_correlation_id_before_its_answer_closes_and_is_counted(
    start: Start, upstream: Upstream
) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(produce(500, 7))
        assert read_one(client)[4:8] == struct.pack(">i", 7)
        client.sendall(produce(600, 7))  # answered: the id is free again
        assert read_one(client)[4:8] == struct.pack(">i", 7)
        client.sendall(produce(500, 8) + produce(600, 9) + produce(700, 8))
        assert ends(client)
    assert closed(gateway) == {"replayed-correlation-id": 1}
    assert upstream.correlations.count(upstream.correlations[0]) == 2


def read_one(client: socket.socket) -> bytes:
    """Read one answer and no byte more."""
    client.settimeout(60)
    head = client.recv(4, socket.MSG_WAITALL)
    return head + client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)


def test_a_broker_that_cant_be_reached_is_counted_and_its_client_closed(
    start: Start, upstream: Upstream
) -> None:
    import asyncio

    gateway = start()
    asyncio.run_coroutine_threadsafe(_shut(upstream), upstream._loop).result(60)
    with connect(gateway) as client:
        assert ends(client)
    assert closed(gateway) == {"upstream-unreachable": 1}
    assert gateway.gateway.brokers[1].meters.upstream_failures["connect"] == 1


async def _shut(upstream: Upstream) -> None:
    upstream._server.close()


def test_who_hangs_up_while_the_broker_reads_nothing_is_let_go(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.gateway.connection import link

    monkeypatch.setattr(link, "FULL_SWEEPS", 1)
    gateway = start()
    hangs = threading.Event()
    try:
        with connect(gateway) as client:
            client.sendall(VERSIONS)
            read_answer(client)
            upstream._loop.call_soon_threadsafe(hangs.wait)
            client.setblocking(False)
            left = memoryview(produce(60_000_000))
            (link,) = gateway.gateway.brokers[1].links

            def fills() -> bool:
                nonlocal left
                with contextlib.suppress(BlockingIOError):
                    while left:
                        left = left[client.send(left) :]
                return bool(gateway.call(lambda: link.broker.full))

            wait_for(fills, "a full side")
            # A reset, since an end waits behind what isn't read in the client's own kernel.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the link's end")
    finally:
        hangs.set()
    assert closed(gateway) == {"client-gone": 1}
