"""
The gateway: brokers discovered, ports opened, quotas watched, until told to stop.

``Gateway`` runs on a running (uvloop) event loop; ``thread.GatewayThread`` brings a loop and a
thread of its own. What it has is in ``gateway_state``, how it opens in ``opening``, what it does
while it runs in ``following``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigError
from headgate.gateway.following import Following
from headgate.gateway.hangup import HangupWatch
from headgate.gateway.leases import Leases
from headgate.gateway.log import get_logger
from headgate.gateway.usage_journal import open_journal

if TYPE_CHECKING:
    pass

log = get_logger("headgate.gateway")

_FIXED: Final = frozenset(
    {
        "listeners",
        "listener_list",
        "ports",
        "upstream",
        "broker_id_min",
        "broker_id_max",
        "store",
        "usage",
        "fetch",
        "pacing",
        "quota_window_num",
        "quota_window_size_seconds",
        "http_listener",
        "admin_listener",
        "bootstrap_listener",
        "data_dir",
        "worker_id",
        "lease_ttl_ms",
        "log_format",
        "splits",
        "splits_period_ms",
        "splits_topic",
    }
)
"""Settings a running gateway keeps: managers, ports and names are made of them."""


class Gateway(Following):
    """
    The gateway in front of one cluster.

    Args:
        settings: what ``headgate.properties`` says.
        store: where quotas live; None: no quotas but ``table``'s.
        table: quotas in force until the store says otherwise.
        upstreams: bootstrap servers by listener name, instead of ``headgate.upstream``.
        admin: credentials for the gateway's own questions, instead of
            ``headgate.upstream.admin.*``.
        only_brokers: front these brokers only (a worker's share).
        journal: where usage goes; by default as ``headgate.usage`` says.
        reopen: opens the store, where it couldn't be opened at the start; tried again and again.
        supervised: whether a supervisor shows health and metrics for all workers.
    """

    async def start(self) -> None:
        """
        Find the brokers, put the quotas in force, open the ports.

        Raises:
            GatewayError: the upstream doesn't answer, or a port can't be had.
            StoreError: the store can't be read.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        self._loop = loop
        self._hangup = HangupWatch(loop)
        try:
            self._take_name()
            if self._journal is None:
                self.journal = open_journal(self.settings, self.name)
            await self._discover_all(first=True)
            store = self.store
            if store is not None:
                await self._watch_store(loop, store)
            elif self._reopen is not None:
                self._spawn(self._open_store(self._reopen))
            for listener in self.settings.listener_list:
                self._books[listener.name] = {}
            if store is not None:
                cluster_id = next(iter(self.clusters.values())).cluster_id
                self._leases = Leases(
                    store,
                    f"gateway/{cluster_id}",
                    self.instance,
                    self.settings.lease_ttl_ms,
                    self.answers.on_thread,
                    self._lost,
                )
            await self._open_new_brokers()
            self._open_more()
        except BaseException:
            await self.stop(0)
            raise
        for front in self.fronts.values():
            front.start()
        self.ready = True
        if self.http is not None:
            self.http.start()
            log.info("health and metrics", at=f"{self.http.address[0]}:{self.http.address[1]}")
        self._spawn(self._refresh())
        self._spawn(self._sweep())
        self._spawn(self._divide())
        self._spawn(self._tidy())
        if self._leases is not None:
            self._spawn(self._leases.keep())

    async def find_brokers(self) -> list[int]:
        """
        Ask the upstream which brokers there are, and return those that have a port here.

        Raises:
            GatewayError: it doesn't answer.
        """
        await self._discover_all(first=True)
        return self.exposed()

    def reload(self, config: Path) -> None:
        """
        Read the settings file again and put in force what can change while running.

        That are ``super.users``, ``headgate.admin.principals``, ``headgate.exempt.principals``,
        connection limits, idle and drain times and certificates; the log names what needs a
        restart. A file with mistakes changes nothing.
        """
        from headgate.config import load_settings

        try:
            fresh = load_settings(config)
        except (ConfigError, OSError) as error:
            log.error("settings not reloaded", error=str(error))
            return
        for name in sorted(_FIXED):
            if getattr(fresh, name) != getattr(self.settings, name):
                log.warning("changed; that needs a restart", setting=name)
        settings = replace(fresh, **{name: getattr(self.settings, name) for name in sorted(_FIXED)})
        before, self.settings = self.settings, settings
        try:
            contexts = {
                (front, name): (
                    self._server_tls(name, settings.protocol_of(name)),
                    self._upstream_tls(name, self._upstream_protocol(name))
                    if face.upstream is not None
                    else None,
                )
                for front in self.fronts.values()
                for name, face in front.faces.items()
            }
        except ConfigError as error:
            self.settings = before
            log.error("settings not reloaded", error=str(error))
            return
        for front in self.fronts.values():
            front.reload(settings)
        for (front, name), (server_tls, upstream_tls) in contexts.items():
            face = front.faces[name]
            face.settings = settings.for_listener(name)
            face.server_tls, face.upstream_tls = server_tls, upstream_tls
        self._brokers_changed(self.broker_configs)
        log.info("settings reloaded")

    async def stop(self, drain_ms: int | None = None) -> None:
        """
        Take no more connections, finish what is in flight, close.

        Args:
            drain_ms: how long requests may take to finish; by default
                ``headgate.drain.timeout.ms``.
        """
        if self._stopping:
            return
        self._stopping = True
        self.ready = False
        for task in list(self._tasks):
            task.cancel()
        timeout = self.settings.drain_timeout_ms if drain_ms is None else drain_ms
        for listener in self._bootstraps:
            listener.close()
        if self.http is not None:
            await self.http.close()
        await asyncio.gather(*(front.drain(timeout) for front in self.fronts.values()))
        if self._leases is not None:
            await self._leases.close()
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            await loop.run_in_executor(None, watch.close)
        if self._hangup is not None:
            self._hangup.close()
        if self._streamed is not None:
            await loop.run_in_executor(None, self._streamed.close)
        await loop.run_in_executor(None, self.journal.close)
        self.instance.close()
