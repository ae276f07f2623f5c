"""
The SQLite home's schema, as small steps; each runs once, in one transaction with its own record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from headgate.store.identity import new_identity

Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: dict[str, Migration] = {}


def migration(function: Migration) -> Migration:
    """Register a step; its name is what is recorded, so it never changes."""
    MIGRATIONS[function.__name__] = function
    return function


@migration
def m001_quotas(db: sqlite3.Connection) -> None:
    """
    Make the tables of quotas and of the log of their changes.

    ``path`` is the entity as in KIP-55 (``users/alice/clients/<default>``). Names are
    percent-encoded, so no name looks like the default. Table ``change`` is the log that watches
    read, and the history. Where old changes were removed from it, ``state.pruned_seq`` is the last
    one removed.
    """
    db.execute(
        "CREATE TABLE quota (path TEXT NOT NULL, key TEXT NOT NULL, value REAL NOT NULL,"
        " PRIMARY KEY (path, key)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, t_ms INTEGER NOT NULL,"
        " who TEXT NOT NULL, tool TEXT NOT NULL, path TEXT NOT NULL, key TEXT NOT NULL,"
        " before REAL, after REAL)"
    )
    db.execute("CREATE INDEX change_path ON change (path, seq)")
    db.execute("CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    db.execute("INSERT INTO state VALUES ('pruned_seq', 0)")


@migration
def m002_brokers_audit_leases(db: sqlite3.Connection) -> None:
    """Make the tables of broker settings, audit lines and leases."""
    db.execute(
        "CREATE TABLE broker_config (broker TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
        " PRIMARY KEY (broker, key)) WITHOUT ROWID"
    )
    db.execute(
        "CREATE TABLE audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, t_ms INTEGER NOT NULL,"
        " who TEXT NOT NULL, tool TEXT NOT NULL, action TEXT NOT NULL, outcome TEXT NOT NULL,"
        " subject TEXT NOT NULL, detail TEXT NOT NULL)"
    )
    db.execute(
        "CREATE TABLE lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT NULL,"
        " expires_ms INTEGER NOT NULL) WITHOUT ROWID"
    )


@migration
def m003_identity_messages(db: sqlite3.Connection) -> None:
    """
    Make the table of the store's identity; for each change keep which call made it, and why.

    ``succeeds`` is JSON: the stores this one took over from, with their revisions.
    """
    db.execute(
        "CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,"
        " revision INTEGER NOT NULL, succeeds TEXT NOT NULL)"
    )
    db.execute("INSERT INTO identity SELECT 1, ?, count(*), '[]' FROM change", (new_identity().id,))
    db.execute("ALTER TABLE change ADD COLUMN change_id TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE change ADD COLUMN message TEXT NOT NULL DEFAULT ''")


def _taken(db: sqlite3.Connection) -> list[str]:
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone():
        return []
    return [name for (name,) in db.execute("SELECT name FROM migration")]


def pending(db: sqlite3.Connection) -> list[str]:
    """Return the names of steps not yet taken; changes nothing."""
    taken = _taken(db)
    return [name for name in MIGRATIONS if name not in taken]


def newer(db: sqlite3.Connection) -> list[str]:
    """Return steps that a newer Headgate took and this one doesn't know."""
    return [name for name in _taken(db) if name not in MIGRATIONS]


def migrate(db: sqlite3.Connection, *, now_ms: int) -> None:
    """
    Take every step that is pending.

    Args:
        db: a connection in autocommit mode; other processes may be doing the same.
        now_ms: recorded with each step, epoch milliseconds.
    """
    while pending(db):
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(
                "CREATE TABLE IF NOT EXISTS migration"
                " (name TEXT PRIMARY KEY, applied_ms INTEGER NOT NULL) WITHOUT ROWID"
            )
            # Asked again under the lock: another process may have been quicker.
            left = pending(db)
            if left:
                MIGRATIONS[left[0]](db)
                db.execute("INSERT INTO migration VALUES (?, ?)", (left[0], now_ms))
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
