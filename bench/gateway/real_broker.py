"""
CPU seconds of proxies in front of a real broker: the gateway, Kroxylicious, and what a pipe costs.

``python bench/gateway/real_broker.py [--rounds N] [--scale F] [--json FILE]``; run it alone on the
machine. Each proxy is a process of its own (``neighbours.py``; what isn't installed is left out and
named); load comes from others. The gateway is ``headgate serve`` as shipped (metrics, journal and
quotas on), twice: with a quota on others only, and with one on this client that it is far from.
None of the others enforces anything; HAProxy, Envoy and the two bare pipes don't even know what a
request is.

Nobody is measured cold: rounds go on until each proxy's CPU in two rounds that follow each other
agrees within ``AGREE`` (a JVM compiles for some rounds), at most ``MOST_WARM`` of them.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import busy_us, free_port, start_all, wait_for  # noqa: E402

from headgate.embedded import EmbeddedKafka  # noqa: E402

RECORD_BYTES = 1_000


HEADGATE = (Path(sys.executable).parent / "headgate",)


def serve(
    folder: Path,
    settings: Mapping[str, str],
    port: int,
    host: str = "127.0.0.1",
    program: Sequence[str | Path] = HEADGATE,
) -> subprocess.Popen[bytes]:
    """``headgate serve`` with these settings, when it answers at the port."""
    config = folder / "headgate.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = subprocess.Popen(
        [*program, "serve", "--config", config],
        stderr=(folder / "log").open("wb"),
    )
    wait_for(port, process, folder / "log", host)
    return process


def gateway(
    folder: Path,
    upstream: str,
    quota: str,
    settings: Mapping[str, str] | None = None,
    rates: str = "producer_byte_rate=900000000000,consumer_byte_rate=900000000000",
    host: str = "127.0.0.1",
    program: Sequence[str | Path] = HEADGATE,
) -> tuple[subprocess.Popen[bytes], int]:
    """``headgate serve`` with a quota on everybody (``user=<default>``) or on others only."""
    folder.mkdir()
    port = free_port()
    lines = {
        "listeners": f"PLAINTEXT://{host}:{port}",
        "headgate.upstream": upstream,
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.store": f"sqlite:{folder}/quotas.db",
        "headgate.usage": f"files:{folder}/usage",
        "headgate.data.dir": str(folder),
        "super.users": "User:ANONYMOUS",
        **(settings or {}),
    }
    entity = ["--entity-type", "users", *quota.split()]
    subprocess.run(
        [Path(sys.executable).parent / "kafka-configs", "--store", lines["headgate.store"],
         "--alter", "--add-config", rates, *entity],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return serve(folder, lines, port, host, program), port


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
AGREE = 0.1
MOST_WARM = 8


def one_round(
    ways: dict[str, tuple[int, int | None]], upstream: str, number: int, records: int, small: int
) -> dict[str, dict[str, float]]:
    """Produce, consume and ask through each; return what it cost."""
    found: dict[str, dict[str, float]] = {}
    for at, (way, (port, pid)) in enumerate(ways.items()):
        topic = f"bench-{at}-{number}"
        admin = AdminClient({"bootstrap.servers": upstream})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        time.sleep(0.5)
        row = found[way] = {}
        for shape, act in (
            ("produce 1 KB", lambda p=port, t=topic: produce(p, t, records)),
            ("consume 1 KB", lambda p=port, t=topic: consume(p, t, records)),
            ("small request", lambda p=port: small_requests(p, small, 50)),
        ):
            before, began = busy_us(pid) if pid else 0.0, time.monotonic()
            act()
            took = time.monotonic() - began
            cpu = ((busy_us(pid) if pid else 0.0) - before) / 1e6
            if shape == "small request":
                row["small request CPU µs"] = cpu / small * 1e6
            else:
                row[f"{shape} CPU s/GB"] = cpu / (records * RECORD_BYTES / 1e9)
                row[f"{shape} MB/s"] = records * RECORD_BYTES / 1e6 / took
        admin.delete_topics([topic])
    return found


def differ(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> list[str]:
    """Who cost more or less in one round than in the other."""
    return [
        way
        for way, row in one.items()
        if any(
            "CPU" in key and value and abs(other[way][key] / value - 1) > AGREE
            for key, value in row.items()
        )
    ]


def main() -> None:
    """Measure, print medians, and the gateway's ratio to each of the others."""
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
            for way, peer in start_all(Path(name), broker).items():
                processes.append(peer.process)
                ways[way] = (peer.port, peer.process.pid)
            before, number, late = one_round(ways, upstream, 0, records, small), 1, list(ways)
            while late and number < MOST_WARM:
                row = one_round(ways, upstream, number, records, small)
                late, before, number = differ(before, row), row, number + 1
            print(
                f"warm after {number} rounds"
                + (f"; still not agreeing: {', '.join(late)}" if late else ""),
                flush=True,
            )
            for _ in range(args.rounds):
                for way, row in one_round(ways, upstream, number, records, small).items():
                    for key, value in row.items():
                        found.setdefault(way, {}).setdefault(key, []).append(value)
                number += 1
            turns = list(ways.items())
            for _ in range(LONE_TURNS):
                random.shuffle(turns)  # a way's place in the order matters too
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
    for ours in (way for way in table if way.startswith("headgate")):
        for way in (way for way in table if not way.startswith(("headgate", "direct"))):
            ratios = {k: table[ours][k] / table[way][k] for k in table[ours] if "MB/s" not in k}
            print(f"{ours} / {way}:", "  ".join(f"{k} {v:.2f} x" for k, v in ratios.items()))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
