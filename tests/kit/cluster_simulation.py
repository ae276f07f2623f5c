"""
A cluster in miniature: closed-loop clients, brokers with real managers, splits from time to time.

Clients know nothing but their throttle: each offers bytes at its own rate, keeps what it couldn't
send (up to a second's worth, then its application waits), sends one request at a time and obeys
the delay it is told. Everything is deterministic by seed; time is simulated.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.bps import PERIOD_MS, BpsQuotaManager
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.observation import Observation
from headgate.throttle.pacing import PacedQuotaManager

TAGS = ("tenant", "")
START_MS = 1_700_000_000_000
Split = Callable[[float, Sequence[int], Mapping[int, Observation]], dict[int, float]]


def equal_split(
    quota: float,
    brokers: Sequence[int],
    observed: Mapping[int, Observation],
) -> dict[int, float]:
    """Give every broker the same."""
    return {broker: quota / len(brokers) for broker in brokers}


def proportional_split(
    quota: float,
    brokers: Sequence[int],
    observed: Mapping[int, Observation],
) -> dict[int, float]:
    """Give in proportion to what was used, as if use were demand; a tenth dealt out equally."""
    used = {b: observed[b].used_per_s if b in observed else 0.0 for b in brokers}
    total = sum(used.values())
    if not total:
        return equal_split(quota, brokers, observed)
    return {b: 0.1 * quota / len(brokers) + 0.9 * quota * used[b] / total for b in brokers}


def demand_split() -> Split:
    """Return Headgate's own way: a new :class:`ClusterSplitter`."""
    splitter: ClusterSplitter[int] = ClusterSplitter()

    def split(
        quota: float, brokers: Sequence[int], observed: Mapping[int, Observation]
    ) -> dict[int, float]:
        seen = {broker: {TAGS: one} for broker, one in observed.items()}
        return splitter.round({TAGS: quota}, brokers, seen)[TAGS]

    return split


def zipf(count: int, total: float, exponent: float = 1.1) -> list[float]:
    """Return demands of that total, the i-th proportional to 1 / i^exponent."""
    weights = [1 / (i + 1) ** exponent for i in range(count)]
    return [total * w / sum(weights) for w in weights]


@dataclass(frozen=True)
class Change:
    """From at_s on, the demand of each live broker in bytes/s; brokers left out are gone."""

    at_s: float
    demand: Mapping[int, float]


@dataclass
class Result:
    """
    What a run admitted.

    Attributes:
        admitted: bytes per second, for each period.
        used: the same by broker, for each period.
        splits: the splits in force in each period.
        period_ms: length of a period.
    """

    period_ms: int
    admitted: list[float] = field(default_factory=list)
    used: list[dict[int, float]] = field(default_factory=list)
    splits: list[dict[int, float]] = field(default_factory=list)

    def mean(self, from_s: float, to_s: float) -> float:
        """Return the mean bytes per second admitted between two times."""
        first, last = int(from_s * 1000 / self.period_ms), int(to_s * 1000 / self.period_ms)
        rounds = self.admitted[first:last]
        return sum(rounds) / len(rounds)


@dataclass
class _Client:
    broker: int
    rate: float
    epoch: int
    ready: float = 0.0
    at_ms: float = 0.0


def simulate(
    split: Split | None,
    quota: float,
    changes: Sequence[Change],
    seconds: float,
    *,
    clients_per_broker: int = 4,
    request_bytes: int = 16_384,
    period_ms: int = PERIOD_MS,
    noise: float = 0.3,
    seed: int = 1,
) -> Result:
    """
    Run a cluster.

    Args:
        split: how splits are computed; None: the ideal, one limiter for the whole cluster.
        quota: bytes per second of the whole cluster.
        changes: who demands what from when; the first at 0.
        seconds: how long.
        clients_per_broker: each broker's demand is divided over these.
        request_bytes: size of every request.
        period_ms: split period.
        noise: standard deviation of the time between two requests, relative to its mean.
        seed: of the noise.
    """
    rnd = random.Random(seed)
    user = QuotaEntity.of(user=TAGS[0])
    ideal = PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    ideal.update_quota(user, quota, START_MS)
    managers: dict[int, BpsQuotaManager] = {}
    splits: dict[int, float] = {}
    queue: list[tuple[float, int, _Client]] = []
    result = Result(period_ms)
    serial = 0
    epoch = 0

    def become(demand: Mapping[int, float], now: float) -> None:
        nonlocal serial, epoch
        epoch += 1
        for gone in set(managers) - set(demand):
            del managers[gone]
        for broker, rate in demand.items():
            if broker not in managers:
                made = BpsQuotaManager(
                    QuotaType.PRODUCER_BYTE_RATE, len(demand), period_ms=period_ms
                )
                made.update_quota(user, quota, int(now))
                managers[broker] = made
            managers[broker].set_brokers(len(demand), int(now))
            for _ in range(clients_per_broker if rate > 0 else 0):
                client = _Client(broker, rate / clients_per_broker, epoch, at_ms=now)
                serial += 1
                # Everybody starts somewhere within the time of one request.
                delay = rnd.random() * request_bytes / client.rate * 1000
                heapq.heappush(queue, (now + delay, serial, client))

    end = START_MS + seconds * 1000
    pending = sorted(changes, key=lambda change: change.at_s)
    boundary = float(START_MS)
    used: dict[int, float] = {}
    become(pending.pop(0).demand, START_MS)
    result.splits.append(dict.fromkeys(managers, quota / len(managers)))
    while queue:
        now, _, client = heapq.heappop(queue)
        while now >= boundary + period_ms:
            boundary += period_ms
            at = int(boundary)
            result.admitted.append(sum(used.values()) * 1000 / period_ms)
            result.used.append({b: n * 1000 / period_ms for b, n in used.items()})
            used = {}
            while pending and START_MS + pending[0].at_s * 1000 <= boundary:
                become(pending.pop(0).demand, boundary)
            if split is not None:
                seen = {b: m.observe(at) for b, m in managers.items()}
                observed = {b: o[TAGS] for b, o in seen.items() if TAGS in o}
                splits = split(quota, sorted(managers), observed)
                for broker, bound in splits.items():
                    managers[broker].assign({TAGS: bound}, at, at + 3 * period_ms)
            result.splits.append(dict(splits))
        if now >= end:
            break
        if client.epoch != epoch:
            continue  # its demand has changed: another client stands in its place
        # What it offers arrives evenly; a second's worth (or one request) may wait.
        arrived = client.rate * (now - client.at_ms) / 1000
        client.ready = min(client.ready + arrived, max(client.rate, request_bytes))
        client.at_ms = now
        manager = ideal if split is None else managers[client.broker]
        throttle = manager.record(TAGS[0], "c", request_bytes, int(now))
        used[client.broker] = used.get(client.broker, 0.0) + request_bytes
        client.ready -= request_bytes
        lacking = max(request_bytes - client.ready, 0.0) / client.rate * 1000
        pause = max(lacking * max(rnd.gauss(1.0, noise), 0.05), throttle.throttle_time_ms, 2.0)
        serial += 1
        heapq.heappush(queue, (now + pause, serial, client))
    return result
