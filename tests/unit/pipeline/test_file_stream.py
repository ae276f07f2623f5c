"""Growing files as a stream of Spark's: each line once, whatever is killed, renamed, compressed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from headgate.errors import ConfigError
from headgate.pipeline.growing.follow import refuse_other_checkpoint
from headgate.pipeline.growing.parts import Parts
from headgate.pipeline.library.stream import Followed, RequestLogStream, latest, packed, unpacked
from headgate.pipeline.sources import files, rotation
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.compressed import ReadError
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.sources.rotation import Input
from headgate.usage.format import SCHEMA


def line(n: int) -> bytes:
    return b'{"isForwarded":false,"requestHeader":{"n":%d}}\n' % n


def lines(*numbers: int) -> bytes:
    return b"".join(map(line, numbers))


class Reader:
    """What a task reads: the numbers of lines; of other files, and of what isn't read, a text."""

    def __init__(self) -> None:
        self.before: Callable[[FilePiece], None] = lambda piece: None
        self.after: Callable[[FilePiece], None] = lambda piece: None

    def read(self, pieces: Iterable[FilePiece]) -> Iterator[Any]:
        for piece in pieces:
            self.before(piece)
            if piece.unread or piece.kind != "log":
                yield piece.unread or Path(piece.path).name
            else:
                for _, several in read_lines(piece):
                    for one in several:
                        yield int(one.rpartition(b":")[2].rstrip(b"}")) if one else None
            self.after(piece)


class Query:
    """As much of a Spark query as a source sees: offsets written before a batch, commits after."""

    def __init__(self, *paths: Path, most: int | None = None, goes_on: bool = True) -> None:
        self.followed = Followed([str(p) for p in paths], most_files=most, goes_on=goes_on)
        self.task = Reader()
        self.offsets: list[dict[str, Any]] = []
        self.batches: list[list[Any]] = []

    def restart(self) -> RequestLogStream:
        return RequestLogStream(self.followed, self.task)

    def plan(self, stream: RequestLogStream) -> bool:
        """Write the next batch's offset, as a query does that is killed before it reads."""
        start = self.offsets[-1] if self.offsets else stream.initialOffset()
        end = json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def read(self, stream: RequestLogStream) -> None:
        """Read the last batch that was planned, and commit it."""
        at = len(self.offsets) - 1
        start = self.offsets[at - 1] if at else stream.initialOffset()
        tasks = stream.partitions(start, self.offsets[at])
        rows = [row for task in tasks for row in stream.read(task)]
        self.batches.append([row for row in rows if row is not None])

    def run(self) -> None:
        """Start, read what is there, batch by batch, and end."""
        stream = self.restart()
        if len(self.batches) < len(self.offsets):
            self.read(stream)
        stream.prepareForTriggerAvailableNow()
        while self.plan(stream):
            self.read(stream)

    def all(self) -> list[Any]:
        return sorted((row for batch in self.batches for row in batch), key=str)


def test_what_is_there_is_read_batch_by_batch_and_then_it_ends(tmp_path: Path) -> None:
    query = Query(tmp_path, most=1)
    for n in range(3):
        (tmp_path / f"r.{n}").write_bytes(line(n))
    query.run()
    assert query.batches == [[0], [1], [2]]
    query.run()
    assert len(query.batches) == 3
    with (tmp_path / "r.1").open("ab") as file:
        file.write(line(7))
    query.run()
    assert query.batches[3:] == [[7]]
    stream = query.restart()
    assert stream.getDefaultReadLimit() == ReadMaxFiles(1)
    assert Query(tmp_path).restart().getDefaultReadLimit() == ReadAllAvailable()


def test_what_is_available_now_has_an_end_though_the_log_goes_on(tmp_path: Path) -> None:
    query = Query(tmp_path)
    log = tmp_path / "r.log"
    log.write_bytes(line(0))
    written = iter(range(1, 100))

    def append(piece: FilePiece) -> None:
        with log.open("ab") as file:
            file.write(line(next(written)))
        (tmp_path / f"other.{next(written)}").write_bytes(line(1000))

    query.task.after = append
    query.run()
    assert query.batches == [[0]]
    query.task.after = lambda piece: None
    query.run()
    assert query.all() == [0, 1, 1000]


def test_a_batch_that_wasnt_committed_is_read_again_by_whatever_name(tmp_path: Path) -> None:
    query = Query(tmp_path)
    log = tmp_path / "r.log"
    log.write_bytes(lines(1, 2))
    query.plan(query.restart())
    log.rename(tmp_path / "r.log.1")
    log.write_bytes(lines(3))
    query.run()
    assert query.batches == [[1, 2], [3]]


@pytest.mark.parametrize("how", ["compressed", "copied and truncated", "grown again", "moved"])
def test_a_batch_that_wasnt_committed_finds_its_lines_elsewhere(tmp_path: Path, how: str) -> None:
    """A kill between the offset's writing and the batch's end; its log is another file by then."""
    query = Query(tmp_path)
    log = tmp_path / "r.log"
    log.write_bytes(lines(1, 2))
    query.run()
    with log.open("ab") as file:
        file.write(lines(3, 4))
    query.plan(query.restart())
    with log.open("ab") as file:
        file.write(lines(5))
    if how == "compressed":
        (tmp_path / "r.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
        log.write_bytes(lines(6))
    elif how == "moved":
        (tmp_path / "old").mkdir()
        log.rename(tmp_path / "old" / "r.log.1")
        log.write_bytes(lines(6))
    else:
        shutil.copy(log, tmp_path / "r.log.1")
        os.truncate(log, 0)
        with log.open("ab") as file:
            file.write(lines(6) if how == "copied and truncated" else lines(*[6] * 9))
    query.run()
    assert query.batches[:2] == [[1, 2], [3, 4]]
    assert sorted(set(query.all())) == [1, 2, 3, 4, 5, 6]
    assert query.all().count(5) == 1


def test_a_compressed_file_of_a_batch_is_known_though_all_have_other_names(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"r.log.{n}.gz").write_bytes(gzip.compress(lines(n)))
        os.utime(tmp_path / f"r.log.{n}.gz", (1_000_000 - n, 1_000_000 - n))
    query = Query(tmp_path, most=1)
    query.plan(query.restart())
    for n in (2, 1):  # as logrotate does
        (tmp_path / f"r.log.{n}.gz").rename(tmp_path / f"r.log.{n + 1}.gz")
    query.run()
    assert query.batches == [[2], [1]]


def test_files_renamed_while_they_are_read_are_read_again(tmp_path: Path) -> None:
    """The hour strikes between the planning and the reading: the name is another file's."""
    log = tmp_path / "r.log"
    log.write_bytes(lines(1, 2))
    query = Query(tmp_path)
    left = [1]

    def strike(piece: FilePiece) -> None:
        if left:
            left.pop()
            log.rename(tmp_path / "r.log.1")
            log.write_bytes(lines(3, 4))

    query.task.before = strike
    query.run()
    assert query.batches == [[1, 2]]
    query.run()
    assert query.batches == [[1, 2], [3, 4]]


def test_a_compressed_file_that_is_renamed_while_it_is_read_fails_the_task(tmp_path: Path) -> None:
    log = tmp_path / "r.gz"
    log.write_bytes(gzip.compress(lines(1)))
    query = Query(tmp_path)
    query.task.after = lambda piece: Path(piece.path).rename(tmp_path / "s.gz")  # type: ignore[assignment, return-value]
    with pytest.raises(ReadError, match=r"r\.gz: it was renamed while it was read"):
        query.run()
    query.task.after = lambda piece: None
    query.run()
    assert query.batches == [[1]]


def test_a_file_that_cant_be_read_ends_it_and_is_read_once(tmp_path: Path) -> None:
    query = Query(tmp_path)
    (tmp_path / "r.log").write_bytes(line(1))
    tried: list[str] = []

    def broken(piece: FilePiece) -> None:
        tried.append(piece.path)
        raise ReadError(f"{piece.path} can't be read: the disk")

    query.task.before = broken
    with pytest.raises(ReadError, match=r"r\.log can't be read: the disk"):
        query.run()
    assert (len(tried), query.batches) == (1, [])


def test_names_that_never_rest_are_an_error(tmp_path: Path) -> None:
    query = Query(tmp_path)
    names = iter(range(100))
    (tmp_path / "r").write_bytes(line(1))
    query.task.before = lambda piece: Path(piece.path).rename(tmp_path / f"r.{next(names)}")  # type: ignore[assignment, return-value]
    with pytest.raises(ReadError, match="renamed while it was read, again and again"):
        query.run()
    assert next(names) == 5


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_log_that_is_gone_is_said(tmp_path: Path, goes_on: bool) -> None:
    (tmp_path / "s.log").write_bytes(line(2))
    (tmp_path / "r.log").write_bytes(line(1))
    query = Query(tmp_path, goes_on=goes_on)
    query.plan(query.restart())
    (tmp_path / "r.log").unlink()
    if not goes_on:
        with pytest.raises(ConfigError, match=r"r\.log: it was renamed or removed.*put it back"):
            query.run()
        return
    query.run()
    why = "it was renamed or removed while its lines were to be read, and no other file holds them"
    assert query.all() == [2, why]


def test_a_journals_file_that_was_compacted_meanwhile_is_read_by_its_new_name(
    tmp_path: Path,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    closed = tmp_path / "w-0000000000000001.arrow"
    with pa.OSFile(str(closed), "wb") as file, pa.ipc.new_stream(file, SCHEMA):
        pass
    query = Query(tmp_path)
    query.plan(query.restart())
    pq.write_table(pa.Table.from_batches([], SCHEMA), closed.with_suffix(".parquet"))
    closed.unlink()
    query.run()
    assert query.batches == [["w-0000000000000001.parquet"]]


def test_pieces_of_a_log_are_the_same_lines_when_it_was_compressed(tmp_path: Path) -> None:
    text = b"".join(line(n) for n in range(40)) + b"no end"
    plain, squeezed = tmp_path / "r", tmp_path / "r.gz"
    plain.write_bytes(text)
    squeezed.write_bytes(gzip.compress(text))

    def read(path: Path, start: int, end: int, kind: str = "") -> list[tuple[int, bytes]]:
        found = []
        for at, lines in read_lines(FilePiece(str(path), start, end, compression=kind)):
            for each in lines:
                found.append((at, each))
                at += len(each) + 1
        return found

    for size in (1, 7, len(line(1)), 100, len(text)):
        for start in range(0, len(text), size):
            end = min(start + size, len(text))
            assert read(squeezed, start, end, "gzip") == read(plain, start, end)
    with pytest.raises(ReadError, match="was longer when it was listed"):
        read(squeezed, 0, len(text) + 1, "gzip")


def test_what_was_read_is_kept_small_and_read_of_earlier_offsets_too() -> None:
    rows = [Input("/logs", f"w-{n}", n, None, None, None) for n in range(1000)]
    rows.append(Input("/logs", "r.log", -1, None, 10, 5, "ab" * 32, 1, 2))
    assert unpacked(packed(rows)) == unpacked(json.dumps(rows)) == rows
    assert len(packed(rows)) < len(json.dumps(rows)) / 5


def test_an_offset_of_another_source_is_refused(tmp_path: Path) -> None:
    stream = Query(tmp_path).restart()
    with pytest.raises(ConfigError, match="of another source, not of files"):
        stream.latestOffset({"0": 17}, ReadAllAvailable())


def checkpoint(root: Path, offset: str | None) -> str:
    (root / "commits").mkdir(parents=True)
    (root / "commits" / "0").touch()
    if offset is not None:
        (root / "offsets").mkdir()
        (root / "offsets" / "9").write_text("v1\n{}\n-")
        (root / "offsets" / "10").write_text(f"v1\n{{}}\n{offset}")
        (root / "offsets" / ".10.crc").write_text("")
    return str(root)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    older = checkpoint(tmp_path / "older", None)
    of_files = checkpoint(tmp_path / "files", '{"round": 3, "read": "[]"}')
    of_topic = checkpoint(tmp_path / "topic", '{"0": 3}')
    out = "start again with another --out, or without --incremental and --follow"
    for is_of_files in (True, False):
        with pytest.raises(ConfigError, match=f"older is of an earlier version.*; {out}"):
            refuse_other_checkpoint(older, is_of_files=is_of_files)
    with pytest.raises(ConfigError, match=f"read of a topic, and this run reads files; {out}"):
        refuse_other_checkpoint(of_topic, is_of_files=True)
    with pytest.raises(ConfigError, match=f"read of files, and this run reads a topic; {out}"):
        refuse_other_checkpoint(of_files, is_of_files=False)
    refuse_other_checkpoint(of_files, is_of_files=True)
    refuse_other_checkpoint(of_topic, is_of_files=False)
    refuse_other_checkpoint(str(tmp_path / "new"), is_of_files=True)


def test_a_clock_that_is_set_back_has_no_line_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = rotation.time.time()
    (tmp_path / "r.log").write_bytes(lines(1, 2))
    query = Query(tmp_path)
    stream = query.restart()
    for at_s, more in ((now_s, b""), (now_s - 30, lines(3, 4))):
        monkeypatch.setattr(rotation.time, "time", lambda at_s=at_s: at_s)
        with (tmp_path / "r.log").open("ab") as file:
            file.write(more)
        assert query.plan(stream)
        query.read(stream)
        assert not query.plan(stream)
    assert query.batches == [[1, 2], [3, 4]]


def test_a_folder_removed_between_planning_and_reading_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "day1"
    folder.mkdir()
    (folder / "r.log").write_bytes(lines(1, 2))
    query = Query(tmp_path)
    query.plan(query.restart())
    shutil.rmtree(folder)
    query.run()
    assert ["renamed or removed" in row for row in query.all()] == [True]


def test_a_table_removed_between_planning_and_reading_is_told(tmp_path: Path) -> None:
    table = tmp_path / "requests.parquet"
    pq.write_table(pa.table({"record_ms": [1.0]}), table)
    for goes_on in (True, False):
        query = Query(tmp_path, goes_on=goes_on)
        query.plan(query.restart())
        held = table.read_bytes()
        table.unlink()
        query.read(query.restart())
        told = query.all()
        assert told == (["it was removed before its rows were read"] if goes_on else [table.name])
        table.write_bytes(held)


def test_a_log_that_has_anothers_inode_now_is_found_by_its_own_content(tmp_path: Path) -> None:
    rows = [
        Input(str(tmp_path), "b.log", -1, None, 40, 1, "of b", 1, 7),
        Input(str(tmp_path), "a.log", -1, None, 40, 2, "of a", 1, 5),
        Input(str(tmp_path), "b.log", -1, None, 80, 3, "of b", 1, 8),
        Input(str(tmp_path), "a.log.1", -1, None, 90, 4, "of a", 1, 7),
    ]
    # The first owner of inode 7 has moved on: its row is not the last of that inode.
    assert [row.head for row in latest(rows)] == ["of b", "of a"]
    swapped = latest([rows[0], rows[1], rows[3], rows[2]])
    assert [(row.head, row.inode) for row in swapped] == [("of a", 7), ("of b", 8)]
    assert [row.head for row in latest([rows[1], rows[0], rows[3]])] == ["of b", "of a"]


@pytest.mark.parametrize("name", ["server.log", "server.log.gz"])
def test_a_log_renamed_while_a_round_is_planned_is_read_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    log = tmp_path / name
    log.write_bytes(gzip.compress(lines(1, 2)) if name.endswith("gz") else lines(1, 2))
    query = Query(tmp_path)
    stream = query.restart()
    which = "is_whole" if name.endswith("gz") else "whole_lines"
    real = getattr(rotation, which)

    def renames(path: str, *rest: Any) -> Any:
        monkeypatch.setattr(rotation, which, real)
        log.rename(tmp_path / f"old-{name}")
        return real(path, *rest)

    monkeypatch.setattr(rotation, which, renames)
    assert not query.plan(stream)
    query.run()
    assert query.all() == [1, 2]


def test_a_table_removed_while_a_round_is_planned_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        pq.write_table(pa.table({"record_ms": [1.0]}), tmp_path / f"{name}.parquet")
    query = Query(tmp_path)
    real = rotation.pieces_of

    def removes(*given: Any, **more: Any) -> Any:
        (tmp_path / "one.parquet").unlink(missing_ok=True)
        return real(*given, **more)

    monkeypatch.setattr(rotation, "pieces_of", removes)
    query.run()
    assert query.all() == ["two.parquet"]


def test_a_pattern_is_followed_though_one_of_its_folders_is_empty(tmp_path: Path) -> None:
    for n in (1, 2, 3):
        (tmp_path / f"b{n}").mkdir()
    (tmp_path / "b1" / "r.log").write_bytes(lines(1))
    (tmp_path / "b2" / "r.log").write_bytes(lines(2))
    query = Query(tmp_path / "b*")
    query.run()
    assert query.all() == [1, 2]
    (tmp_path / "b3" / "r.log").write_bytes(lines(3))
    query.run()
    assert query.all() == [1, 2, 3]


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    query = Query(tmp_path)
    stream = query.restart()
    monkeypatch.setattr(files, "filesystem", refuses)
    with pytest.raises(ConfigError, match="Permission denied"):
        query.plan(stream)


def test_a_log_copied_truncated_and_regrown_while_it_is_read_loses_no_line(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(lines(*range(10)))
    query = Query(tmp_path)
    stream = query.restart()
    rolled: list[int] = []

    def rolls(piece: FilePiece) -> None:
        if not rolled:
            rolled.append(1)
            shutil.copyfile(log, tmp_path / "server.log.1")
            os.truncate(log, 0)
            with log.open("ab") as file:
                file.write(lines(*range(100, 130)))

    query.task.before = rolls
    query.plan(stream)
    query.read(stream)
    query.run()
    assert query.all() == sorted([*range(10), *range(100, 130)], key=str)


def test_what_was_committed_is_known_by_a_uri_too(tmp_path: Path) -> None:
    commits = tmp_path / "checkpoint" / "commits"
    for root in (str(tmp_path), f"file://{tmp_path}"):
        assert Parts(None, root).last() == -1  # type: ignore[arg-type]
    commits.mkdir(parents=True)
    for name in ("0", "12", "3", ".12.crc"):
        (commits / name).write_text("v1")
    for root in (str(tmp_path), f"file://{tmp_path}"):
        assert Parts(None, root).last() == 12  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="of an earlier version"):
            refuse_other_checkpoint(f"{root}/checkpoint", is_of_files=True)
