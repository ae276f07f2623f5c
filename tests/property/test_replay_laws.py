"""Whatever the pieces, their order and overlap: every charge once, decided as managers do."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.schema import REQUESTS
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.manager import ClientQuotaManager
from kit.replays import WORLDS, overlapping, replayed, small

# Each level of quotas, so that plans disagree about which clients share a quota.
SHAPES = {
    "users": QuotaEntity.of(user=DEFAULT),
    "hot": QuotaEntity.of(user="hot"),
    "hot by client": QuotaEntity.of(user="hot", client_id=DEFAULT),
    "hot's a": QuotaEntity.of(user="hot", client_id="a"),
    "clients": QuotaEntity.of(client_id=DEFAULT),
}
MEASURES = ("requests", "bytes", "throttled_requests", "throttle_time_ms", "delayed")
FEWER = settings(max_examples=settings().max_examples // 2)
"""An example packs and replays a hundred charges: it costs as much as ten of others."""
ONE = Quotas.of(QuotaTable.of({SHAPES["users"]: {PRODUCER: 700.0}}))


def traffic(rng: random.Random, n: int, hot: float) -> list[dict[str, Any]]:
    """Return charges, each at its own moment, a share of them by one user."""
    at, rows = 1_000_000, []
    for seq in range(n):
        at += rng.choice([1, 1, 2, 7, 80, 900, 13_000])
        who = "hot" if rng.random() < hot else rng.choice(["bob", "carol"])
        amount = rng.randrange(1, 3000)
        row = dict.fromkeys(REQUESTS.names) | {
            "record_ms": float(at),
            "broker_id": 1,
            "principal": who,
            "client_id": rng.choice("ab"),
            "api_name": "PRODUCE",
            "bytes_charged": amount,
            "bytes_exact": True,
            "throttle_time_ms": rng.choice([0, 0, 5]),
            "quota_type": "producer_byte_rate",
            "amount": float(amount),
            "is_charged": True,
            "is_request": True,
            "source": "log",
            "seq": seq,
            "file": f"f{seq % 3}",
        }
        rows.append(row)
    return rows


def decided(rows: list[dict[str, Any]], table: QuotaTable) -> list[int]:
    """Return what a gateway's manager decides, in order of time."""
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    manager.load(table.for_key(PRODUCER), 0)
    return [
        manager.record(
            r["principal"], r["client_id"], r["bytes_charged"], int(r["record_ms"])
        ).throttle_time_ms
        for r in rows
    ]


@FEWER
@given(world=WORLDS)
def test_every_charge_is_decided_once_as_a_manager_decides_it(world: dict[str, Any]) -> None:
    rng = random.Random(world["seed"])
    rows = traffic(rng, 150, world["hot"])
    with small(world["gathered"], world["ordered"]):
        found = replayed(
            overlapping(rng, rows), PackOptions((ONE,)), rows_per_batch=world["rows_per_batch"]
        )
    by_seq = sorted(found, key=lambda r: r["seq"])
    assert [r["seq"] for r in by_seq] == list(range(150))
    assert [r["replayed_throttle_time_ms"] for r in by_seq] == decided(rows, ONE.tables[0])


@FEWER
@given(world=WORLDS, shapes=st.lists(st.sets(st.sampled_from(sorted(SHAPES))), max_size=3))
def test_sums_of_all_plans_are_conserved_and_each_is_its_managers(
    world: dict[str, Any], shapes: list[set[str]]
) -> None:
    rng = random.Random(world["seed"])
    rows = traffic(rng, 150, world["hot"])
    tables = [ONE.tables[0]] + [
        QuotaTable.of({SHAPES[s]: {PRODUCER: 100.0 + 90 * i} for i, s in enumerate(sorted(shape))})
        for shape in shapes
    ]
    plans = tuple(Quotas.of(table, str(n)) for n, table in enumerate(tables))
    options = PackOptions(plans, False, own=False)
    with small(world["gathered"], world["ordered"]):
        found = replayed(overlapping(rng, rows), options, world["rows_per_batch"])
    given_: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        for name in MEASURES:
            given_[row["plan"], row["principal"], row["client_id"], name] += row[name]
    expected: Counter[tuple[Any, ...]] = Counter()
    told = [[row["throttle_time_ms"] for row in rows]] + [decided(rows, t) for t in tables]
    for plan, throttles in enumerate(told, start=-1):
        for row, ms in zip(rows, throttles, strict=True):
            who = plan, row["principal"], row["client_id"]
            delayed = row["amount"] if ms > 0 and plan >= 0 else 0
            values = (1, row["bytes_charged"], int(ms > 0), ms, delayed)
            for name, value in zip(MEASURES, values, strict=True):
                expected[(*who, name)] += value
    assert dict(given_) == dict(expected)


@FEWER
@given(seed=st.integers(0, 10**6), hot=st.sampled_from([0.3, 0.95]))
def test_the_order_of_files_changes_nothing(seed: int, hot: float) -> None:
    rng = random.Random(seed)
    pieces = overlapping(rng, traffic(rng, 120, hot))
    options = PackOptions((ONE,), False)
    told = []
    for turn in range(2):
        rng.shuffle(pieces)
        with small(20 + turn, 25):
            found = replayed(pieces, options, 1 + turn)
        told.append(sorted(tuple(row.values()) for row in found))
    assert told[0] == told[1]


ENTITIES = [
    QuotaEntity.of(user=user, client_id=client)
    for user in ("alice", DEFAULT, None)
    for client in ("c", DEFAULT, None)
    if user is not None or client is not None
]


@given(
    tables=st.lists(st.sets(st.sampled_from(ENTITIES)), min_size=1, max_size=3),
    static=st.sampled_from([None, 5.0]),
    quota_type=st.sampled_from(["producer_byte_rate", "producer_ids_rate", "consumer_byte_rate"]),
)
def test_the_sensor_alone_is_what_the_whole_answer_says(
    tables: list[set[QuotaEntity]], static: float | None, quota_type: str
) -> None:
    keys = {"producer_byte_rate": PRODUCER, "producer_ids_rate": PRODUCER_IDS}
    key = keys.get(quota_type, CONSUMER)
    made = [
        QuotaTable.of(
            {entity: {key: float(10 * n + i)} for i, entity in enumerate(sorted(entities))},
            static_defaults={} if static is None else {key: static},
        )
        for n, entities in enumerate(tables)
    ]
    starts = (float("-inf"), 100.0, 200.0)[: len(made)]
    resolver = Quotas(starts, tuple(made)).resolver()
    for at_ms in (0.0, 100.0, 150.0, 250.0):
        for user in ("alice", "bob", ""):
            for client in ("c", "d", ""):
                whole = resolver(user, client, quota_type, at_ms)
                told = (whole.quota_user, whole.quota_client_id), whole.quota
                assert resolver.sensor(user, client, quota_type, at_ms) == told
                assert resolver.source(told[0], quota_type, at_ms) == whole.quota_source
