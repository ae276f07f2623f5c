"""
The contract between the admin client and what holds the quotas: a store, a gateway or a Kafka.

One asynchronous contract, three implementations: :mod:`headgate.admin.local` (a store in this
process), :mod:`headgate.admin.released` (Kafka's own APIs), :mod:`headgate.admin.draft` (KIP-546's
on a gateway's admin listener).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from headgate.admin.api import ConfigEntry, Entities, Entry, ScramUpsertion, Value, Values
from headgate.errors import ApiError
from headgate.live.picture import Picture
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent
from headgate.quota.precedence import EffectiveQuota, resolve_entity
from headgate.quota.table import QuotaTable
from headgate.wire.messages.live import LiveRequest


class Query(NamedTuple):
    """
    Which entities are asked for.

    Args:
        components: ANDed; may name a type twice (KIP-546's filters may).
        strict: whether entities may have no further types (released filters only).
        draft: whether it is a query of KIP-546. Released servers take a type once only, so they
            get a wider query, and the client filters the answer; so it does for a PREFIX.
    """

    components: tuple[FilterComponent, ...]
    strict: bool = False
    draft: bool = False


class Backend(Protocol):
    """What carries out the admin client's calls: a store, or servers over a connection."""

    async def describe(self, query: Query) -> Entities:
        """Return the entities that match, with their quotas."""

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Return the effective quotas of each entity, or the error that prevents computing them."""

    async def alter(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[AlterResult]:
        """Change quotas, each entity all or nothing."""

    async def names(self, resource: str) -> list[str]:
        """Return the names of a kind of resource: the ids of the ``brokers``, the ``topics``."""

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return a resource's settings with their synonyms; broker "" is the cluster's default."""

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove (None) settings of a resource."""

    async def describe_scram(
        self, users: Sequence[str]
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return each user's SCRAM mechanisms and iterations; without names, of all users."""

    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """Set and remove a user's SCRAM credentials."""

    async def live(self, request: LiveRequest) -> Picture:
        """Return what goes on now at the gateways in front of all brokers."""

    async def close(self) -> None:
        """Close the connections."""


def value_of(effective: EffectiveQuota, omit_overridden: bool) -> Value | None:
    """Return an effective quota in the admin client's words; None where nothing limits."""
    if effective.source is None or effective.value is None:
        return None
    overridden = (
        None
        if omit_overridden
        else tuple(Entry(source, value) for source, value in effective.overridden)
    )
    return Value(Entry(effective.source, effective.value), overridden, effective.note)


def effective_values(table: QuotaTable, entity: QuotaEntity, omit_overridden: bool) -> Values:
    """
    Return every key's effective value for an entity.

    Args:
        table: the quotas.
        entity: a request's entity; a part left out matches only levels without it.
        omit_overridden: leave out what is hidden.
    """
    values: Values = {}
    for key in table.keys():  # noqa: SIM118 - a QuotaTable isn't a dict
        value = value_of(resolve_entity(table, entity, key), omit_overridden)
        if value is not None:
            values[key] = value
    return values
