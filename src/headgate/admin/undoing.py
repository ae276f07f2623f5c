"""
Make the plan that takes changes back, from a store's history.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.errors import StoreMovedOn
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan, plan_of
from headgate.quota.table import QuotaTable, TableChange
from headgate.store.base import HistoryEntry


def undoing(table: QuotaTable, chosen: Iterable[HistoryEntry]) -> Plan:
    """
    Return the plan that takes back some entries of the history.

    Args:
        table: all present quotas.
        chosen: the entries, oldest first.

    Raises:
        StoreMovedOn: a later entry, which isn't among them, changed a key again.
    """
    before: dict[tuple[QuotaEntity, QuotaKey], float | None] = {}
    after: dict[tuple[QuotaEntity, QuotaKey], float | None] = {}
    for entry in chosen:
        at = (entry.entity, entry.key)
        before.setdefault(at, entry.before)
        after[at] = entry.after
    others = sorted(at for at, value in after.items() if table.get(*at) != value)
    if others:
        told = ", ".join(f"{entity.path} {key}" for entity, key in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise StoreMovedOn(
            f"changed again since: {told}{more}; take the later changes back first, or all since "
            "a time, by `headgate undo --since TIME`"
        )
    changes = [
        TableChange(*at, after[at], value)
        for at, value in sorted(before.items())
        if value != after[at]
    ]
    return plan_of(table, changes)
