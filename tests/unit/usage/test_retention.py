"""The journal's folder within its bound: what goes first, and that no number is given twice."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from headgate.usage import retention
from headgate.usage.files import journal_files
from headgate.usage.format import Event, Origin
from headgate.usage.reader import compact, read_events
from headgate.usage.retention import MOST_EVENTS, Removed, noted_number, remove_oldest
from headgate.usage.writer import JournalWriter

ORIGIN = Origin("record", "producer_byte_rate", 1)


def write(folder: Path, count: int, worker: str = "w") -> Path:
    """Write one closed file; return it."""
    journal = JournalWriter(folder, worker)
    for n in range(count):
        journal.append(tuple(Event(ORIGIN, float(n), 1.0)))
    journal.close()
    return [file for file in journal_files(folder) if file.worker_id == worker][-1].path


def aged(path: Path, t: int) -> Path:
    os.utime(path, (t, t))
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".next")


def numbers(folder: Path) -> list[int]:
    return read_events(folder).column("seq").to_pylist()


def test_a_clock_that_went_back_doesnt_make_the_newest_the_oldest(tmp_path: Path) -> None:
    first = aged(write(tmp_path, 5), 2_000)
    second = aged(write(tmp_path, 5), 1_000)  # the clock went back
    third = aged(write(tmp_path, 5), 1_001)
    other = aged(write(tmp_path, 5, "another"), 1_500)
    size = first.stat().st_size
    kept = [{second, third, other}, {third, other}, {other}]
    for most, those in zip((3, 2, 1), kept, strict=True):
        assert remove_oldest(tmp_path, most * size + 100) == Removed(1, 0)
        assert {path for path in tmp_path.iterdir() if path.suffix != ".next"} == those


def test_damaged_files_count_and_go_in_their_turn(tmp_path: Path) -> None:
    first = write(tmp_path, 5)
    first.write_bytes(b"garbage" * 1_000)
    compact(tmp_path)
    bad = aged(first.with_suffix(".bad"), 1_000)
    bad.with_name(bad.name + "-1").write_bytes(b"more of it")
    aged(bad.with_name(bad.name + "-1"), 1_001)
    last = aged(write(tmp_path, 5), 1_002)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert remove_oldest(tmp_path, total) == Removed(0, 0)
    assert remove_oldest(tmp_path, total - 1) == Removed(1, 1)
    assert left(tmp_path) == sorted([last.name, bad.name + "-1"])
    assert remove_oldest(tmp_path, last.stat().st_size) == Removed(1, 1)
    assert left(tmp_path) == [last.name]


def test_open_files_stay(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "w")
    journal.append(tuple(Event(ORIGIN, 1.0, 1.0)))
    journal.flush()
    assert remove_oldest(tmp_path, 1) == Removed(0, 0)
    journal.close()
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_number_isnt_given_twice_when_all_files_have_gone(
    tmp_path: Path, compacted: bool
) -> None:
    write(tmp_path, 5)
    write(tmp_path, 7)
    if compacted:
        compact(tmp_path)
    assert remove_oldest(tmp_path, 1) == Removed(2, 0)
    assert left(tmp_path) == []
    write(tmp_path, 2)
    assert numbers(tmp_path) == [13, 14]
    write(tmp_path, 1, "other")
    assert numbers(tmp_path) == [1, 13, 14]


@pytest.mark.parametrize("order", ["the damaged one first", "what could be read first"])
def test_numbers_of_a_damaged_last_file_arent_given_twice_when_it_has_gone(
    tmp_path: Path, order: str
) -> None:
    path = write(tmp_path, 5)
    path.write_bytes(path.read_bytes()[:-10])
    compact(tmp_path)
    bad, parquet = path.with_suffix(".bad"), path.with_suffix(".parquet")
    aged(bad, 1_000)
    aged(parquet, 1_001 if order == "the damaged one first" else 999)
    assert remove_oldest(tmp_path, 1) == Removed(2, 1)
    assert noted_number(tmp_path, "w") == 1 + MOST_EVENTS
    write(tmp_path, 1)
    assert numbers(tmp_path) == [1 + MOST_EVENTS]


def test_a_file_whose_numbers_cant_be_noted_stays_and_others_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = aged(write(tmp_path, 5, "old"), 1)
    for t in (2, 3):
        aged(write(tmp_path, 5), t)
    real = retention.note_number

    def full(directory: Path, worker_id: str, number: int) -> None:
        if worker_id == "old":
            raise OSError(28, "No space left on device")
        real(directory, worker_id, number)

    monkeypatch.setattr(retention, "note_number", full)
    assert remove_oldest(tmp_path, old.stat().st_size) == Removed(2, 0)
    assert left(tmp_path) == [old.name]


def test_nothing_goes_while_another_process_compacts(tmp_path: Path) -> None:
    write(tmp_path, 5)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert remove_oldest(tmp_path, 1) == Removed(0, 0)
    os.close(other)
    assert remove_oldest(tmp_path, 1) == Removed(1, 0)


def test_a_note_that_says_nothing_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "w.next").write_text("")
    write(tmp_path, 2)
    assert numbers(tmp_path) == [1, 2]
