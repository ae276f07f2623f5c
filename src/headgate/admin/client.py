"""
The synchronous admin client: an asynchronous one on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from headgate.admin.api import (
    AlterQuotasResult,
    ConfigEntry,
    DescribeEffectiveQuotasResult,
    DescribeQuotasResult,
    ScramUpsertion,
)
from headgate.admin.async_client import AsyncAdminClient
from headgate.admin.live import MOST_QUOTA_IDS
from headgate.admin.operations import QuotaOperations
from headgate.client.thread import LoopThread
from headgate.errors import ApiError
from headgate.live.picture import Picture
from headgate.store.watched import QuotaStore


class AdminClient(
    QuotaOperations[DescribeQuotasResult, DescribeEffectiveQuotasResult, AlterQuotasResult]
):
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

    described = DescribeQuotasResult
    effective = DescribeEffectiveQuotasResult
    altered = AlterQuotasResult

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
        self._async = AsyncAdminClient(
            bootstrap_servers, store=store, config=config, who=who, tool=tool, create=create
        )
        self.calls = self._async.calls
        self._thread = LoopThread("headgate-admin")
        self._closed = False
        self._run = self._thread.run

    def _future(self) -> Future[Any]:
        return Future()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call; closing waits for it."""
        if self._closed:
            work.close()
            raise RuntimeError("this admin client is closed")
        self._thread.loop.call_soon_threadsafe(self._async.start, work)

    def names(self, resource: str = "brokers") -> list[str]:
        """Return the names of the brokers, topics or other resources."""
        return self._run(self._async.names(resource))

    def describe_configs(self, name: str, resource: str = "brokers") -> list[ConfigEntry]:
        """Return the settings of a broker ("": the default) or other resource, sorted by name."""
        return self._run(self._async.describe_configs(name, resource))

    def alter_configs(
        self, name: str, ops: Mapping[str, str | None], resource: str = "brokers"
    ) -> None:
        """Set or remove (None) settings of a broker ("": the default) or other resource."""
        self._run(self._async.alter_configs(name, ops, resource))

    def describe_user_scram_credentials(
        self, users: Sequence[str] = ()
    ) -> dict[str, list[tuple[str, int]] | ApiError]:
        """Return each user's SCRAM mechanisms and iterations; without names, of all users."""
        return self._run(self._async.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, user: str, upsertions: Sequence[ScramUpsertion] = (), deletions: Sequence[str] = ()
    ) -> None:
        """Set and remove SCRAM credentials of one user."""
        self._run(self._async.alter_user_scram_credentials(user, upsertions, deletions))

    def describe_live(
        self,
        user: str | None = None,
        client_id: str | None = None,
        most: int = MOST_QUOTA_IDS,
        timeout_ms: int | None = None,
    ) -> Picture:
        """Return what goes on now (``AsyncAdminClient.describe_live``)."""
        return self._run(self._async.describe_live(user, client_id, most, timeout_ms))

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
