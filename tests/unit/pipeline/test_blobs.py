"""Sums packed into blobs are the sums that went in, whole, whatever the parts and the keys."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.pipeline.emitted import ACTIVITY, EMITTED_ACTIVITY
from headgate.pipeline.workers import activity_blobs as blobs

SECONDS = st.integers(0, 3).map(lambda s: 1000 * s)
ROW = st.fixed_dictionaries(
    {
        "broker_id": st.none() | st.integers(0, 1),
        "principal": st.sampled_from(["alice", "bob"]),
        "client_id": st.sampled_from(["", "c"]),
        "quota_type": st.just("producer_byte_rate"),
        "is_charged": st.booleans(),
        "second_ms": SECONDS,
        "requests": st.integers(1, 3),
        "bytes": st.integers(0, 10**12),
        "max_throttle_time_ms": st.integers(0, 9),
        "producer_ids": st.none() | st.integers(0, 2),
        "quota": st.none() | st.just(5.0),
    }
)


def emitted(rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    kinds = [{"kind": "activity", **row} for row in rows]
    other = [{"kind": "bad", "reason": "why"}, {"kind": "stat", "lines": 7}]
    table = pa.Table.from_pylist([*kinds[:2], *other, *kinds[2:]], schema=EMITTED_ACTIVITY.arrow)
    return list(table.to_batches(max_chunksize=3))


def through(
    rows: list[dict[str, Any]], parts: int, columns: tuple[str, ...]
) -> list[dict[str, Any]]:
    packed = pa.Table.from_batches(
        blobs.pack(iter(emitted(rows)), parts), schema=EMITTED_ACTIVITY.arrow
    ).to_pylist()
    assert Counter(r["kind"] for r in packed if r["kind"] != "packed") == {"bad": 1, "stat": 1}
    answer = []
    task = pickle.loads(pickle.dumps(blobs.Unpack(columns)))
    for partition in (0, 1):
        own = [r for r in packed if r["kind"] == "packed" and r["part"] % 2 == partition]
        packs = {name: [r[name] for r in own] for name in ("part", "packed")}
        schema = pa.schema([("part", pa.int32()), ("packed", pa.binary())])
        for batch in task(iter([pa.RecordBatch.from_pydict(packs, schema=schema)])):
            assert batch.schema == blobs.some_of(columns).arrow
            answer += batch.to_pylist()
    return answer


@given(rows=st.lists(ROW, max_size=12), parts=st.integers(1, 3), by=st.booleans())
def test_sums_come_out_as_they_went_in(rows: list[dict[str, Any]], parts: int, by: bool) -> None:
    keys = ("principal", "client_id", "second_ms") if by else blobs.KEYS
    want: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        sums = want.setdefault(tuple(row.get(k) for k in keys), [0, 0, 0, None, None])
        sums[0] += row["requests"]
        sums[1] += row["bytes"]
        sums[2] = max(sums[2], row["max_throttle_time_ms"])
        if row["producer_ids"] is not None:
            sums[3] = (sums[3] or 0) + row["producer_ids"]
        sums[4] = sums[4] or row["quota"]
    names = ("requests", "bytes", "max_throttle_time_ms", "producer_ids", "quota")
    answer = through(rows, parts, (*keys, *names) if by else ACTIVITY.names)
    assert {tuple(r[k] for k in keys): [r[n] for n in names] for r in answer} == want
    assert len(answer) == len(want)
    assert all(set(r) == set((*keys, *names) if by else ACTIVITY.names) for r in answer)


def test_what_is_too_much_to_keep_is_handed_over_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_MOST_ROWS", 2)
    row = {"principal": "a", "second_ms": 0, "requests": 1, "bytes": 5}
    assert through([row] * 9, 1, ("principal", "second_ms", "requests")) == [
        {"principal": "a", "second_ms": 0, "requests": 9}
    ]
