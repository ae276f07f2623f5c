"""A ZooKeeper counts as started when it serves, not when it takes connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.embedded import zookeeper
from headgate.embedded.process import accepts
from headgate.embedded.zookeeper import _serves

SERVING = (
    b"Zookeeper version: 3.8.4\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\n"
    b"Connections: 1\nOutstanding: 0\nZxid: 0x0\nMode: standalone\nNode count: 5\n"
)
STARTING = b"This ZooKeeper instance is not currently serving requests\n"


@contextmanager
def listener(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one question so, in two pieces, and close, as ZooKeeper does; yields port, asked."""
    asked: list[bytes] = []

    def run() -> None:
        with server.accept()[0] as client:
            asked.append(client.recv(4, socket.MSG_WAITALL))
            client.sendall(answer[:7])
            client.sendall(answer[7:])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield server.getsockname()[1], asked
        finally:
            thread.join()


def test_one_that_tells_its_mode_serves() -> None:
    with listener(SERVING) as (port, asked):
        assert _serves(port)
    assert asked == [b"srvr"]


@pytest.mark.parametrize("answer", [STARTING, b"", b"srvr is not executed because\n"])
def test_one_that_says_anything_else_does_not_serve_yet(answer: bytes) -> None:
    with listener(answer) as (port, asked):
        assert not _serves(port)
    assert asked == [b"srvr"]


def test_one_that_takes_connections_and_never_answers_does_not_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper, "_ANSWER_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert accepts(port)
        assert not _serves(port)
    assert not _serves(port)  # nobody listens at all
