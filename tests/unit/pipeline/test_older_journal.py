"""A journal of a gateway that charged at the answer is read as it was: its charges say all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.live.past import Past
from headgate.pipeline.answers.demand import TakeCharged
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.usage.reader import read_batches

JOURNAL = Path(__file__).parents[2] / "data" / "pipeline" / "told_in_charges"
SINCE = ("muted_ms", "answer_ms")
"""Columns that there were none of then."""


def run(task: Any, n: int) -> pa.Table:
    return pa.Table.from_batches(task(iter([pa.RecordBatch.from_pydict({"id": list(range(n))})])))


def digest(rows: list[dict[str, Any]]) -> str:
    """Of what rows say, but for where they are from."""
    kept = [{n: v for n, v in row.items() if n not in ("file", *SINCE)} for row in rows]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def read_all() -> dict[str, Any]:
    """Return what each reader of a journal makes of it."""
    pieces = tuple(pieces_of(find_files([str(JOURNAL)])))
    options = ReadOptions(pieces)
    requests = run(EmitRequests(options), len(pieces)).to_pylist()
    activity = run(EmitActivity(options), len(pieces))
    activity = activity.filter(pc.equal(activity["kind"], "activity"))
    names = ("requests", "bytes", "throttled_requests", "throttle_time_ms")
    sums = activity.group_by("quota_type").aggregate([(name, "sum") for name in names])
    charged = run(TakeCharged(options), len(pieces)).to_pylist()
    last_ms = int(max(row["record_ms"] or 0 for row in requests))
    past = Past(last_ms, "alice", None)
    for batch in read_batches(JOURNAL):
        past.take(batch)
    (broker,) = past.picture().brokers
    return {
        "rows": digest([row for row in requests if row["kind"] == "request"]),
        "usage": {r["quota_type"]: [r[f"{n}_sum"] for n in names] for r in sums.to_pylist()},
        "activity": digest(sorted(activity.to_pylist(), key=lambda r: json.dumps(r))),
        "charged": digest(charged),
        "past": sorted([q.key, q.client_id, q.throttled, q.throttled_ms] for q in broker.quotas),
    }


def test_a_journal_whose_charges_say_what_was_told_reads_as_it_did() -> None:
    was = json.loads((JOURNAL / "read.json").read_text())
    found = read_all()
    assert found["usage"] == was["usage"]
    assert found["past"] == was["past"]
    assert found == was
    waited = {name: figures[2] for name, figures in was["usage"].items() if figures[2]}
    assert len(waited) >= 5  # of every kind


def test_no_answer_of_its_own_is_made_up() -> None:
    pieces = tuple(pieces_of(find_files([str(JOURNAL)])))
    rows = run(EmitRequests(ReadOptions(pieces)), len(pieces)).to_pylist()
    assert {row[name] for row in rows for name in SINCE} == {None}
