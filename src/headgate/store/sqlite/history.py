"""
History, audit lines and ends of quotas in the SQLite home.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.quota.entity import QuotaEntity
from headgate.store.base import AuditEvent, EndingQuota, HistoryEntry
from headgate.store.sqlite import rows
from headgate.store.sqlite.file import translated
from headgate.store.sqlite.home import SqliteHome


@dataclass(frozen=True, eq=False)
class SqliteHistory:
    """The log of changes, and the audit lines. See ``StoreHistory``."""

    home: SqliteHome

    def entries(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        with self.home.reading() as db:
            return rows.history(db, entity, limit, old=bool(self.home.lacks))

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return the audit lines, oldest first."""
        with self.home.reading() as db:
            return rows.audit_log(db, limit)

    def audit(self, event: AuditEvent) -> None:
        """Keep an audit line."""
        with self.home.transaction() as db:
            rows.add_audit(db, event.at(self.home.clock_ms()))

    def prune(self, keep: int) -> int:
        """
        Truncate the change log, and with it the history, to its latest entries.

        Args:
            keep: how many changes stay.

        Returns:
            How many were removed. Watches that hadn't read them read a whole snapshot instead.
        """
        with self.home.transaction() as db:
            return rows.prune(db, keep)


@dataclass(frozen=True, eq=False)
class SqliteEnds:
    """The quotas that end. See ``QuotaEnds``."""

    home: SqliteHome

    def kept(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time."""
        with self.home.reading() as db:
            return rows.ends(db) if rows.keeps_ends(db) else []

    def end_due(self) -> None:
        """Bring the former values back of quotas whose time has come, all in one transaction."""
        now_ms = self.home.clock_ms()
        with self.home.lock, translated(self.home.path):
            db = self.home.reader.db
            if not rows.keeps_ends(db) or not rows.has_end(db, now_ms):
                return
        with self.home.noting_trouble(), self.home.transaction() as db:
            changed = False
            for end in rows.ends(db, now_ms):  # asked again: another process may have been quicker
                stamp = (now_ms, *end.origin())
                changed |= rows.set_key(db, end.entity.path, end.key.name, end.former, stamp)
            rows.drop_ends(db, now_ms)
            if changed:
                rows.count_change(db)
