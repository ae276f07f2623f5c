"""
What a flood of client-ids costs the gateway and a lone client, and what is left of that afterwards.

Ten connections send a small Produce under each of 100,000 client-ids, while a lone client sends
small requests one after another and ``/metrics`` is read once a second. ``headgate serve`` stands
in front of a broker that reads everything and answers at once; all client-ids have default quotas
on bytes and on time. Printed is a Markdown table: memory, the gateway's CPU time, the lone client's
round trips, how long ``/metrics`` took, and the longest that work of the gateway's own (Python's
garbage collector is part of it) held the loop; before the flood, while it lasts, and 60 s after it.

``python bench/gateway/client_ids.py [--client-ids N] [--connections N] [--after S]
[--set KEY=VALUE]``
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from attacked_memory import memory_mb  # noqa: E402
from neighbours import free_port, wait_for  # noqa: E402
from real_broker import gateway  # noqa: E402

from peers import PRODUCE_ANSWER, produce_frame  # noqa: E402

QUOTAS = "--entity-default --entity-type clients --entity-default"
RATES = "producer_byte_rate=900000000,consumer_byte_rate=900000000,request_percentage=9000"
AT_ONCE = 50


def read_answers(sock: socket.socket, count: int) -> None:
    """Read this many answers."""
    left = count * (8 + len(PRODUCE_ANSWER))
    while left:
        got = len(sock.recv(min(left, 1 << 16)))
        if not got:
            raise ConnectionError("closed")
        left -= got


def flood(port: int, connections: int, client_ids: int) -> None:
    """Send a small Produce under each client-id, some at a time, on several connections."""

    def one(first: int) -> None:
        names = [b"flood-%08d" % n for n in range(first, client_ids, connections)]
        with socket.create_connection(("127.0.0.1", port), 120) as sock:
            for at in range(0, len(names), AT_ONCE):
                some = names[at : at + AT_ONCE]
                sock.sendall(b"".join(produce_frame(300, n, name) for n, name in enumerate(some)))
                read_answers(sock, len(some))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Beside:
    """
    A lone client in a process of its own, and a reader of ``/metrics``, for as long as it is open.

    Attributes:
        took_ms: the lone client's round trips.
        scrapes_s: how long each reading of ``/metrics`` took.
    """

    def __init__(self, port: int, http: int) -> None:
        self._port, self._http = port, http
        self._over = threading.Event()
        self.took_ms: list[float] = []
        self.scrapes_s: list[float] = []
        self.page = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask meanwhile."""
        self._over.clear()
        self.took_ms, self.scrapes_s = [], []
        lone = subprocess.Popen(
            [sys.executable, __file__, "--lone", str(self._port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        scraper = threading.Thread(target=self._scrape)
        scraper.start()
        try:
            yield
        finally:
            self._over.set()
            scraper.join()
            said, _ = lone.communicate(b"end\n")
            self.took_ms = sorted(map(float, said.split()))

    def _scrape(self) -> None:
        while True:
            began = time.perf_counter()
            url = f"http://127.0.0.1:{self._http}/metrics"
            with urllib.request.urlopen(url, timeout=120) as answer:
                self.page = answer.read().decode()
            self.scrapes_s.append(time.perf_counter() - began)
            if self._over.wait(1.0):
                return


def lone(port: int) -> None:
    """Send small requests one after another until a line comes; print what each took, ms."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    frame = produce_frame(300, 1, b"lone")
    took = []
    with socket.create_connection(("127.0.0.1", port), 120) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not over.is_set():
            began = time.perf_counter()
            sock.sendall(frame)
            read_answers(sock, 1)
            took.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.001)
    print(*(f"{ms:.3f}" for ms in took))


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def longest_ms(page: str) -> float:
    """Return ``headgate_loop_longest_ms``."""
    return max(map(float, re.findall(r"^headgate_loop_longest_ms\S* (\S+)", page, re.M)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client-ids", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--after", type=float, default=60, help="seconds after the flood")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--lone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lone:
        lone(options.lone)
        return
    upstream, http = free_port(), free_port()
    broker = subprocess.Popen(
        [sys.executable, str(HERE / "attacked_memory.py"), "--broker", str(upstream)]
    )
    settings = {"headgate.http.listener": f"127.0.0.1:{http}"}
    settings.update(pair.split("=", 1) for pair in options.set)
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        try:
            wait_for(upstream, broker)
            gate, port = gateway(
                Path(place, "gateway"), f"127.0.0.1:{upstream}", QUOTAS, settings, RATES
            )
            try:
                beside = Beside(port, http)

                spent_s = [cpu_s(gate.pid)]

                def row(what: str, seconds: float) -> None:
                    ms = beside.took_ms
                    series = len(beside.page.splitlines())
                    rows.append(
                        f"| {what} | {seconds:.0f} | {cpu_s(gate.pid) - spent_s[0]:.1f} "
                        f"| {memory_mb(gate.pid, 'VmRSS'):.0f} "
                        f"| {ms[len(ms) // 2]:.2f} | {ms[int(len(ms) * 0.99)]:.1f} | {ms[-1]:.0f} "
                        f"| {max(beside.scrapes_s):.2f} | {series} "
                        f"| {longest_ms(beside.page):.1f} |"
                    )

                with beside.watching():
                    time.sleep(10)
                row("before the flood", 10)
                began = time.monotonic()
                spent_s[0] = cpu_s(gate.pid)
                with beside.watching():
                    flood(port, options.connections, options.client_ids)
                row("while it lasts", time.monotonic() - began)
                if options.after > 15:
                    time.sleep(options.after - 15)
                spent_s[0] = cpu_s(gate.pid)
                with beside.watching():
                    time.sleep(15)
                row(f"{options.after:.0f} s after it", 15)
            finally:
                gate.kill()
                gate.wait()
        finally:
            broker.kill()
            broker.wait()
    print("| | s | CPU s | RSS, MB | p50 ms | p99 ms | longest ms | /metrics, s at most | lines "
          "| longest piece, ms |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
