"""
Where quotas are kept, as everybody who reads or changes them sees it: a store or a cluster.

There are two kinds, and servers differ by the APIs that they have:

- :mod:`headgate.admin.store_target`: a store, opened in this process.
- :mod:`headgate.admin.cluster_target`: what a cluster's two kinds have in common:
  :mod:`headgate.admin.released` (Kafka's own APIs) and :mod:`headgate.admin.draft` (KIP-546's, on a
  gateway's admin listener).

:class:`headgate.admin.open_target.OpenTarget` opens one and calls it.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

from headgate.admin.api import ConfigEntry, Entities, Entry, ScramUpsertion, Value, Values
from headgate.errors import ApiError, HeadgateError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, request_error
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, matches
from headgate.quota.key import KEYS, PRODUCER_IDS, QuotaKey
from headgate.quota.precedence import resolve_entity
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.live.picture import Picture
    from headgate.store.base import AuditEvent, EndingQuota, HistoryEntry
    from headgate.store.identity import StoreIdentity
    from headgate.wire.messages.live import LiveRequest

Refused = list[tuple[QuotaEntity, Exception]]
"""Entities that were refused, each with its error."""


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


class ChangeRequest(NamedTuple):
    """
    A change of quotas.

    Args:
        alterations: one per entity.
        validate_only: check, and change nothing.
        message: why, for a store's history.
        at_revision: the store's revision that the alterations were computed from; None: any.
        who: the principal, for a store's history; "": who the target was opened for.
        until_ms: when the former values return, epoch ms; None: never.
    """

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False
    message: str = ""
    at_revision: int | None = None
    who: str = ""
    until_ms: int | None = None


class ChangeCheck(NamedTuple):
    """
    What came of checking a change.

    Args:
        refused: entities that would be refused, each with its error.
        apart: entities whose keys are kept in two places, so that they are changed in two steps.
    """

    refused: Refused
    apart: frozenset[QuotaEntity]


class QuotaTarget(abc.ABC):
    """
    What quotas are read from and changed in: a store, or the servers of a cluster.

    All calls are coroutines. Those of a store never wait for a loop: they block.
    """

    @abc.abstractmethod
    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match, with their quotas."""

    @abc.abstractmethod
    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Return the effective quotas of each entity, or the error that prevents computing them."""

    @abc.abstractmethod
    async def table(self) -> QuotaTable:
        """Return all quotas."""

    @abc.abstractmethod
    async def identity(self) -> StoreIdentity | None:
        """Return the store's identity; None: a cluster, or a store that has none yet."""

    @abc.abstractmethod
    async def history(
        self, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Args:
            entity: only changes of this entity.
            limit: only this many, the latest.

        Raises:
            StoreError: no history is kept here.
        """

    @abc.abstractmethod
    async def audit_log(self, limit: int | None = None) -> list[AuditEvent]:
        """Return what was refused or done beside quotas, oldest first."""

    @abc.abstractmethod
    async def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""

    @abc.abstractmethod
    async def alter(self, request: ChangeRequest) -> list[AlterResult]:
        """
        Change quotas in one request, each entity all or nothing.

        Raises:
            StoreMovedOn: the store is at another revision.
        """

    @abc.abstractmethod
    async def errors(self, request: ChangeRequest) -> Sequence[ApiError | None]:
        """Do the same; return the error of each alteration, in their order."""

    async def validate(
        self, alterations: Sequence[QuotaAlteration], until_ms: int | None = None
    ) -> ChangeCheck:
        """Check a change, and change nothing; an entity is checked in two steps if it must."""
        request = ChangeRequest(alterations, validate_only=True, until_ms=until_ms)
        refused = await self._refused(request)
        apart = _apart(refused)
        if not apart:
            return ChangeCheck(refused, apart)
        first, second = _halves(alterations, apart)
        refused = await self._refused(ChangeRequest(first, validate_only=True))
        second = _without(second, refused)
        if second:
            refused += await self._refused(ChangeRequest(second, validate_only=True))
        return ChangeCheck(refused, apart)

    async def change(self, request: ChangeRequest, checked: ChangeCheck | None = None) -> Refused:
        """
        Change quotas; an entity whose keys are kept in two places is changed in two steps.

        Args:
            request: what to change.
            checked: what ``validate`` returned of these alterations; without it they are checked.

        Returns:
            Entities that were refused, each with its error.

        Raises:
            StoreMovedOn: the store is at another revision.
        """
        if checked is None:
            trial = ChangeRequest(request.alterations, validate_only=True)
            apart = _apart(await self._refused(trial))
        else:
            apart = checked.apart
        first, second = _halves(request.alterations, apart)
        done = await self._refused(request._replace(alterations=first))
        second = _without(second, done)
        if not second:
            return done
        rest = request._replace(alterations=second, at_revision=None)
        try:
            failed = dict(await self._refused(rest))
        except (HeadgateError, OSError) as failure:
            failed = dict.fromkeys((half.entity for half in second), failure)
        changed = {alteration.entity: alteration for alteration in first}
        return done + [
            (half.entity, _half_done(changed[half.entity], half, failed[half.entity]))
            for half in second
            if half.entity in failed
        ]

    async def _refused(self, request: ChangeRequest) -> Refused:
        errors = await self.errors(request)
        return [
            (alteration.entity, with_way_out(error, [op.key for op in alteration.ops]))
            for alteration, error in zip(request.alterations, errors, strict=True)
            if error is not None
        ]

    async def ends(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time; none where there is no place for ends."""
        return []

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


def _apart(refused: Refused) -> frozenset[QuotaEntity]:
    """Return the entities that were refused because their keys are kept in two places."""
    from headgate.store.kafka.codec import wants_two

    return frozenset(e for e, error in refused if isinstance(error, ApiError) and wants_two(error))


def _halves(
    alterations: Sequence[QuotaAlteration], apart: Collection[QuotaEntity]
) -> tuple[list[QuotaAlteration], list[QuotaAlteration]]:
    """Return what is changed first, and the ops of entities apart that are changed after that."""
    first = [_half(a, True) if a.entity in apart else a for a in alterations]
    return first, [_half(a, False) for a in alterations if a.entity in apart]


def _half(alteration: QuotaAlteration, in_kafka: bool) -> QuotaAlteration:
    """Return an alteration with only the ops of keys that Kafka knows, or only the others."""
    ops = tuple(op for op in alteration.ops if op.key.known_to_kafka == in_kafka)
    return alteration._replace(ops=ops)


def _without(second: Sequence[QuotaAlteration], refused: Refused) -> list[QuotaAlteration]:
    """Return the second halves of entities whose first half wasn't refused."""
    failed = {entity for entity, _ in refused}
    return [half for half in second if half.entity not in failed]


def _half_done(changed: QuotaAlteration, rest: QuotaAlteration, error: Exception) -> StoreError:
    done, left = (", ".join(str(op.key) for op in half.ops) for half in (changed, rest))
    return StoreError(
        f"{done} was changed in Kafka itself and stays so; {left} was not changed: {error}. Repair "
        "that and apply the quotas file again; `headgate plan` shows what is left to do"
    )


def with_way_out(error: ApiError, keys: Iterable[QuotaKey]) -> ApiError:
    """
    Return the refusal; if Kafka refused a key that only Headgate has, say where it can be kept.

    Args:
        error: the refusal.
        keys: those that were asked for.
    """
    for key in keys:
        ours = key in KEYS and not key.known_to_kafka
        if ours and (error.message or "") == f"Invalid configuration key {key.name}":
            kept = "producer ids per user" if key == PRODUCER_IDS else f"{key.units} quotas"
            return ApiError(
                error.code,
                f"{error.message}: Apache Kafka has no {kept}; keep {key} in a Headgate store "
                "(--store URL, or --bootstrap-server of the gateway in front of this cluster), "
                "which enforces it",
            )
    return error


def left_out(entity: QuotaEntity) -> ApiError:
    """Return the error of an entity that an answer doesn't mention."""
    return ApiError(-1, f"the answer leaves out {entity}")
