"""
CPU seconds per GB, per small request, and latency: direct, a bare byte pipe, the gateway.

``python bench/gateway/relay.py [--rounds N] [--json FILE]``; run it alone on the machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from peers import cpu_of  # noqa: E402

SHAPES = {
    # name: (bytes per request, requests, in flight, connections)
    "1 MB": (1 << 20, 1_500, 5, 1),
    "16 KB": (1 << 14, 40_000, 10, 1),
    "300 B": (300, 200_000, 100, 1),
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start(role: str, port: int, *more: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "peers.py"), role, "--port", str(port), *more]
    )
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{role} didn't start")


def run(role: str, port: int, *more: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(HERE / "peers.py"), role, "--port", str(port), *more],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--usage", default="files:DIR")
    args = parser.parse_args()
    sink_port, pipe_port, gate_port, limited_port = (free_port() for _ in range(4))
    processes = [start("sink", sink_port)]
    target = ("--target", str(sink_port))
    ways: dict[str, tuple[int, int | None]] = {"direct": (sink_port, None)}
    try:
        for name, role, port, more in (
            ("pipe", "pipe", pipe_port, target),
            ("gateway", "gateway", gate_port, (*target, "--usage", args.usage)),
            (
                "gateway, one in flight",
                "gateway",
                limited_port,
                (*target, "--usage", args.usage, "--quota", "1e12"),
            ),
        ):
            process = start(role, port, *more)
            processes.append(process)
            ways[name] = (port, process.pid)
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for _ in range(args.rounds):
            for shape, (size, total, depth, connections) in SHAPES.items():
                count = max(int(total * args.scale), 100)
                for way, (port, pid) in ways.items():
                    before = cpu_of(pid) if pid else 0.0
                    result = run(
                        "load", port, "--size", str(size), "--total", str(count),
                        "--depth", str(depth), "--connections", str(connections),
                    )  # fmt: skip
                    cpu = cpu_of(pid) - before if pid else 0.0
                    gigabytes = size * count / 1e9
                    found.setdefault(shape, {}).setdefault(way, []).append(
                        {
                            "cpu_s_per_gb": cpu / gigabytes,
                            "cpu_us_per_request": cpu / count * 1e6,
                            "mb_per_s": gigabytes * 1000 / result["seconds"],
                            "requests_per_s": count / result["seconds"],
                        }
                    )
            for way, (port, _) in ways.items():
                latency = run("lone", port, "--total", "3000")
                found.setdefault("lone", {}).setdefault(way, []).append(latency)
    finally:
        for process in processes:
            process.kill()
    table: dict[str, Any] = {}
    for shape, by_way in found.items():
        for way, rows in by_way.items():
            median = {k: statistics.median(row[k] for row in rows) for k in rows[0]}
            table.setdefault(shape, {})[way] = median
            shown = "  ".join(f"{k} {v:10.2f}" for k, v in median.items())
            print(f"{shape:8} {way:24} {shown}")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
