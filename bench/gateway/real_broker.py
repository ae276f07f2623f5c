"""
CPU seconds of proxies before a real broker: the gateway, and Kroxylicious, which enforces nothing.

``python bench/gateway/real_broker.py [--rounds N] [--scale F] [--json FILE]``; run it alone on the
machine. Needs a JDK (Kroxylicious is started from source, ``Kroxylicious.java``) and fetches its
jars once, by the Ivy inside PySpark. Each proxy is a process of its own; load comes from others.
The gateway is ``headgate serve`` as shipped (metrics, journal and quotas on), twice: with a quota
on other users only, and with one on this client that it is far from. A lone request also goes
through two pipes that look at nothing, on uvloop and in C: so much of it is the kernel's.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.embedded.cache import cache_dir  # noqa: E402
from headgate.embedded.jars import _ivy_module, _run_ivy  # noqa: E402
from peers import cpu_of  # noqa: E402

KROXYLICIOUS = "io.kroxylicious:kroxylicious-runtime:0.12.0"
RECORD_BYTES = 1_000


def free_ports(count: int) -> list[int]:
    """Ports that are free, next to each other."""
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            first = int(sock.getsockname()[1])
        try:
            for port in range(first, first + count):
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            continue


def kroxylicious_jars() -> Path:
    """Kroxylicious' jars, fetched once."""
    folder = cache_dir() / "kroxylicious-0.12.0"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache_dir()) as name:
            lib = Path(name) / "lib"
            module = _ivy_module([KROXYLICIOUS], transitive=True)
            _run_ivy("kroxylicious", module, Path(name), lib, print)
            shutil.move(lib, folder)
    return folder


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path | None = None) -> None:
    """Wait until the port takes connections."""
    until = time.monotonic() + 40
    while time.monotonic() < until:
        if process.poll() is not None:
            said = log.read_text() if log else ""
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {said}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} didn't open port {port}")


def gateway(folder: Path, upstream: str, quota: str) -> tuple[subprocess.Popen[bytes], int]:
    """``headgate serve`` with a quota on everybody (``user=<default>``) or on others only."""
    folder.mkdir()
    port = free_ports(1)[0]
    config = folder / "headgate.properties"
    lines = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "headgate.upstream": upstream,
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.store": f"sqlite:{folder}/quotas.db",
        "headgate.usage": f"files:{folder}/usage",
        "headgate.data.dir": str(folder),
        "super.users": "User:ANONYMOUS",
    }
    config.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
    entity = ["--entity-type", "users", *quota.split()]
    rates = "producer_byte_rate=900000000000,consumer_byte_rate=900000000000"
    subprocess.run(
        [Path(sys.executable).parent / "kafka-configs", "--store", lines["headgate.store"],
         "--alter", "--add-config", rates, *entity],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    process = subprocess.Popen(
        [Path(sys.executable).parent / "headgate", "serve", "--config", config],
        stderr=(folder / "log").open("wb"),
    )
    wait_for(port, process, folder / "log")
    return process, port


def bare_pipes(folder: Path, broker: int) -> dict[str, tuple[subprocess.Popen[bytes], int]]:
    """Byte pipes before the broker, by name: the bench's own on uvloop, and one in C."""
    program = folder / "pipe"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "pipe.c"], check=True)
    uvloop, plain = free_ports(2)
    peer = [sys.executable, HERE / "peers.py", "pipe", f"--port={uvloop}", f"--target={broker}"]
    commands = {
        "bare pipe, uvloop": (peer, uvloop),
        "bare pipe, C": ([program, str(plain), str(broker)], plain),
    }
    return {name: (subprocess.Popen(words), port) for name, (words, port) in commands.items()}


def produce(port: int, topic: str, count: int) -> None:
    failed: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 5, "client.id": "bench",
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    value = bytes(RECORD_BYTES)
    for _ in range(count):
        while True:
            try:
                producer.produce(
                    topic, value, on_delivery=lambda e, _: failed.append(e) if e else None
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(120) or failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[:1]}")


def consume(port: int, topic: str, count: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench", "client.id": "bench",
         "enable.auto.commit": False, "fetch.message.max.bytes": 1_048_576}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    while got < count:
        batch = consumer.consume(10_000, 10)
        if not batch:
            raise RuntimeError(f"{got} of {count} records came")
        got += len(batch)
    consumer.close()


def heartbeat(correlation: int) -> bytes:
    """A Heartbeat v3 for a group nobody knows: a small request with a small answer."""
    body = struct.pack(">hhih", 12, 3, correlation, 5) + b"bench"
    body += struct.pack(">h", 1) + b"g" + struct.pack(">ih", 0, 1) + b"m" + struct.pack(">h", -1)
    return struct.pack(">i", len(body)) + body


def small_requests(port: int, count: int, depth: int) -> list[float]:
    """Send small requests, ``depth`` in flight; return seconds of each round trip if one."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = sock.makefile("rb")
        times = []
        frames = b"".join(heartbeat(n) for n in range(depth))
        for _ in range(count // depth):
            started = time.perf_counter()
            sock.sendall(frames)
            for _ in range(depth):
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)
            times.append(time.perf_counter() - started)
        return times


LONE_TURNS = 40
"""The machine's wake-ups drift by more than the ways differ, so these take short turns."""


def main() -> None:
    """Measure, print medians, and the ratios the issue asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records = int(200_000 * args.scale)
    small = int(40_000 * args.scale)
    processes: list[subprocess.Popen[bytes]] = []
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        upstream = kafka.bootstrap("PLAINTEXT")
        broker = int(upstream.rpartition(":")[2])
        ways: dict[str, tuple[int, int | None]] = {"direct": (broker, None)}
        try:
            for way, quota in (
                ("headgate, quota on others", "--entity-name somebody"),
                ("headgate, quota on this client", "--entity-default"),
            ):
                process, port = gateway(Path(name) / way.replace(" ", "-"), upstream, quota)
                processes.append(process)
                ways[way] = (port, process.pid)
            port = free_ports(4)[0]
            java = ["java", "-Xmx512m", "-cp", f"{kroxylicious_jars()}/*"]
            process = subprocess.Popen(
                [*java, HERE / "Kroxylicious.java", str(port), str(broker)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            processes.append(process)
            wait_for(port, process)
            ways["kroxylicious 0.12"] = (port, process.pid)
            for round_number in range(-2, args.rounds):  # two rounds warm everything up
                for way, (port, pid) in ways.items():
                    topic = f"bench-{way.split()[-1].replace('.', '-')}-{round_number}"
                    admin = AdminClient({"bootstrap.servers": upstream})
                    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
                    time.sleep(0.5)
                    row: dict[str, float] = {}
                    for shape, act in (
                        ("produce 1 KB", lambda p=port, t=topic: produce(p, t, records)),
                        ("consume 1 KB", lambda p=port, t=topic: consume(p, t, records)),
                        ("small request", lambda p=port: small_requests(p, small, 50)),
                    ):
                        before, began = cpu_of(pid) if pid else 0.0, time.monotonic()
                        act()
                        took = time.monotonic() - began
                        cpu = (cpu_of(pid) if pid else 0.0) - before
                        if shape == "small request":
                            row["small request CPU µs"] = cpu / small * 1e6
                        else:
                            row[f"{shape} CPU s/GB"] = cpu / (records * RECORD_BYTES / 1e9)
                            row[f"{shape} MB/s"] = records * RECORD_BYTES / 1e6 / took
                    admin.delete_topics([topic])
                    if round_number >= 0:
                        for key, value in row.items():
                            found.setdefault(way, {}).setdefault(key, []).append(value)
            for way, (process, port) in bare_pipes(Path(name), broker).items():
                processes.append(process)
                wait_for(port, process)
                ways[way] = (port, process.pid)
            turns = list(ways.items())
            for _ in range(LONE_TURNS):
                random.shuffle(turns)  # who comes after whom matters too
                for way, (port, _) in turns:
                    lone = small_requests(port, 600, 1)[100:]
                    each = found.setdefault(way, {}).setdefault("lone request p50 µs", [])
                    each.append(statistics.median(lone) * 1e6)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    table = {w: {k: statistics.median(v) for k, v in rows.items()} for w, rows in found.items()}
    for way, row in table.items():
        print(f"{way:32}", "  ".join(f"{k} {v:8.2f}" for k, v in row.items()))
    peer = table["kroxylicious 0.12"]
    for way in [w for w in table if w.startswith(("headgate", "bare"))]:
        ratios = {k: table[way][k] / peer[k] for k in table[way] if "MB/s" not in k}
        print(f"{way} / kroxylicious:", "  ".join(f"{k} {v:.2f} x" for k, v in ratios.items()))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
