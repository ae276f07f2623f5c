"""
What a connection and a quota-id cost: memory of idle connections, CPU per request with many.

Sessions and quota-ids are counted apart, and beside them stands what memory alone costs: reading
one attribute each of 25 objects that belong together, of 10 or of 10,000 such groups in turn.

``python bench/gateway/scale.py [--connections N] [--json FILE]``; run it alone on the machine. The
gateway needs two descriptors for each connection.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port, start  # noqa: E402

from peers import PRODUCE_ANSWER, cpu_of, produce_frame  # noqa: E402

QUOTA_IDS = (10, 1_000, 10_000)
REQUESTS = 20_000


def rss_kb(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS")


def idle(count: int) -> dict[str, float]:
    """Open connections that said one thing each, and look at the gateway's memory."""
    sink_port, gate_port = free_port(), free_port()
    sink = start("sink", sink_port)
    gate = start("gateway", gate_port, "--target", str(sink_port))
    socks = []
    try:
        frame, answer = produce_frame(300, 1), 8 + len(PRODUCE_ANSWER)
        before, cpu = rss_kb(gate.pid), cpu_of(gate.pid)
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", gate_port), 20)
            sock.sendall(frame)
            got = 0
            while got < answer:
                got += len(sock.recv(4096))
            socks.append(sock)
        opened = cpu_of(gate.pid) - cpu
        used = rss_kb(gate.pid) - before
        # One busy connection among all the idle ones.
        busy, cpu = socks[0], cpu_of(gate.pid)
        for _ in range(5_000):
            busy.sendall(frame)
            got = 0
            while got < answer:
                got += len(busy.recv(4096))
        each = (cpu_of(gate.pid) - cpu) / 5_000
        return {
            "connections": count,
            "kb_per_connection": used / count,
            "cpu_ms_to_open": opened / count * 1_000,
            "cpu_us_per_request": each * 1e6,
        }
    finally:
        for sock in socks:
            sock.close()
        gate.kill()
        sink.kill()


class Thing:
    """Something to be read from memory."""

    __slots__ = ("value",)


def memory_alone(groups: int, each: int = 25) -> dict[str, float]:
    """Read objects in the order in which requests come: what no program can avoid."""
    things = [[Thing() for _ in range(each)] for _ in range(groups)]
    for group in things:
        for thing in group:
            thing.value = None  # type: ignore[attr-defined]
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for number in range(REQUESTS):
            for thing in things[number * 7919 % groups]:
                thing.value  # type: ignore[attr-defined] # noqa: B018
        best = min(best, time.process_time() - began)
    return {"groups of 25 objects": groups, "us_to_read_one": best / REQUESTS * 1e6}


def quota_ids(count: int, connections: int) -> dict[str, float]:
    """Produce requests of so many users under quotas of their own, without sockets."""
    from headgate.config import Settings
    from headgate.gateway.enforcement import Enforcement
    from headgate.gateway.plans import build_plans
    from headgate.gateway.session import Session
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import PRODUCER
    from headgate.quota.table import QuotaTable

    class Known:
        authenticated = True
        close_reason = None
        close_text = ""
        raw = False

        def __init__(self, principal: str) -> None:
            self.principal = principal

    class Face:
        addresses = {1: ("127.0.0.1", 9092)}  # noqa: RUF012

    settings = Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:1",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
        }
    )
    now = time.time_ns() // 1_000_000
    rules = Enforcement(settings, 1, now)
    users = [f"user{n}" for n in range(count)]
    rules.load(QuotaTable.of({QuotaEntity.of(user=u): {PRODUCER: 1e12} for u in users}), now)
    plans = build_plans()
    sessions = [
        Session(rules, plans, Known(users[n % count]), Face())  # type: ignore[arg-type]
        for n in range(connections)
    ]
    for session in sessions:
        session.upstream_ready(now)
    asked = memoryview(bytearray(produce_frame(300, 1)))
    body = PRODUCE_ANSWER
    told = memoryview(bytearray((4 + len(body)).to_bytes(4, "big") + (1).to_bytes(4, "big") + body))
    for session in sessions:  # make every sensor first
        _exchange(session, asked, told, now)
    spent = float("inf")
    for turn in range(5):
        began = time.process_time()
        for number in range(REQUESTS):
            t_ms = now + turn * 200 + number // 100
            _exchange(sessions[number * 7919 % connections], asked, told, t_ms)
        spent = min(spent, time.process_time() - began)
    return {
        "quota_ids": count,
        "sessions": connections,
        "session_us_per_request": spent / REQUESTS * 1e6,
    }


def _exchange(session: Any, asked: memoryview, told: memoryview, now: int) -> None:
    session.client_data(asked, now)
    session.to_broker.clear()
    session.broker_data(told, now)
    session.to_client.clear()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=9_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 65_536)), hard))
    rows: list[dict[str, float]] = []
    plans: list[tuple[Any, tuple[int, ...]]] = [(quota_ids, (count, count)) for count in QUOTA_IDS]
    plans.append((quota_ids, (10, QUOTA_IDS[-1])))
    plans += [(memory_alone, (count,)) for count in QUOTA_IDS]
    plans += [(idle, (count,)) for count in (10, 1_000, args.connections)]
    for measure, counts in plans:
        rows.append(measure(*counts))
        print("  ".join(f"{name} {value:.2f}" for name, value in rows[-1].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
