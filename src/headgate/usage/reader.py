"""
Read journals: files of any kind, in order, with the gaps that losses left.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.files import sync_directory
from headgate.usage import files
from headgate.usage.disk import create
from headgate.usage.format import SCHEMA

_ROW_GROUP: Final = 65_536
"""Rows of a Parquet row group: some 25 MB while it is made."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Gap(NamedTuple):
    """Events of a worker that are missing: numbers first to last, both included."""

    worker_id: str
    first_seq: int
    last_seq: int


def list_files(paths: Paths) -> list[files.JournalFile]:
    """
    Return journal files, by worker and sequence.

    Args:
        paths: files or directories; a single one does.

    Raises:
        FileNotFoundError: a path isn't there.
        ValueError: a file isn't a journal's.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: dict[tuple[str, int], files.JournalFile] = {}
    for item in map(Path, listed):
        if item.is_dir():
            several = files.journal_files(item)
        else:
            item.stat()
            one = files.parse_name(item)
            if one is None:
                raise ValueError(
                    f"{item} isn't a journal file; they are named WORKER-<16 digits>.arrow, "
                    ".open or .parquet"
                )
            several = [one]
        for file in several:
            found[file.worker_id, file.first_seq] = file
    return [found[key] for key in sorted(found)]


def read_batches(paths: Paths) -> Iterator[pa.RecordBatch]:
    """
    Read events batch by batch, by worker and sequence; at most one file is in memory.

    Args:
        paths: journal files or directories of them. Of an open file the complete batches are read.

    Yields:
        Batches of ``SCHEMA``, each of one worker, ``seq`` ascending.
    """
    for file in list_files(paths):
        yield from read_file(file)


def read_until(paths: Paths, until_ms: float) -> Iterator[pa.RecordBatch]:
    """
    Read events as ``read_batches`` does, each worker's up to a batch that begins after a time.

    Args:
        paths: journal files or directories of them.
        until_ms: epoch ms.
    """
    over: set[str] = set()
    for file in list_files(paths):
        if file.worker_id in over:
            continue
        for batch in read_file(file):
            if batch.num_rows and batch.column("t_ms")[0].as_py() > until_ms:
                over.add(file.worker_id)
                break
            yield batch


def latest_files(directory: Path, since_ms: float) -> Iterator[tuple[float, files.JournalFile]]:
    """
    Yield the files of a directory that were written since a time, the latest first.

    Args:
        directory: the journal's.
        since_ms: epoch ms.

    Yields:
        When a file was written, epoch ms, and the file, whose batches ``read_file`` reads.
    """
    latest = []
    for file in files.journal_files(directory):
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            latest.append((file.path.stat().st_mtime * 1000, file))
    for written_ms, file in sorted(latest, key=lambda item: (-item[0], item[1])):
        if written_ms < since_ms:
            return
        yield written_ms, file


def read_file(file: files.JournalFile) -> Iterator[pa.RecordBatch]:
    """Read a file's batches; none where it was removed since it was listed."""
    with contextlib.suppress(FileNotFoundError):  # the journal was too large
        yield from files.read_batches(file)


def last_ms(paths: Paths) -> float | None:
    """Return when the last event was, epoch ms; None: there are none."""
    latest = {}
    for file in list_files(paths):
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            if file.path.stat().st_size:
                latest[file.worker_id] = file
    times = (
        pc.max(batch.column("t_ms")).as_py()
        for file in latest.values()
        for batch in read_file(file)
        if batch.num_rows
    )
    return max(times, default=None)


def read_events(paths: Paths) -> pa.Table:
    """Read all events of journals into one table of ``SCHEMA``, by worker and sequence."""
    return pa.Table.from_batches(list(read_batches(paths)), schema=SCHEMA)


def find_gaps(batches: Iterable[pa.RecordBatch]) -> Iterator[Gap]:
    """
    Find what is missing between the first and the last event of each worker.

    Args:
        batches: as ``read_batches`` gives them.
    """
    expected: dict[str, int] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        worker = batch.column("worker_id")[0].as_py()
        numbers = batch.column("seq")
        first, last = numbers[0].as_py(), numbers[-1].as_py()
        awaited = expected.get(worker)
        if awaited is not None and first > awaited:
            yield Gap(worker, awaited, first - 1)
        if last - first + 1 != batch.num_rows:
            previous = first
            for number in numbers.to_pylist()[1:]:
                if number > previous + 1:
                    yield Gap(worker, previous + 1, number - 1)
                previous = number
        expected[worker] = last + 1


class DamagedFile(NamedTuple):
    """A closed file that was set aside: what for, and how many of its events could be read."""

    path: Path
    why: str
    events: int


def compact(
    directory: str | os.PathLike[str], on_damaged: Callable[[DamagedFile], None] | None = None
) -> list[Path]:
    """
    Turn a directory's closed files into Parquet, about a tenth of their size.

    Each file becomes one of the same name; it is removed only when its Parquet twin is whole on
    disk and has as many rows. Open files are left alone, so it may run beside writers. A file that
    is damaged is kept: what can be read of it becomes Parquet, and the file itself is set aside,
    with a name that ends in ``.bad``. One that can't be compacted holds up none of the others.

    Args:
        directory: the journal's.
        on_damaged: called with each file that was set aside.

    Returns:
        The Parquet files made; none while another process compacts this directory.

    Raises:
        OSError: some couldn't be compacted, as on a full disk; they are as they were.
    """
    root = Path(directory)
    # Workers of one gateway share the folder; two that write the same twin would spoil it.
    held = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _compact(root, on_damaged)
    except BlockingIOError:
        return []
    finally:
        os.close(held)


def _compact(root: Path, on_damaged: Callable[[DamagedFile], None] | None) -> list[Path]:
    made: list[Path] = []
    failed: list[str] = []
    for path in sorted(root.glob(f"*{files.CLOSED}")):
        if files.parse_name(path) is None:
            continue
        try:
            target, damaged = _compact_file(path)
        except (OSError, pa.ArrowException) as exc:
            if path.exists():  # else it was removed meanwhile, because the journal was too large
                failed.append(f"{path.name}: {exc}")  # the others can be compacted
            continue
        if target is not None:
            made.append(target)
        if damaged is not None and on_damaged is not None:
            on_damaged(damaged)
    if made:
        pa.default_memory_pool().release_unused()  # else a gateway keeps it until the next time
    if failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        raise OSError(failed[0] + more)
    return made


def _compact_file(path: Path) -> tuple[Path | None, DamagedFile | None]:
    """Turn one closed file into Parquet; return what was made, and what was set aside."""
    target = path.with_suffix(files.PARQUET)
    batches = files.ClosedBatches(path)
    made = None
    there = _rows_of(target)
    if there is not None:  # killed before the closed file was removed, or set aside
        rows = sum(batch.num_rows for batch in batches)
    if there is None or there < rows:
        batches = files.ClosedBatches(path)
        unfinished = path.with_suffix(".parquet-tmp")
        try:
            rows = _write_parquet(batches, unfinished)
            with unfinished.open("rb") as done:
                os.fsync(done.fileno())
            if pq.read_metadata(unfinished).num_rows != rows:
                raise OSError(f"{unfinished} hasn't all rows of {path}; {path} is kept")
            if batches.damage is None or rows:
                unfinished.rename(target)
                sync_directory(path.parent)
                made = target
        finally:
            with contextlib.suppress(OSError):  # on a full disk half a file helps nobody
                unfinished.unlink(missing_ok=True)
    if batches.damage is None:
        path.unlink()
        return made, None
    return made, DamagedFile(_set_aside(path), batches.damage, rows)


def _rows_of(parquet: Path) -> int | None:
    """
    Return how many rows a Parquet file has; None if it doesn't exist, or isn't a Parquet file.
    """
    try:
        return int(pq.read_metadata(parquet).num_rows)
    except (OSError, pa.ArrowException):
        return None


def _set_aside(path: Path) -> Path:
    """Rename a file so that no reader reads it and no writer overwrites it."""
    aside = path.with_suffix(files.BAD)
    for number in itertools.count(1):
        if not aside.exists():
            break
        aside = path.with_suffix(f"{files.BAD}-{number}")
    path.rename(aside)
    sync_directory(path.parent)
    return aside


def _write_parquet(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches as row groups, so that a large file needn't fit in memory; return the rows."""
    total = waiting = 0
    group: list[pa.RecordBatch] = []
    with create(path) as sink, pq.ParquetWriter(sink, SCHEMA, compression="zstd") as out:
        for batch in batches:
            group.append(batch)
            total += batch.num_rows
            waiting += batch.num_rows
            if waiting >= _ROW_GROUP:
                out.write_table(pa.Table.from_batches(group, schema=SCHEMA), waiting)
                group, waiting = [], 0
        if waiting:
            out.write_table(pa.Table.from_batches(group, schema=SCHEMA), waiting)
    return total
