"""
Journal files on disk: written batch by batch, closed by a rename, recovered after a kill.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from headgate.files import sync_directory
from headgate.usage import files
from headgate.usage.format import SCHEMA


class Recovered(NamedTuple):
    """A file that a killed worker left open."""

    path: Path
    events: int
    lost_bytes: int


class _Sink(io.RawIOBase):
    """A file for Arrow's writer that only collects bytes, so that a batch is written whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._offset = 0

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._parts.append(raw)
        self._offset += len(raw)
        return len(raw)

    def tell(self) -> int:
        return self._offset

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        raw = b"".join(self._parts)
        self._parts.clear()
        return raw


class OpenFile:
    """One file being written."""

    def __init__(self, path: Path, opened_ms: float, first_seq: int) -> None:
        self.path = path
        self.opened_ms = opened_ms
        self.first_seq = first_seq  # of its events
        self.size = 0
        self._unwritten = b""
        self._sink = _Sink()
        self._writer = pa.ipc.new_file(
            pa.PythonFile(self._sink, mode="w"), SCHEMA, options=files.WRITE_OPTIONS
        )
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def removed(self) -> bool:
        """Whether somebody removed the file, so that nobody would find what is written to it."""
        return self._fd >= 0 and not os.fstat(self._fd).st_nlink

    def stage(self, batch: pa.RecordBatch) -> None:
        """Make a batch's bytes."""
        self._writer.write_batch(batch)
        self._unwritten = self._sink.take()

    def commit(self) -> None:
        """Give the bytes to the system: all of them, or none and OSError."""
        raw = memoryview(self._unwritten)
        at = self.size
        try:
            while raw:
                count = os.pwrite(self._fd, raw, at)
                at += count
                raw = raw[count:]
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to report
                os.ftruncate(self._fd, self.size)
            raise
        self.size = at
        self._unwritten = b""

    def close(self) -> None:
        """Write the footer, sync and rename."""
        self._writer.close()
        self._unwritten += self._sink.take()  # behind a batch that couldn't be written yet
        self.commit()
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        self.path.rename(self.path.with_suffix(files.CLOSED))
        sync_directory(self.path.parent)

    def abandon(self) -> None:
        """
        Give up a file that can't be closed. If nothing was written to it, its name can be reused.
        """
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if not self.size:
                self.path.unlink(missing_ok=True)


def create(path: Path) -> IO[bytes]:
    """
    Make a new file and open it for writing.

    A file or link of the same name is removed first, so that a link's target is never overwritten.

    Raises:
        OSError: it can't be made.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o640), "wb")


def write_closed(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """
    Write a closed file under another name and rename it: so it is there whole, or not at all.

    Returns:
        How many rows it has; without any there is no file.
    """
    unfinished = path.with_suffix(".tmp")
    rows = 0
    try:
        with (
            create(unfinished) as sink,
            pa.ipc.new_file(sink, SCHEMA, options=files.WRITE_OPTIONS) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        if not rows:
            unfinished.unlink()
            return 0
        with unfinished.open("rb") as done:
            os.fsync(done.fileno())
        unfinished.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):  # on a full disk half a file helps nobody
            unfinished.unlink()
        raise
    sync_directory(path.parent)
    return rows


def recover(directory: Path, worker_id: str) -> Iterator[Recovered]:
    """
    Close the files that a killed worker left open; one batch at a time is in memory.

    Args:
        directory: the journal's.
        worker_id: only its files: other workers may be writing theirs.

    Yields:
        Each file, once it is closed. A file without a complete batch is removed.
    """
    for path in sorted(directory.glob(f"*{files.OPEN}")):
        name = files.parse_name(path)
        if name is None or name.worker_id != worker_id:
            continue
        closed = path.with_suffix(files.CLOSED)
        if closed.exists():  # killed between writing the closed file and removing the open one
            path.unlink()
            continue
        whole = _Whole(path)
        events = write_closed(closed, whole)
        path.unlink()
        yield Recovered(closed, events, whole.lost_bytes)


class _Whole:
    """The complete batches of a file that was left open; and the bytes after them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lost_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self._path)) as source:
            self.lost_bytes = source.size()
            for batch in files.complete_batches(source):
                self.lost_bytes = source.size() - source.tell()
                yield batch
