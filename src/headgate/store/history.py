"""
What a store knows of changes: who made which, the audit lines beside them, and what is to end.
"""

from __future__ import annotations

from typing import Protocol

from headgate.quota.entity import QuotaEntity
from headgate.store.base import AuditEvent, EndingQuota, HistoryEntry


class StoreHistory(Protocol):
    """What every kind of store has in a way of its own."""

    def entries(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Args:
            entity: only changes of this entity.
            limit: only this many, the latest.
        """

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return refused attempts and changes of broker settings: the latest, oldest first."""

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""


class QuotaEnds(Protocol):
    """What a kind of store has that keeps ends."""

    def kept(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time."""

    def end_due(self) -> None:
        """Bring back the former values of quotas whose time has come, each once."""
