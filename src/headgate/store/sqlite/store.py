"""
The embedded home: one SQLite file, one host, any number of processes.

A change of quotas is one transaction: it also writes the log of changes, which watches read and
which is the history. So is a change of broker settings, with its audit line. ``synchronous=FULL``
in WAL mode syncs before COMMIT returns, so what is acknowledged survives a kill and a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from headgate.clock import now_ms
from headgate.config.settings import Settings
from headgate.quota.alteration import AlterResult
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import StoreChange, resolvable
from headgate.store.broker_rules import Told
from headgate.store.identity import check_revision
from headgate.store.sqlite import rows
from headgate.store.sqlite.file import OpenDatabase, translated
from headgate.store.sqlite.history import SqliteEnds, SqliteHistory
from headgate.store.sqlite.home import SqliteHome
from headgate.store.sqlite.lease import SqliteLeases
from headgate.store.watched import QuotaStore

#: How often a watch asks whether another process wrote; a change is seen in well under 1 s.
POLL_MS = 200
#: Changes read one by one; past this a whole snapshot is cheaper.
MAX_LOG_ROWS = 50_000


class SqliteStore(QuotaStore):
    """
    Quotas in an SQLite file.

    Args:
        path: the file; its folder must exist. Not on a network file system.
        create: make it when it is missing, and bring its schema up to date. Without it a missing
            file is an error, and the first change brings the schema up to date.
        poll_ms: how often a watch looks for other processes' changes.
        clock_ms: the clock of the history.
        resolve: whether a host name of an ip entity resolves.
    """

    home: SqliteHome
    history: SqliteHistory
    counts_every_change = True

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        poll_ms: int = POLL_MS,
        clock_ms: Callable[[], int] = now_ms,
        resolve: Callable[[str], bool] = resolvable,
    ) -> None:
        home = SqliteHome(Path(path), create=create, clock_ms=clock_ms)
        super().__init__(
            home,
            SqliteHistory(home),
            self._alter_broker,
            SqliteLeases(home),
            poll_ms / 1000,
            resolve,
            SqliteEnds(home),
        )
        self._read_from: OpenDatabase | None = None
        self._data_version = -1
        # A table's version is this plus the log's number, so that versions grow even when another
        # file takes the place of this one.
        self._base = 0
        self._begin(create, self._refresh)

    # --- reading

    def _refresh(self) -> QuotaTable:
        """Catch up with the file; queue what changed for the watches."""
        home = self.home
        with home.lock, translated(home.path):
            home.follow_file()
            if home.reader is not self._read_from:
                self._read_from, self._data_version = home.reader, -1
            db = home.reader.db
            version = db.execute("PRAGMA data_version").fetchone()[0]
            if self._table is not None and version == self._data_version:
                return self._table
            db.execute("BEGIN")
            try:
                home.check(home.identity_in(db))
                table = self._catch_up(db)
                brokers = rows.brokers(db)
            finally:
                db.execute("COMMIT")
            # Read before BEGIN: a commit in between shows as a new version next time.
            self._data_version = version
            self.broker_settings.publish(brokers)
            return table

    def _catch_up(self, db: sqlite3.Connection) -> QuotaTable:
        old = self._table
        if old is not None and self._data_version != -1:
            seen = old.version - self._base
            log = rows.log_since(db, seen, MAX_LOG_ROWS)
            if log is not None:
                if not log:
                    return old
                table, delta = old.apply(rows.alterations(log))
                return self._publish(table.with_version(self._base + log[-1][0]), delta)
        # The first time, a trimmed or long log, or another file: a whole snapshot.
        seq = rows.latest(db)
        if old is not None and self._base + seq <= old.version:
            self._base = old.version + 1 - seq
        table = QuotaTable.of(rows.quotas(db), self._base + seq)
        delta = TableDelta((), 0, 0) if old is None else table_delta(old, table)
        return self._publish(table, delta)

    def _look(self) -> None:
        self._refresh()
        if self.ends is not None:
            self.ends.end_due()
        self.home.check_health()

    # --- changing

    def _alter(self, change: StoreChange) -> list[AlterResult]:
        """All accepted entities change in one transaction."""
        (results, accepted), origin, validate_only, at_revision, until_ms = change
        if validate_only or not accepted:
            return results
        t_ms = self.home.clock_ms()
        changed = False
        with self.home.noting_trouble(), self.home.transaction() as db:
            check_revision(self.url, at_revision, self.home.identity_in(db))
            if until_ms is not None:
                rows.make_ends(db)
            with_ends = rows.keeps_ends(db)
            for entity, ops in accepted:
                path = entity.path
                for key, value in ops:
                    if until_ms is not None:
                        changed |= rows.set_end(db, path, key.name, value, (until_ms, *origin))
                    elif with_ends:
                        changed |= rows.drop_end(db, path, key.name)
                    changed |= rows.set_key(db, path, key.name, value, (t_ms, *origin))
            if changed:
                rows.count_change(db)
        return results

    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        with self.home.noting_trouble(), self.home.transaction() as db:
            now, changed = rows.set_broker(db, broker, ops)
            if changed:
                rows.count_change(db)
                rows.add_audit(db, told(now, changed))


def open_home(place: str, _settings: Settings | None, *, create: bool) -> SqliteStore:
    """Open the store at a place of this kind (``config/store_kinds.py``)."""
    return SqliteStore(place, create=create)
