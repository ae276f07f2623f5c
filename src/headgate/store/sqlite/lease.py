"""
Leases in the SQLite home: a row each, and for its ttl a row of the table ``state``.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from headgate.errors import StoreError
from headgate.store.leases import NOBODYS, Decide, LeaseRecord
from headgate.store.sqlite.home import SqliteHome

#: An epoch or a time beyond this was written by hand; SQLite's integers end soon after.
_MOST: Final = 1 << 60


@dataclass(frozen=True, eq=False)
class SqliteLeases:
    """
    The rows of leases.

    Args:
        home: the file. Earlier releases read a lease's mark as the time of its end, by its clock.
    """

    home: SqliteHome

    def look(self, name: str) -> LeaseRecord:
        """Return a lease as of now."""
        with self.home.transaction() as db:
            return self._read(db, name)

    def change(self, name: str, decide: Decide) -> bool:
        """Keep what ``decide`` returns for a lease as it is now."""
        with self.home.transaction() as db:
            held = self._read(db, name)
            wanted = decide(held)
            if wanted is not None:
                owner, epoch, ttl_ms = wanted
                mark = max(self.home.clock_ms() + ttl_ms, held.mark + 1)
                db.execute(
                    "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (name, owner, epoch, mark)
                )
                if ttl_ms != held.ttl_ms:
                    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_ttl(name), ttl_ms))
            return wanted is not None

    def _read(self, db: sqlite3.Connection, name: str) -> LeaseRecord:
        row = db.execute(
            "SELECT owner, epoch, expires_ms,"
            " coalesce((SELECT value FROM state WHERE state.name = ?), 0)"
            " FROM lease WHERE lease.name = ?",
            (_ttl(name), name),
        ).fetchone()
        if row is None:
            return NOBODYS
        owner, *numbers = row
        if type(owner) is not str or any(
            type(number) is not int or not 0 <= number <= _MOST for number in numbers
        ):
            # Not treated as a lease that nobody ever had: its epochs would begin at 1 again.
            raise StoreError(
                f"the row of the table lease for {name!r}, or its length in the table state, holds "
                f"no lease: {row!r}; delete both once none of its workers runs"
            )
        return LeaseRecord(*row)


def _ttl(name: str) -> str:
    return f"lease_ttl_ms {name}"
