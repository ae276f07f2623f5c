"""Resident memory of a real gateway whose peers send much and finish no request."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .gateway_kit import wait_for
from .scripted_upstream import Upstream, produce, read_answer, upstream

__all__ = ["upstream"]

MB = 1_000_000
POOL = 24 * MB
PLAIN, SASL = 0, 1


class Gateway:
    """``headgate serve`` with a pool of 24 MB, and how much memory it has."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        with socket.socket() as one, socket.socket() as two:
            for sock in (one, two):
                sock.bind(("127.0.0.1", 0))
            self.ports = [sock.getsockname()[1] for sock in (one, two)]
        config = folder / "headgate.properties"
        config.write_text(
            f"listeners=PLAINTEXT://127.0.0.1:{self.ports[PLAIN]},SASL://127.0.0.1:{self.ports[SASL]}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT\n"
            f"headgate.upstream=127.0.0.1:{upstream.port}\n"
            "headgate.upstream.security.protocol=PLAINTEXT\n"
            "headgate.broker.id.min=1\nheadgate.broker.id.max=1\n"
            f"headgate.data.dir={folder}\nheadgate.usage=none\n"
            f"socket.request.max.bytes={20 * MB}\nqueued.max.request.bytes={POOL}\n"
        )
        self.said = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)],
            stderr=self.said,
        )

    def connect(self, listener: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), 60)

    def lives(self) -> bool:
        assert self.process.poll() is None, Path(self.said.name).read_text()
        with contextlib.suppress(OSError), self.connect(PLAIN) as client:
            client.sendall(produce(1_000))
            return len(read_answer(client)) > 8
        return False

    def resident(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found
        return int(found[1]) * 1024


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    made = Gateway(tmp_path, upstream)
    try:
        wait_for(made.lives, "the gateway")
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.said.close()


def press(gateway: Gateway, clients: list[socket.socket], begun: bytes, size: int) -> int:
    """Let all send as much as is taken of a request that never ends; return the most memory."""
    most = gateway.resident()
    sent = dict.fromkeys(clients, 0)
    for client in clients:
        client.sendall(begun)
        client.setblocking(False)
    filler = bytes(65_536)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        for client in clients:
            with contextlib.suppress(OSError):
                sent[client] += client.send(filler[: size - sent[client]])
        most = max(most, gateway.resident())
    return most


def header(key: int, version: int, size: int) -> bytes:
    return struct.pack(">ihhih", size + 14, key, version, 1, 3) + b"app\0"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="memory is read from /proc")
def test_what_hostile_peers_send_is_held_within_the_pool(gateway: Gateway) -> None:
    before = gateway.resident()
    with contextlib.ExitStack() as stack:

        def clients(count: int, listener: int) -> list[socket.socket]:
            return [stack.enter_context(gateway.connect(listener)) for _ in range(count)]

        # 200 tokens of 520 kB before authentication: an eighth, and 16 KiB for each.
        tokens = press(gateway, clients(200, SASL), header(36, 2, 520_000), 519_000)
        assert tokens - before <= POOL // 8 + 200 * 16_384 + 12 * MB
        # 12 share fetches of 19 MB: ten times the pool, if they were taken.
        fetches = press(gateway, clients(12, PLAIN), header(78, 1, 19 * MB), 19 * MB - 100)
        assert fetches - before <= 1.6 * POOL
        assert gateway.lives()
