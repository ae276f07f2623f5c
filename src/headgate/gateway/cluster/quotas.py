"""
Quotas and settings of brokers, put in force on every broker that is fronted, as the store tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.gateway.cluster.quota_changes import QuotaChanges
from headgate.gateway.connection.hosts import Hosts
from headgate.gateway.kept.limits import connection_limits, ip_rates
from headgate.gateway.log import get_logger
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER_SHARES
from headgate.steps import begin
from headgate.store.broker_rules import as_applied

if TYPE_CHECKING:
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.kept.current import Current
    from headgate.gateway.loop.tasks import OwnWork
    from headgate.quota.key import QuotaKey
    from headgate.quota.table import QuotaTable, TableDelta
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
        in_force: Current,
        brokers: Mapping[int, Broker],
        work: OwnWork,
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
        with self._work.watcher.watching():
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
