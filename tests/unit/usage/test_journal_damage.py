"""What is left of a usage journal after a full disk, a kill or a damaged file."""

import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from headgate.usage import disk, files, reader
from headgate.usage.format import SCHEMA
from headgate.usage.reader import Gap, compact, find_gaps, read_batches
from headgate.usage.rows import batch_of
from headgate.usage.writer import JournalWriter

from .test_journal import event, seqs, written


def test_a_full_disk_keeps_events_and_writes_no_half_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(tmp_path, 3)
    journal.flush()
    whole = next(tmp_path.iterdir()).stat().st_size
    real, left = os.pwrite, 40

    def full(fd: int, data: memoryview, at: int) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(fd, data[:left], at)
        left -= count
        return count

    monkeypatch.setattr(os, "pwrite", full)
    journal.append(event(4))
    assert not journal.flush()
    assert next(tmp_path.iterdir()).stat().st_size == whole
    journal.append(event(5))
    assert not journal.flush()
    assert journal.failures == 2
    monkeypatch.undo()
    assert journal.flush()
    journal.close()
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]


def test_a_file_whose_footer_does_not_fit_stays_open_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(tmp_path, 3)
    journal.flush()

    def full(fd: int, data: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    journal.close()
    monkeypatch.undo()
    assert seqs(tmp_path) == [1, 2, 3]
    [found] = JournalWriter(tmp_path, "w").recovered
    assert found.events == 3


def damage(path: Path, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "cut":
        del raw[len(raw) * 2 // 3 :]
    elif how == "zeroed":
        raw[len(raw) // 2 : len(raw) // 2 + 512] = bytes(512)
    elif how == "emptied":
        raw.clear()
    else:
        raw[:] = os.urandom(len(raw))
    path.write_bytes(raw)


@pytest.mark.parametrize("how", ["cut", "zeroed", "emptied", "garbage"])
def test_a_damaged_file_is_set_aside_and_what_can_be_read_of_it_kept(
    tmp_path: Path, how: str
) -> None:
    journal = JournalWriter(tmp_path, "w", max_file_bytes=20_000)
    for n in range(60):
        journal.append(event(n))
        journal.flush()
    journal.close()
    closed = files.journal_files(tmp_path)
    assert len(closed) > 2
    damaged = closed[1]
    damage(damaged.path, how)
    raw = damaged.path.read_bytes()
    found: list[reader.DamagedFile] = []
    compact(tmp_path, found.append)
    [one] = found
    assert one.path == damaged.path.with_suffix(".bad")
    assert one.path.read_bytes() == raw
    lost = closed[2].first_seq - damaged.first_seq - one.events
    assert lost > 0
    assert bool(one.events) == (how in ("cut", "zeroed"))
    # All other events are there, and those before the damage.
    first = damaged.first_seq + one.events
    assert seqs(tmp_path) == [n for n in range(1, 61) if not first <= n < first + lost]
    assert list(find_gaps(read_batches(tmp_path))) == [Gap("w", first, first + lost - 1)]
    assert compact(tmp_path, found.append) == []
    assert len(found) == 1


def test_a_kill_between_keeping_and_setting_aside_removes_no_damaged_file(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    [closed] = tmp_path.iterdir()
    damage(closed, "cut")
    raw = closed.read_bytes()
    compact(tmp_path)
    closed.with_suffix(".bad").rename(closed)  # as if killed before
    found: list[reader.DamagedFile] = []
    compact(tmp_path, found.append)
    assert [one.path.read_bytes() for one in found] == [raw]
    closed.write_bytes(b"more of the same name")
    compact(tmp_path, found.append)
    assert [one.path.name for one in found] == [f"{closed.stem}.bad", f"{closed.stem}.bad-1"]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("how", ["cut", "garbage"])
def test_numbers_of_a_damaged_file_are_given_to_no_other_event(
    tmp_path: Path, how: str, compacted: bool
) -> None:
    for _ in range(2):
        written(tmp_path, 5).close()
    newest = files.journal_files(tmp_path)[-1]
    damage(newest.path, how)
    if compacted:
        compact(tmp_path)
    written(tmp_path, 1, max_file_bytes=200).close()
    assert seqs(tmp_path)[-1] == newest.first_seq + 100
    assert list(find_gaps(read_batches(tmp_path))) == [Gap("w", 6, 105)]
    written(tmp_path, 1).close()
    assert seqs(tmp_path)[-1] == newest.first_seq + 101


def no_room(fd: int, data: memoryview, at: int) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_start_on_a_full_disk_fails_nobody_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed = written(tmp_path, 3)
    killed.flush()
    [left] = tmp_path.iterdir()
    with monkeypatch.context() as full:
        full.setattr(disk, "create", lambda _: no_room(0, memoryview(b""), 0))
        journal = JournalWriter(tmp_path, "w")
        assert journal.recovered == []
        journal.append(event(4))
        assert not journal.flush()
        assert list(tmp_path.iterdir()) == [left]
    assert caplog.text.count("can't write") == 1
    assert journal.flush()
    assert [found.events for found in journal.recovered] == [3]
    journal.close()
    assert seqs(tmp_path) == [1, 2, 3, 5]


def test_a_half_recovered_file_is_taken_away_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 3).flush()
    [left] = tmp_path.iterdir()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as disk_dies:
        disk_dies.setattr(os, "fsync", broken)
        journal = JournalWriter(tmp_path, "w")
    assert list(tmp_path.iterdir()) == [left]
    journal.append(event(4))
    journal.close()
    assert seqs(tmp_path) == [1, 2, 3, 5]


def test_a_batch_that_waits_is_before_the_footer_when_there_is_room_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(tmp_path, 3)
    journal.flush()
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", no_room)
        journal.append(event(4))
        assert not journal.flush()
    monkeypatch.setattr(journal, "_write_what_waits", lambda: None)  # still full, and then not
    journal.close()
    [closed] = tmp_path.glob("*.arrow")
    with pa.ipc.open_file(closed) as whole:
        assert whole.read_all().column("seq").to_pylist() == [1, 2, 3, 4]
    assert compact(tmp_path, lambda damaged: pytest.fail(str(damaged)))


def test_what_was_not_written_at_the_end_is_a_gap_in_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = written(tmp_path, 12, max_pending=10)
    journal.close()
    assert "2 events at the end were not written" in caplog.text
    written(tmp_path, 1).close()
    assert list(find_gaps(read_batches(tmp_path))) == [Gap("w", 11, 12)]


def test_a_file_that_could_not_be_closed_is_closed_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    journal = JournalWriter(tmp_path, "w", max_file_ms=1_000, monotonic_ms=lambda: now[0])
    for n in (1, 2):
        journal.append(event(n))
        journal.flush()
        now[0] += 2_000
        with monkeypatch.context() as full:
            if n == 1:
                full.setattr(os, "pwrite", no_room)
            assert journal.flush()
        suffixes = sorted(p.suffix for p in tmp_path.iterdir())
        assert suffixes == ([".open"] if n == 1 else [".arrow", ".arrow"])
    journal.close()
    assert seqs(tmp_path) == [1, 2]
    assert list(find_gaps(read_batches(tmp_path))) == []


def test_the_thread_outlives_an_unexpected_error_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = JournalWriter(tmp_path, "w", flush_ms=1)
    failed = threading.Event()

    def odd(self: disk.OpenFile, batch: pa.RecordBatch) -> None:
        failed.set()
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(disk.OpenFile, "stage", odd)
        journal.append(event(1))
        journal.start()
        assert failed.wait(30)
    journal.append(event(2))
    journal.close()
    assert seqs(tmp_path) == [1, 2]
    assert "an unexpected error" in caplog.text
    assert journal.failures


def test_a_damaged_parquet_file_is_no_obstacle_to_the_next_run(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    [made] = compact(tmp_path)
    damage(made, "cut")
    journal = written(tmp_path, 1, max_file_bytes=200)
    journal.close()
    assert journal.written == 1
    assert files.journal_files(tmp_path)[-1].first_seq == 101


def test_a_half_made_parquet_file_is_made_again(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    [closed] = tmp_path.iterdir()
    closed.with_suffix(".parquet").write_bytes(b"PAR1")
    assert compact(tmp_path) == [closed.with_suffix(".parquet")]
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]


def test_a_garbled_index_is_damage_and_not_read(tmp_path: Path) -> None:
    good = batch_of([event(n) for n in range(3)], "w", 1)
    at = SCHEMA.get_field_index("kind")
    columns = list(good.columns)
    words = columns[at]
    wild = pa.DictionaryArray.from_arrays(
        pa.array([0, 99, 0], words.indices.type), words.dictionary, safe=False
    )
    columns[at] = wild
    path = tmp_path / "w-0000000000000001.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as out:
        out.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    found: list[reader.DamagedFile] = []
    assert compact(tmp_path, found.append) == []
    assert [one.events for one in found] == [0]


def test_a_parquet_file_that_lacks_rows_of_its_closed_twin_is_made_again(tmp_path: Path) -> None:
    written(tmp_path / "fewer", 2).close()
    [fewer] = compact(tmp_path / "fewer")
    written(tmp_path, 5).close()
    (tmp_path / fewer.name).write_bytes(fewer.read_bytes())
    assert compact(tmp_path) == [tmp_path / fewer.name]
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]
