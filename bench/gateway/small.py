"""
CPU of small requests before a stand-in for a broker that answers at once: a pipe in Rust, gateways.

``python bench/gateway/small.py [--rounds N]``; it needs ``rustc``. Each request of 300 bytes and
each answer is a write of its own, as clients and brokers write them, and 100 are in flight. It
prints CPU µs a request of each process in the middle, and their ratio to the pipe's. Run it alone.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port, reached, start  # noqa: E402

from peers import cpu_of  # noqa: E402

SIZE, DEPTH = 300, 100


def round_of(small: str, ways: dict[str, tuple[int, int]], total: int) -> dict[str, float]:
    """CPU µs a request that each process in the middle uses, the ways in turn."""
    used = {}
    for way, (port, pid) in ways.items():
        before = cpu_of(pid)
        load = [small, "load", str(port), str(SIZE), str(total), str(DEPTH)]
        subprocess.run(load, check=True)
        used[way] = (cpu_of(pid) - before) / total * 1e6
    return used


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--total", type=int, default=200_000, help="requests of each way and round")
    args = parser.parse_args()
    sink, pipe = free_port(), free_port()
    target, quota = ("--target", str(sink)), ("--quota", "1e12")
    gateways = {
        "gateway": target,
        "gateway, quota on this client": (*target, *quota),
        "gateway, quota on this client, journal": (*target, *quota, "--usage", "files:DIR"),
    }
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        small = f"{folder}/small"
        source = str(HERE / "small.rs")
        subprocess.run(["rustc", "-O", "--edition", "2021", "-o", small, source], check=True)
        try:
            for port, *more in ((sink, "sink"), (pipe, "pipe", str(sink))):
                command = [small, more[0], str(port), *more[1:]]
                processes.append(reached(subprocess.Popen(command), port))
            ways = {"pipe in Rust": (pipe, processes[-1].pid)}
            for name, more in gateways.items():
                port = free_port()
                processes.append(start("gateway", port, *more))
                ways[name] = (port, processes[-1].pid)
            round_of(small, ways, args.total // 10)
            rounds = [round_of(small, ways, args.total) for _ in range(args.rounds)]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    print("| way | CPU µs a request | by the pipe's of its round |\n|---|---|---|")
    for way in ways:
        all_of = [row[way] for row in rounds]
        by = [row[way] / row["pipe in Rust"] for row in rounds]
        median, ratio = statistics.median(all_of), statistics.median(by)
        print(
            f"| {way} | {median:.1f} ({min(all_of):.1f} to {max(all_of):.1f}) "
            f"| {ratio:.2f} ({min(by):.2f} to {max(by):.2f}) |"
        )


if __name__ == "__main__":
    main()
