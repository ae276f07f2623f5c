"""
Changes of the quota table, put in force a few at a time.

One table from a store may change the quotas of thousands of clients that are being charged. Between
two slices each client is judged by its old quota or by its new one, and the journal has each change
where it took effect among the charges. A table counts as in force when all of its changes are; one
that comes meanwhile waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from headgate.gateway.log import get_logger
from headgate.quota.table import TableDelta, comparing, table_delta
from headgate.steps import FEW
from headgate.throttle.registry import SENSORS_AT_ONCE

if TYPE_CHECKING:
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.loop.slices import Slices
    from headgate.quota.table import QuotaTable
    from headgate.steps import Work

log = get_logger("headgate.gateway")

AT_ONCE: Final = 8
"""Changes that are put in force in one step, which takes a quarter of a millisecond."""


class QuotaChanges:
    """
    Puts tables in force on every broker, one after the other.

    Args:
        slices: of the loop.
        brokers: returns those fronted now.
        in_force: called with each table and its changes, when all of these are in force.
        looks_up: says whether ``in_force`` will look into the index of the table (``for_key``),
            which takes long to make.
        clock: epoch ms.
    """

    def __init__(
        self,
        slices: Slices,
        brokers: Callable[[], Collection[Broker]],
        in_force: Callable[[QuotaTable, TableDelta], None],
        looks_up: Callable[[TableDelta], bool],
        clock: Callable[[], int],
    ) -> None:
        self._looks_up = looks_up
        self._slices = slices
        self._brokers = brokers
        self._in_force = in_force
        self._clock = clock
        # A broker that is fronted later begins with the table itself.
        self._waiting: deque[tuple[QuotaTable, TableDelta | QuotaTable, Collection[Broker]]]
        self._waiting = deque()

    def take(self, table: QuotaTable, delta: TableDelta | QuotaTable) -> bool:
        """
        Take a table; a few changes are in force at once unless others wait.

        Args:
            table: all quotas.
            delta: what has changed; or the table before, where that has to be found out.

        Returns:
            Whether the table waits, and ``work`` has to be run for it.
        """
        brokers = list(self._brokers())
        if self._waiting:
            self._waiting.append((table, delta, brokers))
            return False  # ``work``, which runs already, takes it too
        if not isinstance(delta, TableDelta) and len(table) + len(delta) <= FEW:
            delta = table_delta(delta, table)
        if (
            not isinstance(delta, TableDelta)
            or len(delta.changes) > AT_ONCE
            or self._concerns_many(delta)
            or (self._looks_up(delta) and len(table) > FEW and not table.indexed)
        ):
            self._waiting.append((table, delta, brokers))
            return True
        now_ms = self._clock()
        for broker in brokers:
            broker.rules.update(delta, now_ms)
        self._in_force(table, delta)
        return False

    async def work(self) -> None:
        """Put in force what waits."""
        while self._waiting:
            table, delta, brokers = self._waiting[0]
            try:
                await self._put_in_force(table, delta, brokers)
            except Exception:
                # The tables that wait still have their turn.
                log.exception("a table of quotas can't be put in force", version=table.version)
            self._waiting.popleft()

    async def _put_in_force(
        self, table: QuotaTable, delta: TableDelta | QuotaTable, brokers: Collection[Broker]
    ) -> None:
        if not isinstance(delta, TableDelta):
            delta = await self._slices.run(comparing(delta, table))
        try:
            await self._slices.run(self._steps(table, delta, brokers))
        except Exception:
            log.exception("not every change of quotas is in force", version=table.version)
        self._in_force(table, delta)

    def _steps(
        self, table: QuotaTable, delta: TableDelta, brokers: Collection[Broker]
    ) -> Work[None]:
        if self._looks_up(delta):
            yield from table.indexing()
        yield from in_steps(delta, [broker.rules for broker in brokers])

    def _concerns_many(self, delta: TableDelta) -> bool:
        """Whether a default entity changes, and more live sensors follow than one step takes."""
        return any(change.entity.has_default for change in delta.changes) and any(
            broker.rules.managers.most_sensors > SENSORS_AT_ONCE for broker in self._brokers()
        )


def in_steps(delta: TableDelta, rules: Collection[Enforcement]) -> Work[None]:
    """Put changes in force under the rules of some brokers, a few at a time."""
    for first in range(0, len(delta.changes), AT_ONCE):
        some = delta._replace(changes=delta.changes[first : first + AT_ONCE])
        for each in rules:
            yield from each.updating(some)
            yield
