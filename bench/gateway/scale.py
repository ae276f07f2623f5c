"""
What a connection and a quota-id cost: memory of idle connections, CPU per request with many.

The whole cost of a lone produce request is the gateway's CPU, journal on, with a client in another
process that takes its connections in turn, each with quota-ids of its own; beside it stands what a
bare byte pipe costs then. All counts are measured by turns, in one run. Of the session's own part,
in this process, sessions and quota-ids are counted apart, and beside them stands what memory alone
costs: reading one attribute each of 25 objects that belong together, of 10 or of 10,000 such groups
in turn.

``python bench/gateway/scale.py [--connections N] [--json FILE]``; run it alone on the machine. The
gateway needs two descriptors for each connection.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from headgate.clock import now_ms

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port, start  # noqa: E402

from peers import PRODUCE_ANSWER, cpu_of, produce_frame  # noqa: E402

QUOTA_IDS = (10, 1_000, 10_000)
REQUESTS = 20_000
LONE = 2_000
TURNS = 25


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
    # As shipped: the journal on, and each client a quota-id of its own.
    more = ("--target", str(sink_port), "--usage", "files:DIR", "--quota", "1e12", "--each")
    gate = start("gateway", gate_port, *more)
    socks = []
    try:
        answer = 8 + len(PRODUCE_ANSWER)
        before, cpu = rss_kb(gate.pid), cpu_of(gate.pid)
        for number in range(count):
            frame = produce_frame(300, 1, b"c%05d" % number)
            sock = socket.create_connection(("127.0.0.1", gate_port), 20)
            sock.sendall(frame)
            got = 0
            while got < answer:
                got += len(sock.recv(4096))
            socks.append(sock)
        opened = cpu_of(gate.pid) - cpu
        time.sleep(2)  # the journal writes down what that was
        used = rss_kb(gate.pid) - before
        # One busy connection among all the idle ones.
        busy, cpu, frame = socks[0], cpu_of(gate.pid), produce_frame(300, 1, b"c00000")
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


def busy_us(pid: int) -> float:
    """CPU of a process's threads so far, finer than clock ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e3


class Whole:
    """
    Send lone produce requests of ``count`` client ids, each a quota-id, over some connections.

    Args:
        role: ``pipe`` or ``gateway``.
        count: client ids.
        connections: the most; both ends are in this process, so descriptors bound them.
    """

    def __init__(self, role: str, count: int, connections: int) -> None:
        self.role, self.count = role, count
        self.connections = min(connections, count)
        self.frames = [produce_frame(300, 1, b"c%05d" % number) for number in range(count)]
        self.socks: list[socket.socket] = []
        self.each: list[float] = []
        self._asked = 0
        sink_port, gate_port = free_port(), free_port()
        self.sink = start("sink", sink_port)
        more: tuple[str, ...] = ("--target", str(sink_port))
        if role == "gateway":
            more += ("--usage", "files:DIR", "--quota", "1e12", "--each")
        self.gate = start(role, gate_port, *more)
        for number in range(count):
            if number < self.connections:
                self.socks.append(socket.create_connection(("127.0.0.1", gate_port), 20))
                self.socks[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ask(number)

    def ask(self, number: int) -> None:
        """Say one request and wait for its answer; a client id keeps to its connection."""
        sock = self.socks[number % self.connections]
        sock.sendall(self.frames[number])
        got = 0
        while got < 8 + len(PRODUCE_ANSWER):
            got += len(sock.recv(4096))

    def turn(self) -> None:
        """Ask for a while."""
        before = busy_us(self.gate.pid)
        for _ in range(LONE):
            self._asked += 7919
            self.ask(self._asked % self.count)
        self.each.append((busy_us(self.gate.pid) - before) / LONE)

    def end(self) -> None:
        """Close everything."""
        for sock in self.socks:
            sock.close()
        self.gate.kill()
        self.sink.kill()


def whole(connections: int) -> list[dict[str, Any]]:
    """
    The gateway's and the pipe's CPU per lone request, for all counts of quota-ids by turns.

    All of them are there at once: what the machine does to one turn it does to its neighbours.
    """
    subjects: list[Whole] = []
    try:
        for count in QUOTA_IDS:
            subjects += [Whole(role, count, connections) for role in ("pipe", "gateway")]
        time.sleep(2)  # the journal writes down what that was
        for _ in range(TURNS):
            for subject in subjects:
                subject.turn()
    finally:
        for subject in subjects:
            subject.end()
    rows = []
    for pipe, gateway in zip(subjects[::2], subjects[1::2], strict=True):
        middle = [statistics.median(subject.each) for subject in (pipe, gateway)]
        rows.append(
            {
                "quota_ids": gateway.count,
                "connections": gateway.connections,
                "pipe_us_per_request": middle[0],
                "whole_us_per_request": middle[1],
                "whole_by_pipe": middle[1] / middle[0],
                "least_by_least": min(gateway.each) / min(pipe.each),
            }
        )
    return rows


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
    """Send produce requests of ``count`` users with a quota each, without sockets."""
    from headgate.config import Settings
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.plans import build_plans
    from headgate.gateway.session.session import Session
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
    now = now_ms()
    rules = Enforcement(settings, 1, lambda: now)
    users = [f"user{n}" for n in range(count)]
    rules.load(QuotaTable.of({QuotaEntity.of(user=u): {PRODUCER: 1e12} for u in users}), now)
    plans = build_plans()
    sessions = [
        Session(rules, Known(users[n % count]), plans, Face())  # type: ignore[arg-type]
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
    parser.add_argument("--connections", type=int, default=8_500)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 65_536)), hard))
    rows: list[dict[str, Any]] = []
    plans: list[tuple[Any, tuple[Any, ...]]] = [(quota_ids, (count, count)) for count in QUOTA_IDS]
    plans.append((quota_ids, (10, QUOTA_IDS[-1])))
    plans += [(memory_alone, (count,)) for count in QUOTA_IDS]
    plans.append((whole, (args.connections,)))
    plans += [(idle, (count,)) for count in (10, 1_000, args.connections)]
    for measure, counts in plans:
        measured = measure(*counts)
        for row in measured if isinstance(measured, list) else [measured]:
            rows.append(row)
            shown = [
                f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
                for name, value in row.items()
            ]
            print("  ".join(shown), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
