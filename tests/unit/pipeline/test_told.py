"""A throttled request of a journal counts once: its charge, and the answer that tells the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.demand.rhythm import Charge
from headgate.pipeline.answers import demand
from headgate.pipeline.answers.demand import Assign, Foretell, TakeCharged
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable
from headgate.usage.files import file_name
from headgate.usage.format import Event, Origin
from headgate.usage.rows import batch_of
from kit.talks import Talk, write_talk

PRODUCE, TIME = "producer_byte_rate", "request_percentage"
T = 1_700_000_000_000.0


def origin(kind: str, quota_type: str) -> Origin:
    return Origin(
        kind, quota_type, 1, "L", "alice", "", "alice:", "alice", "app", "10.0.0.9", "c-1", 0, 9,
        11, 1_000, rule="sampled",
    )  # fmt: skip


def asked(at_ms: float, by_bytes: int, by_time: int = 0) -> list[Event]:
    """A Produce that was charged to both quotas, ``at_ms`` after the start."""
    mute = max(by_bytes, by_time)
    return [
        Event(origin("record", PRODUCE), T + at_ms, 5_000.0, 1e3, by_bytes, mute, None, 5_000, 0.1),
        Event(origin("record", TIME), T + at_ms, 0.01, 1.0, by_time, mute, None, 5_000, 0.1),
    ]


def answered(at_ms: float, after_ms: float, left_ms: int, quota_type: str = PRODUCE) -> Event:
    """The answer to what was charged at ``at_ms``."""
    told = origin("told", quota_type)
    bound = 1e3 if quota_type == PRODUCE else 1.0
    return Event(told, T + at_ms + after_ms, after_ms, bound, left_ms, left_ms, 0)


EVENTS = [
    *asked(0, 0),
    # The quota of request time throttles for longer: its row tells.
    *asked(100, 500, 900),
    answered(100, 10, 890, TIME),
    # Both throttle for as long: request time counts, as in Kafka.
    *asked(1_100, 300, 300),
    answered(1_100, 10, 290, TIME),
    # A broker that is slow answers when the throttle is over, and after the next one was told:
    *asked(1_500, 400),
    *asked(2_000, 700),  # acks=0 is told at once
    answered(2_000, 0, 700),
    answered(1_500, 1_900, 0),
    *asked(3_500, 0),
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal" / file_name("w-1", 1, ".arrow")
    path.parent.mkdir()
    batch = batch_of(EVENTS, "w-1", 1)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return path.parent


def run(task: Any, pieces: tuple[FilePiece, ...]) -> pa.Table:
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(pieces)))})
    return pa.Table.from_batches(list(task(iter([numbers]))))


def requests_of(pieces: tuple[FilePiece, ...]) -> pa.Table:
    found = run(EmitRequests(ReadOptions(pieces)), pieces)
    return found.filter(pc.equal(found["kind"], "request"))


def both_ways(journal: Path) -> list[tuple[FilePiece, ...]]:
    """The journal itself, and the table ``requests`` that was written from it."""
    pieces = tuple(pieces_of(find_files([str(journal)])))
    table = journal.parent / "table"
    table.mkdir()
    pq.write_table(requests_of(pieces), table / "part-0.parquet")
    return [pieces, tuple(pieces_of(find_files([str(table)])))]


def test_every_answer_is_paired_with_its_own_charge(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Charge]] = []
    infer = demand.infer

    def noted(charges: Any, *more: Any, **options: Any) -> Any:
        seen.append(list(charges))
        return infer(charges, *more, **options)

    monkeypatch.setattr(demand, "infer", noted)
    for pieces in both_ways(journal):
        taken = run(TakeCharged(ReadOptions(pieces)), pieces)
        taken = taken.filter(pc.is_valid(taken["quota_type"]))
        taken = taken.set_column(
            taken.schema.get_field_index("end_ms"), "end_ms", pa.repeat(T + 4_000, len(taken))
        )
        plan = Quotas.of(QuotaTable(), "now")
        asked_for = pa.Table.from_batches(list(Assign((plan,))(iter(taken.to_batches()))))
        asked_for = asked_for.sort_by([("record_ms", "ascending"), ("seq", "ascending")])
        list(Foretell(("now",), 11, 1_000)(iter(asked_for.to_batches())))
    told = [(c.t_ms - T, c.throttle_ms, c.told_ms, c.answered_ms) for c in seen[0]]
    assert told == [
        (0, 0, 0, None),
        (100, 500, 900, None),
        (1_100, 300, 300, None),
        (1_500, 400, 400, T + 3_400),
        (2_000, 700, 700, T + 2_000),
        (3_500, 0, 0, None),
    ]
    assert seen[1] == seen[0]


def test_what_is_told_counts_in_the_second_of_the_charge(journal: Path) -> None:
    for pieces in both_ways(journal):
        found = run(EmitActivity(ReadOptions(pieces)), pieces)
        found = found.filter(pc.equal(found["kind"], "activity"))
        found = found.sort_by([("quota_type", "ascending"), ("second_ms", "ascending")])
        names = ("quota_type", "requests", "amount", "throttled_requests", "throttle_time_ms")
        rows = [(r["second_ms"] - T, *(r[n] for n in names)) for r in found.to_pylist()]
        assert rows == [
            (0, PRODUCE, 2, 10_000, 0, 0),
            (1_000, PRODUCE, 2, 10_000, 0, 0),  # its answer told that nothing was left
            (2_000, PRODUCE, 1, 5_000, 1, 700),
            (3_000, PRODUCE, 1, 5_000, 0, 0),
            (0, TIME, 0, 0, 1, 890),
            (1_000, TIME, 0, 0, 1, 290),
            (2_000, TIME, 0, 0, 0, 0),
            (3_000, TIME, 0, 0, 0, 0),
        ]


def test_of_a_whole_conversation_every_throttled_request_is_told_once(tmp_path: Path) -> None:
    talk = Talk("kafka", 11)
    write_talk(tmp_path, talk, 2_000, (900,), 900)
    told = [Event(*event) for event in talk.kept.events if event[0].kind == "told"]
    left = [event for event in told if (event.throttle_time_ms or 0) > 0]
    assert len(told) > len(left) > 100
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    found = run(EmitActivity(ReadOptions(pieces)), pieces)
    found = found.filter(pc.equal(found["kind"], "activity"))
    assert pc.sum(found["throttled_requests"]).as_py() == len(left)
    whole_ms = sum(event.throttle_time_ms or 0 for event in left)
    assert pc.sum(found["throttle_time_ms"]).as_py() == whole_ms
    # No second but those of charges: percentiles are over seconds with requests.
    own = found.filter(pc.is_in(found["quota_type"], pa.array([PRODUCE, "consumer_byte_rate"])))
    by_second = own.group_by(["quota_type", "quota_id", "second_ms"])
    sums = by_second.aggregate([("requests", "sum"), ("throttled_requests", "sum")])
    throttled = sums.filter(pc.greater(sums["throttled_requests_sum"], 0))
    assert throttled.num_rows > 50
    assert pc.min(throttled["requests_sum"]).as_py() == 1
