"""
Quotas between the table's words and those of calls 48 and 49. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.errors import ApiError, KafkaError
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import DEFAULT, Default, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.store.base import MAX_RECORDS_PER_REQUEST
from headgate.wire.messages.quotas import DescribedEntry, EntityPart

Values = dict[QuotaKey, float]


def two_homes(theirs: QuotaKey, ours: QuotaKey) -> ApiError:
    """Return the refusal of one alteration of keys that live apart."""
    return ApiError(
        KafkaError.INVALID_REQUEST,
        f"{theirs.name} lives in Kafka and {ours.name} in Headgate's own topic, {_SEND_TWO}",
    )


_SEND_TWO = "so one alteration can't change both at once; send two"


def wants_two(error: ApiError | None) -> bool:
    """Whether an alteration was refused because its keys live apart."""
    return error is not None and _SEND_TWO in (error.message or "")


def parts(alterations: Sequence[QuotaAlteration]) -> Iterator[list[QuotaAlteration]]:
    """Cut into requests the controller takes; an entity is never cut."""
    part: list[QuotaAlteration] = []
    records = 0
    for alteration in alterations:
        if part and records + len(alteration.ops) > MAX_RECORDS_PER_REQUEST:
            yield part
            part, records = [], 0
        part.append(alteration)
        records += len(alteration.ops)
    if part:
        yield part


def wire_entity(entity: QuotaEntity) -> tuple[EntityPart, ...]:
    """Return an entity as the released wire spells it: null for the default."""
    return tuple(EntityPart(t, None if isinstance(n, Default) else n) for t, n in entity)


def wire_to_entity(parts: Iterable[EntityPart]) -> QuotaEntity:
    """Read an entity from the released wire."""
    return QuotaEntity(
        {p.entity_type: DEFAULT if p.entity_name is None else p.entity_name for p in parts}
    )


def by_entity(described: Iterable[DescribedEntry]) -> dict[QuotaEntity, Values]:
    """Return what was described, by entity; keys that Kafka doesn't enforce are left out."""
    keys: dict[str, QuotaKey] = {}
    found: dict[QuotaEntity, Values] = {}
    for entry in described:
        values: Values = {}
        for name, value in ((v.key, v.value) for v in entry.values):
            key = keys.get(name) or keys.setdefault(name, QuotaKey.parse(name))
            # NaN, which Kafka stores when its own tool is told to, limits nothing.
            if key.known_to_kafka and value == value:
                values[key] = value
        if values:
            found[wire_to_entity(entry.entity)] = values
    return found


def merged(
    in_kafka: Mapping[QuotaEntity, Values], own: Mapping[QuotaEntity, Values]
) -> dict[QuotaEntity, Values]:
    """Return the quotas of both homes together."""
    merged = dict(in_kafka)
    for entity, values in own.items():
        merged[entity] = {**merged.get(entity, {}), **values}
    return merged
