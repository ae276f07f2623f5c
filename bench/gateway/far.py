"""
How much of its pipelining a client keeps whose broker is 10 ms away, quota by quota.

``python bench/gateway/far.py [--rounds N] [--delay-ms MS]``: one idempotent producer (five requests
of 48 KB in flight) and small requests (16 in flight on each of four connections) before a broker
whose answers take 10 ms, and the same with a gateway between, under each kind of quota on somebody
else and, out of reach, on this client. Each round measures direct and gateway in turn; what counts
is their ratio. The target is 0.95; it fails where a ratio is below 0.90: then something broke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import uvloop

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port  # noqa: E402

from peers import PRODUCE_ANSWER, Sink, connect  # noqa: E402

CASES = {
    "no quota": "",
    "rate on this": "ANONYMOUS producer_byte_rate",
    **{
        f"{name} on {who}": f"{user} {key}; ANONYMOUS producer_byte_rate"
        for name, key in (
            ("bps", "producer_byte_rate:bps"),
            ("shares", "producer_byte_rate:shares"),
            ("producer ids", "producer_ids_rate"),
            ("request percentage", "request_percentage"),
        )
        for who, user in (("another", "other"), ("this", "ANONYMOUS"))
    },
}
BROKEN = 0.90
"""A ratio below it isn't the spread of small requests around the target."""
FAR = {"producer_ids_rate": 1e3, "request_percentage": 1e4, "producer_byte_rate:shares": 1.0}
SHAPES = {
    # name: (bytes per request, requests, in flight, connections)
    "idempotent, 48 KB": (48_000, 600, 5, 1),
    "small, 300 B": (300, 8_000, 16, 4),
}


def produce_frame(size: int, correlation: int) -> bytes:
    """A Produce v7 of ``size`` bytes: one batch of producer 7."""
    head = (
        struct.pack(">hhih", 0, 7, correlation, 3) + b"app" + struct.pack(">hhii", -1, -1, 1000, 1)
    )
    head += struct.pack(">h", 1) + b"t" + struct.pack(">ii", 1, 0)
    filler = size - len(head) - 4 - 61
    batch = struct.pack(">qiibihiqqqhii", 0, 49 + filler, 0, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0)
    body = head + struct.pack(">i", 61 + filler) + batch + bytes(filler)
    return struct.pack(">i", len(body)) + body


class FarSink(Sink):
    """A broker that is so far away."""

    delay_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = _Late(transport, self.delay_s)  # type: ignore[assignment]


class _Late:
    """A transport that writes later, in order."""

    def __init__(self, transport: Any, delay_s: float) -> None:
        self.transport = transport
        self.delay_s = delay_s

    def writelines(self, pieces: list[bytes]) -> None:
        asyncio.get_running_loop().call_later(self.delay_s, self._write, b"".join(pieces))

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


async def run_sink(port: int, delay_ms: float) -> None:
    FarSink.delay_s = delay_ms / 1000
    server = await asyncio.get_running_loop().create_server(
        lambda: FarSink(port), "127.0.0.1", port
    )
    await server.serve_forever()


async def run_gateway(port: int, target: int, case: str) -> None:
    from headgate.config import Settings
    from headgate.gateway import Gateway
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import KEYS
    from headgate.quota.table import QuotaTable

    keys = {key.name: key for key in KEYS}
    quotas: dict[QuotaEntity, dict[Any, float]] = {}
    for quota in filter(None, CASES[case].split("; ")):
        user, name = quota.split()
        quotas.setdefault(QuotaEntity.of(user=user), {})[keys[name]] = FAR.get(name, 1e11)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_properties(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "headgate.upstream": f"127.0.0.1:{target}",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": folder,
                "headgate.usage": f"files:{folder}/usage",
                "headgate.capacity.producer_byte_rate": str(10**11),
            }
        )
        gateway = Gateway(settings, table=QuotaTable.of(quotas))
        await gateway.start()
        await asyncio.Event().wait()


def load(port: int, size: int, total: int, depth: int, connections: int) -> float:
    """Send requests, ``depth`` of them in flight on each connection; return seconds."""
    each = total // connections
    answer = 8 + len(PRODUCE_ANSWER)

    def one() -> None:
        # An id comes again long after its answer.
        frames = [produce_frame(size, number) for number in range(4 * depth)]
        with connect(port, "") as sock:
            sent = got = 0
            buffer = bytearray(1 << 16)
            while got < each * answer:
                ready = []
                while sent < each and sent - got // answer < depth:
                    ready.append(frames[sent % len(frames)])
                    sent += 1
                if ready:
                    sock.sendall(b"".join(ready))
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
    return time.perf_counter() - started


def start(role: str, port: int, *more: str) -> subprocess.Popen[bytes]:
    """Start a process of this program and wait until it listens."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--role", role, "--port", str(port), *more]
    )
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            connect(port, "").close()
            return process
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise RuntimeError(f"{role} didn't start")


def measure(rounds: int, delay_ms: float) -> dict[str, dict[str, float]]:
    """Return by case and shape: gateway over direct, the median of the rounds."""
    sink_port = free_port()
    processes = [start("sink", sink_port, "--delay-ms", str(delay_ms))]
    ports: dict[str, int] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    try:
        for case in CASES:
            ports[case] = free_port()
            more = ("--target", str(sink_port), "--case", case)
            processes.append(start("gateway", ports[case], *more))
        for _ in range(rounds):
            for shape, plan in SHAPES.items():
                for case, port in ports.items():
                    direct = load(sink_port, *plan)
                    through = load(port, *plan)
                    ratios.setdefault(case, {}).setdefault(shape, []).append(direct / through)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {c: {s: statistics.median(r) for s, r in by.items()} for c, by in ratios.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=["sink", "gateway"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--target", type=int, default=0)
    parser.add_argument("--case", choices=CASES, default="no quota")
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.role == "sink":
        uvloop.run(run_sink(args.port, args.delay_ms))
    elif args.role == "gateway":
        uvloop.run(run_gateway(args.port, args.target, args.case))
    else:
        found = measure(args.rounds, args.delay_ms)
        for case, by_shape in found.items():
            shown = "  ".join(f"{shape} {ratio:5.2f}" for shape, ratio in by_shape.items())
            print(f"{case:32} of direct: {shown}")
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
        broken = [
            f"{case}, {shape}: {ratio:.3f}"
            for case, by_shape in found.items()
            for shape, ratio in by_shape.items()
            if ratio < BROKEN
        ]
        for text in broken:
            print(f"BROKEN {text} (below {BROKEN})")
        return 1 if broken else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
