"""
Journal files on disk: written batch by batch, closed by a rename, recovered after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headgate.usage import files
from headgate.usage.format import SCHEMA


class Recovered(NamedTuple):
    """A file that a killed worker left open."""

    path: Path
    events: int
    lost_bytes: int


class _Sink:
    """A file for Arrow's writer that only collects bytes, so that a batch is written whole."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.offset = 0
        self.closed = False

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self.parts.append(raw)
        self.offset += len(raw)
        return len(raw)

    def tell(self) -> int:
        return self.offset

    def flush(self) -> None:
        """Nothing: ``OpenFile`` writes."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        raw = b"".join(self.parts)
        self.parts.clear()
        return raw


class OpenFile:
    """One file being written."""

    def __init__(self, path: Path, opened_ms: float) -> None:
        self.path = path
        self.opened_ms = opened_ms
        self.size = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._sink = _Sink()
        self._writer = pa.ipc.new_file(
            pa.PythonFile(self._sink, mode="w"), SCHEMA, options=files.WRITE_OPTIONS
        )
        self._unwritten = b""

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
            os.ftruncate(self._fd, self.size)
            raise
        self.size = at
        self._unwritten = b""

    def close(self) -> None:
        """Write the footer, sync and rename."""
        self._writer.close()
        self._unwritten = self._sink.take()
        self.commit()
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        self.path.rename(self.path.with_suffix(files.CLOSED))
        sync_directory(self.path.parent)

    def abandon(self) -> None:
        """Let go of a file that can't be closed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_directory(directory: Path) -> None:
    """Put a rename on disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_closed(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a whole closed file under another name first, so that it is there whole or not."""
    unfinished = path.with_suffix(".tmp")
    with (
        pa.OSFile(str(unfinished), "wb") as sink,
        pa.ipc.new_file(sink, SCHEMA, options=files.WRITE_OPTIONS) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    with unfinished.open("rb") as done:
        os.fsync(done.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def recover(directory: Path, worker_id: str) -> list[Recovered]:
    """
    Close what a killed worker left open.

    Args:
        directory: the journal's.
        worker_id: only its files: other workers may be writing theirs.

    Returns:
        What was found. A file without a complete batch is removed.
    """
    found: list[Recovered] = []
    for path in sorted(directory.glob(f"*{files.OPEN}")):
        name = files.parse_name(path)
        if name is None or name.worker_id != worker_id:
            continue
        closed = path.with_suffix(files.CLOSED)
        if closed.exists():  # killed between writing the closed file and removing the open one
            path.unlink()
            continue
        source = pa.BufferReader(path.read_bytes())
        batches, kept = [], 0
        for batch in files.complete_batches(source):
            batches.append(batch)
            kept = source.tell()
        if batches:
            write_closed(closed, batches)
        events = sum(batch.num_rows for batch in batches)
        found.append(Recovered(closed, events, source.size() - kept))
        path.unlink()
    return found
