"""
Changes of the quota table, put in force a few at a time.

What comes in one piece from a store may change thousands of clients that are being charged. Between
two slices each client is judged by its old quota or by its new one, and the journal
has each change where it took effect among the charges. A table counts as in force when all of its
changes are; one that comes meanwhile waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from headgate.gateway.log import get_logger
from headgate.throttle.registry import SENSORS_AT_ONCE

if TYPE_CHECKING:
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.loop.slices import Slices, Work
    from headgate.quota.table import QuotaTable, TableDelta

log = get_logger("headgate.gateway")

AT_ONCE: Final = 8
"""Changes that are put in force in one step: a quarter of a millisecond."""


class QuotaChanges:
    """
    Puts tables in force on every broker, one after the other.

    Args:
        slices: of the loop.
        brokers: those there are now.
        in_force: called with each table and its changes when all of them are.
        clock: epoch ms.
    """

    def __init__(
        self,
        slices: Slices,
        brokers: Callable[[], Collection[Broker]],
        in_force: Callable[[QuotaTable, TableDelta], None],
        clock: Callable[[], int],
    ) -> None:
        self._slices = slices
        self._brokers = brokers
        self._in_force = in_force
        self._clock = clock
        self._waiting: deque[tuple[QuotaTable, TableDelta]] = deque()

    def take(self, table: QuotaTable, delta: TableDelta) -> bool:
        """
        Take a table; return whether it waits, and ``work`` has to be run for it.

        A few changes are in force at once unless others wait.
        """
        if self._waiting:
            self._waiting.append((table, delta))
            return False  # ``work``, which runs already, takes it too
        if len(delta.changes) > AT_ONCE or self._concerns_many(delta):
            self._waiting.append((table, delta))
            return True
        self._apply(delta)
        self._in_force(table, delta)
        return False

    async def work(self) -> None:
        """Put in force what waits."""
        while self._waiting:
            table, delta = self._waiting[0]
            try:
                await self._slices.run(self._steps(delta))
            except Exception:
                log.exception("not every change of quotas is in force", version=table.version)
            self._in_force(table, delta)
            self._waiting.popleft()

    def _steps(self, delta: TableDelta) -> Work[None]:
        changes = delta.changes
        for first in range(0, len(changes), AT_ONCE):
            some = delta._replace(changes=changes[first : first + AT_ONCE])
            for broker in list(self._brokers()):
                yield from broker.rules.updating(some)
                yield

    def _concerns_many(self, delta: TableDelta) -> bool:
        """Whether a default entity changes, and more live sensors follow than one step takes."""
        return any(change.entity.has_default for change in delta.changes) and any(
            broker.rules.managers.most_sensors > SENSORS_AT_ONCE for broker in self._brokers()
        )

    def _apply(self, delta: TableDelta) -> None:
        now_ms = self._clock()
        for broker in self._brokers():
            broker.rules.update(delta, now_ms)
