"""
The admin client for asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from headgate.admin.api import (
    MOST_QUOTA_IDS,
    AsyncAlterQuotasResult,
    AsyncDescribeEffectiveQuotasResult,
    AsyncDescribeQuotasResult,
    ConfigEntry,
    ScramUpsertion,
)
from headgate.admin.open_target import OpenTarget
from headgate.admin.operations import QuotaOperations
from headgate.errors import ApiError
from headgate.live.picture import Picture
from headgate.wire.messages.live import LiveRequest


class AsyncAdminClient(
    QuotaOperations[
        AsyncDescribeQuotasResult, AsyncDescribeEffectiveQuotasResult, AsyncAlterQuotasResult
    ]
):
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

    described = AsyncDescribeQuotasResult
    effective = AsyncDescribeEffectiveQuotasResult
    altered = AsyncAlterQuotasResult

    def _use(self, target: OpenTarget) -> None:
        super()._use(target)
        self._tasks: set[asyncio.Task[None]] = set()

    def _future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Asking for the exception keeps asyncio from logging it: a caller may look at `all()` only.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call; closing waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def names(self, resource: str = "brokers") -> list[str]:
        """Return the names of the brokers, topics or other resources."""
        return await self.target.call(lambda target: target.names(resource))

    async def describe_configs(self, name: str, resource: str = "brokers") -> list[ConfigEntry]:
        """Return the settings of a broker ("": the default) or other resource, sorted by name."""
        return await self.target.call(lambda target: target.describe_configs(resource, name))

    async def alter_configs(
        self, name: str, ops: Mapping[str, str | None], resource: str = "brokers"
    ) -> None:
        """Set or remove (None) settings of a broker ("": the default) or other resource."""
        await self.target.call(lambda target: target.alter_configs(resource, name, ops))

    async def describe_user_scram_credentials(
        self, users: Sequence[str] = ()
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return each user's SCRAM mechanisms and iterations; without names, of all users."""
        return await self.target.call(lambda target: target.describe_scram(users))

    async def alter_user_scram_credentials(
        self, user: str, upsertions: Sequence[ScramUpsertion] = (), deletions: Sequence[str] = ()
    ) -> None:
        """Set and remove SCRAM credentials of one user."""
        await self.target.call(lambda t: t.alter_scram(user, upsertions, deletions))

    async def describe_live(
        self,
        user: str | None = None,
        client_id: str | None = None,
        most: int = MOST_QUOTA_IDS,
        timeout_ms: int | None = None,
    ) -> Picture:
        """
        Return what goes on now at the gateways in front of all brokers.

        Args:
            user: a principal, raw: only quota-ids that it is charged to. None: all quota-ids, which
                only administrators may ask for.
            client_id: a client-id of that principal; None: any.
            most: quota-ids of each broker at most.
            timeout_ms: of the call.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED.
            StoreError: no server can be reached, or none is a gateway.
            InvalidQuota: the client was pointed at a store.
        """
        return await self.target.live(LiveRequest(user, client_id, most), timeout_ms)

    async def close(self) -> None:
        """Wait for calls under way, then close the connections."""
        # A task that has ended stays in `_tasks` until the loop calls its callback. To gather only
        # ended tasks doesn't let the loop run (since Python 3.12), so they are left out.
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.gather(*under_way)
        await self.target.end()

    async def __aenter__(self) -> AsyncAdminClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
