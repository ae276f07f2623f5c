"""
The admin client for asyncio, and the calls that its synchronous twin makes too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from headgate.admin.api import (
    DEFAULT_TIMEOUT_MS,
    AlterQuotasOptions,
    AsyncAlterQuotasResult,
    AsyncDescribeEffectiveQuotasResult,
    AsyncDescribeQuotasResult,
    ConfigEntry,
    DescribeEffectiveQuotasOptions,
    DescribeQuotasOptions,
    Entities,
    ScramUpsertion,
    timeout_error,
)
from headgate.admin.backend import Backend, Query
from headgate.admin.given import entities_of, entries_of, filters_of
from headgate.admin.opening import Target, open_backend
from headgate.errors import ApiError
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, QuotaFilter
from headgate.store.base import QuotaStore

T = TypeVar("T")
_Sink = TypeVar("_Sink", bound="_Settable")


class _Settable(Protocol):
    """What asyncio's and concurrent.futures' futures have in common."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


def _settle(future: _Settable, outcome: object) -> None:
    """Set a future to a result or, given an exception, to that; a cancelled one stays so."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class Calls:
    """The calls themselves, over a backend, filling whatever kind of futures they are given."""

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
        limit = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit / 1000):
                return await action(await self.backend())
        except TimeoutError:
            raise timeout_error(limit) from None

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
            outcome = outcomes.get(entity, ApiError(-1, f"the answer doesn't speak of {entity}"))
            if isinstance(outcome, BaseException):
                failure = failure or outcome
            _settle(future, outcome)
        _settle(everything, failure)

    async def close(self) -> None:
        """Close the backend."""
        if self._backend is not None:
            await self._backend.close()


def describe(query: Query) -> Callable[[Backend], Coroutine[Any, Any, Entities]]:
    """Return the call that describes."""

    async def action(backend: Backend) -> Entities:
        return await backend.describe(query)

    return action


def effective(
    entities: Collection[QuotaEntity], omit: bool
) -> Callable[[Backend], Coroutine[Any, Any, Mapping[QuotaEntity, object]]]:
    """Return the call that describes what applies."""

    async def action(backend: Backend) -> Mapping[QuotaEntity, object]:
        return await backend.effective(entities, omit)

    return action


def alter(
    entries: Sequence[QuotaAlteration], validate_only: bool
) -> Callable[[Backend], Coroutine[Any, Any, Mapping[QuotaEntity, object]]]:
    """Return the call that alters."""

    async def action(backend: Backend) -> Mapping[QuotaEntity, object]:
        # Of an entity given twice the last result counts, as in Kafka: the refusal.
        results = await backend.alter(entries, validate_only)
        return {result.entity: result.error for result in results}

    return action


def query_of(filters: Collection[QuotaFilter]) -> Query:
    """Return KIP-546's filters as a query."""
    return Query(tuple(f.component() for f in filters_of(filters)), draft=True)


class AsyncAdminClient:
    """
    KIP-546's admin client for asyncio.

    Args:
        bootstrap_servers: ``host:port,…`` of a gateway (data or admin listener) or a Kafka.
        store: instead of servers, a Headgate store or its URL (``sqlite:PATH``,
            ``zookeeper://…``, ``kafka://…``).
        config: Kafka's client settings: ``security.protocol``, ``sasl.mechanism``,
            ``sasl.jaas.config``, ``ssl.truststore.location`` …; ``bootstrap.servers`` too.
        who: the principal in the store's history; by default who runs the process.
        tool: the program in the store's history.
        create: make a store that is missing at the first call; else the first change makes it.

    Raises:
        ConfigError: the settings make no sense; all mistakes at once.

    A client connects at its first call. Use it as an async context manager, or close it.
    """

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
        self.calls = Calls(Target.of(bootstrap_servers, store, config or {}, who, tool, create))
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def to(cls, target: Target) -> AsyncAdminClient:
        """Make a client for a target that was checked already."""
        client = cls.__new__(cls)
        client.calls = Calls(target)
        client._tasks = set()
        return client

    def _future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # A failure nobody asks about isn't news: `all()` or its sister tells it too.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call; closing waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def describe_quotas(
        self,
        filters: Collection[QuotaFilter] = (),
        options: DescribeQuotasOptions | None = None,
    ) -> AsyncDescribeQuotasResult:
        """Describe all entities that pass all filters and have a quota (KIP-546)."""
        return self._describe(query_of(filters), options)

    def describe_client_quotas(
        self,
        components: Collection[FilterComponent] = (),
        *,
        strict: bool = False,
        options: DescribeQuotasOptions | None = None,
    ) -> AsyncDescribeQuotasResult:
        """Describe entities by a released filter: exact, default or any; strict or not."""
        return self._describe(Query(tuple(components), strict), options)

    def _describe(
        self, query: Query, options: DescribeQuotasOptions | None
    ) -> AsyncDescribeQuotasResult:
        options = options or DescribeQuotasOptions()
        future = self._future()
        self.start(self.calls.fill_one(future, options.timeout_ms, describe(query)))
        return AsyncDescribeQuotasResult(future)

    def describe_effective_quotas(
        self,
        entities: Collection[QuotaEntity],
        options: DescribeEffectiveQuotasOptions | None = None,
    ) -> AsyncDescribeEffectiveQuotasResult:
        """Describe what applies to each entity, and what that overrides (KIP-546)."""
        options = options or DescribeEffectiveQuotasOptions()
        futures = {entity: self._future() for entity in entities_of(entities)}
        everything = self._future()
        self.start(
            self.calls.fill_each(
                futures,
                everything,
                options.timeout_ms,
                effective(list(futures), options.omit_overridden_values),
            )
        )
        return AsyncDescribeEffectiveQuotasResult(futures, everything)

    def alter_quotas(
        self,
        entries: Collection[QuotaAlteration],
        options: AlterQuotasOptions | None = None,
    ) -> AsyncAlterQuotasResult:
        """Set and clear quotas, each entity all or nothing (KIP-546)."""
        options = options or AlterQuotasOptions()
        wanted = entries_of(entries)
        futures = {entry.entity: self._future() for entry in wanted}
        everything = self._future()
        self.start(
            self.calls.fill_each(
                futures,
                everything,
                options.timeout_ms,
                alter(wanted, options.validate_only),
            )
        )
        return AsyncAlterQuotasResult(futures, everything)

    async def names(self, resource: str = "brokers") -> list[str]:
        """Return the names of the brokers, topics or other resources."""

        async def action(backend: Backend) -> list[str]:
            return await backend.names(resource)

        return await self.calls.call(None, action)

    async def describe_configs(self, name: str, resource: str = "brokers") -> list[ConfigEntry]:
        """Return the settings of a broker (or other resource), sorted by name."""

        async def action(backend: Backend) -> list[ConfigEntry]:
            return await backend.describe_configs(resource, name)

        return await self.calls.call(None, action)

    async def alter_configs(
        self, name: str, ops: Mapping[str, str | None], resource: str = "brokers"
    ) -> None:
        """Set or remove (None) settings of a broker (or other resource)."""

        async def action(backend: Backend) -> None:
            await backend.alter_configs(resource, name, ops)

        await self.calls.call(None, action)

    async def describe_user_scram_credentials(
        self, users: Sequence[str] = ()
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return each user's SCRAM mechanisms and iterations; all users for no names."""

        async def action(backend: Backend) -> dict[str, list[tuple[str, int]] | ApiError]:
            return await backend.describe_scram(users)

        return await self.calls.call(None, action)

    async def alter_user_scram_credentials(
        self, user: str, upsertions: Sequence[ScramUpsertion] = (), deletions: Sequence[str] = ()
    ) -> None:
        """Set and remove SCRAM credentials of one user."""

        async def action(backend: Backend) -> None:
            await backend.alter_scram(user, upsertions, deletions)

        await self.calls.call(None, action)

    async def close(self) -> None:
        """Wait for calls under way, then close the connections."""
        # A call that has ended stays in `_tasks` until the loop comes round to forget it, and to
        # gather only such calls doesn't let the loop come round (since Python 3.12).
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*under_way)
        await self.calls.close()

    async def __aenter__(self) -> AsyncAdminClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
