"""
Plans: the changes that turn one quota table into another, and what they mean for clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import QuotasFile
from headgate.quota.precedence import EffectiveQuota, resolve
from headgate.quota.table import Change, QuotaTable, TableDelta, alterations_of


class EffectiveChange(NamedTuple):
    """How a plan changes what one known client gets: before and after, with their sources."""

    user: str
    client_id: str
    before: EffectiveQuota
    after: EffectiveQuota


class Plan(NamedTuple):
    """
    The changes that turn the current table into the desired one.

    Args:
        changes: what ``apply`` would do, entities in print order.
        unmentioned: keys that the current table has and the file doesn't mention; they are
            deleted only with ``prune``.
        current: the table before.
        desired: the table after.
    """

    changes: tuple[Change, ...]
    unmentioned: tuple[Change, ...]
    current: QuotaTable
    desired: QuotaTable

    @property
    def removals(self) -> int:
        """How many keys lose their value."""
        return sum(change.new is None for change in self.changes)

    @property
    def removes_most(self) -> bool:
        """Whether more than half of all values are removed."""
        return self.removals * 2 > sum(map(len, self.current.entities.values()))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes

    def alterations(self) -> list[QuotaAlteration]:
        """Return the alterations, one per entity."""
        return alterations_of(
            TableDelta(self.changes, self.current.version, self.current.version + 1)
        )

    def effective(self, clients: Iterable[tuple[str, str]]) -> list[EffectiveChange]:
        """
        Return what the plan changes for known clients.

        Args:
            clients: pairs of user and client-id, raw.
        """
        keys = sorted({change.key for change in self.changes})
        found = []
        for user, client_id in sorted(set(clients)):
            for key in keys:
                before = resolve(self.current, user, client_id, key)
                after = resolve(self.desired, user, client_id, key)
                if (before.value, before.source) != (after.value, after.source):
                    found.append(EffectiveChange(user, client_id, before, after))
        return found


def diff(current: QuotaTable, desired: QuotasFile, *, prune: bool = False) -> Plan:
    """
    Compare a table with a quotas file.

    Args:
        current: what is set now.
        desired: the file; a null value removes that key.
        prune: whether entities and keys the file doesn't mention are deleted.

    Returns:
        A plan; applying it and planning again gives an empty plan.
    """
    removed = {(entity, op.key) for entity, op in desired.removals}
    changes: list[Change] = []
    unmentioned: list[Change] = []
    for entity in sorted(set(current.entities) | set(desired.table.entities)):
        before = current.entities.get(entity, {})
        after = desired.table.entities.get(entity, {})
        for key in sorted(set(before) | set(after)):
            old, new = before.get(key), after.get(key)
            if old == new:
                continue
            change = Change(entity, key, old, new)
            if new is None and (entity, key) not in removed and not prune:
                unmentioned.append(change)
            else:
                changes.append(change)
    return Plan(tuple(changes), tuple(unmentioned), current, _apply(current, changes))


def plan_of(current: QuotaTable, changes: Collection[Change]) -> Plan:
    """Return the plan that makes exactly the given changes."""
    return Plan(tuple(changes), (), current, _apply(current, changes))


def _apply(current: QuotaTable, changes: Collection[Change]) -> QuotaTable:
    alterations = [QuotaAlteration(c.entity, (Op(c.key, c.new),)) for c in changes]
    return current.apply(alterations)[0]


def clients_named_by(tables: Iterable[QuotaTable]) -> set[tuple[str, str]]:
    """Return the named users and client-ids of all quotas, for use where no clients are known."""
    entities: set[QuotaEntity] = set()
    for table in tables:
        entities.update(table.entities)
    users = {e.user for e in entities if isinstance(e.user, str)}
    client_ids = {e.client_id for e in entities if isinstance(e.client_id, str)}
    pairs = {
        (e.user, e.client_id)
        for e in entities
        if isinstance(e.user, str) and isinstance(e.client_id, str)
    }
    pairs.update((user, "") for user in users)
    pairs.update(("", client_id) for client_id in client_ids)
    return pairs
