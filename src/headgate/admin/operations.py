"""
The operations on quotas that both admin clients have, with either kind of future.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from headgate.admin.api import (
    AlterQuotasOptions,
    DescribeEffectiveQuotasOptions,
    DescribeQuotasOptions,
)
from headgate.admin.given import EntityLike, entities_of, entries_of, filters_of
from headgate.admin.open_target import Action, OpenTarget
from headgate.admin.opening import Address
from headgate.admin.target import ChangeRequest, EntityQuery, QuotaTarget, left_out
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, QuotaFilter

if TYPE_CHECKING:
    from headgate.store.watched import QuotaStore

DescribedT = TypeVar("DescribedT")
EffectiveT = TypeVar("EffectiveT")
AlteredT = TypeVar("AlteredT")


class _Settable(Protocol):
    """What asyncio's and concurrent.futures' futures have in common."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


def _settle(future: _Settable, outcome: object) -> None:
    """Set a future's result or exception; one that was cancelled stays cancelled."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class QuotaOperations(abc.ABC, Generic[DescribedT, EffectiveT, AlteredT]):
    """
    KIP-546's three operations and the released describe, for both kinds of future.

    Attributes:
        described, effective, altered: what the operations return, made of their futures.
        target: the store or servers.
    """

    described: Callable[..., DescribedT]
    effective: Callable[..., EffectiveT]
    altered: Callable[..., AlteredT]
    target: OpenTarget

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        store: str | QuotaStore | None = None,
        config: Mapping[str, str] | None = None,
        who: str = "",
        tool: str = "headgate.admin",
        create: bool = False,
    ) -> None:
        address = Address(
            bootstrap_servers or "", store, config or {}, who=who, tool=tool, create=create
        )
        self._use(OpenTarget(address.checked()))

    @classmethod
    def of(cls, target: OpenTarget) -> Self:
        """Return a client of a target that exists already; closing the client closes it."""
        made = cls.__new__(cls)
        made._use(target)
        return made

    def _use(self, target: OpenTarget) -> None:
        self.target = target

    @abc.abstractmethod
    def _future(self) -> Any:
        """Return a new future."""

    @abc.abstractmethod
    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call; closing waits for it."""

    def describe_quotas(
        self,
        filters: Collection[QuotaFilter] = (),
        options: DescribeQuotasOptions | None = None,
    ) -> DescribedT:
        """
        Describe all entities that pass all filters and have a quota (KIP-546).

        Args:
            filters: a collection of filters, ANDed; none means every entity. EXACT with
                :data:`QUOTA_ENTITY_NAME_DEFAULT` selects the default; PREFIX never does.
            options: the call's timeout.
        """
        components = tuple(f.component() for f in filters_of(filters))
        return self._describe(EntityQuery(components, draft=True), options)

    def describe_client_quotas(
        self,
        components: Collection[FilterComponent] = (),
        *,
        strict: bool = False,
        options: DescribeQuotasOptions | None = None,
    ) -> DescribedT:
        """
        Describe entities by a released filter.

        Args:
            components: exact, default or any (which includes the default), one per entity type.
            strict: whether entities may have no other types than the components name.
            options: the call's timeout.
        """
        return self._describe(EntityQuery(tuple(components), strict), options)

    def _describe(self, query: EntityQuery, options: DescribeQuotasOptions | None) -> DescribedT:
        options = options or DescribeQuotasOptions()
        future = self._future()
        self.start(
            self._fill_one(future, options.timeout_ms, lambda target: target.describe(query))
        )
        return self.described(future)

    def describe_effective_quotas(
        self,
        entities: Collection[EntityLike],
        options: DescribeEffectiveQuotasOptions | None = None,
    ) -> EffectiveT:
        """
        Describe what applies to each entity, and what that overrides (KIP-546).

        Args:
            entities: requests' entities, or mappings such as ``{"user": "alice"}``. A part left
                out matches only quotas without it; DEFAULT matches only defaults.
            options: the call's timeout, and whether to leave out what is overridden.
        """
        options = options or DescribeEffectiveQuotasOptions()
        asked = list(dict.fromkeys(entities_of(entities)))
        omit = options.omit_overridden_values
        return self.effective(
            *self._each(asked, options.timeout_ms, lambda target: target.effective(asked, omit))
        )

    def alter_quotas(
        self,
        entries: Collection[QuotaAlteration],
        options: AlterQuotasOptions | None = None,
    ) -> AlteredT:
        """
        Set and clear quotas, each entity all or nothing (KIP-546).

        Args:
            entries: one per entity, such as ``AlterQuotasEntry({"user": "alice"},
                {"producer_byte_rate": 5})``.
            options: the call's timeout, and whether only to check.
        """
        options = options or AlterQuotasOptions()
        wanted, validate_only = entries_of(entries), options.validate_only

        async def action(target: QuotaTarget) -> Mapping[QuotaEntity, object]:
            # For an entity given twice the last result counts, as in Kafka; that is the refusal.
            results = await target.alter(ChangeRequest(wanted, validate_only))
            return {result.entity: result.error for result in results}

        asked = [entry.entity for entry in wanted]
        return self.altered(*self._each(asked, options.timeout_ms, action))

    def _each(
        self,
        asked: Collection[QuotaEntity],
        timeout_ms: int | None,
        action: Action[Mapping[QuotaEntity, object]],
    ) -> tuple[dict[QuotaEntity, Any], Any]:
        """Start a call; return a future for each entity, and one for all."""
        futures = {entity: self._future() for entity in asked}
        everything = self._future()
        self.start(self._fill_each(futures, everything, timeout_ms, action))
        return futures, everything

    async def _fill_one(
        self, future: _Settable, timeout_ms: int | None, action: Action[object]
    ) -> None:
        """Make one call for one future."""
        try:
            outcome: object = await self.target.call(action, timeout_ms)
        except Exception as exc:
            outcome = exc
        _settle(future, outcome)

    async def _fill_each(
        self,
        futures: Mapping[QuotaEntity, _Settable],
        everything: _Settable,
        timeout_ms: int | None,
        action: Action[Mapping[QuotaEntity, object]],
    ) -> None:
        """Make one call for a future per entity and one for all of them."""
        try:
            outcomes: Mapping[QuotaEntity, object] = await self.target.call(action, timeout_ms)
        except Exception as exc:
            outcomes = dict.fromkeys(futures, exc)
        failure: BaseException | None = None
        for entity, future in futures.items():
            outcome = outcomes.get(entity, left_out(entity))
            if isinstance(outcome, BaseException):
                failure = failure or outcome
            _settle(future, outcome)
        _settle(everything, failure)
