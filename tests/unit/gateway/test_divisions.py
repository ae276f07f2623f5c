"""Cluster-wide quotas and capacity divided among many quota-ids: a few at a time."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import msgspec
import pytest

from headgate.config import Settings
from headgate.gateway.charging.managers import Managers
from headgate.gateway.splits.dividing import LocalSplits, share_out
from headgate.gateway.splits.streamed import put_in_force
from headgate.gateway.splits.supervised import WorkersPart
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.throttle.registry import SENSORS_AT_ONCE
from headgate.throttle.shares import fair_shares, sharing
from headgate.usage.splits import Split

NOW = 1_795_262_069_485
CLIENTS = 2_000


def buckets(count: int, written: list[str]) -> Managers:
    """Managers of a broker with live buckets, each with a cluster-wide quota and a share."""
    settings = Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:1",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.capacity.producer_byte_rate": "1000",
        }
    )
    managers = Managers(settings, NOW)
    for manager in (managers.produce_bps, managers.produce_shares):
        manager.update_quota(QuotaEntity.of(user=DEFAULT), 5.0, NOW)
        manager.moved = lambda tags, _bound, _now_ms: written.append(tags[0])
        for n in range(count):
            manager.record(f"u{n}", "c", 10_000, NOW)
    written.clear()
    return managers


@pytest.mark.parametrize("how", ["local", "supervised", "streamed", "shares", "brokers"])
def test_splits_and_shares_of_many_quota_ids_are_divided_a_few_at_a_time(how: str) -> None:
    written: list[str] = []
    managers, other = buckets(CLIENTS, written), buckets(0, written)
    part = WorkersPart()

    def clock() -> int:
        return NOW + 5_000

    def work() -> Iterator[None]:
        if how == "local":
            for each in (managers, other):
                each.produce_bps.set_brokers(2, NOW)
            written.clear()
            yield from LocalSplits(5_000).round({1: managers, 2: other}, [1, 2], clock)
        elif how == "shares":
            yield from share_out(managers, clock)
        elif how == "brokers":
            yield from managers.sharing_among(1, clock)  # as before
            assert not written
            yield from managers.sharing_among(4, clock)
        elif how == "streamed":
            splits = [
                Split(f"u{n}", "", PRODUCER_BPS.name, 1, 2.0, 7, NOW, 60_000)
                for n in range(CLIENTS)
            ]
            yield from put_in_force(splits, {1: managers}, clock)
        else:
            yield from part.observe(managers, [1], NOW + 5_000)
            parts = [("producer_byte_rate", f"u{n}", "", 2.0, 5.0) for n in range(CLIENTS)]
            body = msgspec.msgpack.encode({"parts": parts, "valid_until_ms": NOW + 9_000})
            yield from part.assign(managers, body, clock)

    by_step = [len(written) for _ in work()]
    assert len(set(written)) == CLIENTS
    assert max(b - a for a, b in itertools.pairwise([0, *by_step, len(written)])) <= SENSORS_AT_ONCE


def test_a_division_of_many_is_as_one_in_a_single_piece_and_its_steps_are_many() -> None:
    chance = random.Random(7)
    demands = {n: chance.choice([0.0, chance.random() * 1e4, math.inf]) for n in range(5_000)}
    weights = {n: float(chance.randrange(1, 9)) for n in demands}
    for capacity in (0.0, 1e5, 1e7, 1e9):
        work = sharing(capacity, demands, weights)
        steps = 0
        try:
            while True:
                next(work)
                steps += 1
        except StopIteration as end:
            given = end.value
        assert given == fair_shares(capacity, dict(reversed(demands.items())), weights)
        assert sum(given.values()) <= capacity * (1 + 1e-12)
        assert steps >= 3 * (len(demands) // 256)


async def test_a_quota_that_changes_while_it_is_divided_keeps_what_it_was_scaled_to() -> None:
    managers = buckets(CLIENTS, [])
    work = LocalSplits(5_000).round({1: managers}, [1], lambda: NOW + 5_000)
    steps = sum(
        1 for _ in LocalSplits(5_000).round({1: buckets(CLIENTS, [])}, [1], lambda: NOW + 5_000)
    )
    for _ in range(steps - 20):  # all are computed, and some are in force
        next(work)
    managers.produce_bps.update_quota(QuotaEntity.of(user="u0"), 1.0, NOW + 5_000)
    last = f"u{CLIENTS - 1}"
    managers.produce_bps.update_quota(QuotaEntity.of(user=last), 1.0, NOW + 5_000)
    for _ in work:
        pass
    bounds = {s.user_tag: s.bound for s in managers.produce_bps.sensors()}
    assert bounds["u0"] <= 1.0
    assert bounds[last] <= 1.0
    assert bounds["u1"] == 5.0
