"""Which bytes of growing, renamed, copied and compressed files a round reads: each line once."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.errors import ConfigError
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.files import GrowingPaths
from headgate.pipeline.sources.identity import place_of
from headgate.pipeline.sources.rotation import Input, RolledFiles
from headgate.usage.format import SCHEMA

OLD = 1_000_000.0


def line(n: int) -> bytes:
    return b'[2026-01-01 00:00:00,000] {"isForwarded":false,"requestHeader":{"n":%d}}\n' % n


class Folder:
    """A folder of logs, and what rounds read of it."""

    def __init__(self, root: Path, *given: str, killed: bool = False) -> None:
        self.root = root
        self.given = [str(root / path) for path in given] or [str(root)]
        self.killed = killed
        self.most = 64
        self.rolled = RolledFiles()
        self.inputs: list[Input] = []
        self.told: list[tuple[str, str]] = []
        self.now = OLD

    def append(self, name: str, *numbers: int, end: bytes = b"") -> Path:
        path = self.root / name
        with path.open("ab") as file:
            file.write(b"".join(map(line, numbers)) + end)
        os.utime(path, (self.now, self.now))
        return path

    def round(self) -> list[int]:
        """Return the numbers of the lines that a round reads, in order."""
        if self.killed:  # nothing is known but what is written down
            self.rolled = RolledFiles(files_per_round=self.most)
            self.rolled.remember(self.inputs)
        self.now += 1
        found = self.rolled.take(GrowingPaths(self.given).files(self.rolled.places), self.now)
        assert all(place_of(path) == place for path, place in found.places.items())
        self.inputs += found.inputs
        self.rolled.remember(found.inputs)
        lines = []
        for piece in found.pieces:
            if piece.unread:
                self.told.append((Path(piece.path).name, piece.unread))
                continue
            if piece.kind == "log":
                lines += [one for _, several in read_lines(piece) for one in several if one]
        return sorted(int(one.rpartition(b":")[2].rstrip(b"}")) for one in lines)


@pytest.fixture(params=[False, True], ids=["running", "killed in between"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path, killed=request.param)


def test_a_stock_kafka_log_folder_that_rolls_on_the_hour(folder: Folder) -> None:
    folder.append("kafka-request.log", 1, 2)
    assert folder.round() == [1, 2]
    assert folder.round() == []
    folder.append("kafka-request.log", 3)
    assert folder.round() == [3]
    folder.append("kafka-request.log", 4)
    active = folder.root / "kafka-request.log"
    active.rename(folder.root / "kafka-request.log.2026-01-01-10")
    folder.append("kafka-request.log", 5, 6)
    assert folder.round() == [4, 5, 6]
    # Compressed later, with a line that no round has seen.
    rolled = folder.append("kafka-request.log.2026-01-01-10", 7)
    packed = rolled.with_name(rolled.name + ".gz")
    packed.write_bytes(gzip.compress(rolled.read_bytes()))
    rolled.unlink()
    folder.append("kafka-request.log", 8)
    assert folder.round() == [7, 8]
    assert folder.round() == []
    assert folder.told == []


def test_names_that_move_up_by_one(folder: Folder) -> None:
    for hour in range(4):
        for n in range(hour - 1, -1, -1):
            name = f"r.log.{n}" if n else "r.log"
            (folder.root / name).rename(folder.root / f"r.log.{n + 1}")
        folder.append("r.log", 10 * hour, 10 * hour + 1)
        assert folder.round() == [10 * hour, 10 * hour + 1]
    assert folder.told == []


def test_copied_and_cut(folder: Folder) -> None:
    log = folder.append("r.log", 1, 2)
    assert folder.round() == [1, 2]
    folder.append("r.log", 3)
    shutil.copy2(log, folder.root / "r.log.1")  # logrotate's copytruncate
    log.write_bytes(b"")
    folder.append("r.log", 4)
    assert folder.round() == [3, 4]
    assert folder.told == []


def test_a_copy_beside_its_original_isnt_read_and_is_told_of_once(folder: Folder) -> None:
    log = folder.append("r.log", 1, 2)
    assert folder.round() == [1, 2]
    shutil.copy2(log, folder.root / "a-backup")
    folder.append("r.log", 3)
    assert folder.round() == [3]
    assert folder.round() == []
    assert folder.told == [("a-backup", f"it begins as {log} does, which is read")]


def test_a_line_counts_when_it_is_whole_or_its_file_rests(folder: Folder) -> None:
    folder.append("r.log", 1, end=line(2)[:30])
    assert folder.round() == [1]
    folder.append("r.log", end=line(2)[30:] + line(3)[:-1])
    assert folder.round() == [2]
    folder.now += 100
    assert folder.round() == [3]


def test_an_inode_given_anew_is_another_file(folder: Folder) -> None:
    log = folder.append("r.log", 1, 2)
    assert folder.round() == [1, 2]
    log.write_bytes(b"")  # the inode stays, the file is another
    folder.append("r.log", 7, 8, 9)
    assert folder.round() == [7, 8, 9]


def test_a_file_without_requests_is_read_when_it_rests(folder: Folder) -> None:
    path = folder.root / "server.log"
    path.write_bytes(b"started {}:1\n")
    os.utime(path, (folder.now, folder.now))
    assert folder.round() == []
    folder.now += 100
    assert folder.round() == [1]
    assert folder.round() == []


def test_a_gzip_that_is_being_written_waits(folder: Folder) -> None:
    path = folder.root / "r.gz"
    data = gzip.compress(line(1) + line(2) * 500)
    path.write_bytes(data[:-20])
    os.utime(path, (folder.now, folder.now))
    assert folder.round() == []
    path.write_bytes(data)
    os.utime(path, (folder.now, folder.now))
    assert folder.round()[0] == 1


def test_a_file_given_by_name_is_followed_through_its_renaming(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "r.log")
    folder.append("r.log", 1)
    folder.append("other.log", 100)
    assert folder.round() == [1]
    folder.append("r.log", 2).rename(tmp_path / "r.log.1")
    folder.append("r.log", 3)
    assert folder.round() == [2, 3]


def test_a_pattern_is_expanded_anew_in_each_round(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "r.log*")
    assert folder.round() == []
    folder.append("r.log.1", 1)
    folder.append("s.log", 100)
    assert folder.round() == [1]
    folder.append("r.log.2", 2)
    assert folder.round() == [2]


def test_what_isnt_there_or_isnt_local_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as said:
        GrowingPaths([str(tmp_path / "no"), "s3://bucket/logs"])
    assert "no: there is no such file or directory" in said.value.problems[0]
    assert "take local paths" in said.value.problems[1]


def test_what_was_known_by_name_only_is_refused() -> None:
    with pytest.raises(ConfigError, match="start again with another --out"):
        RolledFiles().remember([Input("/logs", "r.log", -1, None, 10, None)])


def test_rounds_are_of_so_many_files_at_most(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.rolled = RolledFiles(files_per_round=2)
    for n in range(5):
        folder.now += 1
        folder.append(f"{n}.log", n)
    assert [folder.round() for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_a_journals_file_counts_when_it_is_closed_once(folder: Folder) -> None:
    name = folder.root / "w-0000000000000001"

    def write(path: Path) -> None:
        with pa.ipc.new_file(str(path), SCHEMA) as writer:
            event = {"seq": 1, "worker_id": "w", "t_ms": 1.0, "kind": "start", "broker_id": 1}
            writer.write_batch(pa.RecordBatch.from_pylist([event], schema=SCHEMA))

    def pieces() -> list[str]:
        found = folder.rolled.take(GrowingPaths(folder.given).files(set()), folder.now)
        folder.inputs += found.inputs
        folder.rolled.remember(found.inputs)
        if folder.killed:
            folder.rolled = RolledFiles()
            folder.rolled.remember(folder.inputs)
        return [Path(piece.path).suffix for piece in found.pieces]

    write(name.with_suffix(".open"))
    assert pieces() == []
    name.with_suffix(".open").rename(name.with_suffix(".arrow"))
    assert pieces() == [".arrow"]
    name.with_suffix(".arrow").rename(name.with_suffix(".parquet.not"))
    assert pieces() == []


def write_journal(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA):
        pass


@pytest.mark.parametrize("most", [1, 2])
def test_logs_that_always_grow_let_others_have_their_turns(folder: Folder, most: int) -> None:
    folder.most = most
    folder.rolled = RolledFiles(files_per_round=most)
    names = ["a.log", "b.log", "c.log"]
    number = 0
    read: list[set[str]] = []
    came = 0
    for at in range(14):
        for name in names:  # the last of them is always the latest changed
            number += 1
            folder.now += 0.01
            folder.append(name, number)
        if at == 6:
            write_journal(folder.root / "w-1-0000000000000001.arrow")
            folder.append("new.log", 10_000)
        before = len(folder.inputs)
        folder.round()
        rows = folder.inputs[before:]
        assert len(rows) <= most
        read.append({row.worker_id for row in rows})
        if at >= 6 and came == 0 and {"w-1", "new.log"} <= set().union(*read):
            came = at
    assert 6 <= came <= 7  # what was never read goes first
    for rounds in (read[:6], read[8:]):
        assert set(names) <= set().union(*rounds)
