"""
What a scrape of /metrics and a batch of changed quotas cost a lone client, at many quota-ids.

One process has the gateway in front of a sink that answers at once. Requests of many client ids,
each a quota-id, have passed it. A lone client then sends small produce requests one after another:
left alone, with a scrape a second, and while the quotas of 5,000 of them change. By turns, in one
run; printed are ratios to being left alone, the scrape's size, and the longest that the garbage
collector worked.

``python bench/gateway/scrape.py [--quota-ids 10000,50000] [--seconds N] [--beside scraped,changed]
[--rounds N]``; run it alone on the machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port, start  # noqa: E402

from peers import PRODUCE_ANSWER, produce_frame  # noqa: E402

CHANGED = 5_000


def serve(port: int, http: int, target: int, ids: int, pipe: Any) -> None:
    """The gateway, its quota table played from here."""
    import gc
    import tempfile

    from headgate.config import HostPort, Settings
    from headgate.gateway import Gateway, GatewayThread
    from headgate.gateway.background import GarbageBounds
    from headgate.quota.alteration import Op, QuotaAlteration
    from headgate.quota.entity import DEFAULT, QuotaEntity
    from headgate.quota.key import PRODUCER
    from headgate.quota.table import QuotaTable

    folder = tempfile.mkdtemp()
    settings = Settings.from_properties(
        {
            "headgate.upstream": f"127.0.0.1:{target}",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "headgate.data.dir": folder,
            "headgate.usage": f"files:{folder}/usage",
        }
    )
    table = QuotaTable.of({QuotaEntity.of(client_id=DEFAULT): {PRODUCER: 1e12}})
    sys.setswitchinterval(0.0005)
    thread = GatewayThread(
        lambda: Gateway(settings, table=table, http=HostPort("127.0.0.1", http))
    ).start()
    gateway = thread.gateway

    thread.call(GarbageBounds().settle)
    looks = [0, 0.0]  # when the collector began, how long it worked at most

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looks[0] = time.thread_time_ns()
        else:
            looks[1] = max(looks[1], (time.thread_time_ns() - looks[0]) / 1e6)

    gc.callbacks.append(look)
    pipe.send("ready")
    value = 1e9
    while (asked := pipe.recv()) != "end":
        if asked == "change":
            value += 1
            table, delta = table.apply(
                QuotaAlteration.of(
                    QuotaEntity.of(client_id=f"other-{n:06}"), (Op(PRODUCER, value),)
                )
                for n in range(CHANGED)
            )
            thread.call(lambda t=table, d=delta: gateway.quotas.changed(t, d))
        pipe.send((gateway.work.stall_meter.longest_ms, gateway.work.stall_meter.slow, looks[1]))
    thread.stop(0)


class Lone:
    """A client that asks again when it was answered."""

    def __init__(self, port: int) -> None:
        self._frame = produce_frame(300, 1, b"lone")
        self._sock = socket.create_connection(("127.0.0.1", port), 20)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, seconds: float) -> list[float]:
        """Ask for so long; return what each answer took, in ms."""
        took = []
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            self._sock.sendall(self._frame)
            got = 0
            while got < 8 + len(PRODUCE_ANSWER):
                got += len(self._sock.recv(4_096))
            took.append((time.perf_counter() - began) * 1e3)
        return took


def everybody(port: int, ids: int) -> None:
    """Send a request of each client id, fifty at a time."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        for first in range(0, ids, 50):
            some = range(first, min(first + 50, ids))
            sock.sendall(b"".join(produce_frame(300, n, b"other-%06d" % n) for n in some))
            left = len(some) * (8 + len(PRODUCE_ANSWER))
            while left:
                left -= len(sock.recv(min(left, 1 << 16)))


def measure(ids: int, seconds: float, modes: list[str], rounds: int) -> dict[str, Any]:
    """By turns: alone, scraped once a second, quotas changing once a second."""
    sink_port, port, http = (free_port() for _ in range(3))
    sink = start("sink", sink_port)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    gate = multiprocessing.get_context("spawn").Process(
        target=serve, args=(port, http, sink_port, ids, theirs)
    )
    gate.start()
    took: dict[str, list[float]] = {"alone": [], **{mode: [] for mode in modes}}
    size = 0
    try:
        ours.recv()
        lone = Lone(port)
        lone.ask(1)
        for _ in range(rounds):
            for what, times in took.items():
                everybody(port, ids)  # all of them are busy still
                done = threading.Event()

                def beside(what: str = what, done: threading.Event = done) -> None:
                    nonlocal size
                    while not done.wait(1.0):
                        if what == "scraped":
                            url = f"http://127.0.0.1:{http}/metrics"
                            size = len(urllib.request.urlopen(url, timeout=60).read())
                        elif what == "changed":
                            ours.send("change")
                            ours.recv()

                thread = threading.Thread(target=beside)
                thread.start()
                times += lone.ask(seconds)
                done.set()
                thread.join()
        ours.send("tell")
        longest = ours.recv()
    finally:
        ours.send("end")
        gate.join(10)
        gate.kill()
        sink.kill()
    found: dict[str, Any] = {"quota_ids": ids, "scrape_bytes": size}
    alone = sorted(took["alone"])
    for what, times in took.items():
        ordered = sorted(times)
        for name, place in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            at = ordered[int(len(ordered) * place)]
            found[f"{what}_{name}_by_alone"] = round(at / alone[int(len(alone) * place)], 2)
        found[f"{what}_worst_ms"] = round(ordered[-1], 1)
    found["loop_longest_ms"], found["loop_slow"], found["collector_longest_ms"] = longest
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quota-ids", default="10000,50000")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--beside", default="scraped,changed")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for ids in args.quota_ids.split(","):
        found = measure(int(ids), args.seconds, args.beside.split(","), args.rounds)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
