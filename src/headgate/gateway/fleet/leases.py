"""
Each broker is fronted by exactly one live worker: leases with fencing, and standbys that wait.

A worker takes the lease of a broker before it opens the broker's ports, and renews it three times
per ttl. A worker that can't have it is a standby: it asks again until the lease is free. If the
holder is known to be dead (``instance``), the lease is free at once. Otherwise it is free when the
standby has seen it unchanged for its whole length (``store.leases``).

When a worker loses its lease it stops fronting the broker at once. When the store can't be asked, a
worker can't know whether another worker takes its lease. If it has seen a standby lately, it stops
before the lease runs out, so that two gateways never serve one broker. If it is alone, it goes on
with the last known quotas. A worker that stood still for longer than its lease lasts can't know
whether another took the lease meanwhile: it stops if the store doesn't say at once that the lease
is still its own. A store that doesn't answer counts as one that can't be asked: a worker waits for
a renewal only until shortly before the lease runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import StoreError
from headgate.gateway.log import get_logger

if TYPE_CHECKING:
    from headgate.gateway.fleet.worker_name import WorkerName
    from headgate.store.leases import Lease, LeaseTaker

log = get_logger("headgate.gateway")

T = TypeVar("T")

_RENEWALS: Final = 3
"""Renewals per ttl: two may fail before the lease runs out."""
_STOP_AT: Final = 0.9
"""Part of a ttl after which a renewal that hangs is given up: what is left is for closing."""
_ASKS: Final = 10
"""
How often per ttl a standby asks. It sees the last renewal up to a tenth of a ttl late, and the
lease's end up to another tenth late. So it takes over within 1.2 ttl of the last renewal.
"""
_SHOWS: Final = 5
"""How often per ttl a standby shows that it waits; each time counts for two ttl."""
_PROOF_S: Final = 0.05
"""How long a worker that stood still goes on, at least, before its lease must be renewed."""
_STANDBYS: Final = "standby"
"""Owner of the lease that shows it: the same for all standbys, so that none waits for another."""


class Leases:
    """
    The leases of one worker.

    Args:
        taker: takes them in the store.
        prefix: of the leases' names; says which cluster is fronted.
        instance: this worker's name, and the names of those known to be dead.
        ttl_ms: ``headgate.lease.ttl.ms``.
        on_thread: runs what may wait off the loop.
        on_lost: called with a broker that this worker must stop fronting.
        monotonic: a clock in seconds.
    """

    def __init__(
        self,
        taker: LeaseTaker,
        prefix: str,
        instance: WorkerName,
        ttl_ms: int,
        on_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        on_lost: Callable[[int], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._taker = taker
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
        self._shown_at = 0.0
        self._others = False
        self._looked_at = 0.0
        self._reachable = True
        self._trouble: str | None = None

    @property
    def epochs(self) -> dict[int, int]:
        """Broker to the fencing epoch of the lease held."""
        return {broker: lease.epoch for broker, lease in self._held.items()}

    def name_of(self, broker_id: int) -> str:
        """Return the name of a broker's lease in the store."""
        return f"{self._prefix}/broker/{broker_id}"

    async def take(self, broker_id: int) -> bool:
        """
        Try to take a broker's lease.

        Returns:
            Whether it is ours now.

        Raises:
            StoreError: the store can't be asked.
        """
        asked_at = self._monotonic()
        name = self.name_of(broker_id)

        def take() -> Lease | None:
            found = self._instance.take(lambda owner: self._taker.take(name, owner, self._ttl_ms))
            if found is not None and not self._held:
                # Look now: the store may not answer any more when it is time to renew.
                self._others = True
                with contextlib.suppress(StoreError):
                    self._look()
            return found

        lease = await self._on_thread(take)
        if lease is None:
            return False
        if (self._monotonic() - asked_at) * 1000 >= self._ttl_ms * _STOP_AT:
            return False  # the answer took so long that the lease may be somebody else's by now
        self._held[broker_id] = lease
        self._renewed_at[broker_id] = asked_at
        self._stop_in_time(broker_id, lease)
        return True

    def _stop_in_time(self, broker_id: int, lease: Lease, due_s: float = math.inf) -> None:
        """
        Stop fronting before a lease runs out if a standby waits, also while the store is asked.

        Args:
            broker_id: whose lease.
            lease: the lease; another one may be held by now.
            due_s: when this was to be called.
        """
        if self._held.get(broker_id) is not lease:
            return
        ttl_s, now_s = self._ttl_ms / 1000, self._monotonic()
        end_s = self._renewed_at[broker_id] + ttl_s
        left_s = end_s - ttl_s * (1 - _STOP_AT) - now_s
        if left_s <= 0 and self._others:
            self._lose(broker_id, "it couldn't be renewed, and a standby waits")
            return
        tick_s = ttl_s * (1 - _STOP_AT) / 2
        loop = asyncio.get_running_loop()
        if now_s >= end_s and now_s - due_s >= tick_s and self._reachable:
            # This worker stood still. The renewal that is due tells if another took the lease.
            soon_s = max(_PROOF_S, ttl_s / 100)
            loop.call_later(soon_s, self._lose_if_over, broker_id, lease)
        again_s = left_s if left_s > 0 else tick_s
        loop.call_later(again_s, self._stop_in_time, broker_id, lease, now_s + again_s)

    def _lose_if_over(self, broker_id: int, lease: Lease) -> None:
        """Stop fronting if a lease wasn't renewed since this worker stood still."""
        if self._held.get(broker_id) is not lease:
            return
        if self._monotonic() - self._renewed_at[broker_id] >= self._ttl_ms / 1000:
            self._lose(broker_id, "it ran out while this worker stood still")

    async def wait_for(self, broker_id: int) -> None:
        """Stand by until a broker's lease is ours."""
        while True:
            try:
                if await self.take(broker_id):
                    break
                await self._stand_by()
            except StoreError as error:
                self._say_reachable(False, error)
            except Exception as error:
                # Ask again after any error: a standby that gives up never takes over.
                self._fell(error)
            await asyncio.sleep(self._ttl_ms / 1000 / _ASKS)

        try:
            await self._stand_down()
        except Exception as error:
            self._fell(error)  # that lease runs out; the broker's is ours

    async def _stand_by(self) -> None:
        """Let an active worker know that a standby waits."""
        now = self._monotonic()
        if self._standby is not None and (now - self._shown_at) * _SHOWS < self._ttl_ms / 1000:
            return
        self._shown_at = now
        if self._standby is None or not await self._on_thread(self._standby.renew):
            self._standby = await self._on_thread(
                lambda: self._taker.take(f"{self._prefix}/standby", _STANDBYS, self._ttl_ms * 2)
            )

    async def _stand_down(self) -> None:
        if self._standby is not None:
            standby, self._standby = self._standby, None
            await self._soon(standby.release, self._monotonic())

    async def keep(self) -> None:
        """Renew until cancelled; report every lease that is lost."""
        while True:
            await asyncio.sleep(self._ttl_ms / 1000 / _RENEWALS)
            try:
                await self.renew()
            except Exception as error:
                self._fell(error)  # nothing may end the renewals: others would serve as well

    async def renew(self) -> None:
        """Renew every lease once. Look for standbys first: later the store may not answer."""
        for broker_id in list(self._held):
            self._lose_if_hung(broker_id)
        looked = bool(self._held) and self._reachable and await self._look_for_others()
        for broker_id, lease in list(self._held.items()):
            if self._held.get(broker_id) is not lease:
                continue  # given up while another was renewed
            if self._lose_if_hung(broker_id):
                continue
            asked_at = self._monotonic()
            try:
                late = partial(self._answered_late, broker_id, lease)
                kept = await self._soon(lease.renew, self._renewed_at[broker_id], late)
                self._say_reachable(True)
            except StoreError as error:
                self._say_reachable(False, error)
                self._not_renewed(broker_id, lease, asked_at)
                continue
            except Exception as error:
                # As above: a lease that isn't renewed is somebody else's soon, whatever the reason.
                self._fell(error)
                self._not_renewed(broker_id, lease, asked_at)
                continue
            if self._held.get(broker_id) is not lease:
                continue  # given up, or taken again, while the store was asked
            if kept:
                self._renewed_at[broker_id] = asked_at
            else:
                self._lose(broker_id, "another worker has it")
        if self._held and self._reachable and not looked:
            await self._look_for_others()

    def _lose_if_hung(self, broker_id: int) -> bool:
        """Stop fronting without asking if this worker hung: somebody else may serve by now."""
        passed_s = self._monotonic() - self._renewed_at[broker_id]
        if not self._others or passed_s * 1000 < self._ttl_ms:
            return False
        self._lose(broker_id, "it ran out meanwhile, and a standby waits")
        return True

    def _not_renewed(self, broker_id: int, lease: Lease, asked_at: float) -> None:
        """Stop fronting in time if somebody waits; else the next renewal may work."""
        if not self._others or self._held.get(broker_id) is not lease:
            return
        ttl_s = self._ttl_ms / 1000
        renewed_at = self._renewed_at[broker_id]
        if (
            asked_at - renewed_at >= ttl_s * (_RENEWALS - 1) / _RENEWALS
            or self._monotonic() - renewed_at >= ttl_s * _STOP_AT
        ):
            self._lose(broker_id, "the store can't be asked and a standby waits")

    def _answered_late(self, broker_id: int, lease: Lease, kept: bool) -> None:
        """Stop fronting if an answer that isn't waited for any more says that the lease is lost."""
        if not kept and self._held.get(broker_id) is lease:
            self._lose(broker_id, "another worker has it")

    async def _soon(
        self,
        function: Callable[[], T],
        renewed_at: float,
        late: Callable[[T], None] | None = None,
    ) -> T:
        """
        Ask the store, and wait until shortly before a lease runs out.

        Args:
            function: asks it.
            renewed_at: when the lease was renewed.
            late: called with an answer that comes later.

        Raises:
            StoreError: it can't be asked, or doesn't answer.
        """
        left_s = renewed_at + self._ttl_ms / 1000 * _STOP_AT - self._monotonic()
        asked: asyncio.Future[T] = asyncio.ensure_future(self._on_thread(function))
        await asyncio.wait({asked}, timeout=max(left_s, self._ttl_ms / 1000 / 100))
        if asked.done():
            return asked.result()

        def answered(asked: asyncio.Future[T]) -> None:
            if not asked.cancelled() and asked.exception() is None and late is not None:
                late(asked.result())

        asked.add_done_callback(answered)
        raise StoreError("the store doesn't answer", retriable=True)

    async def _look_for_others(self) -> bool:
        """Find out in time whether a standby waits; return whether the store answered."""
        try:
            await self._soon(self._look, min(self._renewed_at.values()))
        except StoreError as error:
            self._say_reachable(False, error)
        except Exception as error:
            self._fell(error)
        else:
            return True
        return False

    def _look(self) -> None:
        """
        Ask for the standby's lease, which can't be had while one waits. Runs on a thread.

        An answer that isn't waited for any more counts as well, unless a later one was quicker.
        """
        asked_at = self._monotonic()
        name, owner = f"{self._prefix}/standby", f"{self._owner}/active"
        lease = self._taker.take(name, owner, self._ttl_ms)
        if asked_at >= self._looked_at:
            self._looked_at, self._others = asked_at, lease is None
        if lease is not None:
            lease.release()

    def _fell(self, error: Exception) -> None:
        """Log that a store raised something other than StoreError."""
        log.error("a lease couldn't be asked for", error=repr(error), exc_info=error)
        self._say_reachable(False, StoreError(str(error)))

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
        self._trouble = None if reachable else str(error)

    @property
    def trouble(self) -> str | None:
        """Say why the store couldn't be asked about leases the last time, or None."""
        return self._trouble

    async def give_up(self, broker_id: int) -> None:
        """Release a broker's lease, so that a standby needn't wait for its end."""
        lease = self._held.pop(broker_id, None)
        self._renewed_at.pop(broker_id, None)
        if lease is not None:
            try:
                await self._soon(lease.release, self._monotonic())
            except Exception as error:
                log.warning("lease not released", broker=broker_id, error=str(error))

    async def close(self) -> None:
        """Release everything."""
        for broker_id in list(self._held):
            await self.give_up(broker_id)
        try:
            await self._stand_down()
        except Exception as error:
            log.warning("standby lease not released", error=str(error))
