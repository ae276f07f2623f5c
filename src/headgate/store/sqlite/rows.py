"""
Read and write the rows of the SQLite home's tables.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import groupby
from operator import itemgetter
from typing import Final

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.store.base import AuditEvent, EndingQuota, HistoryEntry
from headgate.store.identity import StoreIdentity

KEEP_AUDIT: Final = 10_000
"""Audit lines kept, as in ZooKeeper and Kafka: a client that is refused may ask without end."""

Logged = tuple[int, str, str, float | None]
"""A row of the change log: number, entity's path, key, value since."""


def identity(db: sqlite3.Connection) -> StoreIdentity | None:
    """Return which store it is."""
    found = db.execute("SELECT id, revision, succeeds FROM identity").fetchone()
    if found is None:
        return None
    succeeds = tuple((id_, revision) for id_, revision in json.loads(found[2]))
    return StoreIdentity(found[0], found[1], succeeds)


def count_change(db: sqlite3.Connection) -> None:
    """Make the revision grow."""
    db.execute("UPDATE identity SET revision = revision + 1")


def quotas(db: sqlite3.Connection) -> dict[QuotaEntity, dict[QuotaKey, float]]:
    """Return every quota."""
    key_of = functools.cache(QuotaKey.parse)
    found = db.execute("SELECT path, key, value FROM quota ORDER BY path, key")
    return {
        entity_from_path(path): {key_of(key): value for _path, key, value in rows}
        for path, rows in groupby(found, itemgetter(0))
    }


def brokers(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return the settings of brokers."""
    found = db.execute("SELECT broker, key, value FROM broker_config ORDER BY broker, key")
    return {
        broker: {key: value for _broker, key, value in rows}
        for broker, rows in groupby(found, itemgetter(0))
    }


def set_key(
    db: sqlite3.Connection,
    path: str,
    key: str,
    value: float | None,
    stamp: tuple[int, str, str, str, str],
) -> bool:
    """
    Set or clear a key and log it.

    Args:
        db: within a transaction.
        path: the entity's.
        key: the key's name.
        value: the new value; None clears.
        stamp: when (epoch milliseconds), who, tool, change, message.

    Returns:
        Whether that changed anything.
    """
    row = db.execute("SELECT value FROM quota WHERE path = ? AND key = ?", (path, key)).fetchone()
    before = None if row is None else row[0]
    if before == value:
        return False
    if value is None:
        db.execute("DELETE FROM quota WHERE path = ? AND key = ?", (path, key))
    else:
        db.execute("INSERT OR REPLACE INTO quota VALUES (?, ?, ?)", (path, key, value))
    db.execute(
        "INSERT INTO change (t_ms, who, tool, change_id, message, path, key, before, after)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*stamp, path, key, before, value),
    )
    return True


def set_broker(
    db: sqlite3.Connection, broker: str, ops: Mapping[str, str | None]
) -> tuple[dict[str, str], dict[str, str | None]]:
    """Set or remove settings of a broker; return what was set before, and what changed."""
    now = dict(db.execute("SELECT key, value FROM broker_config WHERE broker = ?", (broker,)))
    changed = {key: value for key, value in ops.items() if now.get(key) != value}
    for key, value in changed.items():
        if value is None:
            db.execute("DELETE FROM broker_config WHERE broker = ? AND key = ?", (broker, key))
        else:
            db.execute(
                "INSERT OR REPLACE INTO broker_config VALUES (?, ?, ?)", (broker, key, value)
            )
    return now, changed


# --- quotas that end


def keeps_ends(db: sqlite3.Connection) -> bool:
    """
    Whether a quota of this file ever had an end.

    The table is made with the first one, so that a file without any stays as earlier releases know
    it: they leave the table alone, and what they change has no end any more (``due`` compares).
    """
    found = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'ending'")
    return found.fetchone() is not None


def make_ends(db: sqlite3.Connection) -> None:
    """Make the table of quotas that end, if it isn't there."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS ending (path TEXT NOT NULL, key TEXT NOT NULL, value REAL,"
        " former REAL, until_ms INTEGER NOT NULL, who TEXT NOT NULL, change_id TEXT NOT NULL,"
        " message TEXT NOT NULL, PRIMARY KEY (path, key)) WITHOUT ROWID"
    )


def set_end(
    db: sqlite3.Connection,
    path: str,
    key: str,
    value: float | None,
    end: tuple[int, str, str, str, str],
) -> bool:
    """
    Let a quota end; called before it gets its value.

    The value returns that is in force now. If that one is to end too, what returns then does.

    Args:
        db: within a transaction.
        path: the entity's.
        key: the key's name.
        value: that it is going to have until then; None: it is going to be removed.
        end: when (epoch milliseconds); who, tool, change, message of the change.

    Returns:
        Whether that changed anything; where the value would return that is set, nothing ends.
    """
    until_ms, who, _tool, change, message = end
    row = db.execute("SELECT value FROM quota WHERE path = ? AND key = ?", (path, key)).fetchone()
    now = None if row is None else row[0]
    ending = db.execute(
        "SELECT former FROM ending WHERE path = ? AND key = ? AND value IS ?", (path, key, now)
    ).fetchone()
    former = now if ending is None else ending[0]
    if former == value:
        return drop_end(db, path, key)
    db.execute(
        "INSERT OR REPLACE INTO ending VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (path, key, value, former, until_ms, who, change, message),
    )
    return True


def drop_end(db: sqlite3.Connection, path: str, key: str) -> bool:
    """Let a quota stay; return whether it was to end."""
    return db.execute("DELETE FROM ending WHERE path = ? AND key = ?", (path, key)).rowcount > 0


def ends(db: sqlite3.Connection, by_ms: int | None = None) -> list[EndingQuota]:
    """
    Return the quotas that end, by their time; those that were changed since don't.

    Args:
        db: a connection to a file that has such.
        by_ms: only those that end by then.
    """
    found = db.execute(
        "SELECT e.path, e.key, e.value, former, until_ms, who, change_id, message FROM ending e"
        " LEFT JOIN quota q ON q.path = e.path AND q.key = e.key"
        " WHERE q.value IS e.value AND until_ms <= ifnull(?, until_ms)"
        " ORDER BY until_ms, e.path, e.key",
        (by_ms,),
    )
    return [
        EndingQuota(entity_from_path(path), QuotaKey.parse(key), *rest)
        for path, key, *rest in found
    ]


def has_end(db: sqlite3.Connection, by_ms: int) -> bool:
    """Whether an end is kept by then."""
    found = db.execute("SELECT 1 FROM ending WHERE until_ms <= ? LIMIT 1", (by_ms,))
    return found.fetchone() is not None


def drop_ends(db: sqlite3.Connection, by_ms: int) -> None:
    """Forget the ends by then: they were carried out, or the quotas were changed since."""
    db.execute("DELETE FROM ending WHERE until_ms <= ?", (by_ms,))


# --- the log of changes, which is the history


def latest(db: sqlite3.Connection) -> int:
    """Return the number of the latest change there ever was."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'change'").fetchone()
    return 0 if row is None else int(row[0])


def log_since(db: sqlite3.Connection, seen: int, most: int) -> list[Logged] | None:
    """Return the changes after one; None where they are too many, or were partly pruned."""
    pruned = db.execute("SELECT value FROM state WHERE name = 'pruned_seq'").fetchone()[0]
    found = db.execute(
        "SELECT seq, path, key, after FROM change WHERE seq > ? ORDER BY seq LIMIT ?",
        (seen, most + 1),
    ).fetchall()
    return None if pruned > seen or len(found) > most else found


def alterations(log: Sequence[Logged]) -> list[QuotaAlteration]:
    """Return what a stretch of the log amounts to: the last value of each key, by entity."""
    last: dict[str, dict[str, float | None]] = {}
    for _seq, path, key, after in log:
        last.setdefault(path, {})[key] = after
    return [
        QuotaAlteration(
            entity_from_path(path),
            tuple(Op(QuotaKey.parse(key), value) for key, value in keys.items()),
        )
        for path, keys in last.items()
    ]


def history(
    db: sqlite3.Connection, entity: QuotaEntity | None, limit: int | None, *, old: bool
) -> list[HistoryEntry]:
    """
    Return the changes, oldest first.

    Args:
        db: a connection.
        entity: only this one's.
        limit: only this many, the latest.
        old: whether the tables are an earlier release's, which kept no messages.
    """
    where, args = ("", []) if entity is None else ("WHERE path = ?", [entity.path])
    more = "'', ''" if old else "change_id, message"
    found = db.execute(
        f"SELECT t_ms, who, tool, path, key, before, after, {more} FROM change "
        f"{where} ORDER BY seq DESC LIMIT ?",
        [*args, -1 if limit is None else limit],
    ).fetchall()
    return [
        HistoryEntry(t_ms, who, tool, entity_from_path(path), QuotaKey.parse(key), *rest)
        for t_ms, who, tool, path, key, *rest in reversed(found)
    ]


def prune(db: sqlite3.Connection, keep: int) -> int:
    """Truncate the log to its latest entries; return how many were removed."""
    row = db.execute("SELECT seq FROM change ORDER BY seq DESC LIMIT 1 OFFSET ?", (keep,))
    last = row.fetchone()
    if last is None:
        return 0
    gone = db.execute("DELETE FROM change WHERE seq <= ?", last).rowcount
    db.execute("UPDATE state SET value = ? WHERE name = 'pruned_seq'", last)
    return gone


# --- the audit


def add_audit(db: sqlite3.Connection, event: AuditEvent) -> None:
    """Keep a line, and remove all but the latest ``KEEP_AUDIT``."""
    db.execute(
        "INSERT INTO audit (who, tool, action, outcome, subject, detail, t_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        astuple(event),
    )
    db.execute("DELETE FROM audit WHERE seq <= last_insert_rowid() - ?", (KEEP_AUDIT,))


def audit_log(db: sqlite3.Connection, limit: int | None) -> list[AuditEvent]:
    """Return the lines, oldest first; with a limit, only the latest ones."""
    found = db.execute(
        "SELECT who, tool, action, outcome, subject, detail, t_ms FROM audit "
        "ORDER BY seq DESC LIMIT ?",
        [-1 if limit is None else limit],
    ).fetchall()
    return [AuditEvent(*row) for row in reversed(found)]
