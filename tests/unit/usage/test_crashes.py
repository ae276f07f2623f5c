"""A journal whose process dies at any step: every event that was written is there, once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.usage.format import Event, Origin
from headgate.usage.reader import compact, find_gaps, read_batches, read_events
from headgate.usage.retention import remove_oldest
from headgate.usage.writer import JournalWriter

ORIGIN = Origin("record", "producer_byte_rate", 1)


class DiedError(BaseException):
    """The process is no more: nothing in it may do anything from now on."""


class Death:
    """Every step that changes the disk; none succeeds from a given one on."""

    STEPS = (
        (os, "pwrite"),
        (os, "fsync"),
        (os, "ftruncate"),
        (Path, "rename"),
        (Path, "unlink"),
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        for owner, name in self.STEPS:
            monkeypatch.setattr(owner, name, self._mortal(getattr(owner, name)))

    def _mortal(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise DiedError
            return real(*args, **named)

        return step


def append(journal: JournalWriter, what: float, done: list[float]) -> None:
    journal.append(tuple(Event(ORIGIN, 1.0, what)))
    if journal.flush():
        done.append(what)


def run(folder: Path, first: int, done: list[float]) -> None:
    """A worker's life: two files, the second closed at the end; then both compacted."""
    journal = JournalWriter(folder, "w", max_file_bytes=1)
    append(journal, first, done)
    journal._max_file_bytes = 10**6
    append(journal, first + 1, done)
    append(journal, first + 2, done)
    journal.close()
    compact(folder)


def deaths(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Give a step at which to die, and a folder, for as many steps as there are."""
    for at in range(200):
        folder = tmp_path / str(at)
        folder.mkdir()
        yield at, folder
    pytest.fail("a life has more steps than that?")


def left_open(folder: Path) -> list[float]:
    journal = JournalWriter(folder, "w")
    done: list[float] = []
    append(journal, -2.0, done)
    append(journal, -1.0, done)
    return done


@pytest.mark.parametrize("before", ["nothing", "a file left open"])
def test_whenever_a_worker_dies_nothing_written_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    for at, folder in deaths(tmp_path):
        done = left_open(folder) if before != "nothing" else []
        with monkeypatch.context() as mortal:
            death = Death(mortal, at)
            with contextlib.suppress(DiedError):
                run(folder, 1, done)
        run(folder, 101, done)
        table = read_events(folder)
        amounts, seqs = table.column("amount").to_pylist(), table.column("seq").to_pylist()
        assert [a for a in amounts if a in done] == done
        assert len(set(amounts) - set(done)) <= 1  # its batch was whole, and nobody was told
        assert seqs == sorted(set(seqs))
        assert not [p.name for p in folder.iterdir() if p.suffix in (".open", ".arrow")]
        if death.left >= 0:
            assert amounts == done
            assert len(list(find_gaps(read_batches(folder)))) == (before != "nothing")
            return


def test_whenever_a_worker_dies_while_it_removes_files_no_number_is_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, folder in deaths(tmp_path):
        done: list[float] = []
        run(folder, 1, done)
        given = read_events(folder).column("seq").to_pylist()
        with monkeypatch.context() as mortal:
            death = Death(mortal, at)
            with contextlib.suppress(DiedError):
                remove_oldest(folder, 1)
        kept = read_events(folder).column("seq").to_pylist()
        assert kept == given[len(given) - len(kept) :]
        run(folder, 101, done)
        fresh = read_events(folder).column("seq").to_pylist()[len(kept) :]
        assert len(fresh) == 3
        assert fresh[0] == max(given) + 1
        if death.left >= 0:
            assert kept == []
            return
