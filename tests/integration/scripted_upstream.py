"""A scripted upstream and a gateway in front of it, on real sockets: for tests without a Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, QuotaKey
from headgate.quota.table import QuotaTable

PRODUCED = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">iihqqqi", 1, 0, 0, 0, -1, 0, 0)


class Upstream:
    """A broker that knows Metadata 8, Produce 7, Fetch 11 and ApiVersions 0."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self.refuses: set[int] = set()  # API keys that it hangs up on
        self.others: dict[int, int] = {}  # ports of brokers beside this one, by their ids
        self.connections = 0
        self.produced = 0
        self.records = 100_000  # bytes that a fetch brings, whatever it asks for
        self.fetch_s = 0.0  # how long it takes
        self.produce_s = 0.0  # how long a produce takes
        self.correlations: list[int] = []  # of the produce requests that came
        self.peers: list[str] = []
        self._writers: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            # Connections that are accepted just now have no writer yet, and their tasks have one.
            serving = asyncio.all_tasks() - {asyncio.current_task()}
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        certificate = writer.get_extra_info("peercert")
        self.peers.append(str(certificate))
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                key, _, correlation = struct.unpack_from(">hhi", frame)
                if key in self.refuses:
                    break
                if key == 3:
                    brokers = {1: self.port} | self.others
                    body = struct.pack(">ii", 0, len(brokers))
                    for broker, port in brokers.items():
                        body += struct.pack(">i", broker) + b"\0\x09127.0.0.1"
                        body += struct.pack(">ih", port, -1)
                    body += b"\0\1c"
                    body += struct.pack(">iii", 1, 0, -(2**31))
                elif key == 0:
                    self.produced += 1
                    self.correlations.append(correlation)
                    await asyncio.sleep(self.produce_s)
                    body = PRODUCED
                elif key == 1:
                    await asyncio.sleep(self.fetch_s)
                    body = fetched(self.records)
                else:
                    body = struct.pack(">hi", 0, 2) + struct.pack(">hhhhhh", 3, 8, 8, 18, 0, 3)
                writer.write(struct.pack(">ii", len(body) + 4, correlation) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def fetched(records: int) -> bytes:
    """The body of a Fetch 11's answer."""
    body = struct.pack(">ihii", 0, 0, 0, 1) + b"\0\1t"
    body += struct.pack(">iihqqqii", 1, 0, 0, 0, 0, 0, -1, -1)
    return body + struct.pack(">i", records) + bytes(records)


def fetch(correlation: int = 1, wait_ms: int = 500) -> bytes:
    """A Fetch 11 of one partition, without a session."""
    body = struct.pack(">hhih", 1, 11, correlation, 3) + b"app"
    body += struct.pack(">iiiibiii", -1, wait_ms, 1, 52_428_800, 0, 0, -1, 1) + b"\0\1t"
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1_048_576) + struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(body)) + body


def produce(size: int, correlation: int = 1) -> bytes:
    head = struct.pack(">hhih", 0, 7, correlation, 3) + b"app"
    head += struct.pack(">hhii", -1, -1, 1_000, 1) + b"\0\1t" + struct.pack(">ii", 1, 0)
    filler = size - len(head) - 4
    body = head + struct.pack(">i", filler) + bytes(filler)
    return struct.pack(">i", len(body)) + body


VERSIONS = struct.pack(">ihhih", 10, 18, 0, 9, -1)


def read_answer(sock: socket.socket) -> bytes:
    sock.settimeout(60)
    found = b""
    while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
        piece = sock.recv(65_536)
        if not piece:
            raise EOFError(found)
        found += piece
    return found


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as made:
        yield made


Start = Callable[..., GatewayThread]


@pytest.fixture
def start(tmp_path: Path, upstream: Upstream) -> Iterator[Start]:
    """``start(quotas, **properties)``: a gateway in front of the scripted upstream."""
    with contextlib.ExitStack() as stack:

        def make(
            quotas: dict[QuotaEntity, dict[QuotaKey, float]] | None = None,
            store: Any = None,
            **named: str,
        ) -> GatewayThread:
            settings = Settings.from_properties(
                {
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "headgate.upstream": f"127.0.0.1:{upstream.port}",
                    "headgate.broker.id.min": "1",
                    "headgate.broker.id.max": "1",
                    "headgate.data.dir": str(tmp_path),
                    "headgate.store": f"sqlite:{tmp_path / 'quotas.db'}",
                    "headgate.usage": "none",
                    **{name.replace("__", "."): value for name, value in named.items()},
                }
            )
            table = QuotaTable.of(quotas or {})
            thread = GatewayThread(lambda: Gateway(settings, store, table=table)).start()
            stack.callback(thread.stop, 0)
            return thread

        yield make


def connect(gateway: GatewayThread, listener: str = "PLAINTEXT") -> socket.socket:
    return socket.create_connection(gateway.gateway.addresses(listener)[1], 60)


def links(gateway: GatewayThread) -> int:
    return sum(len(front.links) for front in gateway.gateway.brokers.values())


SLOW = {QuotaEntity.of(user="ANONYMOUS"): {PRODUCER: 1_000.0}}
