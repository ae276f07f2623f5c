"""
The quota table: an immutable snapshot of every quota, with a version and deltas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.steps import FEW, Work, finish, sorting


class TableChange(NamedTuple):
    """One key of one entity, before and after; None means not set."""

    entity: QuotaEntity
    key: QuotaKey
    old: float | None
    new: float | None


class TableDelta(NamedTuple):
    """What changed between two versions of a table."""

    changes: tuple[TableChange, ...]
    from_version: int
    to_version: int


_EMPTY: Mapping[QuotaKey, float] = MappingProxyType({})


class QuotaTable:
    """
    Every quota at one moment. Never changes: :meth:`apply` returns a new one.

    Args:
        entities: entity to its keys and values; entities without keys are left out.
        version: grows with every change of the store it came from.
        static_defaults: KIP-55's static default (``quota.producer.default``), by key; absent means
            unlimited.
    """

    __slots__ = ("_by_key", "_entities", "_shapes", "static_defaults", "version")

    def __init__(
        self,
        entities: Mapping[QuotaEntity, Mapping[QuotaKey, float]] = MappingProxyType({}),
        version: int = 0,
        static_defaults: Mapping[QuotaKey, float] = _EMPTY,
    ) -> None:
        self._entities = {e: MappingProxyType(dict(v)) for e, v in entities.items() if v}
        self.version = version
        self.static_defaults: Mapping[QuotaKey, float] = MappingProxyType(dict(static_defaults))
        self._by_key: dict[QuotaKey, dict[QuotaEntity, float]] | None = None
        self._shapes: dict[QuotaKey, set[str]] = {}

    @classmethod
    def of(
        cls,
        entities: Mapping[QuotaEntity, Mapping[QuotaKey, float]],
        version: int = 0,
        static_defaults: Mapping[QuotaKey, float] = _EMPTY,
    ) -> QuotaTable:
        """Build a table; reads better than the constructor where all three are given."""
        return cls(entities, version, static_defaults)

    @property
    def entities(self) -> Mapping[QuotaEntity, Mapping[QuotaKey, float]]:
        """Entity to keys and values, read-only."""
        return MappingProxyType(self._entities)

    def get(self, entity: QuotaEntity, key: QuotaKey) -> float | None:
        """Return the value set for exactly this entity and key, or None."""
        return self._entities.get(entity, _EMPTY).get(key)

    def for_key(self, key: QuotaKey) -> Mapping[QuotaEntity, float]:
        """Return every entity that has the key, with its value. Indexed once per table."""
        return (self._by_key or finish(self.indexing())).get(key, {})

    @property
    def indexed(self) -> bool:
        """Whether the index of ``for_key`` is made, so that it answers at once."""
        return self._by_key is not None

    def indexing(self) -> Work[Mapping[QuotaKey, Mapping[QuotaEntity, float]]]:
        """Make the index that ``for_key`` looks in, in steps, if there is none."""
        if self._by_key is not None:
            return self._by_key
        index: dict[QuotaKey, dict[QuotaEntity, float]] = {}
        shapes: dict[QuotaKey, set[str]] = {}
        for count, (entity, values) in enumerate(self._entities.items(), 1):
            shape = entity.shape
            for own, value in values.items():
                index.setdefault(own, {})[entity] = value
                shapes.setdefault(own, set()).add(shape)
            if not count % FEW:
                yield
        self._shapes = shapes
        self._by_key = index
        return index

    def shapes_for_key(self, key: QuotaKey) -> Collection[str]:
        """Return the shapes (``user``, ``user+client-id``, …) of the entities that have a key."""
        self.for_key(key)
        return self._shapes.get(key, ())

    def keys(self) -> tuple[QuotaKey, ...]:
        """Return the keys that any entity or static default has."""
        self.for_key(QuotaKey("", ""))
        found = dict.fromkeys(self._by_key or ())
        found.update(dict.fromkeys(self.static_defaults))
        return tuple(sorted(found))

    def apply(self, alterations: Iterable[QuotaAlteration]) -> tuple[QuotaTable, TableDelta]:
        """
        Return the table with the alterations in force, and what that changes.

        Args:
            alterations: validated before (:func:`headgate.quota.alteration.validate`).

        Returns:
            A table whose version is one higher (the same table when nothing changes) and the
            delta; ops that change nothing aren't in it.
        """
        touched: dict[QuotaEntity, dict[QuotaKey, float]] = {}
        changes: list[TableChange] = []
        for entity, ops in alterations:
            values = touched.get(entity)
            if values is None:
                values = dict(self._entities.get(entity, _EMPTY))
                touched[entity] = values
            for key, new in ops:
                old = values.get(key)
                if old == new:
                    continue
                changes.append(TableChange(entity, key, old, new))
                if new is None:
                    del values[key]
                else:
                    values[key] = new
        if not changes:
            return self, TableDelta((), self.version, self.version)
        table = self._copy(self.version + 1, self.static_defaults)
        entities = dict(self._entities)
        for entity, values in touched.items():
            if values:
                entities[entity] = MappingProxyType(values)
            else:
                entities.pop(entity, None)
        table._entities, table._by_key, table._shapes = entities, None, {}
        return table, TableDelta(tuple(changes), self.version, table.version)

    def with_version(self, version: int) -> QuotaTable:
        """Return the same quotas under another version."""
        return self._copy(version, self.static_defaults)

    def with_static_defaults(self, static_defaults: Mapping[QuotaKey, float]) -> QuotaTable:
        """Return the same quotas with KIP-55's static default."""
        return self._copy(self.version, MappingProxyType(dict(static_defaults)))

    def _copy(self, version: int, static_defaults: Mapping[QuotaKey, float]) -> QuotaTable:
        table = QuotaTable.__new__(QuotaTable)
        table._entities, table._by_key = self._entities, self._by_key
        table._shapes = self._shapes
        table.version, table.static_defaults = version, static_defaults
        return table

    def __len__(self) -> int:
        return len(self._entities)

    def __eq__(self, other: object) -> bool:
        """Compare quotas and static defaults; the version doesn't count."""
        return (
            isinstance(other, QuotaTable)
            and self._entities == other._entities
            and self.static_defaults == other.static_defaults
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"QuotaTable({len(self)} entities, version {self.version})"

    def __reduce__(self) -> tuple[object, ...]:
        plain = {entity: dict(values) for entity, values in self._entities.items()}
        return (QuotaTable, (plain, self.version, dict(self.static_defaults)))


def table_delta(old: QuotaTable, new: QuotaTable) -> TableDelta:
    """Return what changed between two tables, entities in print order."""
    return finish(comparing(old, new))


def comparing(old: QuotaTable, new: QuotaTable) -> Work[TableDelta]:
    """Do as :func:`table_delta`, in steps."""
    changes: list[TableChange] = []
    was, now = old.entities, new.entities
    # Most entities of a large table are the same on both sides: sort only those that differ.
    differing: list[QuotaEntity] = []
    for count, entity in enumerate(chain(now, was)):
        twice = count >= len(now) and entity in now
        if not twice and was.get(entity, _EMPTY) != now.get(entity, _EMPTY):
            differing.append(entity)
        if not count % FEW:
            yield
    ordered = yield from sorting(differing, lambda entity: entity.sort_key)
    for count, entity in enumerate(ordered):
        before, after = was.get(entity, _EMPTY), now.get(entity, _EMPTY)
        changes.extend(
            TableChange(entity, key, before.get(key), after.get(key))
            for key in sorted(set(before) | set(after))
            if before.get(key) != after.get(key)
        )
        if not count % FEW:
            yield
    return TableDelta(tuple(changes), old.version, new.version)


def alterations_of(changes: Iterable[TableChange]) -> list[QuotaAlteration]:
    """Return the alterations that make changes happen, one per entity."""
    ops: dict[QuotaEntity, list[Op]] = {}
    for change in changes:
        ops.setdefault(change.entity, []).append(Op(change.key, change.new))
    return [QuotaAlteration(entity, tuple(entity_ops)) for entity, entity_ops in ops.items()]
