"""
Clients of one quota-id, record by record, on a clock of our own, before Kafka's manager.

They know nothing of ``headgate.demand``, which guesses from their charges what they are.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from math import inf

from headgate.demand.rhythm import Charge
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager

START_MS = 1_700_000_000_000


class Application:
    """
    A client whose application makes records of its own accord and buffers them.

    Args:
        records: (ms, bytes) in order: when each is made.
        batch: most bytes of a request.
        linger_ms: how long a record waits for others.
        overhead: bytes of a request besides.
        fetches: a consumer of a topic that gets these records; it waits for no others.
        slow_start: how long its machine is busy at first (ms), and what a round trip takes then.
    """

    def __init__(
        self,
        records: Sequence[tuple[float, int]],
        *,
        batch: int = 16_384,
        linger_ms: float = 5.0,
        overhead: int = 95,
        slow_start: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.records = records
        self.slow_start = slow_start
        self.batch = batch
        self.linger_ms = linger_ms
        self.overhead = overhead
        self.at = 0

    def next(self, free_ms: float, rtt_ms: float) -> tuple[float, int]:
        """Return when the next request is answered, and its bytes; inf: never."""
        if self.at == len(self.records):
            return inf, 0
        sent = max(free_ms, self.records[self.at][0] + self.linger_ms)
        if sent < self.slow_start[0]:
            rtt_ms = max(rtt_ms, self.slow_start[1])
        size = 0
        while self.at < len(self.records):
            made, record = self.records[self.at]
            if made > sent or (size and size + record > self.batch):
                break
            size += record
            self.at += 1
        return sent + rtt_ms, size + self.overhead


class Eager:
    """
    A client that sends as soon as it may: a loop that waits for each answer, or a job.

    Args:
        size: bytes of a request.
        think_ms: between an answer and the next request.
        work: bytes after which it ends.
    """

    def __init__(self, size: int, think_ms: float, work: float = inf) -> None:
        self.size = size
        self.think_ms = think_ms
        self.left = work

    def next(self, free_ms: float, rtt_ms: float) -> tuple[float, int]:
        """Return when the next request is answered, and its bytes; inf: never."""
        if self.left <= 0:
            return inf, 0
        size = int(min(self.size, self.left))
        self.left -= size
        return free_ms + self.think_ms + rtt_ms, size


Player = Application | Eager


def steady(per_s: float, seconds: float, record: int = 1_000) -> list[tuple[float, int]]:
    """Return records made at a steady pace."""
    step = record / per_s * 1000.0
    return [(n * step, record) for n in range(int(seconds * 1000 / step))]


def bursts(
    size: int, every_s: float, seconds: float, record: int = 1_000
) -> list[tuple[float, int]]:
    """Return records made in bursts."""
    many = round(size / record)
    starts = [n * every_s * 1000.0 for n in range(int(seconds / every_s) + 1)]
    return [
        (start + n * 0.02, record)
        for start in starts
        if start < seconds * 1000
        for n in range(many)
    ]


def backlog(
    size: int, per_s: float, seconds: float, record: int = 1_000
) -> list[tuple[float, int]]:
    """Return the records of a topic that holds some and gets more."""
    return [(0.0, record)] * (size // record) + steady(per_s, seconds, record)


def run(
    make: Callable[[], Sequence[Player]],
    bound: float | None,
    seconds: float,
    *,
    gated: bool = False,
    seed: int = 1,
    rtt_ms: float = 1.5,
) -> list[Charge]:
    """
    Let clients run in front of a manager, and return their charges.

    Args:
        make: makes the clients.
        bound: the limit, bytes per second; None: none.
        seconds: how long.
        gated: they fetch, and wait for one gate.
        seed: of the round trips.
        rtt_ms: a usual round trip; one in fifty is ten times as long.
    """
    chance = random.Random(seed)
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    if bound is not None:
        manager.update_quota(QuotaEntity.of(user="u"), bound, START_MS)
    clients = list(make())
    order = 0
    waiting: list[tuple[float, int, int, int]] = []

    def rtt() -> float:
        slow = 10.0 if chance.random() < 0.02 else 1.0
        return rtt_ms * slow * (0.6 + 0.8 * chance.random())

    def ask(n: int, free_ms: float) -> None:
        nonlocal order
        t_ms, size = clients[n].next(free_ms, rtt())
        if t_ms < seconds * 1000:
            order += 1
            heapq.heappush(waiting, (t_ms, order, n, size))

    for n in range(len(clients)):
        ask(n, chance.random() * 20)
    found: list[Charge] = []
    gate = 0.0
    while waiting:
        t_ms, _, n, size = heapq.heappop(waiting)
        if gated and t_ms < gate:
            order += 1
            if gate < seconds * 1000:
                heapq.heappush(waiting, (gate + rtt(), order, n, size))
            continue
        now = START_MS + int(t_ms)
        wait = max(manager.record("u", "", size, now).throttle_time_ms, 0)
        found.append(Charge(now, size, wait, wait, f"c{n}", "u"))
        if gated and wait:
            gate = max(gate, t_ms + wait)
        ask(n, t_ms + wait)
    return found
