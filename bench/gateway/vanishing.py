"""
Clients that vanish without a FIN, as when a network fails: what they leave in the gateway.

``python bench/gateway/vanishing.py [SECONDS]`` (600; as root, for a network namespace of its own).
Again and again 200 clients connect from a namespace: a quarter each has been answered and is idle,
has sent half a request, is muted, or doesn't read its answers. Then their network is taken away and
they are killed, so that the gateway hears nothing more of them. It closes idle connections after
``connections.max.idle.ms``, 4 s here. Printed are memory, descriptors and connections after each
tenth round; ends with 1 if the last third holds more than the first.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from attacked_memory import memory_mb  # noqa: E402
from neighbours import free_port, wait_for  # noqa: E402
from real_broker import gateway  # noqa: E402

from peers import metadata_frame, produce_frame  # noqa: E402

HERE_IP, NET = "10.213.0.1", "10.213.0"
NAME = f"hg{os.getpid()}"
CLIENTS = 200
IDLE_MS = 4_000
BOUND_PERCENT = 3.0


def ip(*words: str, check: bool = True) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def cut() -> None:
    """Take the clients' network away, and the clients with it."""
    ip("link", "del", f"{NAME}a", check=False)
    ip("netns", "del", NAME, check=False)


def join(number: int) -> None:
    """Make a network for clients, at an address that others had long ago."""
    theirs = f"{NET}.{2 + number % 250}"
    ip("netns", "add", NAME)
    ip("link", "add", f"{NAME}a", "type", "veth", "peer", "name", f"{NAME}b", "netns", NAME)
    ip("link", "set", f"{NAME}a", "up")
    ip("route", "replace", f"{theirs}/32", "dev", f"{NAME}a", "src", HERE_IP)
    ip("-n", NAME, "addr", "add", f"{theirs}/32", "dev", f"{NAME}b")
    ip("-n", NAME, "link", "set", f"{NAME}b", "up")
    ip("-n", NAME, "route", "add", f"{HERE_IP}/32", "dev", f"{NAME}b")


def clients(port: int) -> None:
    """Connect, get into the four states, say so, and stay."""
    socks = []
    for number in range(CLIENTS):
        sock = socket.create_connection((HERE_IP, port), 20)
        socks.append(sock)
        state = number % 4
        if state == 0:
            sock.sendall(metadata_frame(1))
            sock.recv(4_096)
        elif state == 1:
            sock.sendall(produce_frame(20_000, 1)[:10_000])
        elif state == 2:
            sock.sendall(produce_frame(20_000, 1, b"muted-%d" % number) * 2)
        else:
            sock.sendall(b"".join(metadata_frame(n) for n in range(200)))
    print("ready", flush=True)
    time.sleep(3_600)


def look(gate: int, http: int) -> tuple[float, int, float]:
    """Return memory in MB, descriptors and connections."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    connections = sum(map(float, re.findall(r"^headgate_connections\{.*\} (\S+)", page, re.M)))
    return memory_mb(gate, "VmRSS"), len(list(Path(f"/proc/{gate}/fd").iterdir())), connections


def vanish(seconds: float, port: int, gate: int, http: int) -> list[tuple[float, int, float]]:
    """Have clients come and vanish; return what was seen when all were gone."""
    seen = []
    until, number = time.monotonic() + seconds, 0
    print("| s | vanished | RSS, MB | descriptors | connections |\n|---|---|---|---|---|")
    began = time.monotonic()
    while time.monotonic() < until:
        for _ in range(5):
            join(number)
            number += 1
            client = subprocess.Popen(
                ["ip", "netns", "exec", NAME, sys.executable, __file__, "--clients", str(port)],
                stdout=subprocess.PIPE,
            )
            assert client.stdout is not None
            if client.stdout.readline() != b"ready\n":
                raise RuntimeError("the clients couldn't connect")
            cut()
            client.kill()
            client.wait()
        time.sleep(IDLE_MS / 1000 + 3)
        seen.append(look(gate, http))
        rss, descriptors, connections = seen[-1]
        print(f"| {time.monotonic() - began:.0f} | {number * CLIENTS} | {rss:.1f} | {descriptors} "
              f"| {connections:.0f} |", flush=True)  # fmt: skip
    return seen


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=600.0)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.clients:
        clients(options.clients)
    upstream, http = free_port(), free_port()
    broker = subprocess.Popen(
        [sys.executable, str(HERE / "attacked_memory.py"), "--broker", str(upstream)]
    )
    settings = {
        "headgate.http.listener": f"127.0.0.1:{http}",
        "connections.max.idle.ms": str(IDLE_MS),
    }
    try:
        ip("addr", "add", f"{HERE_IP}/32", "dev", "lo", check=False)
        wait_for(upstream, broker)
        with tempfile.TemporaryDirectory() as place:
            quota = "--entity-default --entity-type clients --entity-default"
            gate, port = gateway(
                Path(place, "gateway"), f"127.0.0.1:{upstream}", quota, settings,
                "producer_byte_rate=1000", HERE_IP,
            )  # fmt: skip
            try:
                seen = vanish(options.seconds, port, gate.pid, http)
            finally:
                gate.kill()
                gate.wait()
    finally:
        cut()
        ip("addr", "del", f"{HERE_IP}/32", "dev", "lo", check=False)
        broker.kill()
        broker.wait()
    third = max(len(seen) // 3, 1)
    first = [statistics.median(column) for column in zip(*seen[:third], strict=True)]
    last = [statistics.median(column) for column in zip(*seen[-third:], strict=True)]
    grown = (last[0] / first[0] - 1) * 100
    print(f"RSS {grown:+.1f} %, descriptors {last[1] - first[1]:+.0f}, connections {last[2]:.0f}")
    return int(grown > BOUND_PERCENT or last[1] > first[1] or last[2] > 0)


if __name__ == "__main__":
    sys.exit(main())
