"""The processes of a relay bench: a sink that answers, a bare byte pipe, a gateway, a load."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvloop

PRODUCE_ANSWER = struct.pack(">i", 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 1)
PRODUCE_ANSWER += struct.pack(">ihqqq", 0, 0, 0, -1, 0) + struct.pack(">i", 0)
HEAD = struct.Struct(">ihhi")


def produce_frame(size: int, correlation: int, client: bytes = b"app") -> bytes:
    """A Produce v7 of ``size`` bytes."""
    head = struct.pack(">hhih", 0, 7, correlation, len(client)) + client
    head += struct.pack(">h", -1) + struct.pack(">hi", -1, 1000) + struct.pack(">i", 1)
    head += struct.pack(">h", 1) + b"t" + struct.pack(">ii", 1, 0)
    filler = max(size - len(head) - 4, 0)
    body = head + struct.pack(">i", filler) + bytes(filler)
    return struct.pack(">i", len(body)) + body


def record_batch(value: bytes) -> bytes:
    """A batch of one record without a key, which a broker takes."""
    from headgate.wire.fields import write_varint

    length = write_varint(len(value) << 1)
    record = bytes(3) + b"\x01" + length + value + b"\0"  # its key's length is -1
    record = write_varint(len(record) << 1) + record
    now = round(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    head = struct.pack(">ibI", -1, 2, crc32c(tail))
    return struct.pack(">qi", 0, len(head) + len(tail)) + head + tail


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, a table's entry for each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def metadata_frame(correlation: int) -> bytes:
    """A Metadata v8 for no topic."""
    body = struct.pack(">hhih", 3, 8, correlation, 3) + b"app" + struct.pack(">ibbb", 0, 0, 0, 0)
    return struct.pack(">i", len(body)) + body


def versions_answer(correlation: int, version: int) -> bytes:
    """ApiVersions 0: this broker has itself and Metadata; newer questions get error 35."""
    body = struct.pack(">hihhhhhh", 35 if version else 0, 2, 18, 0, 0, 3, 0, 8)
    return struct.pack(">ii", 4 + len(body), correlation) + body


def metadata_answer(correlation: int, port: int) -> bytes:
    """Its answer: one broker, here."""
    host = b"127.0.0.1"
    body = struct.pack(">ii", correlation, 0) + struct.pack(">ii", 1, 1)
    body += struct.pack(">h", len(host)) + host + struct.pack(">ih", port, -1)
    body += struct.pack(">h", 1) + b"c" + struct.pack(">i", 1) + struct.pack(">i", 0)
    body += struct.pack(">i", -2147483648)
    return struct.pack(">i", len(body)) + body


class Sink(asyncio.BufferedProtocol):
    """Read frames, answer each; look at nothing but lengths."""

    #: One for all connections: what comes is looked at before anything else is read.
    buffer = bytearray(1 << 20)

    def __init__(self, port: int) -> None:
        self.left = 0
        self.owed = b""
        self.head = b""
        self.port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = memoryview(self.buffer)[:nbytes]
        pos = 0
        out = []
        if self.left:
            pos = min(self.left, nbytes)
            self.left -= pos
            if not self.left:
                out.append(self.owed)
        elif self.head:
            data = memoryview(self.head + bytes(data))
            self.head = b""
            nbytes = len(data)
        while pos < nbytes:
            if nbytes - pos < 12:
                self.head = bytes(data[pos:])
                break
            size, key, version, correlation = HEAD.unpack_from(data, pos)
            if key == 0:
                answer = struct.pack(">ii", 4 + len(PRODUCE_ANSWER), correlation) + PRODUCE_ANSWER
            elif key == 18:
                answer = versions_answer(correlation, version)
            else:
                answer = metadata_answer(correlation, self.port)
            pos += 4 + size
            if pos > nbytes:
                self.left = pos - nbytes
                self.owed = answer
                break
            out.append(answer)
        if out:
            self.transport.writelines(out)  # type: ignore[attr-defined]


class PipeSide(asyncio.Protocol):
    """One side of a bare byte pipe: what comes in goes out on the other side."""

    def __init__(self, other: PipeSide | None = None, target: int = 0) -> None:
        self.other = other
        self.target = target
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.other is None:
            asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, other = await loop.create_connection(lambda: PipeSide(self), "127.0.0.1", self.target)
        self.other = other
        for piece in self.early:
            other.transport.write(piece)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)  # type: ignore[attr-defined]

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()  # type: ignore[attr-defined]

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


async def run_sink(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Sink(port), "127.0.0.1", port)
    await server.serve_forever()


async def run_pipe(port: int, target: int, tls: str) -> None:
    loop = asyncio.get_running_loop()
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{tls}/both.pem")
    server = await loop.create_server(
        lambda: PipeSide(None, target), "127.0.0.1", port, ssl=context
    )
    await server.serve_forever()


async def run_gateway(
    port: int, target: int, usage: str, quota: float, tls: str, *, each: bool
) -> None:
    from headgate.config import Settings
    from headgate.gateway import Gateway
    from headgate.gateway.background import GarbageBounds
    from headgate.quota.entity import DEFAULT, QuotaEntity
    from headgate.quota.key import CONSUMER, PRODUCER
    from headgate.quota.table import QuotaTable

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_properties(
            {
                "listeners": f"{'SSL' if tls else 'PLAINTEXT'}://127.0.0.1:{port}",
                "headgate.upstream": f"127.0.0.1:{target}",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": folder,
                "headgate.usage": usage.replace("DIR", str(Path(folder) / "usage")),
                **({"ssl.keystore.location": f"{tls}/both.pem"} if tls else {}),
                **({"ssl.keystore.type": "PEM"} if tls else {}),
                **({"headgate.upstream.security.protocol": "PLAINTEXT"} if tls else {}),
            }
        )
        # A quota for somebody else: managers are on, as on every installation with any quota.
        table = QuotaTable.of({QuotaEntity.of(user="other"): {PRODUCER: 1e6, CONSUMER: 1e6}})
        if quota:
            whose = QuotaEntity.of(client_id=DEFAULT) if each else QuotaEntity.of(user="ANONYMOUS")
            table = QuotaTable.of({whose: {PRODUCER: quota, CONSUMER: quota}})
        gateway = Gateway(settings, table=table)
        await gateway.start()
        GarbageBounds().settle()
        await asyncio.Event().wait()


def connect(port: int, tls: str) -> socket.socket:
    """A client's connection."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    context = ssl.create_default_context(cafile=f"{tls}/cert.pem")
    context.check_hostname = False
    return context.wrap_socket(sock)


def load(
    port: int, size: int, total: int, depth: int, connections: int, tls: str
) -> dict[str, float]:
    """Send ``total`` requests of ``size`` bytes, ``depth`` of them in flight per connection."""
    each = total // connections

    def one() -> None:
        with connect(port, tls) as sock:
            per_batch = max(depth // 2, 1)
            # Four in turn, so that no correlation id comes again before its answer.
            batches = [
                b"".join(produce_frame(size, turn * per_batch + n) for n in range(per_batch))
                for turn in range(4)
            ]
            answer = 4 + 4 + len(PRODUCE_ANSWER)
            sent = got = 0
            buffer = bytearray(1 << 16)
            while got < each * answer:
                while sent < each and sent * answer - got < depth * answer:
                    sock.sendall(batches[sent // per_batch % 4])
                    sent += per_batch
                count = sock.recv_into(buffer)
                if not count:
                    raise RuntimeError("closed")
                got += count

    threads = [threading.Thread(target=one) for _ in range(connections)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.perf_counter() - started, "requests": each * connections}


def lone(port: int, total: int, tls: str) -> dict[str, float]:
    """Latency of a lone small request, µs."""
    frame = produce_frame(300, 1)
    answer = 4 + 4 + len(PRODUCE_ANSWER)
    took = []
    with connect(port, tls) as sock:
        for _ in range(total):
            started = time.perf_counter_ns()
            sock.sendall(frame)
            got = 0
            while got < answer:
                got += len(sock.recv(4096))
            took.append(time.perf_counter_ns() - started)
    took.sort()
    return {"p50_us": took[len(took) // 2] / 1000, "p99_us": took[len(took) * 99 // 100] / 1000}


def cpu_of(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["sink", "pipe", "gateway", "load", "lone"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, default=0)
    parser.add_argument("--size", type=int, default=16_384)
    parser.add_argument("--total", type=int, default=1_000)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--usage", default="none")
    parser.add_argument("--quota", type=float, default=0)
    parser.add_argument("--each", action="store_true", help="the quota is each client id's own")
    parser.add_argument("--tls", default="", help="folder of the certificate")
    args = parser.parse_args()
    if args.role == "sink":
        uvloop.run(run_sink(args.port))
    elif args.role == "pipe":
        uvloop.run(run_pipe(args.port, args.target, args.tls))
    elif args.role == "gateway":
        uvloop.run(
            run_gateway(args.port, args.target, args.usage, args.quota, args.tls, each=args.each)
        )
    elif args.role == "load":
        result = load(args.port, args.size, args.total, args.depth, args.connections, args.tls)
        json.dump(result, sys.stdout)
    else:
        json.dump(lone(args.port, args.total, args.tls), sys.stdout)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536), most))
    main()
