"""The functions that Spark's workers run, called without Spark."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.pipeline.emitted import ACTIVITY, client_ip
from headgate.pipeline.quotas import Quotas, load
from headgate.pipeline.schema import REQUESTS, TABLES
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.table import Table
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.pipeline.workers.resolve import Resolve
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable

DATA = Path(__file__).parents[2] / "data/pipeline"


def run(task: Any, n: int) -> pa.Table:
    task = pickle.loads(pickle.dumps(task))
    ids = pa.RecordBatch.from_pydict({"id": list(range(n))})
    return pa.Table.from_batches(task(iter([ids])))


def test_requests_and_activity_agree_on_a_real_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(gzip.decompress((DATA / "precise.log.gz").read_bytes())[:499_800])
    pieces = pieces_of(find_files([str(log)]), broker_id=1, piece_bytes=100_000)
    plan = ReadOptions(tuple(pieces), connections=True)
    requests = run(EmitRequests(plan), len(pieces))
    activity = run(EmitActivity(plan), len(pieces))
    kinds = requests.column("kind").to_pylist()
    rows = requests.filter(pa.array([k == "request" for k in kinds]))
    sums = activity.filter(pa.array([k == "activity" for k in activity["kind"].to_pylist()]))
    assert sum(sums["requests"].to_pylist()) == rows.num_rows
    assert sum(sums["bytes"].to_pylist()) == sum(rows["bytes_charged"].to_pylist())
    assert sum(sums["throttle_time_ms"].to_pylist()) == sum(rows["throttle_time_ms"].to_pylist())
    assert kinds.count("bad") == 1  # the cut-off end
    stats = [r for r in activity.to_pylist() if r["kind"] == "stat"]
    assert sum(r["input_bytes"] for r in stats) in (499_800, 499_801)
    assert sum(r["lines"] for r in stats) == rows.num_rows + 1
    connections = {r["connection"] for r in activity.to_pylist() if r["kind"] == "connection"}
    forwarded = set(rows.filter(rows["is_forwarded"])["connection"].to_pylist())
    assert connections | forwarded == set(rows["connection"].to_pylist())


def test_a_row_of_a_request(tmp_path: Path) -> None:
    pieces = pieces_of(find_files([str(DATA / "public.log.gz")]), broker_id=3)
    table = run(EmitRequests(ReadOptions(tuple(pieces))), 1)
    row = next(r for r in table.to_pylist() if r["api_name"] == "PRODUCE")
    assert {name: row[name] for name in REQUESTS.names} == {
        "record_ms": pytest.approx(1795261699660.027, abs=1e-3),
        "broker_id": 3,
        "listener": "SASL_PLAINTEXT",
        "connection": "127.0.0.1:19093-127.0.0.1:44094-4-5",
        "principal": "alice",
        "client_id": "alice-app-0",
        "api_name": "PRODUCE",
        "api_version": 10,
        "is_forwarded": False,
        "bytes_charged": 75106,
        "bytes_exact": True,
        "handler_ms": 1264.795,
        "throttle_time_ms": 0,
        "producer_ids": None,
        "quota_type": "producer_byte_rate",
        "amount": 75106.0,
        "is_charged": True,
        "is_request": True,
        "client_ip": "127.0.0.1",
        "decided_throttle_time_ms": None,
        "muted_ms": None,
        "answer_ms": None,
        "source": "log",
        "event": None,
        "worker_id": None,
        "seq": row["seq"],
        "file": str(DATA / "public.log.gz"),
        "recorded": None,
        "bytes_by_topic": None,
    }


def test_a_truncated_gzip_is_a_bad_line_and_the_rest_counts(tmp_path: Path) -> None:
    whole = (DATA / "public.log.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    table = run(EmitActivity(ReadOptions(tuple(pieces_of(find_files([str(tmp_path)]))))), 1)
    bad = [r for r in table.to_pylist() if r["kind"] == "bad"]
    assert any("can't be read further" in r["reason"] for r in bad)
    assert sum(r["requests"] or 0 for r in table.to_pylist()) > 1000


@pytest.mark.parametrize(
    ("connection", "ip"),
    [
        ("10.0.0.1:9092-10.0.0.9:50312-1-5", "10.0.0.9"),
        ("10.0.0.1:9092-10.0.0.9:50312-5", "10.0.0.9"),
        ("0:0:0:0:0:0:0:1:9092-0:0:0:0:0:0:0:2:50312-1-5", "0:0:0:0:0:0:0:2"),
        ("fe80:0:0:0:1:2:3:4%eth0:9092-fe80:0:0:0:1:2:3:5%eth0:1-1-5", "fe80:0:0:0:1:2:3:5"),
        ("fe80:0:0:0:1:2:3:4%br-7:9092-fe80:0:0:0:1:2:3:5%br-7:1-1-5", "fe80:0:0:0:1:2:3:5"),
        ("odd", ""),
    ],
)
def test_peer_addresses(connection: str, ip: str) -> None:
    assert client_ip(connection) == ip


def test_resolve_fills_what_is_null_and_keeps_what_a_journal_says() -> None:
    quotas = load(str(DATA / "public.quotas.json"))
    out = Table("resolved", "", (*ACTIVITY.columns, TABLES["usage"].columns[-1]))
    base = dict.fromkeys(ACTIVITY.names)
    rows = [
        {**base, "principal": "alice", "client_id": "x", "quota_type": "producer_byte_rate"},
        {**base, "principal": "bob", "client_id": "bob-etl", "quota_type": "producer_byte_rate"},
        {**base, "principal": "b@b", "client_id": "q", "quota_type": "controller_mutation_rate"},
        {**base, "principal": "alice", "client_id": "x", "quota_type": "producer_byte_rate"}
        | {"quota_id": "own:", "quota_user": "own", "quota_client_id": ""},
    ]
    rows = [r | {"second_ms": 0} for r in rows]
    batch = pa.RecordBatch.from_pylist(rows, schema=ACTIVITY.arrow)
    (got,) = Resolve(quotas, "second_ms", out)(iter([batch]))
    names = ("quota_id", "quota_user", "quota_client_id", "quota", "quota_source")
    assert [tuple(r[n] for n in names) for r in got.to_pylist()] == [
        ("alice:", "alice", "", 120000.0, "{user=alice}"),
        ("bob:bob-etl", "bob", "bob-etl", 40000.0, "{user=bob, client-id=bob-etl}"),
        ("b%40b:", "b@b", "", None, None),
        ("own:", "own", "", None, None),
    ]


def test_quotas_change_over_time() -> None:
    alice = QuotaEntity.of(user="alice")
    everyone = QuotaEntity.of(client_id=DEFAULT)
    quotas = Quotas.with_history(
        QuotaTable.of({alice: {PRODUCER: 10.0}}),
        [QuotaEvent(2000, alice, PRODUCER, None), QuotaEvent(1000, everyone, PRODUCER, 5.0)],
    )
    resolve = pickle.loads(pickle.dumps(quotas)).resolver()
    got = [resolve("alice", "c", "producer_byte_rate", t)[:4] for t in (999.0, 1000.0, 2000.0)]
    assert got == [
        ("alice:", "alice", "", 10.0),
        ("alice:", "alice", "", 10.0),
        (":c", "", "c", 5.0),
    ]


def test_what_a_task_leaves_to_the_next_changes_no_sum(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(gzip.decompress((DATA / "public.log.gz").read_bytes()))
    pieces = tuple(pieces_of(find_files([str(log)]), piece_bytes=200_000))
    parsed = {}
    for zone in ("UTC", "Asia/Kathmandu"):
        options = ReadOptions(pieces, zone, connections=True, scan=False)
        parsed[zone] = sums_of(run(EmitActivity(options), len(pieces)))
    for zone in ("UTC", "Asia/Kathmandu", "UTC"):
        scanned = ReadOptions(pieces, zone, connections=True, scan=True)
        # Two under way at once never share what one of them works with.
        pair = zip(*(EmitActivity(scanned)(ids(len(pieces))) for _ in "ab"), strict=True)
        first, second = (pa.Table.from_batches(batches) for batches in zip(*pair, strict=True))
        assert sums_of(first) == sums_of(second) == parsed[zone]


def ids(n: int) -> Any:
    return iter([pa.RecordBatch.from_pydict({"id": list(range(n))})])


def sums_of(table: pa.Table) -> list[tuple[Any, ...]]:
    keys = ["kind", "principal", "client_id", "quota_type", "is_charged", "second_ms", "connection"]
    sums = table.group_by([*keys, "first_ms"]).aggregate(
        [(n, "sum") for n in ("requests", "bytes", "throttle_time_ms", "handler_ns", "lines")]
    )
    return sorted((tuple(r.values()) for r in sums.to_pylist()), key=repr)
