"""
Write the journal, out of the traffic's way.

``append`` puts a tuple on a list. A thread of its own makes batches of at most a second, gives each
whole to the operating system, and renames the file when it is full, old, or closed::

    worker-0000000000000001.open   being written, or left by a kill
    worker-0000000000000001.arrow  closed

What can be lost: a kill -9 loses what wasn't in a batch yet, at most ``flush_ms``; batches written
survive it. A crash of the machine may lose what the system hadn't put on disk: files are synced
when they are closed, not batch by batch. On a full disk events are kept and tried again; when
``max_pending`` of them wait, newer ones are dropped. What is dropped leaves a gap in ``seq``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.usage import files
from headgate.usage.disk import OpenFile, recover
from headgate.usage.format import Event, Origin, batch_of

log = logging.getLogger("headgate.usage")

FLUSH_MS: Final = 1_000
# About 60 MB of tuples, and eight seconds of the busiest broker measured (25,000 requests/s).
MAX_PENDING: Final = 200_000
# Rows of one batch: bounds the memory of a conversion and how long it holds the interpreter (about
# 10 ms), since the event loop waits meanwhile.
MAX_BATCH_ROWS: Final = 4_096
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_FILE_MS: Final = 300_000


class EventWriter(ABC):
    """
    Take events on one side, write batches on the other.

    Args:
        worker_id: whose journal this is.
        first_seq: number of the first event; 0: ``_begin`` finds it out before the first batch.
        flush_ms: longest time between batches, in ms.
        max_pending: events held at most; more are dropped and leave a gap.

    Attributes:
        dropped: events dropped so far.
        failures: batches that couldn't be written at once (each is tried again).
    """

    def __init__(
        self,
        worker_id: str,
        first_seq: int = 1,
        *,
        flush_ms: int = FLUSH_MS,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.worker_id = worker_id
        self.dropped = 0
        self.failures = 0
        self.written = 0  # events
        self._flush_s = flush_ms / 1_000
        self._limit = max_pending
        # pyarrow loads parts of itself, and pandas where there is one, at its first batch: a
        # quarter of a second that a start can spare better than the traffic.
        batch_of([Event(Origin("start"), 0.0)], worker_id, 1)
        self._pending: list[Any] = []  # event tuples; an int is a number of dropped events
        self._lost = 0
        self._next_seq = first_seq
        self._staged = 0  # events in front that are in a batch not yet written
        self._wake = threading.Event()
        self._closing = False
        self._flushing = threading.Lock()
        self._complained = False
        self._thread = threading.Thread(
            target=self._run, name=f"headgate-journal-{worker_id}", daemon=True
        )

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def append(self, event: tuple[Any, ...]) -> None:
        """
        Take one event; never waits.

        Args:
            event: a tuple as ``format.Event``.
        """
        pending = self._pending
        if len(pending) >= self._limit:
            self._lost += 1
            self.dropped += 1
            return
        if self._lost:
            pending.append(self._lost)
            self._lost = 0
        pending.append(event)

    def flush(self) -> bool:
        """
        Write what is waiting, from the calling thread.

        Returns:
            Whether all of it was written.
        """
        with self._flushing:
            return self._drain()

    def close(self) -> None:
        """Write what is left and finish; waits for the disk. Safe to call twice."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._flushing:
            complete = self._drain()
            try:
                self._finish()
            except OSError as exc:
                complete = False
                log.error("journal %s: can't be closed: %s", self.worker_id, exc)
        if not complete or self._lost:
            log.error(
                "journal %s: %d events at the end were not written",
                self.worker_id,
                len(self._pending) + self._lost,
            )

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._flush_s)
            self._wake.clear()
            if not self._closing:
                self.flush()

    def _drain(self) -> bool:
        pending = self._pending
        if pending and not self._next_seq:
            try:
                self._next_seq = self._begin()
            except OSError as exc:
                self._complain(exc)
                return False
        while pending:
            head = pending[0]
            if isinstance(head, int):
                self._next_seq += head
                log.error("journal %s: %d events were dropped", self.worker_id, head)
                del pending[0]
                continue
            try:
                if not self._staged:
                    rows = _until_gap(pending[:MAX_BATCH_ROWS])
                    batch = self._batch(rows)
                    if batch is None:
                        continue
                    self._stage(batch, self._next_seq)
                    self._staged = len(rows)
                self._commit()
            except OSError as exc:
                self._complain(exc)
                return False
            # append() only ever adds at the end, so what was written is still in front.
            del pending[: self._staged]
            self._next_seq += self._staged
            self.written += self._staged
            self._staged = 0
            self._complained = False
        self._idle()
        return True

    def _batch(self, rows: list[Any]) -> pa.RecordBatch | None:
        """Make a batch; events that can't be one are a mistake of ours and leave a gap."""
        try:
            return batch_of(rows, self.worker_id, self._next_seq)
        except (TypeError, ValueError, OverflowError, AttributeError):
            log.exception("journal %s: %d events are malformed", self.worker_id, len(rows))
            self.dropped += len(rows)
            self._next_seq += len(rows)
            del self._pending[: len(rows)]
            return None

    def _complain(self, exc: OSError) -> None:
        self.failures += 1
        if not self._complained:
            log.error(
                "journal %s: can't write (%s); events are kept and tried again, %d at most",
                self.worker_id,
                exc,
                self._limit,
            )
        self._complained = True

    def _begin(self) -> int:
        """Return the first event's number, or raise OSError; asked until it is known."""
        return 1

    @abstractmethod
    def _stage(self, batch: pa.RecordBatch, first_seq: int) -> None:
        """Take a batch to be written by ``_commit``, or raise OSError and take nothing."""

    @abstractmethod
    def _commit(self) -> None:
        """Write what was taken, or raise OSError; it is called again until it succeeds."""

    @abstractmethod
    def _idle(self) -> None:
        """Nothing is waiting."""

    @abstractmethod
    def _finish(self) -> None:
        """Close what is open."""


class JournalWriter(EventWriter):
    """
    Keep the journal in files.

    Args:
        directory: where; made if it isn't there.
        worker_id: whose journal this is; one writer at a time (the worker's lease sees to it).
        flush_ms: longest time between batches, in ms.
        max_pending: events held at most.
        max_file_bytes: a file is closed when it is longer.
        max_file_ms: a file is closed when it is older, in ms.
        monotonic_ms: a clock for that, in ms.

    Attributes:
        recovered: files that an earlier run of this worker left open, now closed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        worker_id: str,
        *,
        flush_ms: int = FLUSH_MS,
        max_pending: int = MAX_PENDING,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_file_ms: int = MAX_FILE_MS,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1_000,
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.recovered = recover(self.directory, worker_id)
        super().__init__(
            worker_id,
            _next_seq(self.directory, worker_id, gap=bool(self.recovered)),
            flush_ms=flush_ms,
            max_pending=max_pending,
        )
        self._max_file_bytes = max_file_bytes
        self._max_file_ms = max_file_ms
        self._monotonic_ms = monotonic_ms
        self._file: OpenFile | None = None
        for found in self.recovered:
            log.warning(
                "journal %s: %s was left open; %d events recovered, %d bytes of an unfinished "
                "batch lost",
                worker_id,
                found.path.name,
                found.events,
                found.lost_bytes,
            )

    def _stage(self, batch: pa.RecordBatch, first_seq: int) -> None:
        if self._file is None:
            path = self.directory / files.file_name(self.worker_id, first_seq, files.OPEN)
            self._file = OpenFile(path, self._monotonic_ms())
        self._file.stage(batch)

    def _commit(self) -> None:
        assert self._file is not None
        self._file.commit()
        if self._file.size >= self._max_file_bytes:
            self._finish()

    def _idle(self) -> None:
        file = self._file
        if file is not None and self._monotonic_ms() - file.opened_ms >= self._max_file_ms:
            self._finish()

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as exc:
            # Its batches are there and readers read them; the next start closes it.
            log.error("journal %s: %s stays open: %s", self.worker_id, file.path.name, exc)
            file.abandon()


def _until_gap(rows: list[Any]) -> list[Any]:
    for at, row in enumerate(rows):
        if isinstance(row, int):
            return rows[:at]
    return rows


def _next_seq(directory: Path, worker_id: str, *, gap: bool) -> int:
    """
    Return the number a new run begins with.

    Args:
        directory: the journal's.
        worker_id: whose.
        gap: leave one number out: the last run didn't end by itself, and what it lost should show.
    """
    last = 0
    mine = [file for file in files.journal_files(directory) if file.worker_id == worker_id]
    if mine:
        last = mine[-1].first_seq - 1
        for batch in files.read_batches(mine[-1]):
            last = batch.column("seq")[-1].as_py()
    return last + (2 if gap else 1)
