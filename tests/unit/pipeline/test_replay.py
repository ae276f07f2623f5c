"""Packing and replaying without Spark: against the managers, whatever the pieces."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.answers.what_if import NamePlans
from headgate.pipeline.quotas import Quotas, load
from headgate.pipeline.replaying.charge_index import ChargeIndex
from headgate.pipeline.replaying.packed_format import ORDER, PackOptions
from headgate.pipeline.replaying.packer import Packer, PackRequests
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.schema import REPLAY, REQUESTS
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import CONSUMER, PRODUCER, QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.manager import ClientQuotaManager

DATA = Path(__file__).parents[2] / "data/pipeline"
ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob", client_id=DEFAULT)
TABLE = QuotaTable.of({ALICE: {PRODUCER: 1000.0}, BOB: {PRODUCER: 500.0, CONSUMER: 200.0}})


def request(at: float, who: str, client: str, amount: int, **other: Any) -> dict[str, Any]:
    base = dict.fromkeys(REQUESTS.names)
    return {
        **base,
        "record_ms": at,
        "broker_id": 1,
        "principal": who,
        "client_id": client,
        "api_name": "PRODUCE",
        "bytes_charged": amount,
        "bytes_exact": True,
        "throttle_time_ms": 0,
        "quota_type": "producer_byte_rate",
        "amount": float(amount),
        "is_charged": True,
        "is_request": True,
        "source": "log",
        "file": "f",
        **other,
    }


def shuffled(packed: list[pa.RecordBatch], rows_per_batch: int) -> list[pa.RecordBatch]:
    """Bring packed rows together as Spark does."""
    table = pa.Table.from_batches(packed)
    table = table.filter(pc.is_in(table["kind"], pa.array(["chunk", "plain"])))
    keys = [(name, "ascending") for name in ORDER]
    batches: list[pa.RecordBatch] = (
        table.sort_by(keys).combine_chunks().to_batches(max_chunksize=rows_per_batch)
    )
    return batches


def replay(
    pieces: list[list[dict[str, Any]]], options: PackOptions, rows_per_batch: int = 3
) -> pa.Table:
    packed: list[pa.RecordBatch] = []
    for piece in pieces:
        batch = pa.RecordBatch.from_pylist(piece, schema=REQUESTS.arrow)
        packed += PackRequests(options)(iter([batch]))
    return pa.Table.from_batches(ReplayPacked(options)(iter(shuffled(packed, rows_per_batch))))


def managers_say(rows: list[dict[str, Any]], table: QuotaTable = TABLE) -> list[int]:
    """Return what the gateway's own manager decides for each row, in order of time."""
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    manager.load(table.for_key(PRODUCER), 0)
    order = sorted(range(len(rows)), key=lambda i: (math.floor(rows[i]["record_ms"] + 0.5), i))
    out = [0] * len(rows)
    for i in order:
        row = rows[i]
        now = math.floor(row["record_ms"] + 0.5)
        decision = manager.record(row["principal"], row["client_id"], row["bytes_charged"], now)
        out[i] = decision.throttle_time_ms
    return out


def traffic(seed: int, n: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    at = 1_000_000.0
    for i in range(n):
        at += rng.choice([0.0, 0.3, 5.0, 80.0, 900.0]) + rng.random()
        who = rng.choice(["alice", "bob", "carol"])
        rows.append(request(at, who, rng.choice(["a", "b"]), rng.randrange(1, 2000), seq=i))
    return rows


@pytest.mark.parametrize("rows_per_batch", [1, 2, 100])
@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_replay_equals_the_manager(pieces: int, rows_per_batch: int) -> None:
    rows = traffic(7, 1500)
    size = -(-len(rows) // pieces)
    cut_up = [rows[i : i + size] for i in range(0, len(rows), size)]
    table = replay(cut_up, PackOptions((Quotas.of(TABLE),)), rows_per_batch).sort_by("seq")
    assert table.schema.equals(REPLAY.arrow)
    assert table["replayed_throttle_time_ms"].to_pylist() == managers_say(rows)
    assert sum(t > 0 for t in managers_say(rows)) > 300


@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 6), rows_per_batch=st.integers(1, 4))
def test_pieces_that_overlap_in_time_change_nothing(
    seed: int, pieces: int, rows_per_batch: int
) -> None:
    rng = random.Random(seed)
    rows = traffic(seed, 60)
    for i, row in enumerate(rows):  # all moments different, or order would decide ties
        row["record_ms"] = float(math.floor(row["record_ms"]) + i)
    dealt: list[list[dict[str, Any]]] = [[] for _ in range(pieces)]
    for row in rows:
        rng.choice(dealt).append(row)
    rng.shuffle(dealt)
    for piece in dealt:
        if rng.random() < 0.5:
            rng.shuffle(piece)
    options = PackOptions((Quotas.of(TABLE),))
    table = replay([p for p in dealt if p], options, rows_per_batch).sort_by("seq")
    assert table["replayed_throttle_time_ms"].to_pylist() == managers_say(rows)


def test_a_row_of_a_replay() -> None:
    rows = [request(1000.2, "b@b", "x", 100), request(1001.0, "alice", "x", 30_000, seq=1)]
    table = replay([rows], PackOptions((Quotas.of(TABLE),))).sort_by("seq")
    extra = [n for n in REPLAY.names if n not in REQUESTS.names]
    assert [{n: r[n] for n in extra} for r in table.to_pylist()] == [
        {
            "quota_id": "alice:",
            "quota_user": "alice",
            "quota_client_id": "",
            "quota_bps": 1000.0,
            "logged_throttle_time_ms": 0,
            "replayed_throttle_time_ms": 20_000,
            "replayable": True,
        },
        {
            "quota_id": ":x",
            "quota_user": "",
            "quota_client_id": "x",
            "quota_bps": None,
            "logged_throttle_time_ms": 0,
            "replayed_throttle_time_ms": 0,
            "replayable": True,
        },
    ]


def test_rows_that_a_log_cannot_replay_are_handed_back_without_a_decision() -> None:
    rows = [
        request(1000.0, "bob", "x", 0, quota_type="request_percentage", api_name="METADATA"),
        request(1001.0, "bob", "x", 100, is_charged=False),
        request(1002.0, "bob", "x", 0, bytes_exact=False, throttle_time_ms=7)
        | {"quota_type": "consumer_byte_rate", "api_name": "FETCH"},
        request(1003.0, "bob", "x", 100),
    ]
    table = replay([rows], PackOptions((Quotas.of(TABLE),))).sort_by("record_ms")
    assert table["replayable"].to_pylist() == [False, False, False, True]
    assert table["replayed_throttle_time_ms"].to_pylist() == [None, None, None, 0]
    assert table["logged_throttle_time_ms"].to_pylist() == [0, 0, 7, 0]
    assert table["quota_id"].to_pylist() == [":x", "bob:x", "bob:x", "bob:x"]


def test_a_limit_that_changes_in_time_is_judged_by_what_was_in_force() -> None:
    rows = [request(t, "alice", "x", 9_000, seq=int(t)) for t in (1000.0, 2000.0, 3000.0)]
    history = [QuotaEvent(1500, ALICE, PRODUCER, 100.0), QuotaEvent(2500, ALICE, PRODUCER, None)]
    quotas = Quotas.with_history(TABLE, history)
    table = replay([rows], PackOptions((quotas,))).sort_by("seq")
    # The sensor goes on: 18,000 bytes over 10 s against 100 B/s; then there is no limit.
    assert table["replayed_throttle_time_ms"].to_pylist() == [0, 170_000, 0]
    assert table["quota_bps"].to_pylist() == [1000.0, 100.0, None]


def test_what_if_compares_plans_in_one_pass_and_keeps_sums() -> None:
    rows = traffic(3, 400)
    by_client = QuotaTable.of({QuotaEntity.of(client_id=DEFAULT): {PRODUCER: 300.0}})
    plans = (Quotas.of(TABLE, "now"), Quotas.of(by_client, "by client"), Quotas.of(TABLE, "same"))
    options = PackOptions(plans, False, own=False)
    sums = replay([rows[:150], rows[150:]], options)
    table = pa.Table.from_batches(NamePlans(plans)(iter(sums.to_batches())))
    by_plan: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        by_plan.setdefault(row["plan"], []).append(row)
    assert set(by_plan) == {"logged", "now", "by client", "same"}
    for found in by_plan.values():
        assert sum(r["requests"] for r in found) == 400
        assert sum(r["bytes"] for r in found) == sum(r["bytes_charged"] for r in rows)
    for name, quotas in (("now", TABLE), ("by client", by_client), ("same", TABLE)):
        says = managers_say(rows, quotas)
        assert sum(r["throttle_time_ms"] for r in by_plan[name]) == sum(says)
        assert sum(r["throttled_requests"] for r in by_plan[name]) == sum(t > 0 for t in says)
        assert max(r["max_throttle_time_ms"] for r in by_plan[name]) == max(says)
        delayed = sum(r["bytes_charged"] for r, t in zip(rows, says, strict=True) if t > 0)
        assert sum(r["delayed_bytes"] for r in by_plan[name]) == delayed
    assert {r["quota_id"] for r in by_plan["by client"]} == {":a", ":b"}
    assert {r["quota_source"] for r in by_plan["by client"]} == {"{client-id=<default>}"}


def test_what_was_withheld_of_fetches_gives_bounds() -> None:
    """A client under its own quota waited 60 s; the log holds no bytes of what it waited for."""
    base = traffic(3, 40)[0] | {"api_name": "FETCH", "quota_type": "consumer_byte_rate"}
    whole = {"bytes_charged": 1000, "amount": 1000.0, "bytes_exact": True, "throttle_time_ms": 0}
    empty = {"bytes_charged": 0, "amount": 0.0, "bytes_exact": False, "throttle_time_ms": 3000}
    rows = [
        base | {"record_ms": 1e12 + 1000 * n, "seq": n} | (empty if n % 2 else whole)
        for n in range(40)
    ]

    def plan(name: str, rate: float | None) -> Quotas:
        limits = {} if rate is None else {QuotaEntity.of(user=DEFAULT): {CONSUMER: rate}}
        return Quotas.of(QuotaTable.of(limits), name)

    plans = tuple(
        plan(n, r) for n, r in {"own": 1000.0, "half": 500.0, "double": 2e3, "none": None}.items()
    )
    sums = replay([rows], PackOptions(plans, False, own=False))

    def bounds(*, in_force: bool) -> dict[str, tuple[int, int | None]]:
        table = pa.Table.from_batches(NamePlans(plans, in_force)(iter(sums.to_batches())))
        found = table.to_pylist()
        assert {r["withheld_requests"] for r in found} == {20}
        return {r["plan"]: (r["least_throttle_time_ms"], r["most_throttle_time_ms"]) for r in found}

    known = bounds(in_force=True)
    assert known["logged"] == known["own"] == (60_000, 60_000)
    least, most = known["half"]
    assert least >= 60_000
    assert most is None
    assert known["double"] == (0, 60_000)
    assert known["none"] == (0, 0)
    unknown = bounds(in_force=False)
    assert unknown["own"][1] is unknown["double"][1] is None
    assert unknown["none"] == (0, 0)


@pytest.mark.parametrize(
    ("sample", "same", "within"), [("public", 0.98, 0.83), ("precise", 1.0, 0.879)]
)
def test_replay_of_a_real_log_is_as_near_as_kafkas_own_classes(
    sample: str, same: float, within: float
) -> None:
    # The floors are what Kafka's own classes reach on the same estimates (precise: 102 of 116).
    pieces = pieces_of(find_files([str(DATA / f"{sample}.log.gz")]), broker_id=1)
    options = PackOptions((load(str(DATA / f"{sample}.quotas.json")),))
    ids = pa.RecordBatch.from_pydict({"id": [0]})
    packed = list(PackRequests(options, ReadOptions(tuple(pieces)))(iter([ids])))
    table = pa.Table.from_batches(ReplayPacked(options)(iter(shuffled(packed, 5))))
    assert table.num_rows == {"public": 31356, "precise": 2401}[sample]
    rows = [
        (r["logged_throttle_time_ms"], r["replayed_throttle_time_ms"])
        for r in table.filter(pc.equal(table["api_name"], "PRODUCE")).to_pylist()
    ]
    both = [(a, b) for a, b in rows if a > 0 and b > 0]
    assert sum((a > 0) == (b > 0) for a, b in rows) / len(rows) >= same
    assert sum(abs(a - b) <= 1 for a, b in both) / len(both) >= within
    logged, replayed = sum(a for a, _ in rows), sum(b for _, b in rows)
    assert abs(logged - replayed) <= 0.02 * logged
    fetches = table.filter(
        pc.and_(pc.equal(table["api_name"], "FETCH"), table["replayable"])
    ).to_pylist()
    equal = sum(
        (r["logged_throttle_time_ms"] > 0) == (r["replayed_throttle_time_ms"] > 0) for r in fetches
    )
    assert (equal, len(fetches)) == {"public": (309, 323), "precise": (0, 0)}[sample]


def test_of_equal_moments_the_earlier_pieces_come_first_whoever_else_is_in_them() -> None:
    # Bob's first charge of the first piece is later than that of the second; the piece isn't.
    first = [request(1000.0, "alice", "x", 1), request(1009.0, "bob", "x", 4_000)]
    second = [request(1001.0, "bob", "x", 1), request(1009.0, "bob", "x", 3_000)]
    by_user = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 100.0}})
    by_client = QuotaTable.of({QuotaEntity.of(client_id=DEFAULT): {PRODUCER: 1e9}})
    alone = (Quotas.of(by_user, "users"),)
    for plans in (alone, (*alone, Quotas.of(by_client, "clients"))):
        sums = replay([first, second], PackOptions(plans, False, own=False))
        mine = [r for r in sums.to_pylist() if r["plan"] == 0 and r["principal"] == "bob"]
        # 4001 and then 7001 bytes in 10.008 s, against 100 B/s.
        assert [(r["throttled_requests"], r["throttle_time_ms"]) for r in mine] == [
            (2, 30_002 + 60_002)
        ]


def test_events_of_many_who_share_a_root_are_packed_narrowly() -> None:
    rows = [request(1000.0 + 200 * i, f"u{i % 7}", "x", 70_000) for i in range(40)]
    by_user = QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 100.0}})
    by_client = QuotaTable.of({QuotaEntity.of(client_id=DEFAULT): {PRODUCER: 1e9}})
    options = PackOptions((Quotas.of(by_user), Quotas.of(by_client)), False, own=False)
    batch = pa.RecordBatch.from_pylist(rows, schema=REQUESTS.arrow)
    (packed,) = pa.Table.from_batches(PackRequests(options)(iter([batch]))).to_pylist()
    widths = {name: len(packed[name]) // packed["n"] for name in ("t", "amount", "head")}
    assert (packed["n"], widths) == (40, {"t": 1, "amount": 4, "head": 2})


def test_55_3_replay_and_what_if_name_server_properties_as_the_last_resort() -> None:
    table = QuotaTable(
        {QuotaEntity.of(user="alice"): {PRODUCER: 5.0}}, static_defaults={PRODUCER: 7.0}
    )
    resolver = Quotas.of(table).resolver()
    bob = resolver("bob", "etl", "producer_byte_rate", 0)
    assert (bob.quota_id, bob.quota, bob.quota_source) == (":etl", 7.0, "server.properties")
    assert resolver("alice", "etl", "producer_byte_rate", 0).quota_source == "{user=alice}"
    tags, limit = resolver.sensor("bob", "etl", "producer_byte_rate", 0)
    assert (tags, limit) == (("", "etl"), 7.0)
    assert resolver.source(tags, "producer_byte_rate", 0) == "server.properties"
    assert resolver.source(("alice", ""), "producer_byte_rate", 0) == "{user=alice}"
    assert resolver.source(tags, "consumer_byte_rate", 0) is None


def test_tasks_at_once_have_indexes_of_their_own_and_leave_one_to_the_next() -> None:
    # Sail runs tasks as threads of one process.
    options = PackOptions((Quotas.of(TABLE),), True)
    first, second = ChargeIndex.take(options), ChargeIndex.take(options)
    assert first is not second
    first.leave()
    second.leave()
    assert ChargeIndex.take(options) is second
    kept = Packer(options)
    list(kept.add(pa.Table.from_pylist(traffic(1, 50), schema=REQUESTS.arrow)))
    other = Packer(options)
    list(other.add(pa.Table.from_pylist(traffic(2, 50), schema=REQUESTS.arrow)))
    assert kept._index is not other._index
    list(kept.end())
    assert Packer(options)._index is kept._index
