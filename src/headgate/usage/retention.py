"""
Keep a journal's folder within its bound: remove the oldest files, and remember their numbers.

Closed files of every kind count, those set aside as damaged too. A file that is being written
doesn't count; it has a bound of its own. Among a worker's files the numbers say which is older. The
disk's times may go back when a clock is set, so they only order the files of different workers.

The next run of a worker continues after the highest number. Before the file with that number is
removed, the number is written to ``<worker>.next``, so that no number is used twice.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.files import write_whole
from headgate.quota.sanitizer import sanitize
from headgate.usage import files

NEXT: Final = ".next"
MOST_EVENTS: Final = 32 * 1024 * 1024
"""How many numbers are left out after a damaged file that was removed: far more than one can
hold."""


class Removed(NamedTuple):
    """How many files were removed, and how many of them had been set aside as damaged."""

    files: int = 0
    damaged: int = 0


class _Stored(NamedTuple):
    """A closed file: the parts of its name, its size, and when it was last written."""

    file: files.JournalFile
    size: int
    mtime_ns: int


def remove_oldest(directory: Path, retention_bytes: int) -> Removed:
    """
    Remove the oldest files while all closed ones together are larger than the bound.

    Args:
        directory: the journal's.
        retention_bytes: the bound, in bytes.

    Returns:
        What was removed; nothing while another process compacts this directory or removes from it.

    Raises:
        OSError: a file can't be removed.
    """
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _remove_oldest(directory, retention_bytes)
    except BlockingIOError:
        return Removed()
    finally:
        os.close(held)


def _remove_oldest(directory: Path, retention_bytes: int) -> Removed:
    stored = _stored_files(directory)
    total = sum(one.size for one in stored)
    highest: dict[str, int] = {}
    for file in (*files.journal_files(directory), *(one.file for one in stored)):
        highest[file.worker_id] = max(file.first_seq, highest.get(file.worker_id, 0))
    removed = damaged = 0
    for one in _oldest_first(stored):
        if total <= retention_bytes:
            break
        if one.file.first_seq == highest[one.file.worker_id]:
            try:
                note_number(directory, one.file.worker_id, _next_number(one))
            except OSError:
                continue  # on a full disk: removing other files makes room for the note
        one.file.path.unlink(missing_ok=True)
        total -= one.size
        removed += 1
        damaged += one.file.suffix == files.BAD
    return Removed(removed, damaged)


def noted_number(directory: Path, worker_id: str) -> int:
    """
    Return the least number for a worker's next event; 1 if none is noted.

    Raises:
        OSError: it can't be read.
    """
    try:
        return int(_note(directory, worker_id).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 1


def note_number(directory: Path, worker_id: str, number: int) -> None:
    """
    Note the least number for a worker's next event.

    Raises:
        OSError: it can't be put on disk.
    """
    if noted_number(directory, worker_id) >= number:
        return
    content = str(number).encode("ascii")
    write_whole(_note(directory, worker_id), content, mode=0o640, durable=True)


def _note(directory: Path, worker_id: str) -> Path:
    return directory / (sanitize(worker_id) + NEXT)


def _stored_files(directory: Path) -> list[_Stored]:
    """Return a directory's closed files of every kind, by worker and sequence."""
    kinds = (files.CLOSED, files.PARQUET)
    named = [file for file in map(files.parse_name, directory.iterdir()) if file is not None]
    listed = files.set_aside(directory) + [file for file in named if file.suffix in kinds]
    found = []
    for file in listed:
        try:
            stat = file.path.stat()
        except FileNotFoundError:
            continue
        found.append(_Stored(file, stat.st_size, stat.st_mtime_ns))
    return sorted(found, key=lambda one: (one.file.worker_id, one.file.first_seq, one.mtime_ns))


def _oldest_first(stored: list[_Stored]) -> list[_Stored]:
    """Order files by age; each worker's files stay in the order of their numbers."""
    aged: list[tuple[int, int]] = []
    younger = 0
    for at in range(len(stored) - 1, -1, -1):
        one = stored[at]
        same = at + 1 < len(stored) and stored[at + 1].file.worker_id == one.file.worker_id
        younger = min(one.mtime_ns, younger) if same else one.mtime_ns
        aged.append((younger, at))
    return [stored[at] for _, at in sorted(aged)]


def _next_number(one: _Stored) -> int:
    """Return the number after a file's last one; if that isn't known, one far higher."""
    file = one.file
    try:
        if file.suffix == files.PARQUET:
            with pq.ParquetFile(file.path) as parquet:
                groups = parquet.num_row_groups
                if not groups:
                    return file.first_seq
                return int(parquet.read_row_group(groups - 1, ["seq"])[0][-1].as_py()) + 1
        if file.suffix == files.CLOSED:
            last = file.first_seq - 1
            batches = files.ClosedBatches(file.path)
            for batch in batches:
                last = batch.column("seq")[-1].as_py()
            if batches.damage is None:
                return last + 1
    except (OSError, pa.ArrowException):
        pass
    return file.first_seq + max(MOST_EVENTS, one.size)
