"""Rounds over growing files: written, committed, begun again after a kill, ended when told."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.pipeline.growing.directories import FileRounds, Paths
from headgate.pipeline.growing.parts import Following
from headgate.pipeline.growing.rotation import FilesOfRound, RolledFiles
from headgate.pipeline.growing.rounds import Input
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.compressed import ReadError


def line(n: int) -> bytes:
    return b'{"isForwarded":false,"requestHeader":{"n":%d}}\n' % n


class Rows:
    def __init__(self, rows: list[Input]) -> None:
        self._rows = rows

    def collect(self) -> list[Input]:
        return self._rows


class Store:
    """What stays on the disk: parts by number, and which are committed (``Parts``)."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[list[int], list[Input]]] = {}
        self.committed = -1
        self.before_write: Any = lambda: None

    def last(self) -> int:
        return self.committed

    def read(self, name: str, upto: int) -> Rows:
        assert name == "inputs"
        return Rows([row for n in range(upto + 1) for row in self.parts[n][1]])

    def write(self, taken: FilesOfRound, number: int) -> None:
        self.before_write()
        lines = [one for s in taken.pieces for _, several in read_lines(s) for one in several]
        numbers = [int(one.rpartition(b":")[2].rstrip(b"}")) for one in lines if one]
        self.parts[number] = (numbers, taken.inputs)

    def commit(self, number: int) -> None:
        self.committed = number

    def lines(self) -> list[int]:
        return sorted(n for number in range(self.committed + 1) for n in self.parts[number][0])


class Spark:
    """As much of a session as rounds ask for."""

    cancelled = 0

    @property
    def sparkContext(self) -> Spark:
        return self

    def cancelAllJobs(self) -> None:
        self.cancelled += 1


def rounds(store: Store, folder: Path, after: Any = None, *, once: bool = True) -> FileRounds:
    to = Following(
        Spark(),  # type: ignore[arg-type]
        store,  # type: ignore[arg-type]
        after or (lambda number: None),
        once=once,
        every_s=0.01,
    )
    return FileRounds(
        Paths([str(folder)]),
        RolledFiles(files_per_round=1),
        lambda found: found,  # type: ignore[arg-type, return-value]
        to,
    )


def followed(store: Store, folder: Path) -> None:
    query = rounds(store, folder)
    query.start()
    assert query.awaitTermination(30)
    failure = query.exception()
    if failure is not None:
        raise failure


def test_what_is_there_is_read_round_by_round_and_then_it_ends(tmp_path: Path) -> None:
    store = Store()
    for n in range(3):
        (tmp_path / f"r.{n}").write_bytes(line(n))
    followed(store, tmp_path)
    assert (store.committed, store.lines()) == (2, [0, 1, 2])
    followed(store, tmp_path)
    assert store.committed == 2
    with (tmp_path / "r.1").open("ab") as file:
        file.write(line(7))
    followed(store, tmp_path)
    assert (store.committed, store.lines()) == (3, [0, 1, 2, 7])


def test_a_round_that_wasnt_committed_is_read_again_by_whatever_name(tmp_path: Path) -> None:
    store = Store()
    log = tmp_path / "r.log"
    log.write_bytes(line(1))

    def die(number: int) -> None:
        raise RuntimeError("killed")

    query = rounds(store, tmp_path, die)
    query.start()
    query.awaitTermination(30)
    assert (store.committed, set(store.parts)) == (-1, {0})
    log.rename(tmp_path / "r.log.1")
    log.write_bytes(line(2))
    followed(store, tmp_path)
    assert store.lines() == [1, 2]


def test_files_renamed_under_a_round_are_found_again(tmp_path: Path) -> None:
    """The hour strikes between the planning and the reading: the name is another file's."""
    store = Store()
    log = tmp_path / "r.log"
    log.write_bytes(line(1) + line(2))
    left = [1]

    def strike() -> None:
        if left:
            left.pop()
            log.rename(tmp_path / "r.log.1")
            log.write_bytes(line(3) + line(4))

    store.before_write = strike
    followed(store, tmp_path)
    assert store.lines() == [1, 2, 3, 4]


def test_a_file_that_cant_be_read_ends_it_and_nothing_is_committed(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / "r.log").write_bytes(line(1))

    def broken() -> None:
        raise ReadError(f"{tmp_path}/r.log can't be read: the disk")

    store.before_write = broken
    with pytest.raises(ReadError, match=r"r\.log can't be read"):
        followed(store, tmp_path)
    assert store.committed == -1


def test_names_that_never_rest_are_an_error(tmp_path: Path) -> None:
    store = Store()
    names = iter(range(100))
    (tmp_path / "r").write_bytes(line(1))

    def move() -> None:
        (file,) = tmp_path.iterdir()
        file.rename(tmp_path / f"r.{next(names)}")

    store.before_write = move
    with pytest.raises(Exception, match=r"renamed while they are read|No such file"):
        followed(store, tmp_path)
    assert store.committed == -1


def test_it_goes_on_until_it_is_told_to_stop(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / "r.log").write_bytes(line(1))
    seen = threading.Event()
    query = rounds(store, tmp_path, lambda number: seen.set(), once=False)
    query.start()
    assert seen.wait(30)
    assert query.isActive
    query.stop()
    assert not query.isActive
    assert query.exception() is None


def test_state_by_names_alone_is_refused(tmp_path: Path) -> None:
    store = Store()
    store.parts[0] = ([], [Input("/logs", "r.log", -1, None, 10, None)])
    store.committed = 0
    with pytest.raises(ConfigError, match="start again"):
        followed(store, tmp_path)
