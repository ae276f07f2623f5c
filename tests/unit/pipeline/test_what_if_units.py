"""What-if under cluster-wide rates and shares, without Spark: against the gateway's managers."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.pipeline.answers.what_if import options_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import ORDER
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.schema import REQUESTS
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.shares import SharesQuotaManager

P = "producer_byte_rate"
T0 = 1_700_000_000_000
ALICE, BOB, ALL = (QuotaEntity.of(user=u) for u in ("alice", "bob", DEFAULT))


def produce(at: int, who: str, size: int, broker: int = 1) -> dict[str, Any]:
    return dict.fromkeys(REQUESTS.names) | {
        "record_ms": float(at),
        "broker_id": broker,
        "principal": who,
        "client_id": "c",
        "bytes_charged": size,
        "bytes_exact": True,
        "throttle_time_ms": 3,
        "quota_type": P,
        "amount": float(size),
        "is_charged": True,
        "is_request": True,
        "source": "log",
        "file": f"broker-{broker}",
    }


def sums(pieces: list[list[dict[str, Any]]], options: Any) -> list[dict[str, Any]]:
    """Bring packed rows together as Spark does, and return the sums of each plan."""
    packed: list[pa.RecordBatch] = []
    for piece in pieces:
        batch = pa.RecordBatch.from_pylist(piece, schema=REQUESTS.arrow)
        packed += PackRequests(options)(iter([batch]))
    table = pa.Table.from_batches(packed).filter(pc.field("kind") == "chunk")
    table = table.sort_by([(k, "ascending") for k in ORDER]).combine_chunks()
    made = pa.Table.from_batches(ReplayPacked(options)(iter(table.to_batches(max_chunksize=2))))
    rows: list[dict[str, Any]] = made.to_pylist()
    return rows


def plan(entities: dict[Any, Any], name: str) -> Quotas:
    return Quotas.of(QuotaTable.of(entities), name)


def test_a_cluster_wide_rate_is_one_bucket_for_all_brokers() -> None:
    options = options_of(
        [
            plan({ALICE: {PRODUCER: 1e9}}, "now"),
            plan({ALICE: {PRODUCER: 1e9, PRODUCER_BPS: 1000.0}}, "cluster"),
        ],
        split_period_ms=1000,
    )
    pieces = [
        [produce(T0, "alice", 1500), produce(T0 + 200, "alice", 9000), produce(T0, "bob", 10**6)],
        [produce(T0 + 100, "alice", 200, broker=2)],
    ]
    found = sums(pieces, options)
    # 500 owed: 500 ms; 100 ms repay 100, 200 more owed: 600 ms; the last is capped at two periods.
    cluster = [r for r in found if r["quota_type"] == "producer_byte_rate:bps"]
    assert [
        (r["plan"], r["broker_id"], r["quota_user"], r["quota"], r["requests"], r["bytes"])
        for r in cluster
    ] == [(1, None, "alice", 1000.0, 3, 10_700)]
    assert (cluster[0]["throttled_requests"], cluster[0]["throttle_time_ms"]) == (3, 3100)
    # What the log says is told once, with the limits that each broker has.
    assert Counter((r["plan"], r["quota_type"]) for r in found if r["plan"] < 0) == {(-1, P): 3}


def directly(rows: list[dict[str, Any]], weights: dict[str, float]) -> dict[str, tuple[int, int]]:
    """Return (requests throttled, ms) by user, as a gateway with one broker decides."""
    manager = SharesQuotaManager(QuotaType.PRODUCER_BYTE_RATE, 6000.0, start_ms=T0)
    for who, weight in weights.items():
        manager.update_quota(QuotaEntity.of(user=who), weight, T0)
    due = T0 + 1000
    out: dict[str, list[int]] = {}
    for row in rows:
        now = int(row["record_ms"])
        while now >= due:
            manager.rebalance(due)
            due += 1000
        decision = manager.record(row["principal"], "c", row["amount"], now)
        count = out.setdefault(row["principal"], [0, 0])
        count[0] += decision.throttle_time_ms > 0
        count[1] += decision.throttle_time_ms
    return {who: (n, ms) for who, (n, ms) in out.items()}


@pytest.mark.parametrize(("pieces", "most"), [(1, 1500), (4, 1500), (1, 60_000), (4, 60_000)])
def test_shares_divide_a_brokers_capacity_as_its_gateway_does(pieces: int, most: int) -> None:
    rng = random.Random(4)
    weights = {"alice": 1.0, "bob": 3.0}
    rows, now = [], T0
    for _ in range(3000):
        now += rng.choice([0, 3, 40, 150]) + (20_000 if rng.random() < 0.002 else 0)
        who = rng.choice(["alice", "alice", "bob", "nobody"])
        rows.append(produce(now, who, rng.randrange(50, 1500)))
        if most > 1500 and rng.random() < 0.01:  # both want more than there is, then nothing comes
            rows += [produce(now, who, rng.randrange(30_000, most)) for who in weights]
            now += rng.randrange(20_000)
    shares = {QuotaEntity.of(user=u): {PRODUCER_SHARES: w} for u, w in weights.items()}
    options = options_of(
        [plan({ALL: {PRODUCER: 1e9}}, "now"), plan(shares, "shares")], capacities={P: 6000.0}
    )
    size = -(-len(rows) // pieces)
    found = sums([rows[i : i + size] for i in range(0, len(rows), size)], options)
    mine = [r for r in found if r["quota_type"] == f"{P}:shares"]
    given = {r["principal"]: (r["throttled_requests"], r["throttle_time_ms"]) for r in mine}
    assert given == directly(rows, weights)
    assert given["alice"][0] > 100
    assert given["nobody"] == (0, 0)
    assert {r["plan"] for r in mine} == {1}
    assert {r["principal"]: r["quota"] for r in mine} == weights | {"nobody": float("inf")}


def test_without_a_capacity_shares_are_left_out_as_a_gateway_leaves_them() -> None:
    options = options_of([plan({ALICE: {PRODUCER_SHARES: 1.0}}, "shares")])
    assert {r["quota_type"] for r in sums([[produce(T0, "alice", 10**6)]], options)} == {P}
