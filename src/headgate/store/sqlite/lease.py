"""
Leases in the SQLite home: one row each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager

from headgate.store.leases import Decide, LeaseRecord


class SqliteLeases:
    """
    The rows of leases.

    Args:
        transaction: begins one that may write.
        clock_ms: the clock that all holders' hosts share.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
        clock_ms: Callable[[], int],
    ) -> None:
        self._transaction = transaction
        self._clock_ms = clock_ms

    def look(self, name: str) -> LeaseRecord:
        """Return a lease as of now."""
        with self._transaction() as db:
            return self._read(db, name)

    def change(self, name: str, decide: Decide) -> bool:
        """Keep what ``decide`` returns for a lease as it is now."""
        with self._transaction() as db:
            wanted = decide(self._read(db, name))
            if wanted is not None:
                owner, epoch, ttl_ms = wanted
                expires_ms = self._clock_ms() + ttl_ms if ttl_ms else 0
                db.execute(
                    "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)",
                    (name, owner, epoch, expires_ms),
                )
            return wanted is not None

    def _read(self, db: sqlite3.Connection, name: str) -> LeaseRecord:
        row = db.execute(
            "SELECT owner, epoch, expires_ms FROM lease WHERE name = ?", (name,)
        ).fetchone()
        owner, epoch, expires_ms = row or ("", 0, 0)
        return LeaseRecord(owner, epoch, lambda: expires_ms > self._clock_ms())
