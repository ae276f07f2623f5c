"""The way from a client to its broker: one that never answers, a client that goes meanwhile."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import HostPort
from headgate.gateway.broker.clients import Taking
from headgate.gateway.connection.acceptor import accept, listen


class Front:
    """As much of a front as the way to a broker needs."""

    broker_id = 1
    failed_at = 0.0

    def __init__(self, timeout_ms: int) -> None:
        self.meters = SimpleNamespace(upstream_failures={"connect": 0})
        self.closed: list[tuple[str, str]] = []
        self.link: Any = SimpleNamespace(
            broker=None, closed=None, close=lambda *said: self.closed.append(said)
        )
        self.face: Any = SimpleNamespace(
            upstream=HostPort("127.0.0.1", 1),
            lending=None,
            upstream_tls=None,
            settings=SimpleNamespace(upstream_connect_timeout_ms=timeout_ms),
        )

    async def go(self) -> None:
        await Taking._connect_upstream(self, self.face, self.link)  # type: ignore[arg-type]


@pytest.fixture
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", never)


@pytest.mark.usefixtures("nobody_answers")
async def test_a_broker_that_never_answers_is_given_up_after_the_timeout() -> None:
    front = Front(20)
    task = asyncio.create_task(front.go())
    await task
    assert front.closed == [("upstream-unreachable", "broker 1 at 127.0.0.1:1: no answer in 20 ms")]
    assert front.meters.upstream_failures == {"connect": 1}
    assert not task.cancelling()


@pytest.mark.usefixtures("nobody_answers")
async def test_who_is_cancelled_on_the_way_stays_cancelled() -> None:
    front = Front(60_000)
    task = asyncio.create_task(front.go())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not front.closed


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
