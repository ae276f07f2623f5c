"""
The gateway: brokers discovered, ports opened, quotas watched, until told to stop.

``Gateway`` runs on a running (uvloop) event loop; ``thread.GatewayThread`` brings a loop and a
thread of its own. What it has is in ``gateway_state``, how it opens in ``opening``, what it does
while it runs in ``following``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headgate.config.reloading import take_over
from headgate.errors import ConfigError
from headgate.gateway.connection.hangup import HangupWatch
from headgate.gateway.fleet.leases import Leases
from headgate.gateway.following import Following
from headgate.gateway.log import get_logger
from headgate.gateway.session.rewrite import Addresses
from headgate.gateway.usage.usage_journal import open_journal

log = get_logger("headgate.gateway")


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
        http: where this very process shows them, instead of ``headgate.http.listener``.
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
        self.hosts.found = self._host_found
        try:
            self._take_name()
            if self._journal is None:
                self.journal = open_journal(self.settings, self.name)
            await self._discover_all(first=True)
            await self.kept.begin(self.store, self._reopen)
            store = self.store
            for listener in self.settings.listener_list:
                self._books[listener.name] = Addresses()
            if store is not None:
                cluster_id = next(iter(self.clusters.values())).cluster_id
                self._leases = Leases(
                    store,
                    f"gateway/{cluster_id}",
                    self.instance,
                    self.settings.lease_ttl_ms,
                    self._on_lease_thread,
                    self._lost,
                )
            await self._open_new_brokers()
            self._open_http()
            self._open_shared()
        except BaseException:
            await self.stop(0)
            raise
        for front in self.brokers.values():
            front.start()
        self.ready = True
        if self.http is not None:
            self.http.start()
            log.info("health and metrics", at=f"{self.http.address[0]}:{self.http.address[1]}")
        self.spawn(self._refresh())
        self.spawn(self._sweep())
        self.spawn(self._divide())
        self.spawn(self._forget_producer_ids())
        self.spawn(self._tidy())
        if self._leases is not None:
            self.spawn(self._leases.keep())

    async def _on_lease_thread(self, function: Callable[[], Any]) -> Any:
        """Ask for leases on threads of their own: clients' questions may keep the others busy."""
        return await asyncio.get_running_loop().run_in_executor(self._lease_threads, function)

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

        That is what `headgate.config.reloading` says (marked **R** in the settings' reference),
        certificates and the credentials file included; connections that are there stay as they
        are. The log names what else changed and needs a restart. A file with mistakes changes
        nothing.
        """
        from headgate.config import load_settings

        before = self.settings
        try:
            settings, kept = take_over(before, load_settings(config))
            self.settings = settings
            parts = {name: self._parts(name) for name in self._ways}
        except (ConfigError, OSError) as error:
            self.settings = before
            log.error("settings not reloaded", error=str(error))
            return
        for name in kept:
            log.warning("changed; that needs a restart", setting=name)
        for front in self.brokers.values():
            front.reload(settings)
            for name, face in front.faces.items():
                face.take(parts[name])
        self._info["enforce"] = settings.enforce
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
            await self._end("the HTTP listener", self.http.close())
        drains = (self._end("a broker", front.drain(timeout)) for front in self.brokers.values())
        await asyncio.gather(*drains)
        if self._leases is not None:
            await self._end("leases", self._leases.close())
        loop = asyncio.get_running_loop()
        await self._end("the store", self.kept.close())
        if self._hangup is not None:
            self._hangup.close()
        if self._streamed is not None:
            await self._end("splits", loop.run_in_executor(None, self._streamed.close))
        await self._end("the usage journal", loop.run_in_executor(None, self.journal.close))
        self._lease_threads.shutdown(wait=False, cancel_futures=True)
        self.answers.denials.close()
        self.instance.close()

    async def _end(self, what: str, work: Awaitable[Any]) -> None:
        """End one part; if it can't be the others still have to."""
        try:
            await work
        except Exception:
            log.exception("a part of the gateway didn't end well", part=what)
