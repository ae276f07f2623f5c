"""What a saturating client gets per second: Kafka's saw-tooth, smooth pacing, splits, shares."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.gateway.splits.dividing import LocalSplits, share_out
from headgate.metrics import BrokerView
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS, PRODUCER_SHARES
from headgate.quota.table import QuotaTable
from headgate.steps import finish
from kit.playbook import START_MS
from kit.samples import read_samples

from .conftest import Setup, StillFace, StillIdentity, produce, produced

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
SIZE = 16_384


class Client:
    """Sends one produce after the other as fast as it may; a round trip takes a while."""

    def __init__(self, session: Session, round_trip_ms: int = 4) -> None:
        self.session = session
        self.round_trip_ms = round_trip_ms
        self.next_ms = START_MS
        self.acknowledged: list[tuple[int, int]] = []
        session.upstream_ready(START_MS)
        self._clear()

    def _clear(self) -> None:
        self.session.to_broker.clear()
        self.session.to_client.clear()
        self.session.commands.clear()

    def turn(self) -> None:
        now = self.next_ms
        self.session.wake(now)
        self.session.client_data(memoryview(bytearray(produce(SIZE))), now)
        assert self.session.to_broker
        now += self.round_trip_ms
        self.session.broker_data(memoryview(bytearray(produced())), now)
        assert self.session.to_client
        self.acknowledged.append((now, SIZE))
        self._clear()
        self.next_ms = max(now, self.session.throttled_until_ms)

    def per_second(self, seconds: int, since: int = 0) -> list[int]:
        sums = [0] * seconds
        for t_ms, size in self.acknowledged:
            second = (t_ms - START_MS) // 1000 - since
            if 0 <= second < seconds:
                sums[second] += size
        return sums


def run(
    *clients: Client, seconds: int, each: Callable[[int], None] | None = None, since: int = 0
) -> None:
    """Let clients take turns in time order; ``each`` is called once a second."""
    second = since
    end = START_MS + seconds * 1000
    while True:
        client = min(clients, key=lambda c: c.next_ms)
        if client.next_ms >= end:
            return
        while each is not None and client.next_ms >= START_MS + (second + 1) * 1000:
            second += 1
            each(START_MS + second * 1000)
        client.turn()


def variation(values: list[int]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


def test_kafkas_own_pacing_is_a_saw_tooth_whose_mean_is_the_quota(gateway: Make) -> None:
    client = Client(gateway({ALICE: {PRODUCER: 400_000.0}}).session)
    run(client, seconds=66)
    sums = client.per_second(66)
    assert statistics.fmean(sums) == pytest.approx(400_000, rel=0.05)
    assert variation(sums) > 1.5


def test_smooth_pacing_keeps_the_rate_without_the_saw_tooth(gateway: Make) -> None:
    setup = gateway({ALICE: {PRODUCER: 400_000.0}}, {"headgate.pacing": "smooth"})
    client = Client(setup.session)
    run(client, seconds=66)
    sums = client.per_second(60, since=2)
    assert statistics.fmean(sums) == pytest.approx(400_000, rel=0.02)
    assert variation(sums) <= 0.3
    for first in range(50):  # over any 11 s at most 11 + burst seconds' worth, and a request
        assert sum(sums[first : first + 11]) <= 400_000 * 12 + SIZE


def test_a_cluster_wide_quota_follows_demand_and_is_never_exceeded(gateway: Make) -> None:
    table = QuotaTable.of({ALICE: {PRODUCER_BPS: 400_000.0}})
    setup = gateway()
    rules = {}
    for broker in (1, 2):
        rules[broker] = Enforcement(setup.settings, broker, lambda: START_MS, NO_JOURNAL)
        rules[broker].managers.produce_bps.set_brokers(2, START_MS)
        rules[broker].load(table, START_MS)
    busy, idle = (
        Client(Session(rules[b], StillIdentity("alice"), build_plans(), StillFace()))
        for b in (1, 2)
    )
    splits = LocalSplits(setup.settings.splits_period_ms)
    period_s = setup.settings.splits_period_ms // 1000

    def each(now_ms: int) -> None:
        if (now_ms - START_MS) // 1000 % period_s == 0:
            finish(splits.round({b: r.managers for b, r in rules.items()}, rules, lambda: now_ms))

    run(busy, seconds=60, each=each)  # all demand is at one broker
    late = busy.per_second(30, since=30)
    assert statistics.fmean(late) == pytest.approx(400_000, rel=0.05)
    idle.next_ms = START_MS + 60_000
    run(busy, idle, seconds=120, each=each, since=60)
    both = [
        a + b
        for a, b in zip(busy.per_second(30, since=90), idle.per_second(30, since=90), strict=True)
    ]
    assert statistics.fmean(both) <= 400_000 * 1.05
    assert statistics.fmean(both) == pytest.approx(400_000, rel=0.1)


def test_a_quota_of_0_that_a_store_holds_leaves_the_others_divided(gateway: Make) -> None:
    bob = QuotaEntity.of(user="bob")
    setup = gateway({ALICE: {PRODUCER_BPS: 1e6}, bob: {PRODUCER_BPS: 0.0}})
    produce_bps = setup.rules.managers.produce_bps
    for user in ("alice", "bob"):
        produce_bps.record(user, "", 1_000.0, START_MS)
    splits = LocalSplits(setup.settings.splits_period_ms)
    for at_ms in (START_MS + 1_000, START_MS + 2_000):
        finish(splits.round({1: setup.rules.managers}, [1], lambda now=at_ms: now))
    assert produce_bps.split(("alice", ""), START_MS + 2_000) == 1e6
    assert produce_bps.split(("bob", ""), START_MS + 2_000) == 0.0


def test_546_9_shares_divide_contested_capacity_by_weight(gateway: Make) -> None:
    quotas = {
        QuotaEntity.of(user="alice"): {PRODUCER_SHARES: 3.0},
        QuotaEntity.of(user="bob"): {PRODUCER_SHARES: 1.0},
    }
    setup = gateway(quotas, {"headgate.capacity.producer_byte_rate": "800000"})
    alice = Client(setup.session)
    bob = Client(Session(setup.rules, StillIdentity("bob"), build_plans(), StillFace()))
    run(
        alice,
        bob,
        seconds=60,
        each=lambda at: finish(share_out(setup.rules.managers, lambda: at)),
    )
    a = statistics.fmean(alice.per_second(30, since=30))
    b = statistics.fmean(bob.per_second(30, since=30))
    assert a + b == pytest.approx(800_000, rel=0.1)
    assert a / b == pytest.approx(3.0, rel=0.15)


def test_rates_and_utilisation_are_shown_with_smooth_pacing_and_of_cluster_wide_quotas(
    gateway: Make,
) -> None:
    smooth = {"headgate.pacing": "smooth", "quota.window.num": "3"}
    entity = QuotaEntity.of(user="alice")
    setup = gateway({entity: {PRODUCER: 1_000.0, PRODUCER_BPS: 4_000.0}}, smooth)
    rules, now = setup.rules, setup.play.now_ms
    rules.produce(
        setup.session,
        rules.context("alice", "c"),
        build_plans()[7],
        3_000,
        None,
        0,
        True,
        now,
    )
    found = {
        (s.name, dict(s.labels).get("unit")): s.value
        for s in read_samples(BrokerView(1, rules.managers.by_key, rules.meters), now)
        if ("user", "alice") in s.labels
    }
    # 3,000 bytes over two whole windows of a second, as a sampled quota would see them.
    assert found["kafka_server_produce_byte_rate", None] == 1_500.0
    assert found["headgate_quota_utilisation", "broker_bps"] == 1.5
    assert found["headgate_quota_utilisation", "bps"] == 1_500 / 4_000  # one broker: all of it


def test_the_burst_is_chosen_for_each_quota(gateway: Make) -> None:
    bursts = "users/alice:10,users/alice/clients/batch:30,clients/<default>:2.5"
    setup = gateway(
        {
            ALICE: {PRODUCER: 1_000.0},
            QuotaEntity.of(user="alice", client_id="batch"): {PRODUCER: 1_000.0},
            QuotaEntity.of(user="bob"): {PRODUCER: 1_000.0},
        },
        {"headgate.pacing": "smooth", "headgate.pacing.burst.overrides": bursts},
    )
    produce = setup.rules.managers.produce

    seconds = {}
    for user, client_id in (("alice", "app"), ("alice", "batch"), ("bob", "app")):
        seconds[user, client_id] = 0
        while not produce.record(user, client_id, 1_000.0, START_MS).throttle_time_ms:
            seconds[user, client_id] += 1
    assert seconds == {("alice", "app"): 10, ("alice", "batch"): 30, ("bob", "app"): 1}
