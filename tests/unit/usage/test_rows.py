"""Events packed into memory come back as they were, while others are still being packed."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.usage.format import SCHEMA, Event, Origin
from headgate.usage.reader import find_gaps, read_batches, read_events
from headgate.usage.rows import MALFORMED, Rows, batch_of
from headgate.usage.writer import MAX_BATCH_ROWS, JournalWriter

WHOLE = st.none() | st.integers(-(2**63) + 1, 2**63 - 1)
SMALL = st.none() | st.integers(-(2**31), 2**31 - 1)
REAL = st.none() | st.floats(allow_nan=False)
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def origins(draw: st.DrawFn) -> Origin:
    return Origin(
        draw(st.sampled_from(["record", "norecord", "told"])),
        draw(st.none() | st.sampled_from(["producer_byte_rate", "request_percentage"])),
        draw(SMALL),
        quota_user=draw(TEXT),
        client_id=draw(TEXT),
        window_ms=draw(WHOLE),
        value=draw(REAL),
        rule=draw(st.none() | st.just("bucket")),
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[Event]:
    who = draw(st.lists(origins(), min_size=1, max_size=6))
    one = st.builds(
        Event,
        st.sampled_from(who),
        st.integers(0, 2**53).map(float),
        REAL,
        REAL,
        WHOLE,
        WHOLE,
        WHOLE,
        WHOLE,
        REAL,
        SMALL,
    )
    return draw(st.lists(one, min_size=1, max_size=30))


def told(event: Event) -> dict[str, object]:
    """What a journal has of an event, column by column."""
    row = event._asdict()
    origin = row.pop("origin")
    return row | {
        name: getattr(origin, name)
        for name in SCHEMA.names
        if name not in row and name not in ("seq", "worker_id")
    }


@given(conversations(), st.data())
def test_every_field_of_every_event_comes_back(events: list[Event], data: st.DataObject) -> None:
    batch = batch_of(events, "w", 7)
    assert batch.schema.equals(SCHEMA)
    rows = batch.to_pylist()
    assert [row.pop("seq") for row in rows] == list(range(7, 7 + len(events)))
    assert {row.pop("worker_id") for row in rows} == {"w"}
    assert rows == [told(event) for event in events]
    # A part of them is the same as that part alone.
    first = data.draw(st.integers(0, len(events) - 1))
    packed = Rows(len(events))
    for event in events:
        packed.append(event)
    part = packed.batch(first, len(events), "w", 7 + first)
    part.validate(full=True)
    assert pa.Table.from_batches([part]).equals(pa.Table.from_batches([batch.slice(first)]))


def test_an_origin_may_be_used_by_two_writers_in_turn() -> None:
    shared, other = Origin("record", broker_id=1), Origin("record", broker_id=2)
    one, two = Rows(3), Rows(3)
    one.append(Event(other, 1.0))
    for rows in (one, two, one):
        rows.append(Event(shared, 1.0))
    assert one.batch(0, 3, "w", 1)["broker_id"].to_pylist() == [2, 1, 1]
    assert two.batch(0, 1, "w", 1)["broker_id"].to_pylist() == [1]


@pytest.mark.parametrize(
    "event",
    [
        (Origin("start"), "now", *[None] * 8),
        (Origin("start"), 1.0, None, None, 2**63, *[None] * 5),
        (Origin("start"), 1.0),
        (None, 1.0, *[None] * 8),
    ],
)
def test_what_is_no_event_is_refused_and_leaves_nothing(event: tuple) -> None:
    rows = Rows(2)
    with pytest.raises(MALFORMED):
        rows.append(event)
    assert rows.count == 0


def test_no_event_is_lost_or_twice_while_a_thread_writes(tmp_path: Path) -> None:
    """Appended here, written there, with as many switches between the two as can be."""
    journal = JournalWriter(tmp_path, "w", flush_ms=0, max_pending=1_000_000)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        journal.start()
        count = 4 * MAX_BATCH_ROWS
        for n in range(count):
            journal.append(Event(Origin("record", broker_id=n % 1000), float(n), math.pi * n))
    finally:
        sys.setswitchinterval(interval)
        journal.close()
    table = read_events(tmp_path)
    assert list(find_gaps(read_batches(tmp_path))) == []
    assert table["t_ms"].to_pylist() == [float(n) for n in range(count)]
    assert table["broker_id"].to_pylist() == [n % 1000 for n in range(count)]
    assert (journal.written, journal.dropped, journal.waiting) == (count, 0, 0)


def test_writing_ends_with_what_was_there_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy gateway's journal would write batches of ever fewer events, on and on."""
    journal = JournalWriter(tmp_path, "w")
    batches = []
    real = Rows.batch

    def while_more_come(rows: Rows, first: int, last: int, worker: str, seq: int) -> pa.RecordBatch:
        batches.append(last - first)
        journal.append(Event(Origin("start"), 1.0))
        return real(rows, first, last, worker, seq)

    monkeypatch.setattr(Rows, "batch", while_more_come)
    for _ in range(5):
        journal.append(Event(Origin("start"), 1.0))
    assert journal.flush()
    assert (batches, journal.waiting) == ([5], 1)
    monkeypatch.undo()
    journal.close()
    assert read_events(tmp_path)["seq"].to_pylist() == [1, 2, 3, 4, 5, 6]
