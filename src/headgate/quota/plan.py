"""
Plans: the changes that turn one quota table into another, and what they mean for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from headgate.errors import InvalidQuota
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.lookalikes import name_notes
from headgate.quota.precedence import EffectiveQuota, resolve_entity
from headgate.quota.table import QuotaTable, TableChange, alterations_of, table_delta

if TYPE_CHECKING:
    from headgate.quota.file import QuotasFile


class Plan(NamedTuple):
    """
    The changes that turn the current table into the desired one.

    Args:
        changes: what ``apply`` would do, entities in print order.
        unmentioned: keys that the current table has and the file doesn't mention; they are
            deleted only with ``prune``.
        current: the table before.
        desired: the table after.
        notes: sentences about what the plan leaves out or may not mean.
    """

    changes: tuple[TableChange, ...]
    unmentioned: tuple[TableChange, ...]
    current: QuotaTable
    desired: QuotaTable
    notes: tuple[str, ...] = ()

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
        return alterations_of(self.changes)


def diff(current: QuotaTable, desired: QuotasFile, *, prune: bool = False) -> Plan:
    """
    Compare a table with a quotas file.

    Args:
        current: what is set now.
        desired: the file; a null value removes that key.
        prune: whether entities and keys the file doesn't mention are deleted.

    Returns:
        A plan; applying it and planning again gives an empty plan.

    Raises:
        InvalidQuota: with ``prune``, a part of the file that may hold quotas wasn't read.
    """
    if prune and desired.unread:
        told = "--prune would remove what stands there: leave it out, or give what isn't read"
        raise InvalidQuota("\n".join([*desired.unread, told]))
    if prune and desired.format not in ("", "strimzi", "jikkou"):
        raise InvalidQuota(
            f"--prune follows a quotas file, and this is one of {desired.format}'s: write one by "
            "`headgate import FILE --out quotas.yaml`, look at it, and apply that"
        )
    removed = {(entity, op.key) for entity, op in desired.removals}
    changes: list[TableChange] = []
    unmentioned: list[TableChange] = []
    for change in table_delta(current, desired.table).changes:
        if change.new is None and (change.entity, change.key) not in removed and not prune:
            unmentioned.append(change)
        else:
            changes.append(change)
    plan = plan_of(current, changes)
    nothing = [
        nothing_removed(entity, op.key)
        for entity, op in desired.removals
        if current.get(entity, op.key) is None
    ]
    return plan._replace(
        unmentioned=tuple(unmentioned), notes=(*desired.said, *nothing, *plan.notes)
    )


def nothing_removed(entity: QuotaEntity, key: QuotaKey) -> str:
    """Say that a removal finds no value."""
    return f"{entity} has no {key.name}: nothing is removed"


def plan_of(current: QuotaTable, changes: Collection[TableChange]) -> Plan:
    """Return the plan that makes exactly the given changes."""
    after = current.apply(alterations_of(changes))[0]
    named = dict.fromkeys(change.entity for change in changes if change.new is not None)
    return Plan(tuple(changes), (), current, after, tuple(name_notes(named)))


class EffectiveLine(NamedTuple):
    """How a plan changes what one client gets for one key."""

    client: QuotaEntity
    key: QuotaKey
    before: EffectiveQuota
    after: EffectiveQuota


def known_clients(tables: Iterable[QuotaTable]) -> list[QuotaEntity]:
    """
    Return the clients that quotas name, for a caller that names none.

    An entity gives one client: its user and its client-id; the one it lacks is the default, which
    stands for any other name.
    """
    found: set[QuotaEntity] = set()
    for table in tables:
        for entity in table.entities:
            if entity.ip is not None or len(entity) == 0:
                continue
            user: EntityName = DEFAULT if entity.user is None else entity.user
            client_id: EntityName = DEFAULT if entity.client_id is None else entity.client_id
            found.add(QuotaEntity.of(user=user, client_id=client_id))
    return sorted(found, key=attrgetter("sort_key"))


def effective_changes(plan: Plan, clients: Sequence[QuotaEntity]) -> Iterator[EffectiveLine]:
    """
    Yield what a plan changes for clients.

    Args:
        plan: the plan.
        clients: users' and client-ids' names; those that quotas name when empty.
    """
    touched = touches(plan.changes)
    for client in clients or known_clients((plan.current, plan.desired)):
        for key in touched(client):
            before = resolve_entity(plan.current, client, key)
            after = resolve_entity(plan.desired, client, key)
            if (before.value, before.source) != (after.value, after.source):
                yield EffectiveLine(client, key, before, after)


def touches(changes: Iterable[TableChange]) -> Callable[[QuotaEntity], list[QuotaKey]]:
    """
    Return a function that takes a client and returns the keys that changes may concern.

    It only compares names, so it is quick. Keys that it returns may still keep their value.
    """
    keys: dict[tuple[EntityName | None, ...], set[QuotaKey]] = {}
    for entity, key, *_ in changes:
        named = (entity.user, entity.client_id, entity.ip)
        keys.setdefault(tuple(map(_if_named, named)), set()).add(key)
    shapes = {tuple(name is not None for name in names) for names in keys}

    def touched(client: QuotaEntity) -> list[QuotaKey]:
        named = (client.user, client.client_id, client.ip)
        found: set[QuotaKey] = set()
        for shape in shapes:
            parts = (name if has else None for name, has in zip(named, shape, strict=True))
            found |= keys.get(tuple(parts), set())
        return sorted(found) if found else []

    return touched


def _if_named(name: EntityName | None) -> EntityName | None:
    """Return a name; None for a default entity and for none, which match any."""
    return name if isinstance(name, str) else None
