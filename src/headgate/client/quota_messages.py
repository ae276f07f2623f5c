"""
Quotas as the messages of calls 48, 49 and 50 spell them: released (48, 49) and KIP-546's draft.

The released spelling of the default entity is null, the draft's the empty name. The draft writes
values as int64.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import (
    DEFAULT,
    KNOWN_TYPES,
    Default,
    EntityName,
    QuotaEntity,
    canonical_entity_type,
)
from headgate.quota.filter import FilterComponent, MatchType, match_type_of
from headgate.quota.key import QuotaKey, is_exact, kips_key
from headgate.steps import FEW, Work
from headgate.wire.messages import draft as d
from headgate.wire.messages import quotas as q

Values = dict[QuotaKey, float]
MAX_RECORDS_PER_REQUEST: Final = 10_000
"""The most ops in one request to Kafka's controller (QuorumController.MAX_RECORDS_PER_BATCH)."""

_key_of = functools.lru_cache(256)(QuotaKey.parse)

# --- released


def entity_of(parts: Iterable[q.EntityPart]) -> QuotaEntity:
    """Read an entity; a null name is the default."""
    return QuotaEntity.verbatim(dict(map(_named, parts)))


def entity_steps(parts: Iterable[q.EntityPart]) -> Work[QuotaEntity]:
    """Read an entity that may have thousands of parts; a null name is the default."""
    return _entity_steps(map(_named, parts))


def _named(part: q.EntityPart) -> tuple[str, EntityName]:
    return part.entity_type, DEFAULT if part.entity_name is None else part.entity_name


def _entity_steps(parts: Iterable[tuple[str, EntityName]]) -> Work[QuotaEntity]:
    named: dict[str, EntityName] = {}
    for count, (entity_type, name) in enumerate(parts, 1):
        named[entity_type] = name
        if len(named) > len(KNOWN_TYPES):
            break  # one of them isn't known, so it is refused whatever follows
        if not count % FEW:
            yield
    return QuotaEntity.verbatim(named)


def parts_of(entity: QuotaEntity) -> tuple[q.EntityPart, ...]:
    """Write an entity."""
    return tuple(q.EntityPart(t, None if isinstance(n, Default) else n) for t, n in entity)


def values_of(entry: q.DescribedEntry) -> Values:
    """Read the quotas of one entity."""
    return {_key_of(value.key): value.value for value in entry.values}


def described(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> q.DescribedEntry:
    """Write the quotas of one entity."""
    told = tuple(q.QuotaValue(key.name, value) for key, value in values.items())
    return q.DescribedEntry(parts_of(entity), told)


def op_of(op: q.AlterOp) -> Op:
    """Read what to do with one key."""
    return Op(QuotaKey.parse(op.key), None if op.remove else op.value)


def alter_request(
    alterations: Iterable[QuotaAlteration], *, validate_only: bool
) -> q.AlterClientQuotasRequest:
    """Write what to change."""
    entries = tuple(
        q.AlterEntry(
            parts_of(entity),
            tuple(q.AlterOp(op.key.name, op.value or 0.0, op.value is None) for op in ops),
        )
        for entity, ops in alterations
    )
    return q.AlterClientQuotasRequest(entries, validate_only)


def component_of(component: q.Component) -> FilterComponent:
    """Read one condition of a filter; a match type that Kafka doesn't know stays a number."""
    match_type = match_type_of(component.match_type)
    return FilterComponent(component.entity_type, match_type, component.match)


def describe_request(
    components: Iterable[FilterComponent], *, strict: bool
) -> q.DescribeClientQuotasRequest:
    """Write a filter; only released match types have a number, so it has no prefixes."""
    written = tuple(
        q.Component(kind, _NUMBERS[found] if isinstance(found, MatchType) else int(found), match)
        for kind, found, match in components
    )
    return q.DescribeClientQuotasRequest(written, strict)


_NUMBERS = {
    MatchType.EXACT: q.MATCH_EXACT,
    MatchType.DEFAULT: q.MATCH_DEFAULT,
    MatchType.ANY: q.MATCH_ANY,
}


def cut(alterations: Iterable[QuotaAlteration]) -> list[list[QuotaAlteration]]:
    """
    Divide alterations into requests that a controller takes; an entity is never divided.

    Args:
        alterations: one per entity; each of its ops is a record.
    """
    parts: list[list[QuotaAlteration]] = []
    records = 0
    for alteration in alterations:
        if not parts or records + len(alteration.ops) > MAX_RECORDS_PER_REQUEST:
            parts.append([])
            records = 0
        parts[-1].append(alteration)
        records += len(alteration.ops)
    return parts


# --- the draft


def draft_entity_of(parts: Iterable[d.DraftEntityPart]) -> QuotaEntity:
    """Read an entity; the empty name is the default."""
    return QuotaEntity(dict(map(_draft_named, parts)))


def draft_entity_steps(parts: Iterable[d.DraftEntityPart]) -> Work[QuotaEntity]:
    """
    Read an entity that may have thousands of parts; the empty name is the default.

    A type that stands twice gets a name that no type has, so that it is refused.
    """
    return _entity_steps(_once(map(_draft_named, parts)))


def _once(parts: Iterable[tuple[str, EntityName]]) -> Iterator[tuple[str, EntityName]]:
    seen = set()
    for entity_type, name in parts:
        yield f"{entity_type} given twice" if entity_type in seen else entity_type, name
        seen.add(entity_type)


def _draft_named(part: d.DraftEntityPart) -> tuple[str, EntityName]:
    return canonical_entity_type(part.entity_type), part.entity_name or DEFAULT


def draft_parts_of(entity: QuotaEntity) -> tuple[d.DraftEntityPart, ...]:
    """Write an entity."""
    return tuple(d.DraftEntityPart(t, "" if isinstance(n, Default) else n) for t, n in entity)


def draft_key_of(quota_type: str, units: str) -> QuotaKey:
    """Read a key from its type and units."""
    return kips_key(quota_type, units)


def draft_op_of(op: d.DraftAlterOp) -> Op:
    """Read what to do with one key; a value that a double can't hold stays int, to be refused."""
    value = float(op.value) if is_exact(op.value) else op.value
    return Op(draft_key_of(op.type, op.units), None if op.remove else value)


def draft_int64(value: float) -> int:
    """Return a value as int64; Kafka's "no limit", 2^63 - 1, is 2^63 as a double."""
    return min(int(value), 2**63 - 1)
