"""A gateway's decisions replayed from its journal: every rule, the same to the millisecond."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import ORDER, PackOptions
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable
from kit.talks import Talk, write_talk


def run(task: Any, n: int) -> pa.Table:
    return pa.Table.from_batches(task(iter([pa.RecordBatch.from_pydict({"id": list(range(n))})])))


@pytest.fixture(params=["kafka", "smooth"])
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Talk:
    """A talk of 3,000 turns, with a restart, in three files; ``place`` is where."""
    made = Talk(request.param, 11)
    write_talk(tmp_path, made, 3000, (1200, 2100), 2100)
    return made


def replayed(pieces: list[Any]) -> pa.Table:
    options = PackOptions((Quotas.of(QuotaTable()),))
    packed = run(PackRequests(options, ReadOptions(tuple(pieces))), len(pieces))
    packed = packed.filter(pc.is_in(packed["kind"], pa.array(["chunk", "plain"])))
    keys = [(name, "ascending") for name in ORDER]
    batches = packed.sort_by(keys).combine_chunks().to_batches(max_chunksize=3)
    return pa.Table.from_batches(ReplayPacked(options)(iter(batches)))


def test_every_decision_of_every_rule_is_replayed_to_the_millisecond(
    talk: Talk, tmp_path: Path
) -> None:
    table = replayed(pieces_of(find_files([str(tmp_path)])))
    rows = table.filter(table["replayable"]).to_pylist()
    differ = [r for r in rows if r["replayed_throttle_time_ms"] != r["logged_throttle_time_ms"]]
    assert differ == []
    throttled = Counter(r["quota_type"] for r in rows if r["replayed_throttle_time_ms"] > 0)
    assert {t for t, n in throttled.items() if n >= 10} == {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "producer_ids_rate",
        "producer_byte_rate:bps",
        "producer_byte_rate:shares",
    }
    # What isn't replayed: no quota of the type, no new producer ids, what mutations were told.
    left = table.filter(pc.invert(table["replayable"])).to_pylist()
    assert {r["event"] for r in left} == {"norecord", "record", "told", "bound"}
    assert {r["quota_type"] for r in left if r["event"] == "record"} == {"producer_ids_rate"}
    moved = [r["replayed_throttle_time_ms"] for r in left if r["event"] == "bound"]
    assert moved == [None] * len(moved) != []  # a limit's change is a row, and no decision


def test_a_mutating_request_counts_once_and_what_it_was_told_too(
    talk: Talk, tmp_path: Path
) -> None:
    pieces = pieces_of(find_files([str(tmp_path)]))
    told = [e for e in talk.kept.events if e[0].kind == "told"]
    first = [
        e
        for e in talk.kept.events
        if e[0].quota_type == "controller_mutation_rate" and e[7] is not None
    ]
    assert len(first) > 200
    activity = run(EmitActivity(ReadOptions(tuple(pieces))), len(pieces))
    mutations = activity.filter(pc.equal(activity["quota_type"], "controller_mutation_rate"))
    assert pc.sum(mutations["requests"]).as_py() == len(first)
    assert pc.sum(mutations["throttle_time_ms"]).as_py() == sum(e[4] for e in told) > 0
    assert pc.sum(mutations["throttled_requests"]).as_py() == sum(e[4] > 0 for e in told)
    # A move of a limit is nobody's use.
    assert None not in activity.filter(pc.equal(activity["kind"], "activity"))["principal"]


def test_usage_of_a_table_made_from_a_journal_is_that_of_the_journal(
    talk: Talk, tmp_path: Path
) -> None:
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    requests = run(EmitRequests(ReadOptions(pieces)), len(pieces))
    requests = requests.filter(pc.equal(requests["kind"], "request"))
    (tmp_path / "table").mkdir()
    pq.write_table(requests, tmp_path / "table" / "part-0.parquet", row_group_size=2000)
    again = tuple(pieces_of(find_files([str(tmp_path / "table")])))
    assert {s.kind for s in again} == {"requests"}

    def sums(given: tuple[Any, ...]) -> list[dict[str, Any]]:
        table = run(EmitActivity(ReadOptions(given)), len(given))
        table = table.filter(pc.equal(table["kind"], "activity"))
        keys = ("quota_type", "principal", "client_id", "quota_id", "second_ms", "quota")
        values = ("requests", "bytes", "amount", "request_ns", "handler_ns", "throttle_time_ms")
        summed = table.group_by(list(keys)).aggregate([(v, "sum") for v in values])
        summed = summed.sort_by([(k, "ascending") for k in keys])
        rows: list[dict[str, Any]] = summed.to_pylist()
        return rows

    assert sums(again) == sums(pieces)
