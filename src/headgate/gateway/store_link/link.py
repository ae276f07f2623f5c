"""
A gateway's store: the guard lets it in, changes are watched, the quotas are kept on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError, StoreReplaced, StoreSilent
from headgate.gateway.log import get_logger
from headgate.gateway.store_link.guard import StoreGuard
from headgate.store.deadline import patient

if TYPE_CHECKING:
    from headgate.gateway.background import Tasks, Threads
    from headgate.gateway.store_link.in_force import InForceNow
    from headgate.quota.table import QuotaTable, TableDelta
    from headgate.store.watched import QuotaStore

log = get_logger("headgate.gateway")

_SAVE_AFTER_S: Final = 0.2
_AGAIN_S: Final = 2.0
_LAST_WORD_S: Final = 5.0
"""How long a store may take to say, at the end, what it holds."""

_SAYING_S: Final = 2.0
"""How long each answer may take, so that at the end what is in force is kept if none comes."""

QuotasChanged = Callable[["QuotaTable", "TableDelta"], None]
Reopen = Callable[[], "QuotaStore"]
BrokersChanged = Callable[[Mapping[str, Mapping[str, str]]], None]


class StoreLink:
    """
    The store that a gateway uses, and the snapshot of it.

    Args:
        in_force: what is in force; its ``store`` is set once the guard has let one in.
        tasks: where the store is looked after.
        threads: where the store is asked.
        trouble: says why quotas can't be read or changed now, or returns None.

    Attributes:
        quotas: called on the loop when quotas changed.
        brokers: called on the loop when settings of brokers changed.
        let_in: called with a store that was let in later than at the start.
    """

    quotas: QuotasChanged
    brokers: BrokersChanged
    let_in: Callable[[QuotaStore], None]

    def __init__(
        self,
        in_force: InForceNow,
        tasks: Tasks,
        threads: Threads,
        trouble: Callable[[], str | None],
    ) -> None:
        self._in_force = in_force
        self._tasks = tasks
        self._threads = threads
        self._any_trouble = trouble
        self.guard = StoreGuard(in_force.settings)
        self._why: str | None = None
        self._refused = False
        self._watches: list[Any] = []
        self._saving = False
        self._save_lock = threading.Lock()
        self._ended = False
        self._kept: tuple[object, object] = (None, None)  # what was in force when it was last kept

    def trouble(self) -> str | None:
        """Say why quotas can't be read or changed now, while the last known stay in force."""
        store = self._in_force.store
        return self._why if store is None else store.availability.trouble

    def refuses(self) -> str | None:
        """Say which changes the store refuses though it can be read, or None."""
        store = self._in_force.store
        return None if store is None else store.availability.refuses

    @property
    def does_without(self) -> bool:
        """Whether there is no store yet, and none is wanted (``headgate.store.required=false``)."""
        now = self._in_force
        return now.store is None and not self._refused and not now.settings.store_required

    async def begin(
        self, store: QuotaStore | None, reopen: Callable[[], QuotaStore] | None
    ) -> None:
        """
        Put a store's quotas in force, or those that were in force last until it is let in.

        Args:
            store: an open one, or None where it couldn't be opened.
            reopen: opens it; None: there is no store at all.

        Raises:
            StoreError: an open store can't be read.
        """
        now = self._in_force
        if store is None and reopen is None:
            return
        if store is None or not await self._admit(store):
            now.store = None
            self._why = self._why or f"the store {now.settings.store} can't be opened"
            last = await self._threads.run(self.guard.last)
            now.table = now.coming = last.table
            now.broker_configs = last.brokers
            self._tasks.spawn(self._until_admitted(store, reopen))
        self._tasks.spawn(self._look_after())

    async def _admit(self, store: QuotaStore) -> bool:
        """Let a store in and watch it; False where the guard doesn't."""
        try:
            await self._threads.run(lambda: self.guard.admit(store))
        except StoreError as error:
            if str(error) != self._why:
                log.error("the last known quotas stay in force", error=str(error))
            self._why = str(error)
            self._refused = isinstance(error, StoreReplaced)
            return False
        except OSError as error:
            self._not_kept(error)
        self._in_force.store = store
        await self._watch(store)
        self._why = None
        return True

    async def _until_admitted(self, store: QuotaStore | None, reopen: Reopen | None) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                if store is None and reopen is not None:
                    store = await self._threads.run(reopen)
                if store is not None and await self._admit(store):
                    log.info("the store answers; its quotas are in force")
                    self.let_in(store)
                    return
            except Exception as error:
                # Try again after any error: without its store the gateway learns of no change.
                self._why = f"the store can't be opened: {error}"
                log.warning("the store can't be opened yet", error=str(error))

    async def _watch(self, store: QuotaStore) -> None:
        loop = asyncio.get_running_loop()

        def quotas(table: QuotaTable, delta: TableDelta) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.quotas, table, delta)

        def brokers(configs: Mapping[str, Mapping[str, str]]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.brokers, configs)

        watch = await loop.run_in_executor(None, store.watch, quotas)
        try:
            more = await loop.run_in_executor(None, store.broker_settings.watch, brokers)
        except Exception:
            watch.close()  # both are asked for again
            raise
        self._watches += [watch, more]

    async def _look_after(self) -> None:
        """Say what keeps the store from being read, and look for an acceptance of another one."""
        told: str | None = None
        refused: str | None = None
        while True:
            await asyncio.sleep(_AGAIN_S)
            store, why = self._in_force.store, self._any_trouble()
            if store is None:
                continue
            if (refuses := store.availability.refuses) != refused:
                refused = refuses
                log.warning("changes that the store refuses", refused=refuses or "none any more")
            if why != told:
                if why is None:
                    log.info("the store answers again")
                else:
                    log.error("the last known quotas stay in force", error=why)
                told = why
            if why is not None:
                with contextlib.suppress(StoreError):
                    if await self._threads.run(partial(self._reconsider, store)):
                        self.save_soon()  # the snapshot names the store, and that has changed

    def _reconsider(self, store: QuotaStore) -> bool:
        with patient(_SAYING_S):
            return self.guard.reconsider(store)

    # --- the snapshot

    def save_soon(self) -> None:
        """Keep the quotas on disk, off the loop, however often it fails; one write for a burst."""
        if self._saving:
            return
        self._saving = True

        async def save() -> None:
            await asyncio.sleep(_SAVE_AFTER_S)
            told: str | None = None
            while True:
                self._saving = False
                try:
                    await self._threads.run(self._save)
                    return
                except (StoreError, OSError) as error:
                    if str(error) != told:
                        told = str(error)
                        self._not_kept(error)
                if self._saving:
                    return  # a change that came meanwhile is saved, and this one with it
                self._saving = True
                await asyncio.sleep(_AGAIN_S)

        self._tasks.spawn(save())

    def _save(self) -> None:
        store = self._in_force.store
        with self._save_lock:
            if store is not None and not self._ended:
                self._save_or_keep(store)

    def _save_or_keep(self, store: QuotaStore) -> None:
        """Save what the store says; if it says nothing, what is in force, or a restart lifts it."""
        before = self._what_is_in_force()
        try:
            if (silent := store.availability.silent) is not None:
                raise StoreSilent(silent)
            with patient(_SAYING_S):
                self.guard.save(store)
        except StoreError:
            now = self._what_is_in_force()
            # What was saved since is as new as what was in force then, or newer.
            if any(one is not other for one, other in zip(now, self._kept, strict=True)):
                self.guard.keep(*now)
                self._kept = now
            raise
        self._kept = before

    def _what_is_in_force(self) -> tuple[QuotaTable, Mapping[str, Mapping[str, str]]]:
        return self._in_force.coming, self._in_force.broker_configs

    async def close(self) -> None:
        """Keep what the store says now, since a watch may be late; stop watching."""
        store = self._in_force.store
        if store is not None and self._watches:
            try:
                async with asyncio.timeout(_LAST_WORD_S):
                    await self._threads.run(lambda: self._save_last(store))
            except (StoreError, TimeoutError) as error:
                log.warning("the store doesn't say what it holds at the end", error=str(error))
            except OSError as error:
                self._not_kept(error)
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            await loop.run_in_executor(None, watch.close)

    def _save_last(self, store: QuotaStore) -> None:
        with self._save_lock:
            self._ended = True  # what waits to be saved is older
            self._save_or_keep(store)

    def _not_kept(self, error: Exception) -> None:
        log.error(
            "quotas can't be kept on disk",
            path=str(self._in_force.settings.store_snapshot),
            error=str(error),
        )
