"""
Where quotas live: one contract (:mod:`headgate.store.base`), several homes behind one URL.
"""

from headgate.store.base import AuditEvent, HistoryEntry, Lease, QuotaStore, Watch
from headgate.store.opening import open_store

__all__ = ["AuditEvent", "HistoryEntry", "Lease", "QuotaStore", "Watch", "open_store"]
