"""
Joins the quotas of the Kafka home's two places, Kafka itself and the topic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.client.quota_messages import Values, entity_of, values_of
from headgate.errors import ApiError, invalid_request
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.wire.messages.quotas import DescribedEntry


def two_homes(theirs: QuotaKey, ours: QuotaKey) -> ApiError:
    """Return the refusal of an alteration whose keys are kept in both places."""
    return invalid_request(
        f"{theirs.name} lives in Kafka and {ours.name} in Headgate's own topic, {_SEND_TWO}"
    )


_SEND_TWO = "so one alteration can't change both at once; send two"


def wants_two(error: ApiError | None) -> bool:
    """Whether an alteration was refused because its keys are kept in both places."""
    return error is not None and _SEND_TWO in (error.message or "")


def by_entity(described: Iterable[DescribedEntry]) -> dict[QuotaEntity, Values]:
    """Return what was described, by entity; keys that Kafka doesn't enforce are left out."""
    found: dict[QuotaEntity, Values] = {}
    for entry in described:
        # NaN, which Kafka stores when its own tool is told to, limits nothing.
        values = {
            key: value
            for key, value in values_of(entry).items()
            if key.known_to_kafka and value == value
        }
        if values:
            found[entity_of(entry.entity)] = values
    return found


def merged(
    in_kafka: Mapping[QuotaEntity, Values], own: Mapping[QuotaEntity, Values]
) -> dict[QuotaEntity, Values]:
    """Return the quotas of both places together."""
    merged = dict(in_kafka)
    for entity, values in own.items():
        merged[entity] = {**merged.get(entity, {}), **values}
    return merged
