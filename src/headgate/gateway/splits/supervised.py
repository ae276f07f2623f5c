"""
Cluster-wide quotas divided over the worker processes of one ``headgate serve``, by demand.

Each round the supervisor asks every worker for its broker's demand, divides each quota by demand
(``throttle.cluster``), and sends the splits back. Like splits from a topic they expire: without a
supervisor each worker is back at quota / brokers in three rounds.

All splits together never exceed the quota. A broker may have no worker here that answers, because
its worker hangs, is starting, or belongs to another gateway: its part is kept back (``Splitter``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.gateway.log import get_logger
from headgate.gateway.splits.dividing import (
    Assigned,
    Splitter,
    WorkerObservation,
    assign_steps,
    observe_steps,
)
from headgate.steps import Work, finish

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers

log = get_logger("headgate.supervisor")

OBSERVE: Final = "observe"
ASSIGN: Final = "assign"
_OBSERVED: Final = msgspec.msgpack.Decoder(WorkerObservation)
_NOTHING: Final = msgspec.msgpack.Decoder(None)
_ASSIGNED: Final = msgspec.msgpack.Decoder(Assigned)


class SupervisedSplits:
    """
    The supervisor's rounds.

    Args:
        ask: asks all workers a question, each with a body of its own (``Fleet.ask``).
        period_ms: ``headgate.splits.period.ms``.
        clock_ms: epoch ms.
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[dict[int, Any]]],
        period_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._ask = ask
        self._period_s = period_ms / 1000
        self._clock_ms = clock_ms
        self._splitter = Splitter(period_ms, may_hang=True)

    async def run(self) -> None:
        """Divide until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.round()
            except Exception:
                log.exception("cluster-wide quotas couldn't be divided")

    async def round(self) -> None:
        """Ask, divide, tell."""
        observed = await self._ask(OBSERVE, _OBSERVED)
        assigned = finish(self._splitter.round(observed, self._clock_ms()))
        bodies = {broker: msgspec.msgpack.encode(its) for broker, its in assigned.items()}
        await self._ask(ASSIGN, _NOTHING, bodies)


class WorkersPart:
    """A worker's side: what it has seen, and what it was given."""

    def __init__(self) -> None:
        self.valid_until_ms = 0

    def observe(self, managers: Managers | None, brokers: list[int], now_ms: int) -> Work[bytes]:
        """Return, in steps, what the period since the last question showed."""
        seen = [] if managers is None else (yield from observe_steps(managers, now_ms))
        return msgspec.msgpack.encode(WorkerObservation(brokers, managers is not None, seen))

    def assign(
        self, managers: Managers | None, body: bytes, clock: Callable[[], int]
    ) -> Work[None]:
        """Put splits in force, in steps; ``clock`` returns epoch ms."""
        if managers is None:
            return
        assigned = _ASSIGNED.decode(body)
        if assigned.valid_until_ms <= clock():
            return  # late, since this worker hung: others may have been given its part
        self.valid_until_ms = assigned.valid_until_ms
        yield from assign_steps(managers, assigned, clock)

    def expired(self, now_ms: int) -> bool:
        """Whether no split is in force."""
        return self.valid_until_ms < now_ms
