"""Journals followed as they grow: each batch once, whether the file is open or closed by then."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headgate.pipeline.sources.journal_tail import TailReader
from headgate.usage.format import Event, Origin
from headgate.usage.topic import decode
from headgate.usage.writer import JournalWriter

ORIGIN = Origin("record", "producer_byte_rate:bps", 1)


def append(writer: JournalWriter, *times: float) -> None:
    for t_ms in times:
        writer.append(tuple(Event(ORIGIN, t_ms, 1.0)))
    assert writer.flush()


def read(reader: TailReader, start: dict[str, int], end: dict[str, int]) -> list[float]:
    return [
        t
        for part in reader.partitions(start, end)
        for _, _, value in reader.read(part)
        for batch in decode(value)
        for t in batch.column("t_ms").to_pylist()
    ]


def test_what_was_added_is_read_once_over_a_close(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    writer, other = JournalWriter(one, "w"), JournalWriter(two, "w")
    append(writer, 1.0, 2.0)
    reader = TailReader({"directories": json.dumps([str(one), str(two)])})
    before = reader.initialOffset()
    assert read(reader, before, reader.latestOffset()) == []  # what was there is old
    append(writer, 3.0)
    append(writer, 4.0)
    append(other, 10.0)
    now = reader.latestOffset()
    assert sorted(read(reader, before, now)) == [3.0, 4.0, 10.0]
    append(writer, 5.0)
    open_then = reader.latestOffset()
    writer.close()  # between the offset and the reading of it
    other.close()
    assert read(reader, now, open_then) == [5.0]
    closed = reader.latestOffset()
    assert read(reader, open_then, closed) == []  # a footer is no batch
    assert closed["tick"] >= open_then["tick"] > 0


def test_old_files_and_those_gone_are_passed_over(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "w")
    append(writer, 1.0)
    writer.close()
    reader = TailReader({"directories": json.dumps([str(tmp_path)])})
    (file,) = tmp_path.glob("*.arrow")
    (tmp_path / "notes.arrow").write_text("no journal")
    end = reader.latestOffset()
    assert len(end) == 2
    assert read(reader, {}, end) == [1.0]
    os.utime(file, (1_000_000, 1_000_000))
    assert set(reader.latestOffset()) == {"tick"}
    file.unlink()
    assert read(reader, {}, end) == []
