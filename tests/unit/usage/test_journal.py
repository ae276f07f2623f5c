"""The usage journal: what is written is read, whatever happens in between."""

import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from headgate.errors import ConfigError
from headgate.usage import files, reader, topic, writer
from headgate.usage.format import KINDS, QUOTA_TYPES, SCHEMA, Event, Origin
from headgate.usage.reader import Gap, compact, find_gaps, read_batches, read_events
from headgate.usage.rows import batch_of
from headgate.usage.writer import JournalWriter

BEFORE = Path(__file__).parents[2] / "data" / "before"
ALICE = Origin(
    "record",
    "producer_byte_rate",
    1,
    "PLAINTEXT",
    "alice",
    "",
    "alice:",
    "alice",
    "etl ü",
    "10.0.0.1",
    "1-PLAINTEXT-7",
    0,
    9,
)
QUOTA = Origin("quota", "producer_byte_rate:bps", 1, entity="users/alice", value=math.nan)
START = Origin("start", broker_id=1, num_samples=11, window_ms=1000)


def event(n: int, origin: Origin = ALICE) -> tuple:
    return Event(origin, 1_700_000_000_000.0 + n, float(n), 1024.0, n, n, 0, 300 + n, 0.25, 1)


def seqs(path: Path) -> list[int]:
    return read_events(path).column("seq").to_pylist()


def written(path: Path, count: int, worker: str = "w", **kwargs: object) -> JournalWriter:
    journal = JournalWriter(path, worker, **kwargs)  # type: ignore[arg-type]
    for n in range(count):
        journal.append(event(n))
    return journal


def test_every_column_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "worker 1/a")
    journal.append(event(5))
    journal.append((QUOTA, 7.0, *[None] * 8))
    journal.append((START, 8.0, *[None] * 8))
    journal.close()
    table = read_events(tmp_path)
    assert table.schema.equals(SCHEMA)
    first, second, third = table.to_pylist()
    assert first == {
        "seq": 1,
        "worker_id": "worker 1/a",
        "broker_id": 1,
        "listener": "PLAINTEXT",
        "kind": "record",
        "quota_type": "producer_byte_rate",
        "t_ms": 1_700_000_000_005.0,
        "amount": 5.0,
        "quota_user": "alice",
        "quota_client_id": "",
        "quota_id": "alice:",
        "bound": 1024.0,
        "principal": "alice",
        "client_id": "etl ü",
        "client_ip": "10.0.0.1",
        "api_key": 0,
        "api_version": 9,
        "connection": "1-PLAINTEXT-7",
        "throttle_time_ms": 5,
        "told_throttle_time_ms": 5,
        "upstream_throttle_time_ms": 0,
        "bytes": 305,
        "handler_ms": 0.25,
        "producer_ids": 1,
        "num_samples": None,
        "window_ms": None,
        "value": None,
        "entity": None,
        "rule": None,
        "max_throttle_ms": None,
    }
    assert (second["kind"], second["entity"], second["principal"]) == ("quota", "users/alice", None)
    assert math.isnan(second["value"])
    assert (third["num_samples"], third["window_ms"], third["quota_type"]) == (11, 1000, None)


def test_a_journal_written_before_a_column_came_is_read_with_nulls_there(tmp_path: Path) -> None:
    new = batch_of([event(5)], "w", 1)
    old = new.select([n for n in new.schema.names if n not in ("rule", "max_throttle_ms")])
    with (
        pa.OSFile(str(tmp_path / files.file_name("w", 1, ".arrow")), "wb") as sink,
        pa.ipc.new_file(sink, old.schema) as writer,
    ):
        writer.write_batch(old)
    written(tmp_path, 3, worker="v").close()
    table = read_events(tmp_path)
    assert table.num_rows == 4
    assert table["rule"].to_pylist() == [None] * 4
    assert table["amount"].to_pylist() == [0.0, 1.0, 2.0, 5.0]


def test_a_journal_of_the_version_before_is_read_compacted_and_gone_on_with(tmp_path: Path) -> None:
    shutil.copytree(BEFORE / "journal", tmp_path, dirs_exist_ok=True)
    recorded = read_events(tmp_path)
    assert seqs(tmp_path) == list(range(1, 137))
    assert recorded["kind"].to_pylist().count("record") == 87
    assert len(compact(tmp_path)) == 1
    assert repr(read_events(tmp_path).to_pylist()) == repr(recorded.to_pylist())  # NaN: removed
    written(tmp_path, 2, worker="gateway-1").close()
    assert seqs(tmp_path) == list(range(1, 139))
    assert list(find_gaps(read_batches(tmp_path))) == []


def test_a_closed_file_is_a_plain_arrow_file_named_after_its_first_event(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    [path] = tmp_path.iterdir()
    assert path.name == "w-0000000000000001.arrow"
    with pa.ipc.open_file(path) as reader:
        assert reader.read_all().num_rows == 3


def test_a_next_run_goes_on_counting(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    written(tmp_path, 2).close()
    assert seqs(tmp_path) == [1, 2, 3, 4, 5]
    assert list(find_gaps(read_batches(tmp_path))) == []


def test_an_open_file_is_read_up_to_its_last_complete_batch(tmp_path: Path) -> None:
    journal = written(tmp_path, 3)
    assert journal.flush()
    journal.append(event(4))
    assert [path.suffix for path in tmp_path.iterdir()] == [".open"]
    assert seqs(tmp_path) == [1, 2, 3]
    journal.close()
    assert seqs(tmp_path) == [1, 2, 3, 4]


def test_a_file_cut_anywhere_gives_its_complete_batches_and_is_recovered(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "whole", "w")
    ends = []
    for n in range(3):
        journal.append(event(n))
        journal.flush()
        ends.append((tmp_path / "whole" / "w-0000000000000001.open").stat().st_size)
    raw = (tmp_path / "whole" / "w-0000000000000001.open").read_bytes()
    for size in (*range(0, len(raw), 97), *ends, *(end - 1 for end in ends)):
        complete = sum(end <= size for end in ends)
        place = tmp_path / str(size)
        place.mkdir(exist_ok=True)
        (place / "w-0000000000000001.open").write_bytes(raw[:size])
        assert seqs(place) == list(range(1, complete + 1))
        [found] = JournalWriter(place, "w").recovered
        assert found.events == complete
        assert found.lost_bytes == size - ([0, *ends][complete] if complete else 0)
        assert seqs(place) == list(range(1, complete + 1))
        assert [p.suffix for p in place.iterdir()] == ([".arrow"] if complete else [])


def test_another_workers_open_file_is_left_alone(tmp_path: Path) -> None:
    other = written(tmp_path, 1, "w-2")
    other.flush()
    assert JournalWriter(tmp_path, "w").recovered == []
    other.close()
    assert read_events(tmp_path).column("worker_id").to_pylist() == ["w-2"]


KILLED = """
    import os, sys, time
    from headgate.usage.format import Event, Origin
    from headgate.usage.writer import JournalWriter
    journal = JournalWriter(sys.argv[1], "w", flush_ms=20)
    journal.start()
    origin = Origin("record", "producer_byte_rate")
    n = 0
    while True:
        for _ in range(50):
            n += 1
            journal.append(Event(origin, float(n), 1.0))
        if journal.written:
            print(journal.written, flush=True)
        time.sleep(0.001)
"""


def test_kill_9_loses_only_what_was_not_in_a_batch_and_the_next_start_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(30)]
    os.kill(child.pid, signal.SIGKILL)
    lines += child.stdout.readlines()
    child.wait()
    child.stdout.close()
    reported = max(int(line) for line in lines if line.endswith("\n"))
    journal = JournalWriter(tmp_path, "w")
    [found] = journal.recovered
    assert found.events >= reported
    assert "was left open" in caplog.text
    journal.append(event(1))
    journal.close()
    numbers = seqs(tmp_path)
    assert numbers[:-1] == list(range(1, found.events + 1))
    # What the killed run lost shows as a gap, though nobody can say how long it was.
    assert list(find_gaps(read_batches(tmp_path))) == [Gap("w", found.events + 1, found.events + 1)]


def test_more_than_may_wait_is_dropped_and_leaves_a_gap(tmp_path: Path) -> None:
    journal = written(tmp_path, 15, max_pending=10)
    assert journal.dropped == 5
    journal.flush()
    journal.append(event(16))
    journal.close()
    assert seqs(tmp_path) == [*range(1, 11), 16]
    assert list(find_gaps(read_batches(tmp_path))) == [Gap("w", 11, 15)]


def test_a_file_that_somebody_removes_is_left_at_once_and_its_events_are_counted_as_dropped(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "usage"
    journal = written(folder, 3)
    assert journal.flush()
    shutil.rmtree(folder)
    journal.append(event(3))
    assert not journal.flush()  # kept: there is no folder
    assert journal.dropped == 3
    folder.mkdir()
    assert journal.flush()
    journal.append(event(4))
    journal.close()
    assert seqs(folder) == [4, 5]  # the removed ones show as a gap
    assert journal.dropped == 3


def test_a_file_removed_before_the_end_is_counted_as_dropped(tmp_path: Path) -> None:
    journal = written(tmp_path, 3)
    assert journal.flush()
    for file in tmp_path.iterdir():
        file.unlink()
    journal.close()
    assert journal.dropped == 3


def test_files_are_closed_when_long_or_old(tmp_path: Path) -> None:
    now = [0.0]
    journal = JournalWriter(
        tmp_path, "w", max_file_bytes=1, max_file_ms=1000, monotonic_ms=lambda: now[0]
    )
    journal.append(event(1))
    journal.flush()
    journal._max_file_bytes = 10**9
    journal.append(event(2))
    journal.flush()
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".arrow", ".open"]
    now[0] = 1000.0
    journal.flush()
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".arrow", ".arrow"]
    journal.close()
    assert seqs(tmp_path) == [1, 2]


def test_compaction_keeps_every_event_and_may_be_interrupted(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    before = read_events(tmp_path)
    closed = next(tmp_path.iterdir())
    raw = closed.read_bytes()
    [made] = compact(tmp_path)
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]
    assert read_events(tmp_path).equals(before)
    closed.write_bytes(raw)  # as if killed before the closed file was removed
    assert read_events(tmp_path).equals(before)
    assert compact(tmp_path) == []
    assert list(tmp_path.iterdir()) == [made]


def test_compaction_holds_a_row_group_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_ROW_GROUP", 20)
    monkeypatch.setattr(writer, "MAX_BATCH_ROWS", 8)
    written(tmp_path, 50).close()
    before = read_events(tmp_path)
    [made] = compact(tmp_path)
    groups = pq.read_metadata(made)
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [24, 24, 2]
    assert read_events(tmp_path).equals(before)


def test_one_process_at_a_time_compacts_a_directory(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert compact(tmp_path) == []
    assert [p.suffix for p in tmp_path.iterdir()] == [".arrow"]
    os.close(other)
    assert [p.suffix for p in compact(tmp_path)] == [".parquet"]


def test_workers_are_read_one_after_the_other(tmp_path: Path) -> None:
    for worker in ("b", "a"):
        written(tmp_path, 2, worker).close()
    table = read_events([tmp_path])
    assert table.column("worker_id").to_pylist() == ["a", "a", "b", "b"]
    assert table.column("seq").to_pylist() == [1, 2, 1, 2]


def test_what_is_not_a_journal_is_said_so(tmp_path: Path) -> None:
    odd = tmp_path / "request.log"
    odd.write_text("x")
    with pytest.raises(ValueError, match="isn't a journal file"):
        read_events(odd)
    with pytest.raises(FileNotFoundError):
        read_events(tmp_path / "nowhere")
    assert files.journal_files(tmp_path) == []
    assert read_events(tmp_path).num_rows == 0


def test_events_of_unknown_kinds_are_refused_where_they_are_made() -> None:
    with pytest.raises(ValueError, match="kind of event"):
        Origin("guess")
    with pytest.raises(ValueError, match="quota type"):
        Origin("record", "bandwidth")
    with pytest.raises(ValueError, match="isn't a rule; there are sampled"):
        Origin("record", rule="guess")
    assert {
        "start", "quota", "record", "norecord", "unrecord", "expire", "connection",
        "strict", "told", "bound",
    } <= set(KINDS)  # fmt: skip
    assert {"producer_byte_rate", "producer_byte_rate:bps", "producer_ids_rate"} < set(QUOTA_TYPES)


def test_malformed_events_are_a_gap_and_stop_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = JournalWriter(tmp_path, "w")
    journal.append(event(1))
    assert journal.flush()
    journal.append((ALICE, "not a time", *[None] * 8))
    assert journal.flush()
    assert "malformed" in caplog.text
    journal.append(event(3))
    journal.close()
    assert seqs(tmp_path) == [1, 3]
    assert journal.dropped == 1


def test_messages_of_a_topic_fit_a_brokers_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of([event(n) for n in range(100)], "w", 1)
    monkeypatch.setattr(topic, "MAX_MESSAGE_BYTES", 9_000)
    parts = topic.messages(batch, topic.MAX_MESSAGE_BYTES)
    assert len(parts) > 1
    assert all(len(part) <= 9_000 for part in parts)
    again = [b for part in parts for b in topic.decode(part)]
    assert pa.Table.from_batches(again).equals(pa.Table.from_batches([batch]))


def test_the_writers_thread_writes_by_itself_and_ends_with_close(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "w", flush_ms=1)
    journal.start()
    journal.append(event(1))
    journal._wake.set()
    journal.close()
    journal.close()
    assert seqs(tmp_path) == [1]
    assert not journal._thread.is_alive()
    assert writer.FLUSH_MS <= 1000


@pytest.mark.parametrize("becomes", [".arrow", ".parquet"])
def test_a_file_that_is_closed_or_compacted_while_it_is_read_is_read_all_the_same(
    tmp_path: Path, becomes: str
) -> None:
    journal = written(tmp_path, 3)
    journal.flush()
    batches = read_batches(tmp_path)
    listed = files.journal_files(tmp_path)
    written(tmp_path, 2, "z").close()
    journal.close()
    if becomes == ".parquet":
        compact(tmp_path)
    assert [b.num_rows for file in listed for b in files.read_batches(file)] == [3]
    assert sum(batch.num_rows for batch in batches) == 5
    batches = read_batches(tmp_path)
    next(batches)
    for path in tmp_path.iterdir():
        path.unlink()
    assert list(batches) == []
    with pytest.raises(FileNotFoundError):
        list(files.read_batches(listed[0]))


def test_one_file_that_cant_be_compacted_holds_up_no_other(tmp_path: Path) -> None:
    for worker in ("a", "b"):
        written(tmp_path, 2, worker).close()
    (tmp_path / "a-0000000000000001.parquet-tmp").mkdir()
    with pytest.raises(OSError, match=r"a-0000000000000001\.arrow: "):
        compact(tmp_path)
    assert (tmp_path / "a-0000000000000001.arrow").exists()
    assert (tmp_path / "b-0000000000000001.parquet").exists()


def test_a_folder_that_cant_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"headgate\.usage: the folder .*/usage can't be made"):
        JournalWriter(tmp_path / "file" / "usage", "w")


@pytest.mark.parametrize("when", ["stat", "read"])
def test_the_last_event_is_found_though_a_file_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    written(tmp_path, 3, worker="v").close()
    expected = reader.last_ms(tmp_path)
    written(tmp_path, 5, worker="w").close()
    listed = reader.list_files
    [gone] = [file.path for file in listed(tmp_path) if file.worker_id == "w"]

    def then_removed(paths: object) -> list[files.JournalFile]:
        found = listed(tmp_path)
        gone.unlink()
        return found

    if when == "stat":
        monkeypatch.setattr(reader, "list_files", then_removed)
    else:
        real = files.read_batches

        def removed_first(file: files.JournalFile) -> object:
            gone.unlink(missing_ok=True)
            return real(file)

        monkeypatch.setattr(files, "read_batches", removed_first)
    assert reader.last_ms(tmp_path) == expected
