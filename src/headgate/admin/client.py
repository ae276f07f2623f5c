"""
The synchronous admin client: an asynchronous one on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from headgate.admin.api import (
    AlterQuotasOptions,
    AlterQuotasResult,
    ConfigEntry,
    DescribeEffectiveQuotasOptions,
    DescribeEffectiveQuotasResult,
    DescribeQuotasOptions,
    DescribeQuotasResult,
    Entities,
    ScramUpsertion,
    Values,
)
from headgate.admin.async_client import AsyncAdminClient, alter, describe, effective, query_of
from headgate.admin.backend import Query
from headgate.admin.given import EntityLike, entities_of, entries_of
from headgate.admin.opening import Target
from headgate.client.thread import LoopThread
from headgate.errors import ApiError
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import FilterComponent, QuotaFilter
from headgate.store.base import QuotaStore


class AdminClient:
    """
    KIP-546's admin client with ``concurrent.futures``; an event loop runs on a thread of its own.

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

    May be used from several threads. Use it as a context manager, or close it.
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
        target = Target.of(bootstrap_servers, store, config or {}, who, tool, create)
        self._thread = LoopThread("headgate-admin")
        self._closed = False
        self._run = self._thread.run
        self._async = self._run(_make(target))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            raise RuntimeError("this admin client is closed")
        self._thread.loop.call_soon_threadsafe(self._async.start, work)

    def describe_quotas(
        self,
        filters: Collection[QuotaFilter] = (),
        options: DescribeQuotasOptions | None = None,
    ) -> DescribeQuotasResult:
        """
        Describe all entities that pass all filters and have a quota (KIP-546).

        Args:
            filters: a collection of filters, ANDed; none means every entity. EXACT with
                :data:`QUOTA_ENTITY_NAME_DEFAULT` selects the default; PREFIX never does.
            options: the call's timeout.
        """
        return self._describe(query_of(filters), options)

    def describe_client_quotas(
        self,
        components: Collection[FilterComponent] = (),
        *,
        strict: bool = False,
        options: DescribeQuotasOptions | None = None,
    ) -> DescribeQuotasResult:
        """
        Describe entities by a released filter.

        Args:
            components: exact, default or any (which includes the default), one per entity type.
            strict: whether entities may have no other types than the components name.
            options: the call's timeout.
        """
        return self._describe(Query(tuple(components), strict), options)

    def _describe(
        self, query: Query, options: DescribeQuotasOptions | None
    ) -> DescribeQuotasResult:
        options = options or DescribeQuotasOptions()
        future: Future[Entities] = Future()
        self._start(self._async.calls.fill_one(future, options.timeout_ms, describe(query)))
        return DescribeQuotasResult(future)

    def describe_effective_quotas(
        self,
        entities: Collection[EntityLike],
        options: DescribeEffectiveQuotasOptions | None = None,
    ) -> DescribeEffectiveQuotasResult:
        """
        Describe what applies to each entity, and what that overrides (KIP-546).

        Args:
            entities: requests' entities, or mappings such as ``{"user": "alice"}``. A part left
                out matches only quotas without it; DEFAULT matches only defaults.
            options: the call's timeout, and whether to leave out what is overridden.
        """
        options = options or DescribeEffectiveQuotasOptions()
        futures: dict[QuotaEntity, Future[Values]] = {e: Future() for e in entities_of(entities)}
        everything: Future[None] = Future()
        self._start(
            self._async.calls.fill_each(
                futures,
                everything,
                options.timeout_ms,
                effective(list(futures), options.omit_overridden_values),
            )
        )
        return DescribeEffectiveQuotasResult(futures, everything)

    def alter_quotas(
        self,
        entries: Collection[QuotaAlteration],
        options: AlterQuotasOptions | None = None,
    ) -> AlterQuotasResult:
        """
        Set and clear quotas, each entity all or nothing (KIP-546).

        Args:
            entries: one per entity; ``AlterQuotasEntry({"user": "alice"}, {"producer_byte_rate":
                5})`` will do.
            options: the call's timeout, and whether only to check.
        """
        options = options or AlterQuotasOptions()
        wanted = entries_of(entries)
        futures: dict[QuotaEntity, Future[None]] = {entry.entity: Future() for entry in wanted}
        everything: Future[None] = Future()
        self._start(
            self._async.calls.fill_each(
                futures,
                everything,
                options.timeout_ms,
                alter(wanted, options.validate_only),
            )
        )
        return AlterQuotasResult(futures, everything)

    def names(self, resource: str = "brokers") -> list[str]:
        """Return the names of the brokers, topics or other resources."""
        return self._run(self._async.names(resource))

    def describe_configs(self, name: str, resource: str = "brokers") -> list[ConfigEntry]:
        """Return the settings of a broker ("" for the default), sorted by name."""
        return self._run(self._async.describe_configs(name, resource))

    def alter_configs(
        self, name: str, ops: Mapping[str, str | None], resource: str = "brokers"
    ) -> None:
        """Set or remove (None) settings of a broker ("" for the default)."""
        self._run(self._async.alter_configs(name, ops, resource))

    def describe_user_scram_credentials(
        self, users: Sequence[str] = ()
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return each user's SCRAM mechanisms and iterations; all users for no names."""
        return self._run(self._async.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, user: str, upsertions: Sequence[ScramUpsertion] = (), deletions: Sequence[str] = ()
    ) -> None:
        """Set and remove SCRAM credentials of one user."""
        self._run(self._async.alter_user_scram_credentials(user, upsertions, deletions))

    def close(self) -> None:
        """Wait for calls under way, then close the connections. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._run(self._async.close())
        finally:
            self._thread.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


async def _make(target: Target) -> AsyncAdminClient:
    """Make the asynchronous client on the loop that it will live on."""
    return AsyncAdminClient.to(target)
