"""
The synchronous admin client: an asynchronous one on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from headgate.admin.api import (
    AlterQuotasResult,
    DescribeEffectiveQuotasResult,
    DescribeQuotasResult,
)
from headgate.admin.async_client import AsyncAdminClient
from headgate.admin.open_target import OpenTarget
from headgate.admin.operations import QuotaOperations

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    method: Callable[Concatenate[AsyncAdminClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    """Return a method that calls one of the client for asyncio, and waits for its result."""

    @wraps(method)
    def wait(self: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._async, *args, **kwargs))

    return wait


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

    def _use(self, target: OpenTarget) -> None:
        super()._use(target)
        self._async = AsyncAdminClient.of(target)
        self._thread = target.thread()
        self._closed = False

    def _future(self) -> Future[Any]:
        return Future()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call; closing waits for it."""
        if self._closed:
            work.close()
            raise RuntimeError("this admin client is closed")
        self._thread.loop.call_soon_threadsafe(self._async.start, work)

    names = _waiting(AsyncAdminClient.names)
    describe_configs = _waiting(AsyncAdminClient.describe_configs)
    alter_configs = _waiting(AsyncAdminClient.alter_configs)
    describe_user_scram_credentials = _waiting(AsyncAdminClient.describe_user_scram_credentials)
    alter_user_scram_credentials = _waiting(AsyncAdminClient.alter_user_scram_credentials)
    describe_live = _waiting(AsyncAdminClient.describe_live)

    def close(self) -> None:
        """Wait for calls under way, then close the connections. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.run(self._async.close())
        finally:
            self.target.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
