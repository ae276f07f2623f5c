"""
Leases in the SQLite home: one row each, with an epoch that only grows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager

Transaction = Callable[[], AbstractContextManager[sqlite3.Connection]]


def take(db: sqlite3.Connection, name: str, owner: str, ttl_ms: int, now_ms: int) -> int | None:
    """
    Take a lease within a transaction.

    Returns:
        The new epoch; None while another owner's lease runs.
    """
    row = db.execute(
        "SELECT owner, epoch, expires_ms FROM lease WHERE name = ?", (name,)
    ).fetchone()
    if row is not None and row[0] != owner and row[2] > now_ms:
        return None
    epoch: int = 1 if row is None else row[1] + 1
    db.execute(
        "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (name, owner, epoch, now_ms + ttl_ms)
    )
    return epoch


class SqliteLease:
    """A lease held in the file; every call looks there."""

    def __init__(
        self,
        transaction: Transaction,
        clock_ms: Callable[[], int],
        name: str,
        owner: str,
        epoch: int,
        ttl_ms: int,
    ) -> None:
        self._transaction = transaction
        self._clock_ms = clock_ms
        self.name = name
        self.owner = owner
        self.epoch = epoch
        self.ttl_ms = ttl_ms

    def renew(self) -> bool:
        """Extend by the ttl; a lease that ran out but that nobody took is ours again."""
        with self._transaction() as db:
            done = db.execute(
                "UPDATE lease SET expires_ms = ? WHERE name = ? AND epoch = ? AND owner = ?",
                (self._clock_ms() + self.ttl_ms, self.name, self.epoch, self.owner),
            )
            return done.rowcount == 1

    def held(self) -> bool:
        """Return whether it is still ours and has time left."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT 1 FROM lease WHERE name = ? AND epoch = ? AND expires_ms > ?",
                (self.name, self.epoch, self._clock_ms()),
            ).fetchone()
        return row is not None

    def release(self) -> None:
        """Give it up; the epoch stays, so the next holder's is higher."""
        with self._transaction() as db:
            db.execute(
                "UPDATE lease SET expires_ms = 0, owner = '' WHERE name = ? AND epoch = ?",
                (self.name, self.epoch),
            )
