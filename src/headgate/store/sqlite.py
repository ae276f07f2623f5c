"""
The embedded home: one SQLite file, one host, any number of processes.

Every change is one transaction holding the quotas, the log of changes (which watchers read and
which is the history) and, for broker settings, the audit line. ``synchronous=FULL`` in WAL mode
syncs the log before COMMIT returns, so what is acknowledged survives a kill and a power cut.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from headgate.errors import StoreError
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration, Validated
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import (
    AuditEvent,
    BrokerConfigs,
    HistoryEntry,
    broker_event,
    now_ms,
    resolvable,
)
from headgate.store.migrations import migrate, newer
from headgate.store.place import refuse_network_file_system
from headgate.store.sqlite_lease import SqliteLease, take
from headgate.store.watched import WatchedStore

#: How often a watch asks whether another process wrote; a change is seen in well under 1 s.
POLL_MS = 200
#: How long a writer waits for another one; they hold the lock for milliseconds.
BUSY_MS = 10_000
#: Changes read one by one; past this a whole snapshot is cheaper.
MAX_LOG_ROWS = 50_000


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into StoreError; busy and I/O trouble can be tried again."""
    try:
        yield
    except sqlite3.OperationalError as exc:
        code = (getattr(exc, "sqlite_errorcode", 0) or 0) & 0xFF
        retriable = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR)
        raise StoreError(f"the quota store {path}: {exc}", retriable=retriable) from exc
    except sqlite3.DatabaseError as exc:
        raise StoreError(
            f"the quota store {path}: {exc}; if it isn't a Headgate store, choose another file"
        ) from exc


KEEP_AUDIT: Final = 10_000
"""Audit lines kept, as in the other stores: who is refused may ask again and again."""


class SqliteStore(WatchedStore):
    """
    Quotas in an SQLite file.

    Args:
        path: the file; made when missing, its folder must exist. Not on a network file system.
        poll_ms: how often a watch looks for other processes' changes.
        clock_ms: the clock of history and leases.
        resolve: whether a host name of an ip entity resolves.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        poll_ms: int = POLL_MS,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        self.path = Path(path)
        super().__init__(f"sqlite:{self.path}", poll_ms / 1000, clock_ms, resolve)
        self._pid = os.getpid()
        refuse_network_file_system(self.path)
        if not self.path.parent.is_dir():
            raise StoreError(f"the quota store {self.path}: there is no folder {self.path.parent}")
        self._write_lock = threading.Lock()
        with translated(self.path), contextlib.ExitStack() as opened:
            self._writer = self._connect()
            opened.callback(self._writer.close)
            unknown = newer(self._writer)
            if unknown:
                raise StoreError(
                    f"the quota store {self.path} was written by a newer Headgate "
                    f"({', '.join(unknown)}); upgrade this one"
                )
            migrate(self._writer, now_ms=clock_ms())
            self._reader = self._connect()
            opened.pop_all()
        self._data_version = -1

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            _into_wal(db)
            db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            db.close()
            raise
        return db

    # --- reading

    def snapshot(self) -> QuotaTable:
        """Return every quota as of now."""
        self._check_open()
        return self._refresh()

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings."""
        self._check_open()
        self._refresh()
        return self._brokers

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        self._check_open()
        where, args = ("", []) if entity is None else ("WHERE path = ?", [entity.path])
        with self._state_lock, translated(self.path):
            rows = self._reader.execute(
                "SELECT t_ms, who, tool, path, key, before, after FROM change "
                f"{where} ORDER BY seq DESC LIMIT ?",
                [*args, -1 if limit is None else limit],
            ).fetchall()
        return [
            HistoryEntry(
                t_ms, who, tool, entity_from_path(path), QuotaKey.parse(key), before, after
            )
            for t_ms, who, tool, path, key, before, after in reversed(rows)
        ]

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return refused attempts and changes of broker settings, oldest first."""
        self._check_open()
        with self._state_lock, translated(self.path):
            rows = self._reader.execute(
                "SELECT who, tool, action, outcome, subject, detail, t_ms FROM audit "
                "ORDER BY seq DESC LIMIT ?",
                [-1 if limit is None else limit],
            ).fetchall()
        return [AuditEvent(*row) for row in reversed(rows)]

    def _refresh(self) -> QuotaTable:
        """Catch up with the file; queue what changed for the watches."""
        with self._state_lock, translated(self.path):
            version = self._reader.execute("PRAGMA data_version").fetchone()[0]
            if self._table is not None and version == self._data_version:
                return self._table
            self._reader.execute("BEGIN")
            try:
                table = self._catch_up()
                brokers = self._load_brokers()
            finally:
                self._reader.execute("COMMIT")
            # Read before BEGIN: a commit in between shows as a new version next time.
            self._data_version = version
            self._publish_brokers(brokers)
            return table

    def _catch_up(self) -> QuotaTable:
        old = self._table
        if old is not None:
            pruned = self._reader.execute(
                "SELECT value FROM state WHERE name = 'pruned_seq'"
            ).fetchone()[0]
            rows = self._reader.execute(
                "SELECT seq, path, key, after FROM change WHERE seq > ? ORDER BY seq LIMIT ?",
                (old.version, MAX_LOG_ROWS + 1),
            ).fetchall()
            if not rows and pruned <= old.version:
                return old
            if len(rows) <= MAX_LOG_ROWS and pruned <= old.version:
                table, delta = old.apply(_alterations(rows))
                return self._publish(table.with_version(rows[-1][0]), delta)
        # The first time, or the log was cut or is long: a whole snapshot.
        table = self._load()
        delta = TableDelta((), 0, 0) if old is None else table_delta(old, table)
        return self._publish(table, delta)

    def _load(self) -> QuotaTable:
        seq = self._reader.execute("SELECT seq FROM sqlite_sequence WHERE name = 'change'")
        version = (seq.fetchone() or (0,))[0]
        keys: dict[str, QuotaKey] = {}
        entities: dict[QuotaEntity, dict[QuotaKey, float]] = {}
        last: str | None = None
        values: dict[QuotaKey, float] = {}
        for path, key, value in self._reader.execute(
            "SELECT path, key, value FROM quota ORDER BY path, key"
        ):
            if path != last:
                last, values = path, {}
                entities[entity_from_path(path)] = values
            known = keys.get(key)
            if known is None:
                known = keys[key] = QuotaKey.parse(key)
            values[known] = value
        return QuotaTable.of(entities, version)

    def _load_brokers(self) -> BrokerConfigs:
        found: dict[str, dict[str, str]] = {}
        for broker, key, value in self._reader.execute(
            "SELECT broker, key, value FROM broker_config ORDER BY broker, key"
        ):
            found.setdefault(broker, {})[key] = value
        return found

    # --- changing

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        with self._write_lock, translated(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
        self._poke.set()

    def _alter(
        self, checked: Validated, *, validate_only: bool, who: str, tool: str
    ) -> list[AlterResult]:
        """All accepted entities change in one transaction."""
        results, accepted = checked
        if validate_only or not accepted:
            return results
        t_ms = self._clock_ms()
        with self._transaction() as db:
            for entity, ops in accepted:
                path = entity.path
                for key, value in ops:
                    _set(db, path, key.name, value, (t_ms, who, tool))
        return results

    def _alter_broker(
        self, broker: str, ops: Mapping[str, str | None], who: str, tool: str
    ) -> None:
        with self._transaction() as db:
            now = dict(
                db.execute("SELECT key, value FROM broker_config WHERE broker = ?", (broker,))
            )
            changed = {k: v for k, v in ops.items() if now.get(k) != v}
            for key, value in changed.items():
                if value is None:
                    db.execute(
                        "DELETE FROM broker_config WHERE broker = ? AND key = ?", (broker, key)
                    )
                else:
                    db.execute(
                        "INSERT OR REPLACE INTO broker_config VALUES (?, ?, ?)",
                        (broker, key, value),
                    )
            if changed:
                _audit(db, broker_event(broker, now, changed, who, tool), self._clock_ms())

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        with self._transaction() as db:
            _audit(db, event, self._clock_ms())

    def prune_history(self, keep: int) -> int:
        """
        Cut the change log, and with it the history, to its latest entries.

        Args:
            keep: how many changes stay.

        Returns:
            How many went. Watchers that hadn't read them take a whole snapshot instead.
        """
        with self._transaction() as db:
            row = db.execute(
                "SELECT seq FROM change ORDER BY seq DESC LIMIT 1 OFFSET ?", (keep,)
            ).fetchone()
            if row is None:
                return 0
            gone = db.execute("DELETE FROM change WHERE seq <= ?", row).rowcount
            db.execute("UPDATE state SET value = ? WHERE name = 'pruned_seq'", row)
            return gone

    def lease(self, name: str, owner: str, ttl_ms: int) -> SqliteLease | None:
        """Take a lease, or None while somebody else holds it."""
        with self._transaction() as db:
            epoch = take(db, name, owner, ttl_ms, self._clock_ms())
        if epoch is None:
            return None
        return SqliteLease(self._transaction, self._clock_ms, name, owner, epoch, ttl_ms)

    # --- the end

    def _release(self) -> None:
        if self._pid != os.getpid():
            return
        with self._write_lock, self._state_lock:
            self._reader.close()
            self._writer.close()

    def _check_open(self) -> None:
        super()._check_open()
        if self._pid != os.getpid():
            # SQLite forbids carrying a connection across a fork.
            raise StoreError(f"the quota store {self.path} was opened before a fork; open it again")


def _into_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite doesn't wait by itself when several processes do so at once."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            code = (getattr(exc, "sqlite_errorcode", 0) or 0) & 0xFF
            if code != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _set(
    db: sqlite3.Connection,
    path: str,
    key: str,
    value: float | None,
    stamp: tuple[int, str, str],
) -> None:
    row = db.execute("SELECT value FROM quota WHERE path = ? AND key = ?", (path, key)).fetchone()
    before = None if row is None else row[0]
    if before == value:
        return
    if value is None:
        db.execute("DELETE FROM quota WHERE path = ? AND key = ?", (path, key))
    else:
        db.execute("INSERT OR REPLACE INTO quota VALUES (?, ?, ?)", (path, key, value))
    db.execute(
        "INSERT INTO change (t_ms, who, tool, path, key, before, after)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*stamp, path, key, before, value),
    )


def _audit(db: sqlite3.Connection, event: AuditEvent, t_ms: int) -> None:
    db.execute(
        "INSERT INTO audit (t_ms, who, tool, action, outcome, subject, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            event.t_ms or t_ms,
            event.who,
            event.tool,
            event.action,
            event.outcome,
            event.subject,
            event.detail,
        ),
    )
    db.execute("DELETE FROM audit WHERE seq <= last_insert_rowid() - ?", (KEEP_AUDIT,))


def _alterations(rows: Sequence[tuple[int, str, str, float | None]]) -> list[QuotaAlteration]:
    """Return what a stretch of the log amounts to: the last value of each key, by entity."""
    last: dict[str, dict[str, float | None]] = {}
    for _seq, path, key, after in rows:
        last.setdefault(path, {})[key] = after
    return [
        QuotaAlteration(
            entity_from_path(path),
            tuple(Op(QuotaKey.parse(key), value) for key, value in keys.items()),
        )
        for path, keys in last.items()
    ]
