"""
What callers of the admin client may give instead of its own types: dicts, keys as text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headgate.errors import invalid_request
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import (
    DEFAULT,
    Default,
    EntityName,
    QuotaEntity,
    canonical_entity_type,
)
from headgate.quota.filter import QuotaFilter, Rule
from headgate.quota.key import QuotaKey, is_exact, kips_key

EntityLike = QuotaEntity | Mapping[str, EntityName | None]
"""An entity, or ``{"user": "alice", "client-id": None}``, where None is the default."""

OpsLike = Mapping[QuotaKey | str, float | None] | Iterable[tuple[QuotaKey | str, float | None]]
"""Ops, or a mapping of keys to values; a key may be text, ``producer_byte_rate:bps``."""


def entity_of(given: EntityLike) -> QuotaEntity:
    """
    Return an entity.

    Raises:
        TypeError: it is neither an entity nor a mapping of entity types to names.
    """
    if isinstance(given, QuotaEntity):
        return given
    if not isinstance(given, Mapping) or not all(isinstance(kind, str) for kind in given):
        raise TypeError(f"an entity is QuotaEntity.of(user=…) or {{'user': …}}, not {_said(given)}")
    entries: dict[str, EntityName] = {}
    for kind, name in given.items():
        if canonical_entity_type(kind) in entries:
            raise invalid_request(f"entity type {canonical_entity_type(kind)} is given twice")
        if name is not None and not isinstance(name, str | Default):
            raise TypeError(f"the name of a {kind} is text, or None for the default, not {name!r}")
        entries[canonical_entity_type(kind)] = DEFAULT if name is None else name
    return QuotaEntity(entries)


def entities_of(given: Iterable[EntityLike]) -> list[QuotaEntity]:
    """
    Return entities.

    Raises:
        TypeError: a single entity was given, or something else.
    """
    if isinstance(given, QuotaEntity | Mapping | str):
        raise TypeError(f"a collection of entities is asked for, not {_said(given)}: write […]")
    return [entity_of(entity) for entity in given]


def entries_of(given: Iterable[Any]) -> list[QuotaAlteration]:
    """
    Return alterations: ``AlterQuotasEntry(entity, ops)`` whose entity may be a mapping, whose ops
    may be a mapping of keys to values, and whose keys may be text.

    Raises:
        TypeError: something has another type; says what to write.
    """
    if isinstance(given, QuotaAlteration | Mapping | str):
        raise TypeError(f"a collection of entries is asked for, not {_said(given)}: write […]")
    return [_entry_of(entry) for entry in given]


def _entry_of(given: Any) -> QuotaAlteration:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"an entry is AlterQuotasEntry(entity, [Op(key, value)]), not {given!r}")
    return alteration_of(*given)


def alteration_of(entity: EntityLike, ops: OpsLike) -> QuotaAlteration:
    """
    Return the alteration of one entity.

    Raises:
        TypeError: something has another type; says what to write.
    """
    pairs = ops.items() if isinstance(ops, Mapping) else ops
    return QuotaAlteration(entity_of(entity), tuple(_op_of(pair) for pair in pairs))


def _op_of(given: Any) -> Op:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"an op is Op(key, value), not {given!r}")
    key, value = given
    if isinstance(key, str):
        key = QuotaKey.parse(key)
    if isinstance(key, QuotaKey):
        key = kips_key(key.type, key.units)
    if not isinstance(key, QuotaKey):
        raise TypeError(f"a key is QuotaKey(type, units) or 'producer_byte_rate', not {key!r}")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"the value of {key} is a number, or None to clear it, not {value!r}")
    if value is not None and not is_exact(value):
        raise invalid_request(f"{key}: quotas are doubles, and none holds {value} as it is")
    # Whole numbers may come as int; the wire and the stores hold doubles.
    return Op(key, None if value is None else float(value))


def filters_of(given: Collection[Any]) -> list[QuotaFilter]:
    """
    Return filters.

    Raises:
        TypeError: something is no filter.
        ApiError: INVALID_REQUEST: a rule that doesn't exist.
    """
    if isinstance(given, QuotaFilter | Mapping | str):
        raise TypeError(f"a collection of filters is asked for, not {_said(given)}")
    for item in given:
        if not isinstance(item, QuotaFilter):
            raise TypeError(f"a filter is QuotaFilter(entity_type, rule, match), not {item!r}")
        if item.match is None:
            raise invalid_request(
                f"The match of the filter on {item.entity_type} is None; a default's is DEFAULT, "
                "and a filter that is left out matches any name."
            )
        if item.rule not in set(Rule):
            raise invalid_request(f"Unknown rule {item.rule}; there are {' and '.join(Rule)}.")
    return list(given)


def _said(given: object) -> str:
    return f"{type(given).__name__} {given!r}"
