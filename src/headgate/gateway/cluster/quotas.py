"""
Quotas and settings of brokers, put in force on every broker that is fronted, as the store tells;
large changes of quotas a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.gateway.connection.hosts import Hosts
from headgate.gateway.log import get_logger
from headgate.gateway.store_link.in_force import connection_limits, ip_rates
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER_SHARES
from headgate.quota.table import TableDelta, comparing, table_delta
from headgate.steps import FEW, begin
from headgate.store.broker_rules import as_applied
from headgate.throttle.registry import SENSORS_AT_ONCE

if TYPE_CHECKING:
    from headgate.gateway.background import BackgroundWork, TimeSlices
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.store_link.in_force import InForceNow
    from headgate.quota.key import QuotaKey
    from headgate.quota.table import QuotaTable
    from headgate.steps import Work

log = get_logger("headgate.gateway")

_SHARES: Final = (PRODUCER_SHARES, CONSUMER_SHARES)
_MOST_SAID: Final = 20
"""How many changes of quotas that come together are logged one by one, at most."""
_AT_ONCE: Final = 2
"""Brokers whose limits change at once: one with 1,000 addresses takes 1.5 ms, the first 5."""
_MOST_TEXT: Final = 100
"""Characters of a value that is logged because it can't be read."""


class QuotasInForce:
    """
    Puts quotas and settings of brokers in force.

    Args:
        in_force: what is in force; changed here.
        brokers: those fronted now.
        work: the gateway's own tasks and slices; they put larger changes in force.
        save_soon: has what is in force kept on disk soon.
    """

    def __init__(
        self,
        in_force: InForceNow,
        brokers: Mapping[int, Broker],
        work: BackgroundWork,
        save_soon: Callable[[], None],
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._work = work
        self._save_soon = save_soon
        self._changes = QuotaChanges(
            work.slices, lambda: list(brokers.values()), self._all_in_force, self._looks_up, now_ms
        )
        self.hosts = Hosts(work.tasks.spawn)
        self.hosts.found = self._host_found
        self._ip_rates: dict[str | None, float] = {}
        self._not_enforced: set[QuotaKey] = set()
        self._seen_store = False
        self._shares_seen = False  # whether shares that nothing enforces were looked for

    def put_on(self, broker: Broker) -> None:
        """Put the limits of connections in force on a broker that is fronted from now on."""
        now = self._in_force
        limits = connection_limits(now.settings, now.broker_configs, broker.broker_id)
        broker.limits_changed(limits)
        self._ip_rates = ip_rates(now.table, self.hosts.address)
        for ip, rate in self._ip_rates.items():
            broker.quotas.set_ip_rate(ip, rate)

    def changed(self, table: QuotaTable, delta: TableDelta) -> None:
        """The store's quotas have changed: put them in force."""
        before = self._in_force.coming
        # A store's first table, or one after a gap: its delta isn't from our table, so compare.
        compare = delta.from_version != before.version or not self._seen_store
        self._seen_store = True
        self._in_force.coming = table
        with self._work.stall_meter.watching():
            waits = self._changes.take(table, before if compare else delta)
        if waits:
            self._work.tasks.spawn(self._changes.work())

    def _all_in_force(self, table: QuotaTable, delta: TableDelta) -> None:
        """Do what depends on the table, once all of it is in force."""
        self._in_force.table = table
        self._save_soon()
        for broker in self._brokers.values():
            broker.meters.store_version = table.version
        keys = {change.key for change in delta.changes}
        if CONNECTION in keys:
            self._limit_addresses()
        if not self._shares_seen or not keys.isdisjoint(_SHARES):
            self._shares_seen = True
            self._say_what_isnt_enforced()
        log.debug("quotas in force", changes=len(delta.changes), version=table.version)
        for change in delta.changes[:_MOST_SAID]:
            log.debug("quota changed", entity=str(change.entity), key=str(change.key),
                      old=change.old, new=change.new)  # fmt: skip

    def _looks_up(self, delta: TableDelta) -> bool:
        """Whether ``_all_in_force`` will use the table's index by key (``for_key``)."""
        return not self._shares_seen or any(
            change.key == CONNECTION or change.key in _SHARES for change in delta.changes
        )

    def _say_what_isnt_enforced(self) -> None:
        """
        Log once that shares aren't enforced, because no capacity is set; again if that recurs.
        """
        settings = self._in_force.settings
        for key, capacity in (
            (PRODUCER_SHARES, settings.capacity_producer_byte_rate),
            (CONSUMER_SHARES, settings.capacity_consumer_byte_rate),
        ):
            idle = capacity is None and bool(self._in_force.table.for_key(key))
            if idle and key not in self._not_enforced:
                log.warning(
                    "shares are kept and not enforced: no capacity is set",
                    key=str(key),
                    setting=f"headgate.capacity.{key.type}",
                )
            (self._not_enforced.add if idle else self._not_enforced.discard)(key)

    def _limit_addresses(self) -> None:
        """Put the connection rates of addresses in force."""
        before = self._ip_rates
        self._ip_rates = ip_rates(self._in_force.table, self.hosts.address)
        for ip in {*before, *self._ip_rates}:
            if self._ip_rates.get(ip) != before.get(ip):
                for broker in self._brokers.values():
                    broker.quotas.set_ip_rate(ip, self._ip_rates.get(ip))

    def _host_found(self) -> None:
        self._limit_addresses()
        self.limit_connections()

    def brokers_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """The store's settings of brokers have changed: put them in force."""
        if configs != self._in_force.broker_configs:
            self._in_force.broker_configs = configs
            self._save_soon()
        self._in_steps(self._looking(configs))
        self.limit_connections()

    def _looking(self, configs: Mapping[str, Mapping[str, str]]) -> Work[bool]:
        """Say which settings can't be read."""
        for broker, stored in configs.items():
            as_applied(stored, partial(self._say_unreadable, broker))
            yield
        return True

    @staticmethod
    def _say_unreadable(broker: str, name: str, value: str) -> None:
        log.error(
            "a setting of brokers in the store can't be read; it isn't in force",
            broker=broker or "all",
            setting=name,
            value=value[:_MOST_TEXT],
        )

    def limit_connections(self) -> None:
        """Put the limits of connections in force that the file and the store set."""
        self._in_steps(self._limiting())

    def _limiting(self) -> Work[bool]:
        """Limit one broker after the other, each as the settings are when its turn comes."""
        now = self._in_force
        for broker_id, broker in list(self._brokers.items()):
            limits = connection_limits(now.settings, now.broker_configs, broker_id)
            broker.limits_changed(limits)
            yield
        return True

    def _in_steps(self, work: Work[bool]) -> None:
        """Do a little work at once, and the rest of more work in slices."""
        if not begin(work, _AT_ONCE):
            self._work.tasks.spawn(self._work.slices.run(work))


AT_ONCE: Final = 8
"""Changes that are put in force in one step, which takes a quarter of a millisecond."""


class QuotaChanges:
    """
    Puts tables in force on every broker, one after the other, a few changes at a time.

    One table from a store may change the quotas of thousands of clients that are being charged.
    Between two slices each client is judged by its old quota or by its new one, and the journal has
    each change where it took effect among the charges. A table counts as in force when all of its
    changes are; one that comes meanwhile waits its turn.

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
        slices: TimeSlices,
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
            or any(len(broker.rules.waiting) > FEW for broker in brokers)
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
        some = delta.changes[first : first + AT_ONCE]
        for each in rules:
            yield from each.changing(some, each.clock)
            yield
    for each in rules:
        yield from each.calling()
