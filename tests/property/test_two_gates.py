"""
Laws of fetches that pay several quotas: no gate is open and idle while somebody waits at it only.

Connections of two principals fetch again and again. Each pays one quota or several; some quotas are
sampled rates, whose gates have a deadline, others are buckets, which are asked. What a wait is due
to is counted here, by what was delivered and passed on.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.charging.gates import GateKey, Gates, GateTurn
from headgate.gateway.charging.hold import HELD, LITTLE, Hold

START_MS = 1_700_000_000_000
SLACK_MS = 50
"""Beyond what a wait is due to: two slots, in which a gate lets more pass, and some."""
CREDIT_MS = 1_000
"""What was not used in the last second may still be."""
KEYS = tuple(GateKey(name, "alice", "") for name in ("consumer_byte_rate", "other:bps", "third"))


MOST_LOOKS = 2_000
"""More than all connections look in one millisecond."""


class Quota:
    """What is delivered under one quota: by a sampled rate it sets a deadline, else it is owed."""

    def __init__(self, key: GateKey, per_ms: float, *, is_bucket: bool) -> None:
        self.key = key
        self.per_ms = per_ms
        self.is_bucket = is_bucket
        self.repaid_ms = float(START_MS)
        self.busy_ms = START_MS  # when a fetch was last passed on or delivered
        self.bytes = 0

    def owed_ms(self, now_ms: int) -> int:
        return max(round(self.repaid_ms - now_ms), 0)

    def charge(self, amount: int, now_ms: int) -> int:
        self.bytes += amount
        self.repaid_ms = max(self.repaid_ms, now_ms - CREDIT_MS) + amount / self.per_ms
        return self.owed_ms(now_ms)


@dataclass(eq=False)
class Connection:
    """One that fetches as soon as it got an answer."""

    principal: str
    quotas: tuple[Quota, ...]
    size: int
    takes_ms: Callable[[], int]
    hold: Hold
    since_ms: int = START_MS
    is_asked: bool = False
    is_held: bool = False
    delivered: int = 0
    emptied: int = 0
    longest_ms: int = 0

    @property
    def keys(self) -> tuple[GateKey, ...]:
        return tuple(quota.key for quota in self.quotas)


class World:
    """The gates of one broker, on a clock of our own."""

    def __init__(self, quotas: tuple[Quota, ...], most_ms: int) -> None:
        self.now_ms = START_MS
        self.by_key = {quota.key: quota for quota in quotas}
        buckets = {quota.key: quota.owed_ms for quota in quotas if quota.is_bucket}
        self.gates = Gates(buckets.get)
        self.most_ms = most_ms
        self.connections: list[Connection] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, t_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t_ms, next(self._order), do))

    def connect(
        self, principal: str, quotas: tuple[Quota, ...], size: int, takes_ms: Callable[[], int]
    ) -> None:
        one = Connection(principal, quotas, size, takes_ms, Hold(self.gates))
        one.hold.nudge = lambda: self.at(self.now_ms, lambda: self.look(one))
        one.keys_kept = one.keys  # type: ignore[attr-defined]
        self.connections.append(one)
        self.at(START_MS + len(self.connections), lambda: self.ask(one))

    def ask(self, one: Connection) -> None:
        one.since_ms, one.is_asked, one.is_held = self.now_ms, False, True
        self.look(one)

    def look(self, one: Connection) -> None:
        if not one.is_held:
            return
        keys = one.keys_kept  # type: ignore[attr-defined]
        way = one.hold.admit(keys, one.principal, one.since_ms, self.most_ms, self.now_ms)
        if way == HELD:
            self.at(max(one.hold.wake_ms, self.now_ms + 1), lambda: self.look(one))
            return
        one.is_held = False
        one.longest_ms = max(one.longest_ms, self.now_ms - one.since_ms)
        if way == LITTLE:
            one.emptied += 1
            one.hold.emptied()
            rest_ms, _ = one.hold.rest(self.now_ms)
            self.at(self.now_ms + max(rest_ms, 1), lambda: self.ask(one))
            return
        for quota in one.quotas:
            quota.busy_ms = self.now_ms
        if one.is_asked:
            self.deliver(one)
        else:
            one.is_asked = True
            self.at(self.now_ms + one.takes_ms(), lambda: self.answer(one))

    def answer(self, one: Connection) -> None:
        one.is_held = True
        self.look(one)

    def deliver(self, one: Connection) -> None:
        for quota in one.quotas:
            throttle_ms = quota.charge(one.size, self.now_ms)
            self.gates.charged(quota.key, throttle_ms, quota.per_ms, self.now_ms)
        one.delivered += 1
        one.hold.charged(self.now_ms)
        self.at(self.now_ms + 1, lambda: self.ask(one))

    def run(self, ms: int) -> None:
        end_ms, looks = START_MS + ms, 0
        while self._events and self._events[0][0] <= end_ms:
            t_ms, _, do = heapq.heappop(self._events)
            looks = looks + 1 if t_ms <= self.now_ms else 0
            assert looks < MOST_LOOKS, "they wake each other for ever"
            self.now_ms = max(self.now_ms, t_ms)
            self.judge()
            do()

    def judge(self) -> None:
        """See that everybody who is held is held for something."""
        for number, one in enumerate(self.connections):
            if one.is_held:
                due_ms = max(max(round(q.repaid_ms), q.busy_ms) for q in one.quotas)
                late_ms = self.now_ms - max(due_ms, one.since_ms)
                names = [key.quota_type for key in one.keys]
                assert late_ms <= SLACK_MS, f"{number} waits {late_ms} ms at {names} for nothing"


@settings(max_examples=settings().max_examples // 2)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.integers(2, 12),
    per_ms=st.lists(st.sampled_from([3.0, 10.0, 50.0, 1_000.0]), min_size=3, max_size=3),
    buckets=st.lists(st.booleans(), min_size=3, max_size=3),
    most_ms=st.sampled_from([500, 10_000, 1 << 40]),
    slow=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_nobody_waits_for_nothing(
    seed: int, count: int, per_ms: list[float], buckets: list[bool], most_ms: int, slow: float
) -> None:
    lived(seed, count, per_ms, buckets, most_ms, slow)


def lived(
    seed: int, count: int, per_ms: list[float], buckets: list[bool], most_ms: int, slow: float
) -> None:
    """Have some connections fetch for twelve seconds."""
    chance = random.Random(seed)
    quotas = tuple(
        Quota(key, rate, is_bucket=is_bucket)
        for key, rate, is_bucket in zip(KEYS, per_ms, buckets, strict=True)
    )
    world = World(quotas, most_ms)

    def takes_ms() -> int:
        return chance.randint(1, 5) if chance.random() >= slow else chance.randint(20, 2_000)

    for _ in range(count):
        paid = tuple(chance.sample(quotas, chance.choice((1, 1, 2, 2, 3))))
        size = chance.choice((10, 1_000, 20_000))
        world.connect(chance.choice(("alice", "bob")), paid, size, takes_ms)
    world.run(12_000)
    assert sum(one.delivered for one in world.connections) > 0


def test_a_wake_up_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: who waits at one gate stays the next one at another."""

    def closed(self: Hold, principal: str, now_ms: int) -> GateTurn | None:
        for key in self._keys:
            gate = self._gates.get(key)
            if gate is not None and not (key not in self._turns and gate.idle(now_ms)):
                turn = self._turn_at(key, principal)
                if not turn.gate.admit(turn, now_ms):
                    return turn
        return None

    monkeypatch.setattr(Hold, "_closed", closed)
    seeds = iter(range(40))
    with pytest.raises(AssertionError, match="for nothing"):
        while (seed := next(seeds, None)) is not None:
            lived(seed, 8, [10.0, 10.0, 50.0], [True, False, True], 10_000, 0.5)


@pytest.mark.parametrize("size", [50_000])
@pytest.mark.parametrize("other", [1_000.0, 300.0])
@pytest.mark.parametrize("turned", [False, True])
def test_who_pays_two_quotas_takes_its_part_of_either_and_both_are_used(
    size: int, other: float, turned: bool
) -> None:
    """Half a part at least, and what it leaves goes to those that pay one quota only."""
    one, two = Quota(KEYS[0], 1_000.0, is_bucket=False), Quota(KEYS[1], other, is_bucket=True)
    world = World((one, two), 1 << 40)
    both = (two, one) if turned else (one, two)
    chance = random.Random(1)
    for paid in [(one,)] * 10 + [both] * 5 + [(two,)] * 10:
        world.connect("alice", paid, size, lambda: chance.randint(1, 5))
    world.run(100_000)
    got: Counter[tuple[Quota, ...]] = Counter()
    for connection in world.connections:
        got[connection.quotas] += connection.delivered
    for quota in (one, two):
        assert 0.9 < quota.bytes / (quota.per_ms * 100_000) < 1.1
    plain = min(got[one,] / 10, got[two,] / 10)
    assert 0.4 < got[both] / 5 / plain < 1.5  # it stands in two lines, one after the other
