"""
Connections to the SQLite home's file, and whether it is still the file that was opened.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headgate.errors import MALFORMED, StoreError, StoreReplaced, StoreSilent, store_missing
from headgate.store.deadline import left_s

#: How long a writer waits for another one; they hold the lock for milliseconds.
BUSY_MS = 10_000

_WHY: Final = {
    sqlite3.SQLITE_BUSY: "another process holds its lock",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it can't be written; check its owner and rights",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; bring a copy back",
    sqlite3.SQLITE_NOTADB: "that is no SQLite file; if it isn't a Headgate store, choose another",
}


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into StoreError; busy, full and I/O trouble can be tried again."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        code = _code(exc)
        retriable = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
        why = f" ({_WHY[code]})" if code in _WHY else ""
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreSilent(f"the quota store {path}: {exc}{why}") from exc
        raise StoreError(f"the quota store {path}: {exc}{why}", retriable=retriable) from exc
    except MALFORMED as exc:  # a row that no Headgate wrote: SQLite checks no types
        said = " ".join(str(exc).split())
        raise StoreError(f"the quota store {path} is damaged ({said}); bring a copy back") from exc


class OpenDatabase:
    """
    A connection, and the device and inode of the file that it is to.

    Args:
        path: the file.
        create: make it if it is missing, for its owner alone.

    Raises:
        StoreError: there is no such file.
        sqlite3.DatabaseError: SQLite can't open it.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        if create:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        at = _file_id(path)
        if at is None:
            raise store_missing(f"the quota store {path}: there is no such file")
        self._at = at
        self.db = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            timeout=BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )

    def prepare(self) -> None:
        """
        Switch to WAL and ``synchronous=FULL``, before the file is changed.

        SQLite doesn't wait when several processes switch to WAL at once, so this does.
        """
        deadline = time.monotonic() + left_s(BUSY_MS / 1000)
        while True:
            try:
                self.db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError as exc:
                if _code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self.db.execute("PRAGMA synchronous=FULL")

    def begin(self) -> None:
        """Begin a change; wait for another process's as long as the call may take."""
        self.db.execute(f"PRAGMA busy_timeout={round(left_s(BUSY_MS / 1000) * 1000)}")
        self.db.execute("BEGIN IMMEDIATE")

    @property
    def moved(self) -> bool:
        """Whether there is another file at the path now, or none."""
        return _file_id(self.path) != self._at

    def check(self) -> None:
        """
        Check that what is written gets into the file at the path.

        Raises:
            StoreReplaced: it was removed or replaced.
        """
        if self.moved:
            raise StoreReplaced(
                f"the quota store {self.path} was removed or replaced while it was open; nothing "
                "was changed. Bring the file back"
            )

    def close(self) -> None:
        """Close the connection."""
        self.db.close()


def free_bytes(path: Path) -> int:
    """Return how many bytes this process's user may still write on a file's disk."""
    try:
        found = os.statvfs(path)
    except OSError:
        return sys.maxsize
    return found.f_bavail * found.f_frsize


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code(exc: sqlite3.Error) -> int:
    """Return the primary one of SQLite's error codes; 0: there is none."""
    return (getattr(exc, "sqlite_errorcode", 0) or 0) & 0xFF
