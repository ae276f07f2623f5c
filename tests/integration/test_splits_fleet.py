"""
Cluster-wide quotas over a fleet: rounds written to a topic, gateways that follow it.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row

from headgate.clock import now_ms
from headgate.embedded import EmbeddedKafka
from headgate.errors import ConfigError
from headgate.gateway import GatewayThread
from headgate.pipeline.splits.cluster_splits import Rounds
from headgate.pipeline.splits.split_stream import write_rounds
from headgate.pipeline.splits.split_topic import SplitWriter
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import (
    CONSUMER_BPS,
    CONSUMER_SHARES,
    PRODUCER_BPS,
    PRODUCER_SHARES,
    QuotaKey,
)
from headgate.quota.table import QuotaTable
from headgate.usage.splits import Split, encode
from kit.splits_fleet import Fleet, Phase, read_splits

from .gateway_kit import make_gateway, set_quota, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
ALICE = QuotaEntity.of(user="alice")
TABLE = QuotaTable.of({ALICE: {PRODUCER_BPS: 9000.0}})


class Batch:
    """What a micro-batch of SEEN rows is to the function it is given to."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = [Row(**row) for row in rows]

    def collect(self) -> list[Row]:
        return self._rows


def waiting(broker: int, at_ms: int, used: float) -> dict[str, Any]:
    """A half second of one broker in which everybody waited."""
    who = {"quota_type": PRODUCER_BPS.name, "quota_user": "alice", "quota_client_id": ""}
    waits = {"waited_ms": 500.0, "waits_from_ms": float(at_ms), "waits_until_ms": at_ms + 500.0}
    seen = {"broker_id": broker, "slot_ms": at_ms, "used": used, "requests": 9, "throttled": 9}
    return who | seen | waits


def test_a_rounds_splits_are_in_force_at_a_gateway_and_an_older_writers_are_not(
    make_gateway: Callable[..., GatewayThread],
    kafka4: EmbeddedKafka,
    unique: Callable[[str], str],
) -> None:
    topic, config = unique("splits"), {"bootstrap.servers": kafka4.bootstrap("PLAINTEXT")}
    older = SplitWriter(topic, config)
    thread = make_gateway(
        headgate__splits="stream",
        headgate__splits__topic=topic,
        headgate__splits__period__ms="60000",
        headgate__http__listener="127.0.0.1:0",
    )
    gateway = thread.gateway
    set_quota(thread, ALICE, {PRODUCER_BPS: 9000.0})

    def bound(broker: int) -> float:
        managers = gateway.brokers[broker].rules.managers
        return managers.produce_bps.split(("alice", ""), now_ms())

    def page(path: str) -> str:
        assert gateway.http is not None
        host, port = gateway.http.address
        with urllib.request.urlopen(f"http://{host}:{port}{path}") as answer:
            return str(answer.read().decode())

    assert (bound(1), bound(2)) == (4500.0, 4500.0)
    assert "quota / brokers is in force" in page("/readyz")
    assert 'headgate_split_expired{broker="1"} 1' in page("/metrics")

    newer = SplitWriter(topic, config)
    said: list[str] = []
    rounds = Rounds(60_000, (1, 2), 0)
    now = now_ms() // 500 * 500
    clock = [now - 60_000]
    write = write_rounds(rounds, newer, lambda: TABLE, said.append, lambda: clock[0])
    for number in range(2):  # after the first every broker has its part, after the second by demand
        clock[0] = now - 60_000 * (1 - number)
        start = clock[0] - 60_000
        batch: Any = Batch(*(waiting(1, start + n * 500, 2000.0) for n in range(120)))
        write(batch, number)
    wait_for(lambda: bound(1) > 8000.0, "the busy broker's split")
    # A round's splits may arrive one after another.
    wait_for(lambda: bound(2) == pytest.approx(9000.0 - bound(1)), "the other broker's split")
    assert page("/readyz") == "ready\n"
    assert 'headgate_split_expired{broker="1"} 0' in page("/metrics")
    assert '"splits": 2' in said[0]

    # The brokers refuse the older writer; were its words there all the same, nobody would listen.
    with pytest.raises(ConfigError, match="another `headgate splits`"):
        older.write([Split("alice", "", PRODUCER_BPS.name, 1, 1.0, older.epoch, 0, 1)])
    forged = Split("alice", "", PRODUCER_BPS.name, 2, 1.0, older.epoch, 2**42, 60_000)
    producer = Producer(config)
    key, value = encode(forged)
    producer.produce(topic, value, key)
    assert producer.flush(120) == 0
    before = bound(1)
    newer.write([Split("alice", "", PRODUCER_BPS.name, 1, before - 1.0, newer.epoch, 2**42, 1)])
    wait_for(lambda: bound(1) == before - 1.0, "the newer writer's next split")
    assert bound(2) == pytest.approx(9000.0 - before)


def test_of_two_writers_that_begin_in_one_second_only_the_newer_counts(
    kafka4: EmbeddedKafka, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, config = unique("splits"), {"bootstrap.servers": kafka4.bootstrap("PLAINTEXT")}
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    older, newer = (SplitWriter(topic, config) for _ in range(2))
    assert (older.epoch, newer.epoch) == (now_ns // 10**9, now_ns // 10**9 + 1)
    assert read_splits(topic, config) == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_tenant_keeps_to_its_cluster_wide_quota_while_its_load_moves(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        quota = fleet.quota
        loads = ({1: 1.2 * quota, 2: 0.2 * quota, 3: 0.1 * quota}, {3: 1.5 * quota})
        measured = fleet.run([Phase(76, load) for load in loads])
        for events in (measured.charged, measured.acknowledged):
            settled = measured.settled(events)
            assert len(settled) >= 10
            assert min(settled) >= 0.95
            assert max(measured.crossing(events)) <= 1.05

        # The stream ends: quota / brokers again, and everybody says so.
        gateways = [f"gateway-{broker}" for broker in fleet.ids]
        fleet.kill_splits()
        for name in gateways:
            fleet.wait_for(name, "splits of cluster-wide quotas have expired")
        assert fleet.page("/readyz").startswith("ready\nsplits of cluster-wide quotas expired")
        assert 'headgate_split_expired{broker="1"} 1' in fleet.page("/metrics")
        fallen = fleet.run([Phase(12, {3: 1.5 * quota})])
        begin, end = fallen.phases[-1]
        late = [a for t, b, a in fallen.charged if b == 3 and begin + 4_000 <= t < end]
        assert sum(late) / (end - begin - 4_000) * 1000 == pytest.approx(quota / 3, rel=0.1)
        assert not [b for t, b, _ in fallen.charged if b != 3 and begin + 4_000 <= t < end]

        # A new one takes over with a higher epoch.
        before = max(split.epoch for _, split in fleet.measured.splits)
        fleet.start_splits()
        for name in gateways:
            fleet.wait_for(name, "splits of cluster-wide quotas are in force", 2)
        assert fleet.page("/readyz") == "ready\n"
        fleet.run([Phase(12, {3: 1.5 * quota})])
        assert fleet.measured.splits[-1][1].epoch > before


@pytest.mark.slow
@pytest.mark.spark
def test_a_tenant_consumes_its_cluster_wide_quota_wherever_it_reads(tmp_path: Path) -> None:
    with Fleet(tmp_path, key=CONSUMER_BPS, period_ms=2000) as fleet:
        quota = fleet.quota
        loads = ({1: 1.2 * quota, 2: 0.2 * quota, 3: 0.1 * quota}, {3: 1.5 * quota})
        measured = fleet.run([Phase(72, load) for load in loads])
    settled = measured.settled(measured.charged)
    assert len(settled) >= 10
    assert min(settled) >= 0.95
    assert max(measured.crossing(measured.charged)) <= 1.05
    # What reached the clients, without the headers of batches and answers.
    assert min(measured.settled(measured.acknowledged)) >= 0.89


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("key", [PRODUCER_SHARES, CONSUMER_SHARES])
def test_tenants_divide_each_brokers_capacity_by_their_shares(
    tmp_path: Path, key: QuotaKey
) -> None:
    c = 200_000.0
    shares = {"alice": 3.0, "bob": 1.0}
    with Fleet(tmp_path, key=key, period_ms=2000, shares=shares, capacity=c) as fleet:
        everywhere = dict.fromkeys(fleet.ids, 1.5 * c)
        fleet.run(
            [
                Phase(72, everywhere, {"bob": everywhere}, {"alice": 2.25 * c, "bob": 0.75 * c}),
                # On 2 alice wants little and bob has the rest; bob alone on 3 is held by nothing.
                Phase(
                    72,
                    {1: 1.5 * c, 2: 0.2 * c},
                    {"bob": {**everywhere, 3: 0.6 * c}},
                    {"alice": 0.95 * c, "bob": 1.65 * c},
                ),
            ]
        )
    for measured in fleet.of.values():
        settled = measured.settled(measured.charged)
        assert len(settled) >= 10
        assert min(settled) >= 0.95
        assert max(settled) <= 1.05
