"""
What changes while the gateway runs: quotas, broker settings, brokers, splits, files.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.gateway.broker.limits import connection_limits, ip_rates
from headgate.gateway.log import get_logger
from headgate.gateway.opening import Opening
from headgate.gateway.splits.local import LocalSplits, share_out
from headgate.gateway.splits.streamed import StreamedSplits, put_in_force
from headgate.gateway.splits.supervised import WorkersPart
from headgate.gateway.usage.upkeep import tidy
from headgate.gateway.usage.usage_journal import topic_config
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER_SHARES
from headgate.quota.table import QuotaTable, TableDelta, table_delta

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers
    from headgate.usage.splits import Split

log = get_logger("headgate.gateway")

_SWEEP_S: Final = 1.0
_LOOK_AGAIN_S: Final = 1.0
"""Wait between an answer that names an unknown broker and the look-up: one for a burst of them."""
_TIDY_S: Final = 60.0
_MOST_FORGOTTEN: Final = 1_000
"""Users whose producer ids are dropped in one go: a millisecond."""
_MOST_SAID: Final = 20
"""Changes of quotas that come together and are logged one by one."""


class Following(Opening):
    """Follows the store, the cluster and the clock."""

    def _quotas_changed(self, table: QuotaTable, delta: TableDelta) -> None:
        if delta.from_version != self.coming.version or not self._seen_store:
            # The first word of a store, or of one that was away: what differs from what we have.
            delta = table_delta(self.coming, table)
            self._seen_store = True
        self.coming = table
        with self.watcher.watching():
            waits = self.quota_changes.take(table, delta)
        if waits:
            self.spawn(self.quota_changes.work())

    def _quotas_in_force(self, table: QuotaTable, delta: TableDelta) -> None:
        self.table = table
        self.kept.save_soon()
        for front in self.brokers.values():
            front.meters.store_version = table.version
        keys = {change.key for change in delta.changes}
        if CONNECTION in keys:
            self._limit_addresses()
        if not self._shares_seen or not keys.isdisjoint((PRODUCER_SHARES, CONSUMER_SHARES)):
            self._shares_seen = True
            self._say_what_isnt_enforced()
        log.debug("quotas in force", changes=len(delta.changes), version=table.version)
        for change in delta.changes[:_MOST_SAID]:
            log.debug("quota changed", entity=str(change.entity), key=str(change.key),
                      old=change.old, new=change.new)  # fmt: skip

    def _say_what_isnt_enforced(self) -> None:
        """Say it once, until it is no more so: shares need a capacity (SEEDS 546-9)."""
        for key, capacity in (
            (PRODUCER_SHARES, self.settings.capacity_producer_byte_rate),
            (CONSUMER_SHARES, self.settings.capacity_consumer_byte_rate),
        ):
            idle = capacity is None and bool(self.table.for_key(key))
            if idle and key not in self._not_enforced:
                log.warning(
                    "shares are kept and not enforced: no capacity is set",
                    key=str(key),
                    setting=f"headgate.capacity.{key.type}",
                )
            (self._not_enforced.add if idle else self._not_enforced.discard)(key)

    def _limit_addresses(self) -> None:
        """Put the connection rates of addresses in force."""
        before, self._ip_rates = self._ip_rates, ip_rates(self.table, self.hosts.address)
        for ip in {*before, *self._ip_rates}:
            if self._ip_rates.get(ip) != before.get(ip):
                for front in self.brokers.values():
                    front.quotas.set_ip_rate(ip, self._ip_rates.get(ip))

    def _host_found(self) -> None:
        self._limit_addresses()
        self._brokers_changed(self.broker_configs)

    def _brokers_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        if configs != self.broker_configs:
            self.broker_configs = configs
            self.kept.save_soon()
        for broker_id, front in self.brokers.items():
            front.limits_changed(connection_limits(self.settings, configs, broker_id))

    def _fell(self, where: str, error: Exception) -> None:
        """Say, not every time, that work that goes on for ever failed once; it goes on."""
        assert self._loop is not None
        self._failed(self._loop, {"message": f"where {where}", "exception": error})

    async def _refresh(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.upstream_refresh_ms / 1000):
                    await self._look_soon.wait()
                    await asyncio.sleep(_LOOK_AGAIN_S)
            self._look_soon.clear()
            try:
                await self._discover_all(first=False)
                await self._open_new_brokers()
            except HeadgateError as error:
                log.error("brokers can't be followed", error=str(error))
            except Exception as error:
                self._fell("brokers are followed", error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = now_ms()
            for front in list(self.brokers.values()):
                try:
                    await self.slices.run(front.sweep(now))
                    share_out(front.rules.managers, now)
                except Exception as error:
                    # The next second, and the other brokers, must not suffer for it.
                    self._fell("idle connections are closed, shares divided", error)
                front.closes.tell()
            self.answers.refusals.tell()
            self._buffer.pool.expire(time.monotonic_ns() // 1_000_000)
            if self._streamed is not None and self.has_splits:
                self._streamed.watch(now)

    async def _forget_producer_ids(self) -> None:
        """Drop users without live producer ids (KIP-936's ``cleanup-keys``), when one is due."""
        while True:
            managers = [front.rules.managers.producer_ids for front in self.brokers.values()]
            now = now_ms()
            idle_ms = min(
                (manager.idle_ms(now) for manager in managers), default=_LOOK_AGAIN_S * 1e3
            )
            await asyncio.sleep(idle_ms / 1000)
            now = now_ms()
            for manager in managers:
                manager.cleanup(now, _MOST_FORGOTTEN)

    async def _divide(self) -> None:
        """Divide cluster-wide quotas over the brokers, period by period, unless others do."""
        if self.settings.splits != "local":
            self._streamed = StreamedSplits(
                self.settings.splits_topic,
                topic_config(self.settings),
                self._splits_came,
                now_ms,
                self.settings.splits_period_ms,
            )
            self._streamed.start()
            return
        if self._supervised:
            self._part = WorkersPart()
            return
        splits = LocalSplits(self.settings.splits_period_ms)
        while True:
            await asyncio.sleep(self.settings.splits_period_ms / 1000)
            try:
                splits.round({b: f.rules.managers for b, f in self.brokers.items()}, now_ms())
            except Exception as error:
                self._fell("cluster-wide quotas are divided", error)

    def observe_splits(self) -> bytes:
        """Tell the supervisor what the period showed of cluster-wide quotas."""
        brokers = sorted({b for cluster in self.clusters.values() for b in cluster.brokers})
        if self._part is None:
            return WorkersPart().observe(None, brokers, now_ms())
        return self._part.observe(self._own_managers(), brokers, now_ms())

    def assign_splits(self, body: bytes) -> None:
        """Put the supervisor's splits in force."""
        if self._part is not None:
            self._part.assign(self._own_managers(), body, now_ms())

    def _own_managers(self) -> Managers | None:
        """Return the managers of a worker's only broker, while it fronts it."""
        return next((front.rules.managers for front in self.brokers.values()), None)

    def _splits_came(self, splits: Sequence[Split]) -> None:
        """Pass splits from the reader's thread to the loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._splits_taken, splits)

    def _splits_taken(self, splits: Sequence[Split]) -> None:
        now = now_ms()
        for split in splits:
            front = self.brokers.get(split.broker)
            if front is not None:
                put_in_force(split, front.rules.managers, now)

    async def _tidy(self) -> None:
        """Keep the journal's folder within its bound."""
        if self.settings.usage.kind != "files" or self._journal is not None:
            return
        folder = Path(self.settings.usage.place)
        while True:
            await asyncio.sleep(_TIDY_S)
            try:
                # Not on the store's threads: leases are renewed there.
                done = await asyncio.to_thread(tidy, folder, self.settings.usage_retention_bytes)
            except Exception:
                # It must go on after what nobody thought of: without it the disk fills up.
                log.exception("usage journal can't be tidied", folder=str(folder))
                continue
            self._usage_damaged += done.damaged
            self._usage_removed += done.removed
            if done.problem is not None:
                log.error("usage journal can't be tidied", folder=str(folder), error=done.problem)
