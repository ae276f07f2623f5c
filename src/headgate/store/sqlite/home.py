"""
The file of an SQLite store: a connection that reads, one that writes, and what is wrong with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate.errors import StoreError, StoreMovedOn, StoreReplaced, StoreSilent, store_missing
from headgate.store.deadline import NOTHING, LimitedLock
from headgate.store.home import StoreHome
from headgate.store.identity import StoreIdentity, replaced
from headgate.store.sqlite import rows
from headgate.store.sqlite.file import OpenDatabase, free_bytes, translated
from headgate.store.sqlite.migrations import migrate, newer, pending
from headgate.store.sqlite.place import refuse_network_file_system

#: How often a watch has SQLite look through the whole file for damage, seconds.
CHECK_S = 30.0
#: With less room than this on the disk a change may not fit, its journal included.
ROOM_BYTES = 1 << 20
#: How often a watch tries whether changes can be written again, seconds.
PROBE_S = 2.0


class SqliteHome(StoreHome):
    """
    An SQLite file, opened.

    Args:
        path: the file; its folder must exist. Not on a network file system.
        create: make it when it is missing.
        clock_ms: the clock of the history.

    Attributes:
        reader: the connection for reading; another one once another file is at the path.
        lacks: migrations that the file's schema lacks.
    """

    def __init__(self, path: Path, *, create: bool, clock_ms: Callable[[], int]) -> None:
        super().__init__(f"sqlite:{path}", clock_ms)
        self.path = path
        self._pid = os.getpid()
        refuse_network_file_system(path)
        if not path.parent.is_dir():
            raise StoreError(f"the quota store {path}: there is no folder {path.parent}")
        self._write_lock = LimitedLock(self.url, threading.Lock())
        self._create = create
        self._check_at = time.monotonic() + CHECK_S
        self._damage = ""
        # Why a change couldn't be written; "" once a probe was written.
        self._full = ""
        self._probe_at = 0.0
        self._writer: OpenDatabase | None = None
        self.reader = self._open(create=create)

    def _open(self, *, create: bool) -> OpenDatabase:
        """Open the file for reading."""
        with translated(self.path), contextlib.ExitStack() as opened:
            file = OpenDatabase(self.path, create=create)
            opened.callback(file.close)
            unknown = newer(file.db)
            if unknown:
                raise StoreError(
                    f"the quota store {self.path} was written by a newer Headgate "
                    f"({', '.join(unknown)}); upgrade this one"
                )
            self.lacks = pending(file.db)
            if not create and "m002_brokers_audit_leases" in self.lacks:
                raise store_missing(f"{self.path} holds no quota store")
            opened.pop_all()
            return file

    def follow_file(self) -> None:
        """Open the file that is at the path now. Under ``lock``."""
        if not self.reader.moved:
            return
        try:
            file = self._open(create=False)
        except StoreError as exc:
            if self.known is None:
                raise
            raise replaced(self.url, self.known, None) from exc
        self.reader.close()
        self.reader = file

    def read_identity(self) -> StoreIdentity | None:
        """Return the identity in the file that is at the path now."""
        with translated(self.path):
            try:
                self.follow_file()
            except StoreReplaced:
                return None
            return self.identity_in(self.reader.db)

    def identity_in(self, db: sqlite3.Connection) -> StoreIdentity | None:
        """Return the identity as a connection sees it; None where the schema is an earlier one."""
        if self.lacks:  # another process may have brought it up to date since
            self.lacks = pending(db)
        return None if self.lacks else rows.identity(db)

    def make_whole(self) -> None:
        """Open the file for changes, and bring its schema up to date."""
        with self._write_lock:
            self._open_writer()
            with translated(self.path):
                assert self._writer is not None
                migrate(self._writer.db, now_ms=self.clock_ms())

    def _open_writer(self) -> None:
        """Open the file for changes. Under ``_write_lock``."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        known = self.known
        with translated(self.path), contextlib.ExitStack() as opened:
            try:
                file = OpenDatabase(self.path, create=self._create and known is None)
            except StoreError as exc:
                if known is None:
                    raise
                raise replaced(self.url, known, None) from exc
            opened.callback(file.close)
            file.prepare()
            opened.pop_all()
            self._writer = file

    def write_succeeds(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """Write which stores this one took over from."""
        with self.transaction() as db:
            db.execute("UPDATE identity SET succeeds = ?", (json.dumps(succeeds),))
            rows.count_change(db)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read the quotas as of now, and give the connection; ``lock`` is held meanwhile."""
        with self.lock, translated(self.path):
            self.read()
            yield self.reader.db

    # --- changing

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that may write; it is committed at the end, or rolled back."""
        self.prepare()
        with self._write_lock, translated(self.path):
            if self._writer is None or self._writer.moved:
                self._open_writer()
            assert self._writer is not None
            db = self._writer.db
            self._writer.begin()
            try:
                self.check_same(self.identity_in(db))
                yield db
                self._writer.check()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            # What was put into a file that has just been removed is lost.
            self._writer.check()
        self.poke.set()

    @contextlib.contextmanager
    def noting_trouble(self) -> Iterator[None]:
        """Remember why a change couldn't be written: ``trouble`` says so until one can be."""
        try:
            yield
        except (StoreReplaced, StoreMovedOn):
            raise
        except StoreSilent as exc:
            self._full = exc.silence
            raise StoreSilent(exc.silence, NOTHING) from exc
        except StoreError as exc:
            self._full = str(exc)
            raise

    # --- what is wrong

    def check_health(self) -> None:
        """
        Find out what is wrong with the file: every ``CHECK_S`` damage, which pages in memory hide.

        Raises:
            StoreError: changes can't be written, or what is read isn't what was written.
        """
        if time.monotonic() >= self._check_at:
            with translated(self.path):
                file = OpenDatabase(self.path, create=False)
                try:
                    said = file.db.execute("PRAGMA quick_check(1)").fetchone()[0]
                finally:
                    file.close()
            self._damage = "" if said == "ok" else said
            self._check_at = time.monotonic() + CHECK_S
        if self._damage:
            raise StoreError(
                f"the quota store {self.path} is damaged ({self._damage}); bring a copy back"
            )
        free = free_bytes(self.path)
        if free < ROOM_BYTES:
            raise StoreError(
                f"the quota store {self.path}: only {free} bytes are free on its disk, so changes "
                "may be refused; make room"
            )
        if self._full and time.monotonic() >= self._probe_at:
            self._probe_at = time.monotonic() + PROBE_S
            self._probe()
        if self._full:
            raise StoreError(self._full, retriable=True)

    def _probe(self) -> None:
        """Find out whether changes can be written again; it can be read all the while."""
        try:
            # 64 KiB: there may be room for a lease's renewal, but not for a change.
            with self.transaction() as db:
                db.execute("INSERT OR REPLACE INTO state VALUES ('probe', zeroblob(65536))")
            with self.transaction() as db:
                db.execute("DELETE FROM state WHERE name = 'probe'")
        except StoreSilent as exc:
            self._full = exc.silence
        else:
            self._full = ""

    def release(self) -> None:
        """Close the file, in the process that opened it."""
        if self._pid != os.getpid():
            return
        with self.lock, self._write_lock:
            self.reader.close()
            if self._writer is not None:
                self._writer.close()

    def check_open(self) -> None:
        """Raise StoreError once the store is closed, and in a process forked from its own."""
        super().check_open()
        if self._pid != os.getpid():
            # SQLite forbids carrying a connection across a fork.
            raise StoreError(f"the quota store {self.path} was opened before a fork; open it again")
