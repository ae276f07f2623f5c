"""
Write the journal on a thread of its own, so that traffic never waits for the disk.

``append`` packs an event into memory (``rows``). A thread of its own makes batches of at most a
second, gives each whole to the operating system, and renames the file when it is full, old, or
closed::

    worker-0000000000000001.open   being written, or left by a kill
    worker-0000000000000001.arrow  closed

What can be lost: a kill -9 loses what wasn't in a batch yet, at most ``flush_ms``; batches written
survive it. A crash of the machine may lose what the system hadn't put on disk: files are synced
when they are closed, not batch by batch. On a full disk events are kept and tried again; when
``max_pending`` of them wait, newer ones are dropped. What is dropped leaves a gap in ``seq``.
Neither these errors nor an earlier run's files prevent a start.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.errors import ConfigError
from headgate.usage import files
from headgate.usage.disk import OpenFile, Recovered, recover
from headgate.usage.format import Event, Origin
from headgate.usage.numbering import next_number
from headgate.usage.retention import note_number
from headgate.usage.rows import MALFORMED, MOST_NAMED, Rows, batch_of

log = logging.getLogger("headgate.usage")

FLUSH_MS: Final = 1_000
# 16 MB, and eight seconds of the busiest broker measured (25,000 requests/s).
MAX_PENDING: Final = 200_000
# Rows of one batch: bounds the memory of a conversion and how long it holds the interpreter (about
# 1 ms), since the event loop waits meanwhile.
MAX_BATCH_ROWS: Final = 4_096
MAX_NAMED: Final = 64 * MOST_NAMED
"""Characters of names held at most, as ``MAX_PENDING`` is of events."""
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_FILE_MS: Final = 300_000


class EventWriter(ABC):
    """
    Take events on one side, write batches on the other.

    One thread appends to rows in memory. The writing thread takes the events from these rows. It
    sets ``rows.end`` to 0 when the appending thread is to continue in other rows.

    Args:
        worker_id: whose journal this is.
        first_seq: number of the first event; 0: ``_begin`` finds it out before the first batch.
        flush_ms: longest time between batches, in ms.
        max_pending: events held at most; more are dropped and leave a gap.

    Attributes:
        rows: where the next event goes if there is room.
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
        # pyarrow loads further modules, and pandas where it is installed, at its first batch. That
        # takes a quarter of a second, which delays less at the start than under traffic.
        batch_of([Event(Origin("start"), 0.0)], worker_id, 1)
        self.rows = Rows(0)
        self._chunks: deque[Rows] = deque((self.rows,))  # oldest first; the last one is ``rows``
        self._before = 0  # events appended to earlier rows than ``rows``
        self._taken = 0  # events that were written, or dropped as malformed
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
        rows = self.rows
        if rows.at >= rows.end:
            room = min(self._limit - self.waiting, MAX_BATCH_ROWS)
            if room <= 0 or sum(some.named for some in tuple(self._chunks)) > MAX_NAMED:
                self._lost += 1
                self.dropped += 1
                return
            before = rows.count
            rows = Rows(room, self._lost)
            self._lost = 0
            # In this order, so that the writing thread never counts more events than there are.
            self._chunks.append(rows)
            self.rows = rows
            self._before += before
        try:
            rows.append(event)
        except MALFORMED:
            log.exception("journal %s: an event is malformed", self.worker_id)
            rows.end = 0  # the next event goes to other rows, which note the gap
            self._lost += 1
            self.dropped += 1

    @property
    def waiting(self) -> int:
        """How many events aren't written yet."""
        return self._before + self.rows.count - self._taken

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
            self._write_what_waits()
            lost = self.waiting + self._lost
            try:
                self._end(lost)
            except OSError as exc:
                log.error("journal %s: can't be closed: %s", self.worker_id, exc)
        if lost:
            log.error("journal %s: %d events at the end were not written", self.worker_id, lost)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._flush_s)
            self._wake.clear()
            if not self._closing:
                with self._flushing:
                    self._write_what_waits()

    def _write_what_waits(self) -> None:
        try:
            self._drain()
        except Exception as exc:
            # The thread must survive errors that nobody foresaw: without it no event is written.
            if not self._complained:
                log.exception("journal %s: an unexpected error", self.worker_id)
            self._complain(exc)

    def _drain(self) -> bool:
        end = self._taken + self.waiting  # what comes meanwhile would make ever smaller batches
        if end > self._taken and not self._next_seq:
            try:
                self._next_seq = self._begin()
            except OSError as exc:
                self._complain(exc)
                return False
        while self._taken < end:
            rows = self._chunks[0]
            if rows.gap:
                self._next_seq += rows.gap
                log.error("journal %s: %d events were dropped", self.worker_id, rows.gap)
                rows.gap = 0
            last = rows is self.rows  # asked first: earlier rows don't change any more
            # A batch has each event's names, so those of long names are made into many batches.
            most = min(MAX_BATCH_ROWS, max(MOST_NAMED // (rows.longest or 1), 1))
            until = min(rows.count, rows.done + most)
            if until == rows.done:
                if last:
                    break
                self._chunks.popleft()
                continue
            try:
                if not self._staged:
                    batch = self._batch(rows, until)
                    if batch is None:
                        continue
                    self._stage(batch, self._next_seq)
                    self._staged = batch.num_rows
                self._commit()
            except OSError as exc:
                self._complain(exc)
                return False
            self._next_seq += self._staged
            self.written += self._staged
            self._done(rows, self._staged)
            self._staged = 0
            self._complained = False
            if last:
                rows.end = 0  # the next event goes to other rows, so that old origins are freed
        self._idle()
        return True

    def _done(self, rows: Rows, count: int) -> None:
        rows.done += count
        self._taken += count

    def _batch(self, rows: Rows, until: int) -> pa.RecordBatch | None:
        """Make a batch; malformed events, which are a bug of Headgate's, leave a gap."""
        try:
            return rows.batch(rows.done, until, self.worker_id, self._next_seq)
        except MALFORMED:
            count = until - rows.done
            log.exception("journal %s: %d events are malformed", self.worker_id, count)
            self.dropped += count
            self._next_seq += count
            self._done(rows, count)
            return None

    def _complain(self, exc: Exception) -> None:
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
        """Do what is to be done when no event waits."""

    @abstractmethod
    def _end(self, lost: int) -> None:
        """Close the open file; ``lost`` events at the end weren't written, and leave a gap."""


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

    Raises:
        ConfigError: the directory can't be made.

    Attributes:
        recovered: files that an earlier run of this worker left open, and that are closed now. On a
            full disk that happens later.
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
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"headgate.usage: the folder {self.directory} can't be made: {exc.strerror}"
            ) from exc
        self.recovered: list[Recovered] = []
        super().__init__(worker_id, 0, flush_ms=flush_ms, max_pending=max_pending)
        self._max_file_bytes = max_file_bytes
        self._max_file_ms = max_file_ms
        self._monotonic_ms = monotonic_ms
        self._file: OpenFile | None = None
        self._unclosed = False  # a file stays open because it couldn't be closed
        try:
            self._next_seq = self._begin()
        except OSError as exc:  # a full disk doesn't prevent a start
            self._complain(exc)

    def _begin(self) -> int:
        for found in recover(self.directory, self.worker_id):
            self.recovered.append(found)
            log.warning(
                "journal %s: %s was left open; %d events recovered, %d bytes of an unfinished "
                "batch lost",
                self.worker_id,
                found.path.name,
                found.events,
                found.lost_bytes,
            )
        most, gap = self._max_file_bytes // 2, bool(self.recovered)
        while True:
            try:
                return next_number(self.directory, self.worker_id, most, gap=gap)
            except FileNotFoundError:  # compacted, or removed, since it was listed
                continue

    def _stage(self, batch: pa.RecordBatch, first_seq: int) -> None:
        self._leave_removed()
        file = self._file
        if file is None:
            path = self.directory / files.file_name(self.worker_id, first_seq, files.OPEN)
            file = self._file = OpenFile(path, self._monotonic_ms(), first_seq)
        try:
            file.stage(batch)
        except BaseException:  # part of it may be in the bytes: this file can't be continued
            self._file, self._unclosed = None, True
            file.abandon()
            raise

    def _leave_removed(self) -> None:
        """Write no more to a file that somebody removed; say how many events went with it."""
        file = self._file
        if file is not None and file.removed():
            lost = self._next_seq - file.first_seq
            self.dropped += lost
            log.error("journal %s: %s was removed, with %d events", self.worker_id, file.path, lost)
            self._file = None
            file.abandon()

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
        """Close the file if one is open, and those that couldn't be before."""
        self._leave_removed()
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
            if self._unclosed:
                for _ in recover(self.directory, self.worker_id):
                    pass
                self._unclosed = False
        except OSError as exc:
            # Its batches are there and readers read them; it is closed with the next, or at the
            # next start.
            self._unclosed = True
            name = self.worker_id if file is None else file.path.name
            log.error("journal %s: %s stays open: %s", self.worker_id, name, exc)
            if file is not None:
                file.abandon()

    def _end(self, lost: int) -> None:
        if lost and self._next_seq:
            try:
                note_number(self.directory, self.worker_id, self._next_seq + lost)
            except OSError:
                if self._file is not None:  # left open, it shows at least that events are missing
                    self._file.abandon()
                    self._file = None
                    raise
        self._finish()
