"""
The contract between the admin client and what holds the quotas: a store, a gateway or a Kafka.

One asynchronous contract, three implementations: :mod:`headgate.admin.local` (a store in this
process), :mod:`headgate.admin.released` (Kafka's own APIs), :mod:`headgate.admin.draft` (KIP-546's
on a gateway's admin listener).
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple

from headgate.admin.api import ConfigEntry, Entities, Entry, ScramUpsertion, Value, Values
from headgate.errors import ApiError
from headgate.live.picture import Picture
from headgate.quota.alteration import AlterResult, QuotaAlteration, request_error
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, matches
from headgate.quota.precedence import resolve_entity
from headgate.quota.table import QuotaTable
from headgate.wire.messages.live import LiveRequest


class EntityQuery(NamedTuple):
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

    def passes(self, entity: QuotaEntity) -> bool:
        """Whether an entity is one of them."""
        return matches(self.components, entity, self.strict)


class Backend(abc.ABC):
    """What carries out the admin client's calls: a store, or servers over a connection."""

    @abc.abstractmethod
    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match, with their quotas."""

    @abc.abstractmethod
    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Return the effective quotas of each entity, or the error that prevents computing them."""

    @abc.abstractmethod
    async def alter(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[AlterResult]:
        """Change quotas, each entity all or nothing."""

    @abc.abstractmethod
    async def names(self, resource: str) -> list[str]:
        """Return the names of a kind of resource: the ids of the ``brokers``, the ``topics``."""

    @abc.abstractmethod
    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return a resource's settings with their synonyms; broker "" is the cluster's default."""

    @abc.abstractmethod
    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove (None) settings of a resource."""

    async def describe_scram(
        self, users: Sequence[str]
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """
        Return users' SCRAM mechanisms and iterations; without names, of all users.

        Users without any are left out; so are all where only brokers keep credentials.
        """
        return {}

    @abc.abstractmethod
    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """Set and remove a user's SCRAM credentials."""

    @abc.abstractmethod
    async def live(self, request: LiveRequest) -> Picture:
        """Return what goes on now at the gateways in front of all brokers."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Close the connections."""


def effective_values(
    table: QuotaTable, entities: Collection[QuotaEntity], omit_overridden: bool
) -> dict[QuotaEntity, Values | ApiError]:
    """
    Return every key's effective value for each entity, or why that can't be asked about.

    Args:
        table: the quotas.
        entities: of requests; a part left out matches only levels without it.
        omit_overridden: leave out what is hidden.
    """
    return {e: request_error(e) or _values(table, e, omit_overridden) for e in entities}


def _values(table: QuotaTable, entity: QuotaEntity, omit_overridden: bool) -> Values:
    values: Values = {}
    for key in table.keys():  # noqa: SIM118 - a QuotaTable isn't a dict
        found = resolve_entity(table, entity, key)
        if found.source is not None and found.value is not None:
            overridden = None if omit_overridden else tuple(starmap(Entry, found.overridden))
            values[key] = Value(Entry(found.source, found.value), overridden, found.note)
    return values
