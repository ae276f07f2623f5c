"""
The calls that both admin clients make, and the quota operations over them.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar

from headgate.admin.api import (
    DEFAULT_TIMEOUT_MS,
    AlterQuotasOptions,
    DescribeEffectiveQuotasOptions,
    DescribeQuotasOptions,
)
from headgate.admin.backend import Backend, EntityQuery
from headgate.admin.given import EntityLike, entities_of, entries_of, filters_of
from headgate.admin.opening import Target, open_backend, servers_of
from headgate.errors import ApiError, KafkaError, Unanswered
from headgate.live.picture import Picture
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, QuotaFilter
from headgate.wire.messages.live import LiveRequest

DescribedT = TypeVar("DescribedT")
EffectiveT = TypeVar("EffectiveT")
AlteredT = TypeVar("AlteredT")
T = TypeVar("T")
_Sink = TypeVar("_Sink", bound="_Settable")


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


async def _limited(timeout_ms: int | None, work: Coroutine[Any, Any, T]) -> T:
    """
    Await some work with a limit on its time.

    Raises:
        ApiError: REQUEST_TIMED_OUT.
    """
    limit_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await work
    except TimeoutError:
        message = f"no answer within {limit_ms} ms"
        raise ApiError(KafkaError.REQUEST_TIMED_OUT, message) from None


class Calls:
    """
    The calls over a backend; each sets the futures that it is given, of asyncio or
    concurrent.futures.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._backend: Backend | None = None
        self._opening = asyncio.Lock()

    async def backend(self) -> Backend:
        """Return the backend, opening it at the first call."""
        async with self._opening:
            if self._backend is None:
                self._backend = await open_backend(self._target)
            return self._backend

    async def call(
        self, timeout_ms: int | None, action: Callable[[Backend], Coroutine[Any, Any, T]]
    ) -> T:
        """Run one action with a limit on its time."""

        async def act() -> T:
            return await action(await self.backend())

        return await _limited(timeout_ms, act())

    async def live(self, timeout_ms: int | None, request: LiveRequest) -> Picture:
        """Ask what goes on now; a gateway answers that although its broker answers nobody."""

        async def ask() -> Picture:
            try:
                return await (await self.backend()).live(request)
            except Unanswered:
                from headgate.admin.live import ask_unanswered

                return await ask_unanswered(*servers_of(self._target), request)

        return await _limited(timeout_ms, ask())

    async def fill_one(
        self,
        future: _Settable,
        timeout_ms: int | None,
        action: Callable[[Backend], Coroutine[Any, Any, object]],
    ) -> None:
        """Run one action for one future."""
        try:
            outcome: object = await self.call(timeout_ms, action)
        except Exception as exc:
            outcome = exc
        _settle(future, outcome)

    async def fill_each(
        self,
        futures: Mapping[QuotaEntity, _Settable],
        everything: _Settable,
        timeout_ms: int | None,
        action: Callable[[Backend], Coroutine[Any, Any, Mapping[QuotaEntity, object]]],
    ) -> None:
        """Run one action for a future per entity and one for all of them."""
        try:
            outcomes: Mapping[QuotaEntity, object] = await self.call(timeout_ms, action)
        except Exception as exc:
            outcomes = dict.fromkeys(futures, exc)
        failure: BaseException | None = None
        for entity, future in futures.items():
            outcome = outcomes.get(entity, ApiError(-1, f"the answer leaves out {entity}"))
            if isinstance(outcome, BaseException):
                failure = failure or outcome
            _settle(future, outcome)
        _settle(everything, failure)

    async def close(self) -> None:
        """Close the backend."""
        if self._backend is not None:
            await self._backend.close()


class QuotaOperations(abc.ABC, Generic[DescribedT, EffectiveT, AlteredT]):
    """
    KIP-546's three operations and the released describe, for both kinds of future.

    Attributes:
        described, effective, altered: what the operations return, made of their futures.
    """

    described: Callable[..., DescribedT]
    effective: Callable[..., EffectiveT]
    altered: Callable[..., AlteredT]
    calls: Calls

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
            self.calls.fill_one(future, options.timeout_ms, lambda backend: backend.describe(query))
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
            *self._each(asked, options.timeout_ms, lambda backend: backend.effective(asked, omit))
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

        async def action(backend: Backend) -> Mapping[QuotaEntity, object]:
            # For an entity given twice the last result counts, as in Kafka; that is the refusal.
            results = await backend.alter(wanted, validate_only)
            return {result.entity: result.error for result in results}

        asked = [entry.entity for entry in wanted]
        return self.altered(*self._each(asked, options.timeout_ms, action))

    def _each(
        self,
        asked: Collection[QuotaEntity],
        timeout_ms: int | None,
        action: Callable[[Backend], Coroutine[Any, Any, Mapping[QuotaEntity, object]]],
    ) -> tuple[dict[QuotaEntity, Any], Any]:
        """Start a call; return a future for each entity, and one for all."""
        futures = {entity: self._future() for entity in asked}
        everything = self._future()
        self.start(self.calls.fill_each(futures, everything, timeout_ms, action))
        return futures, everything
