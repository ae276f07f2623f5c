"""What is done to a connection when it is accepted, before anything is read."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.acceptor import listen, size_buffers
from headgate.gateway.front import BrokerFront


@pytest.fixture
def accepted() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0, 1) as server:
        server.setblocking(True)
        with socket.create_connection(server.getsockname()[:2]), server.accept()[0] as sock:
            yield sock


def buffers(sock: socket.socket) -> tuple[int, int]:
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
    )


def asked_for(size: int) -> tuple[int, int]:
    """What the system says of a size set: that, or on Linux twice that (for its own books)."""
    return size, 2 * size


def test_a_buffer_gets_its_size_and_minus_1_leaves_it_to_the_system(
    accepted: socket.socket,
) -> None:
    send, receive = buffers(accepted)
    size_buffers(accepted, -1, -1)
    assert buffers(accepted) == (send, receive)
    size_buffers(accepted, 30_000, -1)
    assert buffers(accepted)[0] in asked_for(30_000)
    assert buffers(accepted)[1] == receive
    size_buffers(accepted, -1, 20_000)
    assert buffers(accepted)[0] in asked_for(30_000)
    assert buffers(accepted)[1] in asked_for(20_000)


async def test_a_connection_taken_over_has_the_buffers_of_its_listeners_settings(
    accepted: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    async def open_link(self: Any, face: Any, sock: socket.socket, address: str) -> None:
        opened.append((buffers(sock), address))

    monkeypatch.setattr(BrokerFront, "_open_link", open_link)
    front = BrokerFront.__new__(BrokerFront)
    front._opening = set()
    settings = Settings.from_properties(
        {"socket.send.buffer.bytes": "30000", "socket.receive.buffer.bytes": "20000"}
    )
    face: Any = SimpleNamespace(settings=settings)
    front.accepted(face, accepted, "10.0.0.1")
    [task] = front._opening
    await task
    [((send, receive), address)] = opened
    assert send in asked_for(30_000)
    assert receive in asked_for(20_000)
    assert address == "10.0.0.1"
