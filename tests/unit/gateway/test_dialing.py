"""The way from a client to its broker: one that never answers, a client that goes meanwhile."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import HostPort
from headgate.gateway.broker.dialing import Dialer
from headgate.gateway.connection.acceptor import accept, listen
from headgate.gateway.connection.hosts import BrokerHosts
from headgate.metrics.meters import Meters


class Way:
    """A dialer, a link, and the listener it came to."""

    def __init__(self, timeout_ms: int) -> None:
        self.meters = Meters()
        self.closed: list[tuple[str, str]] = []
        self.link: Any = SimpleNamespace(
            broker=None, closed=None, close=lambda *said: self.closed.append(said)
        )
        self.listener: Any = SimpleNamespace(
            upstream=HostPort("127.0.0.1", 1),
            lending=None,
            upstream_tls=None,
            settings=SimpleNamespace(upstream_connect_timeout_ms=timeout_ms),
        )

    async def go(self) -> None:
        self.link.task = asyncio.current_task()
        await Dialer(1, self.meters, BrokerHosts()).connect(self.listener, self.link)


@pytest.fixture
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", never)


@pytest.mark.usefixtures("nobody_answers")
async def test_a_broker_that_never_answers_is_given_up_after_the_timeout() -> None:
    way = Way(20)
    task = asyncio.create_task(way.go())
    await task
    assert way.closed == [("upstream-unreachable", "broker 1 at 127.0.0.1:1: no answer in 20 ms")]
    assert way.meters.upstream_failures["connect"] == 1
    assert not task.cancelling()


@pytest.mark.usefixtures("nobody_answers")
async def test_who_is_cancelled_on_the_way_stays_cancelled() -> None:
    way = Way(60_000)
    task = asyncio.create_task(way.go())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not way.closed


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_accepted_socket_is_one_as_any(host: str) -> None:
    try:
        listening = listen(host, 0, 5)
    except OSError:
        pytest.skip(f"no {host} here")
    with listening, socket.create_connection(listening.getsockname()[:2], 10) as client:
        listening.setblocking(True)
        sock, peer = accept(listening)
        with sock:
            assert peer[:2] == client.getsockname()[:2] == sock.getpeername()[:2]
            assert (sock.family, sock.type) == (client.family, client.type)
            assert sock.gettimeout() == 0.0
            client.sendall(b"ab")
            sock.setblocking(True)
            assert sock.recv(2) == b"ab"
