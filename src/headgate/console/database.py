"""
The console's own state in one SQLite file: users, sessions, asks for a raise. Quotas aren't in it.

Each part that keeps something there (``access``, ``raises``) has its own tables and its own list of
migrations, each of which runs once.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError

FILE: Final = "console.db"
_BUSY_S: Final = 10.0
"""How long a write waits for that of another process, such as `headgate console user`."""


class Database:
    """
    An open file, used from several threads, one at a time.

    Args:
        folder: ``--data``; made, for its owner only, when it is missing.

    Raises:
        ConfigError: it can't be opened, or isn't ours.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        self._migrated: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self.path.chmod(0o600)
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS versions (part TEXT PRIMARY KEY, version INTEGER)"
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{self.path} can't be opened: {error}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection within a transaction, which an exception rolls back."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def change(self, statement: str, values: Sequence[object]) -> None:
        """Carry out one statement, in a transaction of its own."""
        with self.transaction() as connection:
            connection.execute(statement, values)

    def rows(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return what a query finds; it changes nothing."""
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def migrate(self, part: str, migrations: Sequence[str]) -> None:
        """
        Bring one part's tables up to date; at most once for each open file.

        Args:
            part: its name.
            migrations: SQL scripts of one statement or more, oldest first; only ever appended to.

        Raises:
            ConfigError: the file was written by a later version.
        """
        if part in self._migrated:
            return
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT version FROM versions WHERE part=?", (part,)
            ).fetchone()
            version = row["version"] if row else 0
            if version > len(migrations):
                raise ConfigError(
                    f"{self.path} was written by a later version of Headgate ({part}: {version})"
                )
            for script in migrations[version:]:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
            connection.execute(
                "INSERT INTO versions VALUES (?, ?) ON CONFLICT (part) DO UPDATE "
                "SET version=excluded.version",
                (part, len(migrations)),
            )
        self._migrated.add(part)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()
