"""
What opening a connection costs: open, ask once, close; CPU of each proxy, opened per CPU second.

The gateway (journal to files, a quota on others) beside two bare pipes, HAProxy and Envoy, all
before the same sink, in turns: what the machine does to one turn it does to its neighbours.

``python bench/gateway/opening.py [--rounds N] [--each N] [--json FILE]``; run it alone.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import busy_us, free_port, start_all, wait_for  # noqa: E402
from relay import start  # noqa: E402

from peers import PRODUCE_ANSWER, produce_frame  # noqa: E402

ANSWER = 8 + len(PRODUCE_ANSWER)


def open_ask_close(port: int, count: int, frame: bytes) -> None:
    """One connection after another."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            sock.sendall(frame)
            got = 0
            while got < ANSWER:
                piece = sock.recv(4096)
                if not piece:
                    raise RuntimeError("closed before its answer")
                got += len(piece)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--each", type=int, default=500)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    frame = produce_frame(300, 1)
    sink_port, gate_port = free_port(), free_port()
    processes = [start("sink", sink_port)]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        try:
            more = ("--target", str(sink_port), "--usage", "files:DIR")
            gate = start("gateway", gate_port, *more)
            processes.append(gate)
            wait_for(gate_port, gate)
            ways = {"headgate": (gate.pid, gate_port)}
            names = ("pipe, C", "pipe, uvloop", "HAProxy", "Envoy")
            for way, peer in start_all(Path(name), sink_port, *names).items():
                processes.append(peer.process)
                ways[way] = (peer.process.pid, peer.port)
            for turn in range(-1, args.rounds):  # one warms everything up
                for way, (pid, port) in ways.items():
                    before = busy_us(pid)
                    open_ask_close(port, args.each, frame)
                    if turn >= 0:
                        found.setdefault(way, []).append((busy_us(pid) - before) / args.each)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    rows = {
        way: {
            "cpu_us_median": statistics.median(values),
            "cpu_us_least": min(values),
            "opened_per_cpu_s": 1e6 / statistics.median(values),
        }
        for way, values in found.items()
    }
    ours, best = rows["headgate"]["cpu_us_median"], rows["headgate"]["cpu_us_least"]
    for way, row in rows.items():
        middle, least, opened = row.values()
        print(
            f"{way:14} {middle:5.0f} µs (least {least:.0f}) a connection, {opened:6.0f} per CPU "
            f"second, headgate {ours / middle:.2f} x (least by least {best / least:.2f} x) of it"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
