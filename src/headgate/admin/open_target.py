"""
A target that is opened at its first call, and how coroutines of it are called from anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headgate.admin.api import MOST_QUOTA_IDS
from headgate.admin.opening import Address, open_servers, open_store_target, servers_of
from headgate.admin.target import ChangeCheck, ChangeRequest, QuotaTarget, Refused, left_out
from headgate.errors import StoreError, Unanswered
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.table import QuotaTable
from headgate.wire.messages.live import LiveRequest

if TYPE_CHECKING:
    import asyncio

    from headgate.admin.store_target import StoreTarget
    from headgate.client.thread import LoopThread
    from headgate.live.picture import Picture
    from headgate.store.identity import StoreIdentity
    from headgate.store.watched import QuotaStore

T = TypeVar("T")
Action = Callable[[QuotaTarget], Coroutine[Any, Any, T]]
"""A call of a target: ``lambda target: target.describe(query)``."""


class OpenTarget:
    """
    The one way to quotas, for commands, the console and both admin clients.

    ``run`` and what is named after a question are for threads. They make no event loop and no
    thread where quotas are in a store; a cluster's connections have a loop on a thread of its own.
    ``call`` is for coroutines.

    Args:
        address: where the quotas are.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.name = address.name
        self.tool = address.tool
        self._store = None if address.store is None else open_store_target(address)
        self._servers: QuotaTarget | None = None
        self._connecting: asyncio.Lock | None = None
        self._lock = threading.Lock()
        self._finding = threading.Lock()
        self._ended = False
        self._thread: LoopThread | None = None

    def store(self) -> QuotaStore | None:
        """Return the open store; None for servers, unless ``find_history`` found theirs."""
        return None if self._store is None else self._store.store()

    @property
    def keeps_history(self) -> bool:
        """Whether it is a store, or ``find_history`` has found one."""
        return self._store is not None

    # --- for threads

    def run(self, action: Action[T], timeout_ms: int | None = None) -> T:
        """
        Make a call.

        Args:
            action: the call.
            timeout_ms: how long servers may take, 30,000 if None. A store limits itself.

        Raises:
            ApiError: REQUEST_TIMED_OUT, or a refusal.
            StoreError: the store or the servers can't be reached.
        """
        if self._store is not None:
            return run_now(action(self._store))
        from headgate.client.waiting import limited

        return self.thread().run(limited(timeout_ms, self._ask(action)))

    def table(self) -> QuotaTable:
        """Return all quotas."""
        return self.run(lambda target: target.table())

    def identity(self) -> StoreIdentity | None:
        """Return the store's identity; None: servers, or a store that has none yet."""
        return self.run(lambda target: target.identity())

    def validate(self, request: ChangeRequest) -> ChangeCheck:
        """Check a change, and change nothing (``QuotaTarget.validate``)."""
        return self._change(lambda target: target.validate(request.alterations))

    def change(self, request: ChangeRequest, checked: ChangeCheck | None = None) -> Refused:
        """Change quotas (``QuotaTarget.change``)."""
        return self._change(lambda target: target.change(request, checked))

    def _change(self, action: Action[T]) -> T:
        """Make a call whose requests have time limits of their own."""
        if self._store is not None:
            return run_now(action(self._store))
        return self.thread().run(self._ask(action))

    def alter(
        self,
        alteration: QuotaAlteration,
        *,
        validate_only: bool = False,
        until_ms: int | None = None,
    ) -> None:
        """
        Change one entity, in one request.

        Args:
            alteration: of the entity.
            validate_only: check, and change nothing.
            until_ms: when the former values return, epoch ms; None: never.

        Raises:
            ApiError: the refusal.
        """
        request = ChangeRequest([alteration], validate_only, until_ms=until_ms)
        found = {r.entity: r.error for r in self.run(lambda target: target.alter(request))}
        error = found.get(alteration.entity, left_out(alteration.entity))
        if error is not None:
            raise error

    def picture(
        self, user: str | None = None, client_id: str | None = None, most: int = MOST_QUOTA_IDS
    ) -> Picture:
        """Return what goes on now, from gateways (``AsyncAdminClient.describe_live``)."""
        request = LiveRequest(user, client_id, most)
        if self.address.store is None:
            return self.thread().run(self.live(request, None))
        return self.run(lambda target: target.live(request))

    def find_history(self) -> None:
        """
        Use the store that servers keep, which has the history, in place of them from now on.

        Raises:
            StoreError: they keep none.
        """
        with self._finding:
            if self._store is None:
                self._store = self._found()

    def _found(self) -> StoreTarget:
        """Return the store of servers, opened."""
        where = self.address
        url = f"kafka://{where.bootstrap}"
        found = open_store_target(where._replace(store=url, settings=None))
        try:
            store = found.store()
            if store.home.identity() is None and not store.history.entries(limit=1):
                raise StoreError(
                    f"{where.bootstrap} keeps no history: there is no topic of a Headgate store. "
                    "If it is a gateway whose quotas are elsewhere, give its headgate.store as "
                    "--store"
                )
            if self._ended:
                raise StoreError(f"the connection to {where.bootstrap} is closed")
        except BaseException:
            run_now(found.close())
            raise
        return found

    def thread(self) -> LoopThread:
        """Return the thread with the event loop of the servers' connections."""
        with self._lock:
            if self._thread is None:
                from headgate.client.thread import LoopThread

                self._thread = LoopThread("headgate-admin")
            return self._thread

    def close(self) -> None:
        """Close the store if it was opened here, and the connections to the servers."""
        self._ended = True
        try:
            if self._store is not None:
                run_now(self._store.close())
            if self._thread is not None:
                self._thread.run(self.end())
        finally:
            if self._thread is not None:
                self._thread.close()
                self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- for coroutines

    async def call(self, action: Action[T], timeout_ms: int | None = None) -> T:
        """
        Make a call; that of a store is made in a worker thread, as it blocks.

        Args:
            action: the call.
            timeout_ms: how long it may take; None means 30,000.

        Raises:
            ApiError: REQUEST_TIMED_OUT, or a refusal.
            StoreError: the store or the servers can't be reached.
        """
        from headgate.client.waiting import limited

        if self._store is None:
            return await limited(timeout_ms, self._ask(action))
        import asyncio

        work = action(self._store)
        return await limited(timeout_ms, asyncio.to_thread(run_now, work))

    async def beside(self, action: Action[T], *, is_change: bool = False) -> T:
        """
        Make a call for a coroutine of another event loop than that of the servers' connections.

        A store limits itself, and is called in a worker thread. A caller that is cancelled cancels
        a call of servers.

        Args:
            action: the call.
            is_change: it changes quotas or checks a change, whose requests have time limits of
                their own; else servers may take 30,000 ms.

        Raises:
            ApiError: REQUEST_TIMED_OUT, or a refusal.
            StoreError: the store or the servers can't be reached.
        """
        import asyncio

        store = self._store
        if store is not None:
            return await asyncio.to_thread(lambda: run_now(action(store)))
        from headgate.client.waiting import limited

        asked = self._ask(action)
        return await self.thread().beside(asked if is_change else limited(None, asked))

    async def history_beside(self, action: Action[T]) -> T:
        """
        Do as ``beside``, in the store that has the history, which servers may keep.

        Raises:
            StoreError: they keep none.
        """
        import asyncio

        if self._store is None:
            await asyncio.to_thread(self.find_history)
        return await self.beside(action)

    async def live_beside(self, request: LiveRequest) -> Picture:
        """Do as ``live``, for a coroutine of another event loop."""
        return await self.thread().beside(self.live(request, None))

    async def live(self, request: LiveRequest, timeout_ms: int | None) -> Picture:
        """Ask what goes on now; a gateway answers that although its broker answers nobody."""
        from headgate.client.waiting import limited

        if self.address.store is not None:
            return await self.call(lambda target: target.live(request), timeout_ms)

        async def ask() -> Picture:
            try:
                return await self._ask(lambda target: target.live(request))
            except Unanswered:
                from headgate.admin.live import ask_unanswered

                return await ask_unanswered(*servers_of(self.address), request)

        return await limited(timeout_ms, ask())

    async def _ask(self, action: Action[T]) -> T:
        return await action(await self._connected())

    async def _connected(self) -> QuotaTarget:
        """Return the servers, connected to at the first call."""
        import asyncio

        self._connecting = self._connecting or asyncio.Lock()
        async with self._connecting:
            if self._servers is None:
                self._servers = await open_servers(self.address)
            return self._servers

    async def end(self) -> None:
        """Close it, for coroutines."""
        self._ended = True
        if self._store is not None:
            import asyncio

            await asyncio.to_thread(run_now, self._store.close())
        if self._servers is not None:
            servers, self._servers = self._servers, None
            await servers.close()


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as a store's don't, without a loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine of a store waited for an event loop")
