"""
Each broker is fronted by exactly one live worker: leases with fencing, and standbys that wait.

A worker takes the lease of a broker before it opens the broker's ports, and renews it three times
per ttl. One that can't have it is a standby: it asks again until the lease is free, which it is at
once if its holder is known to be dead (``instance``).

When a worker loses its lease it stops fronting the broker at once. When the store can't be asked,
nobody can take the lease from us, or we can't know: a worker that has seen a standby lately then
stops after one ttl (two gateways never serve one broker); one that is alone goes on, with the last
known quotas.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.gateway.instance import Instance
    from headgate.store.base import Lease, QuotaStore

log = get_logger("headgate.gateway")

_RENEWALS: Final = 3
"""Renewals per ttl: two may fail before the lease runs out."""
_ASKS: Final = 5
"""How often per ttl a standby asks: it takes over within 1.2 ttl of the last renewal."""


class Leases:
    """
    The leases of one worker.

    Args:
        store: where they are kept.
        prefix: of the leases' names; says which cluster is fronted.
        instance: this worker's name, and the names of those known to be dead.
        ttl_ms: ``headgate.lease.ttl.ms``.
        on_thread: runs what may wait off the loop.
        on_lost: called with a broker that this worker must stop fronting.
        monotonic: a clock in seconds.
    """

    def __init__(
        self,
        store: QuotaStore,
        prefix: str,
        instance: Instance,
        ttl_ms: int,
        on_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        on_lost: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._instance = instance
        self._owner = instance.owner
        self._ttl_ms = ttl_ms
        self._on_thread = on_thread
        self._on_lost = on_lost
        self._monotonic = monotonic
        self._held: dict[int, Lease] = {}
        self._renewed_at: dict[int, float] = {}
        self._standby: Lease | None = None
        self._others = False
        self._reachable = True

    @property
    def epochs(self) -> dict[int, int]:
        """Broker to the fencing epoch of the lease held."""
        return {broker: lease.epoch for broker, lease in self._held.items()}

    async def take(self, broker_id: int) -> bool:
        """
        Try to take a broker's lease.

        Returns:
            Whether it is ours now.

        Raises:
            StoreError: the store can't be asked.
        """
        asked_at = self._monotonic()
        name = f"{self._prefix}/broker/{broker_id}"

        lease = await self._on_thread(
            lambda: self._instance.take(lambda owner: self._store.lease(name, owner, self._ttl_ms))
        )
        if lease is None:
            return False
        self._held[broker_id] = lease
        self._renewed_at[broker_id] = asked_at
        return True

    async def wait_for(self, broker_id: int) -> None:
        """Stand by until a broker's lease is ours."""
        while True:
            try:
                if await self.take(broker_id):
                    await self._stand_down()
                    return
                await self._stand_by()
            except StoreError as error:
                self._say_reachable(False, error)
            await asyncio.sleep(self._ttl_ms / 1000 / _ASKS)

    async def _stand_by(self) -> None:
        """Let an active worker know that somebody waits."""
        if self._standby is None or not await self._on_thread(self._standby.renew):
            self._standby = await self._on_thread(
                lambda: self._store.lease(f"{self._prefix}/standby", self._owner, self._ttl_ms * 2)
            )

    async def _stand_down(self) -> None:
        if self._standby is not None:
            standby, self._standby = self._standby, None
            await self._on_thread(standby.release)

    async def keep(self) -> None:
        """Renew until cancelled; tell of every lease that is lost."""
        while True:
            await asyncio.sleep(self._ttl_ms / 1000 / _RENEWALS)
            await self.renew()

    async def renew(self) -> None:
        """Renew every lease once."""
        for broker_id, lease in list(self._held.items()):
            asked_at = self._monotonic()
            try:
                kept = await self._on_thread(lease.renew)
                self._say_reachable(True)
            except StoreError as error:
                self._say_reachable(False, error)
                late_s = asked_at - self._renewed_at[broker_id]
                if self._others and late_s * 1000 >= self._ttl_ms * (1 - 1 / _RENEWALS):
                    self._lose(broker_id, "the store can't be asked and a standby waits")
                continue
            if kept:
                self._renewed_at[broker_id] = asked_at
            else:
                self._lose(broker_id, "another worker has it")
        if self._held and self._reachable:
            await self._look_for_others()

    async def _look_for_others(self) -> None:
        """Find out whether a standby waits: then its lease can't be had."""
        try:
            lease = await self._on_thread(
                lambda: self._store.lease(
                    f"{self._prefix}/standby", f"{self._owner}/active", self._ttl_ms
                )
            )
            self._others = lease is None
            if lease is not None:
                await self._on_thread(lease.release)
        except StoreError as error:
            self._say_reachable(False, error)

    def _lose(self, broker_id: int, why: str) -> None:
        log.error("lease lost: not fronted here any more", broker=broker_id, why=why)
        del self._held[broker_id]
        del self._renewed_at[broker_id]
        self._on_lost(broker_id)

    def _say_reachable(self, reachable: bool, error: StoreError | None = None) -> None:
        if reachable != self._reachable:
            if reachable:
                log.info("the store answers again")
            else:
                log.warning("the store can't be reached, the last quotas stay", error=str(error))
        self._reachable = reachable

    @property
    def reachable(self) -> bool:
        """Whether the store answered when it was asked last."""
        return self._reachable

    async def give_up(self, broker_id: int) -> None:
        """Release a broker's lease, so that a standby needn't wait for its end."""
        lease = self._held.pop(broker_id, None)
        self._renewed_at.pop(broker_id, None)
        if lease is not None:
            try:
                await self._on_thread(lease.release)
            except StoreError as error:
                log.warning("lease not released", broker=broker_id, error=str(error))

    async def close(self) -> None:
        """Release everything."""
        for broker_id in list(self._held):
            await self.give_up(broker_id)
        try:
            await self._stand_down()
        except StoreError as error:
            log.warning("standby lease not released", error=str(error))
