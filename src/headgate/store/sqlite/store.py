"""
The embedded home: one SQLite file, one host, any number of processes.

A change of quotas is one transaction: it also writes the log of changes, which watches read and
which is the history. So is a change of broker settings, with its audit line. ``synchronous=FULL``
in WAL mode syncs before COMMIT returns, so what is acknowledged survives a kill and a power cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headgate.clock import now_ms
from headgate.config.settings import Settings
from headgate.errors import StoreError, StoreMovedOn, StoreReplaced, StoreSilent, store_missing
from headgate.quota.alteration import AlterResult, Validated
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import (
    AuditEvent,
    BrokerConfigs,
    ChangeOrigin,
    EndingQuota,
    HistoryEntry,
    resolvable,
)
from headgate.store.broker_rules import Told
from headgate.store.deadline import NOTHING, LimitedLock
from headgate.store.identity import StoreIdentity, check_revision, replaced
from headgate.store.leases import LeaseTaker
from headgate.store.sqlite import rows
from headgate.store.sqlite.file import OpenDatabase, free_bytes, translated
from headgate.store.sqlite.lease import SqliteLeases
from headgate.store.sqlite.migrations import migrate, newer, pending
from headgate.store.sqlite.place import refuse_network_file_system
from headgate.store.watched import QuotaStore

#: How often a watch asks whether another process wrote; a change is seen in well under 1 s.
POLL_MS = 200
#: Changes read one by one; past this a whole snapshot is cheaper.
MAX_LOG_ROWS = 50_000
#: How often a watch has SQLite look through the whole file for damage, seconds.
CHECK_S = 30.0
#: With less room than this on the disk a change may not fit, its journal included.
ROOM_BYTES = 1 << 20
#: How often a watch tries whether changes can be written again, seconds.
PROBE_S = 2.0


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

    counts_every_change = True
    keeps_ends = True

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
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
        self._write_lock = LimitedLock(self.url, threading.Lock())
        self._create = create
        self._data_version = -1
        # A table's version is this plus the log's number, so that versions grow even when another
        # file takes the place of this one.
        self._base = 0
        self._check_at = time.monotonic() + CHECK_S
        self._damage = ""
        # Why a change couldn't be written; "" once a probe was written.
        self._full = ""
        self._probe_at = 0.0
        self._writer: OpenDatabase | None = None
        self._leases = LeaseTaker(SqliteLeases(self._transaction, clock_ms))
        self._reader = self._open(create=create)
        self._begin(create, self._refresh)

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
            self._lacks = pending(file.db)
            if not create and "m002_brokers_audit_leases" in self._lacks:
                raise store_missing(f"{self.path} holds no quota store")
            opened.pop_all()
            return file

    # --- which store it is

    def _follow_file(self) -> None:
        """Open the file that is at the path now. Under ``_state_lock``."""
        if not self._reader.moved:
            return
        try:
            file = self._open(create=False)
        except StoreError as exc:
            if self._identity is None:
                raise
            raise replaced(self.url, self._identity, None) from exc
        self._reader.close()
        self._reader = file
        self._data_version = -1

    def _read_identity(self) -> StoreIdentity | None:
        with translated(self.path):
            try:
                self._follow_file()
            except StoreReplaced:
                return None
            return self._identity_in(self._reader.db)

    def _identity_in(self, db: sqlite3.Connection) -> StoreIdentity | None:
        if self._lacks:  # another process may have brought it up to date since
            self._lacks = pending(db)
        return None if self._lacks else rows.identity(db)

    def _make_whole(self) -> None:
        with self._write_lock:
            self._open_writer()
            with translated(self.path):
                assert self._writer is not None
                migrate(self._writer.db, now_ms=self._clock_ms())

    def _open_writer(self) -> None:
        """Open the file for changes. Under ``_write_lock``."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        known = self._identity
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

    def _succeed(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        with self._transaction() as db:
            db.execute("UPDATE identity SET succeeds = ?", (json.dumps(succeeds),))
            rows.count_change(db)

    # --- reading

    def _read_brokers(self) -> BrokerConfigs:
        self._refresh()
        return self._brokers

    def _read_history(self, entity: QuotaEntity | None, limit: int | None) -> list[HistoryEntry]:
        with self._state_lock, translated(self.path):
            self._refresh()
            return rows.history(self._reader.db, entity, limit, old=bool(self._lacks))

    def _read_audit(self, limit: int | None) -> list[AuditEvent]:
        with self._state_lock, translated(self.path):
            self._refresh()
            return rows.audit_log(self._reader.db, limit)

    def _refresh(self) -> QuotaTable:
        """Catch up with the file; queue what changed for the watches."""
        with self._state_lock, translated(self.path):
            self._follow_file()
            db = self._reader.db
            version = db.execute("PRAGMA data_version").fetchone()[0]
            if self._table is not None and version == self._data_version:
                return self._table
            db.execute("BEGIN")
            try:
                self._check_identity(self._identity_in(db))
                table = self._catch_up(db)
                brokers = rows.brokers(db)
            finally:
                db.execute("COMMIT")
            # Read before BEGIN: a commit in between shows as a new version next time.
            self._data_version = version
            self._publish_brokers(brokers)
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
        """Catch up; every ``CHECK_S`` look for damage in the file, which pages in memory hide."""
        self._refresh()
        self.end_due()
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
            with self._transaction() as db:
                db.execute("INSERT OR REPLACE INTO state VALUES ('probe', zeroblob(65536))")
            with self._transaction() as db:
                db.execute("DELETE FROM state WHERE name = 'probe'")
        except StoreSilent as exc:
            self._full = exc.silence
        else:
            self._full = ""

    # --- changing

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._prepare()
        with self._write_lock, translated(self.path):
            if self._writer is None or self._writer.moved:
                self._open_writer()
            assert self._writer is not None
            db = self._writer.db
            self._writer.begin()
            try:
                self._check_same_store(self._identity_in(db))
                yield db
                self._writer.check()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            # What was put into a file that has just been removed is lost.
            self._writer.check()
        self._poke.set()

    @contextlib.contextmanager
    def _noting_trouble(self) -> Iterator[None]:
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

    def _alter(
        self,
        checked: Validated,
        origin: ChangeOrigin,
        *,
        validate_only: bool,
        at_revision: int | None,
    ) -> list[AlterResult]:
        """All accepted entities change in one transaction."""
        if validate_only:
            return checked.results
        return self._alter_until(checked, origin, at_revision=at_revision, until_ms=None)

    def _alter_until(
        self,
        checked: Validated,
        origin: ChangeOrigin,
        *,
        at_revision: int | None,
        until_ms: int | None,
    ) -> list[AlterResult]:
        results, accepted = checked
        if not accepted:
            return results
        t_ms = self._clock_ms()
        changed = False
        with self._noting_trouble(), self._transaction() as db:
            check_revision(self.url, at_revision, self._identity_in(db))
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

    def ends(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time."""
        self._check_open()
        with self._state_lock, translated(self.path):
            self._refresh()
            db = self._reader.db
            return rows.ends(db) if rows.keeps_ends(db) else []

    def end_due(self) -> None:
        """Bring the former values back of quotas whose time has come, all in one transaction."""
        now_ms = self._clock_ms()
        with self._state_lock, translated(self.path):
            db = self._reader.db
            if not rows.keeps_ends(db) or not rows.has_end(db, now_ms):
                return
        with self._noting_trouble(), self._transaction() as db:
            changed = False
            for end in rows.ends(db, now_ms):  # asked again: another process may have been quicker
                stamp = (now_ms, *end.origin())
                changed |= rows.set_key(db, end.entity.path, end.key.name, end.former, stamp)
            rows.drop_ends(db, now_ms)
            if changed:
                rows.count_change(db)

    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        with self._noting_trouble(), self._transaction() as db:
            now, changed = rows.set_broker(db, broker, ops)
            if changed:
                rows.count_change(db)
                rows.add_audit(db, told(now, changed))

    def _keep_audit(self, event: AuditEvent) -> None:
        with self._transaction() as db:
            rows.add_audit(db, event)

    def prune_history(self, keep: int) -> int:
        """
        Truncate the change log, and with it the history, to its latest entries.

        Args:
            keep: how many changes stay.

        Returns:
            How many were removed. Watches that hadn't read them read a whole snapshot instead.
        """
        with self._transaction() as db:
            return rows.prune(db, keep)

    # --- the end

    def _release(self) -> None:
        if self._pid != os.getpid():
            return
        with self._state_lock, self._write_lock:
            self._reader.close()
            if self._writer is not None:
                self._writer.close()

    def _check_open(self) -> None:
        super()._check_open()
        if self._pid != os.getpid():
            # SQLite forbids carrying a connection across a fork.
            raise StoreError(f"the quota store {self.path} was opened before a fork; open it again")


def open_home(place: str, _settings: Settings | None, *, create: bool) -> SqliteStore:
    """Open the store at a place of this kind (``config/store_kinds.py``)."""
    return SqliteStore(place, create=create)
