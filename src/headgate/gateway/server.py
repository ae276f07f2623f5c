"""
The gateway: discovers brokers, opens their ports and watches quotas, until it is stopped.

``Gateway`` runs on a running (uvloop) event loop; ``running.GatewayThread`` brings a loop and a
thread of its own. A gateway makes the objects that do its work, and gives each what it uses.
A reload reads files on a thread, which lets the event loop go on within a millisecond; the loop
only puts finished parts in force.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.clock import now_ms, skew_ms
from headgate.config import load_settings
from headgate.config.reloading import take_over
from headgate.errors import ConfigError
from headgate.gateway.answered_here.answers import Answers
from headgate.gateway.answered_here.live import LiveAnswers
from headgate.gateway.answered_here.mutations import Topics
from headgate.gateway.answered_here.support import AnswerSupport
from headgate.gateway.answered_here.token_owners import TokenOwners
from headgate.gateway.background import BackgroundWork, Threads
from headgate.gateway.broker.broker import Broker
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.cluster.discovery import Answering, Discovery, GatewayError
from headgate.gateway.cluster.listener_security import ListenerSecurity
from headgate.gateway.cluster.ports import Ports
from headgate.gateway.cluster.quotas import QuotasInForce, in_steps
from headgate.gateway.cluster.shared_listeners import SharedListeners
from headgate.gateway.connection.hosts import BrokerHosts
from headgate.gateway.connection.link import HangupWatch
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.fleet.leases import Leases
from headgate.gateway.fleet.worker_name import WorkerName
from headgate.gateway.health_and_metrics import HealthAndMetrics, HttpListener
from headgate.gateway.log import get_logger
from headgate.gateway.periodic_work import PeriodicWork
from headgate.gateway.session.commands import Ask
from headgate.gateway.splits.gateway_splits import GatewaySplits
from headgate.gateway.store_link.in_force import InForceNow
from headgate.gateway.store_link.link import StoreLink
from headgate.gateway.usage_journal import open_journal
from headgate.metrics.meters import Meters
from headgate.quota.table import QuotaTable, comparing
from headgate.steps import finish

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.config.security import ClientSecurity
    from headgate.config.settings import Settings
    from headgate.gateway.background import TimeSlices
    from headgate.gateway.broker.dialing import ListenerParts
    from headgate.gateway.connection.link import Link
    from headgate.gateway.session.rewrite import Rewrite
    from headgate.store.watched import QuotaStore

log = get_logger("headgate.gateway")


class Gateway:
    """
    The gateway in front of one cluster.

    Args:
        settings: what ``headgate.properties`` says.
        store: where quotas are kept; None: ``table`` has all quotas.
        table: quotas in force until the store says otherwise.
        upstreams: bootstrap servers by listener name, instead of ``headgate.upstream``.
        admin: credentials for the gateway's own questions, instead of
            ``headgate.upstream.admin.*``.
        only_brokers: front these brokers only (a worker's share).
        journal: where usage goes; by default as ``headgate.usage`` says.
        reopen: opens the store, where it couldn't be opened at the start; tried again and again.
        supervised: whether a supervisor shows health and metrics for all workers.
        http: where this very process shows them, instead of ``headgate.http.listener``.

    Attributes:
        in_force: settings, quotas and brokers' settings in force now.
        brokers: the brokers fronted now, by id.
        discovery: which brokers the cluster has.
        security: how each listener leads to the brokers.
        ports: the brokers' ports.
        shared: the admin listener and bootstrap listeners.
        quotas: puts quotas in force.
        splits: of cluster-wide quotas.
        answers: what the gateway answers itself.
        health: health and metrics.
        http: where they are served; None: nowhere.
        fronting_changed: called when the fronted brokers may have changed.
    """

    def __init__(
        self,
        settings: Settings,
        store: QuotaStore | None = None,
        *,
        table: QuotaTable | None = None,
        upstreams: Mapping[str, Sequence[HostPort]] | None = None,
        admin: ClientSecurity | None = None,
        only_brokers: frozenset[int] | None = None,
        journal: Journal | None = None,
        reopen: Callable[[], QuotaStore] | None = None,
        supervised: bool = False,
        http: HostPort | None = None,
    ) -> None:
        self._supervised = supervised
        self._own_http, self._reopen, self._only = http, reopen, only_brokers
        self._journal_given = journal is not None
        self.journal = journal or Journal()
        self.in_force = now = InForceNow(settings, QuotaTable() if table is None else table, store)
        self.brokers: dict[int, Broker] = {}
        self.http: HttpListener | None = None
        self.instance, self.name = WorkerName(None, ""), ""
        self.fronting_changed: Callable[[], None] = lambda: None
        self._stopping = False

        self.work = work = BackgroundWork()
        # Clients' questions may keep the store's threads busy: leases must be renewed meanwhile,
        # and quotas kept on disk.
        self._store_threads = Threads(2, "headgate-store")
        self._kept_threads = Threads(2, "headgate-kept")
        self._lease_threads = Threads(2, "headgate-lease")
        self._buffer = ReadBuffer(settings.queued_max_request_bytes, work.stall_meter)
        self._hangup: HangupWatch | None = None
        self._plans = build_plans(pass_unknown=settings.unknown_apis == "pass")
        self._broker_hosts = BrokerHosts()

        self.store_link = StoreLink(now, work.tasks, self._kept_threads, self.store_trouble)
        self.quotas = QuotasInForce(now, self.brokers, work, self.store_link.save_soon)
        self.store_link.quotas, self.store_link.brokers = (
            self.quotas.changed,
            self.quotas.brokers_changed,
        )
        token_owners = TokenOwners(lambda listener: self.security.own(listener), work.tasks.spawn)
        self.security = ListenerSecurity(now, dict(upstreams or {}), admin, token_owners.owner_of)
        self.discovery = Discovery(now, self.security)
        self.periodic = PeriodicWork(now, work)
        self.reloads = Reloads(now, self.security, self.brokers, self.quotas, work.slices)
        self.shared = SharedListeners(now, self.brokers, self.discovery, self.security)
        self.ports = Ports(
            now,
            self.brokers,
            self.discovery,
            self.security,
            self.shared,
            self._front,
            work,
            only_brokers,
            self.periodic.look_soon.set,
            lambda: self.fronting_changed(),
        )
        known = self.discovery.broker_ids
        self.splits = GatewaySplits(now, self.brokers, known, work, supervised=supervised)
        self.answers = Answers(
            AnswerSupport(now, work.slices, self._store_threads, self.store_trouble),
            Topics(self.security.own, self.discovery.clusters),
            token_owners,
            LiveAnswers(self.brokers, self.not_ready, self.splits.expired, lambda: self.name),
        )
        self.health = HealthAndMetrics(
            now,
            self.brokers,
            self.ports,
            self.splits,
            self.store_link,
            self.periodic,
            self._buffer.pool,
            work,
            self.journal,
            self.store_trouble,
        )

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.in_force.settings

    @property
    def table(self) -> QuotaTable:
        """The quotas in force."""
        return self.in_force.table

    @property
    def store(self) -> QuotaStore | None:
        """The store that the gateway uses now."""
        return self.in_force.store

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of brokers in force; "" is the default of all."""
        return self.in_force.broker_configs

    @property
    def ready(self) -> bool:
        """Whether the gateway has started, and isn't draining."""
        return self.health.started

    # --- start and end ----------------------------------------------------------------------

    async def start(self) -> None:
        """
        Find the brokers, put the quotas in force, open the ports.

        Raises:
            GatewayError: the upstream doesn't answer, or a port can't be had.
            StoreError: the store can't be read.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self.work.tasks.failed)
        self._hangup = HangupWatch(loop)
        try:
            self._take_name()
            if not self._journal_given:
                self.journal = self.health.journal = open_journal(self.settings, self.name)
            await self.find_brokers()
            self.store_link.let_in = self._let_in
            await self.store_link.begin(self.in_force.store, self._reopen)
            if self.in_force.store is not None:
                self.ports.leases = self._leases(self.in_force.store)
            await self.ports.open_new()
            self._open_http()
            self.shared.open(accept=False)
        except BaseException:
            await self.stop(0)
            raise
        self.ports.start()
        self.health.started = True
        if self.http is not None:
            self.http.start()
            log.info("health and metrics", at=f"{self.http.address[0]}:{self.http.address[1]}")
        periodic, spawn = self.periodic, self.work.tasks.spawn
        spawn(periodic.refresh(self.discovery, self.ports))
        spawn(periodic.sweep(self.brokers, self.answers, self._buffer.pool, self.splits))
        spawn(self.splits.run())
        answering = Answering(self.in_force, self.brokers, self.security)
        spawn(answering.keep(self.work.tasks))
        spawn(periodic.forget_producer_ids(self.brokers))
        if self.settings.usage.kind == "files" and not self._journal_given:
            spawn(periodic.tidy())
        if self.ports.leases is not None:
            spawn(self.ports.leases.keep())

    def _take_name(self) -> None:
        """Take this gateway's name: the one from before a restart, if no other process has it."""
        settings = self.settings
        named = settings.worker_id
        if named and self._only is not None:
            named += "".join(f"-{broker}" for broker in sorted(self._only))
        host = socket.gethostname()
        self.instance = WorkerName(Path(settings.data_dir) / "workers", named or host)
        self.name = self.health.worker = named or f"{host}-{self.instance.number}"

    def _leases(self, store: QuotaStore) -> Leases:
        """Return leases of this store, by which only one worker fronts each broker."""
        cluster_id = next(iter(self.discovery.clusters.values())).cluster_id
        return Leases(
            store.leases,
            f"gateway/{cluster_id}",
            self.instance,
            self.settings.lease_ttl_ms,
            self._lease_threads.run,
            self.ports.lost,
        )

    def _let_in(self, store: QuotaStore) -> None:
        """Take leases in a store that was let in late: other workers may front the same brokers."""
        leases = self._leases(store)
        self.work.tasks.spawn(self.ports.take_leases(leases))
        self.work.tasks.spawn(leases.keep())

    def _open_http(self) -> None:
        """Open the listener of health and metrics, which a standby has as well."""
        if self._supervised:
            return
        where, given = self._own_http, "--http"
        if where is None:
            where, given = self.settings.http_listener, "headgate.http.listener"
            lowest = min(self.exposed(), default=None)
            if where is not None and self._only is not None and lowest not in self._only:
                # One file for all processes, and a port that only one of them can have.
                log.warning(
                    "no health and metrics of this process: headgate.http.listener is the port of "
                    "the one with the lowest broker; give this one its own with --http HOST:PORT",
                    lowest=lowest,
                )
                return
        if where is not None:
            try:
                self.http = HttpListener(where, self.health)
            except OSError as error:
                raise GatewayError(
                    f"{given} can't listen on {where}: {error.strerror or error}. Choose another "
                    "port (a standby on the same host needs its own: --http HOST:PORT), or stop "
                    "what holds it"
                ) from error

    async def reload(self, config: Path) -> None:
        """
        Read the settings file again and put in force what can change while running.

        `headgate.config.reloading` says which settings can (marked **R** in the settings'
        reference). Certificates and the credentials file are read again too. Open connections stay
        as they are. The log names changed settings that need a restart. A file with mistakes
        changes nothing.
        """
        await self.reloads.reload(config)

    def reload_soon(self, config: Path) -> None:
        """Do so beside what goes on, as SIGHUP asks; it ends with the gateway."""
        self.work.tasks.spawn(self.reload(config))

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
        self.health.started = False
        self.work.tasks.cancel()
        self.ports.end()
        timeout = self.settings.drain_timeout_ms if drain_ms is None else drain_ms
        self.shared.close()
        if self.http is not None:
            await self._end("the HTTP listener", self.http.close())
        drains = (self._end("a broker", broker.drain(timeout)) for broker in self.brokers.values())
        await asyncio.gather(*drains)
        if self.ports.leases is not None:
            await self._end("leases", self.ports.leases.close())
        await self._end("the store", self.store_link.close())
        if self._hangup is not None:
            self._hangup.close()
        await self._end("splits", asyncio.to_thread(self.splits.close))
        await self._end("the usage journal", asyncio.to_thread(self.journal.close))
        self._lease_threads.close()
        self.answers.support.denials.close()
        self.instance.close()

    async def _end(self, what: str, work: Awaitable[Any]) -> None:
        """End one part of the gateway; an error is logged, and the other parts are still ended."""
        try:
            await work
        except Exception:
            log.exception("a part of the gateway failed while it was stopped", part=what)

    # --- brokers ----------------------------------------------------------------------------

    def check(self) -> None:
        """
        Check that files and classes named by the settings can be used, before anything is opened.

        Raises:
            ConfigError: a certificate, the credentials file or the principal builder can't be used,
                or the gateway's own user is missing.
        """
        self.security.take(self.settings, self.security.all_parts(self.settings))
        self.security.check_user()

    async def find_brokers(self) -> list[int]:
        """
        Ask the upstream which brokers there are, and return those that have a port here.

        Raises:
            GatewayError: it doesn't answer.
            ConfigError: as for ``check``.
        """
        self.check()
        await self.discovery.look(first=True)
        return self.exposed()

    def exposed(self) -> list[int]:
        """Return the brokers of the cluster that have a port here, whichever worker fronts them."""
        return self.discovery.exposed()

    async def _front(self, broker_id: int) -> Broker:
        """Make a broker that is fronted from now on; its rules load the quotas in slices."""
        run, meters = self.work.slices.run, Meters()
        rules = Enforcement(
            self.settings, broker_id, now_ms, self.journal, meters, skew_ms, time.perf_counter_ns
        )
        table = self.in_force.coming
        await run(rules.loading(table, now_ms))
        while (coming := self.in_force.coming) is not table:  # changed meanwhile
            await run(in_steps(await run(comparing(table, coming)), [rules]))
            table = coming
        rules.reload(self.settings)
        finish(rules.managers.sharing_among(len(self.discovery.broker_ids()), now_ms))
        assert self._hangup is not None
        broker = Broker(
            broker_id,
            self.settings,
            rules,
            meters,
            self._plans,
            self._buffer,
            self._hangup,
            self._ask,
            now_ms(),
            self.quotas.hosts.address,
            self._broker_hosts,
        )
        self.quotas.put_on(broker)
        return broker

    def _ask(self, broker: Broker, link: Link, ask: Ask | Rewrite) -> None:
        """Answer what isn't simply relayed; if the link closes, that is cancelled."""
        if isinstance(ask, Ask):
            work = self.answers.answer(broker.rules, link, ask)
        else:
            work = self.answers.rewrite(link, ask)
        link.task = asyncio.get_running_loop().create_task(self.work.stall_meter.watched(work))

    # --- what others ask of a gateway -------------------------------------------------------

    def store_trouble(self) -> str | None:
        """Return why quotas can't be read or changed now, while the last known stay in force."""
        leases = self.ports.leases
        return self.store_link.trouble() or (None if leases is None else leases.trouble)

    def not_ready(self) -> str | None:
        """Return why the gateway isn't ready to serve, or None."""
        return self.health.why_not_ready()

    def bootstrap(self, listener: str) -> str:
        """Return the brokers' ``host:port,…`` as clients are told, whichever workers front them."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses(listener).values())

    def fronted_at(self, listener: str) -> str:
        """Return ``host:port,…`` of the brokers that this very gateway fronts now."""
        told = self.addresses(listener)
        at = (told[broker] for broker in sorted(self.brokers) if broker in told)
        return ",".join(f"{host}:{port}" for host, port in at)

    def addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """Return the addresses that clients of a listener are told, by broker id."""
        return dict(self.ports.books[listener.upper()])


class Reloads:
    """
    Reads the settings again, one time after the other.

    Args:
        in_force: the settings; changed here.
        security: makes the parts of listeners.
        brokers: those fronted now.
        quotas: puts limits of connections in force.
        slices: of the loop.
    """

    def __init__(
        self,
        in_force: InForceNow,
        security: ListenerSecurity,
        brokers: Mapping[int, Broker],
        quotas: QuotasInForce,
        slices: TimeSlices,
    ) -> None:
        self._in_force = in_force
        self._security = security
        self._brokers = brokers
        self._quotas = quotas
        self._slices = slices
        self._turn = asyncio.Lock()
        self._asked = 0
        self._served = 0  # how many had asked when the last reading began

    async def reload(self, config: Path) -> None:
        """
        Put in force what the file says now, or log why not and change nothing.

        Several who ask while a file is read are served by one more reading, which begins after all
        of them asked. So the latest file is in force in the end.
        """
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._served >= mine:
                return
            self._served = self._asked
            found = await asyncio.to_thread(self._read, config, self._in_force.settings)
            if isinstance(found, str):
                log.error("settings not reloaded", error=found)
                return
            settings, needs_restart, parts = found
            for name in needs_restart:
                log.warning("changed; that needs a restart", setting=name)
            self._in_force.settings = settings
            unused = self._security.take(settings, parts)
            for broker in self._brokers.values():
                # A listener may have been added meanwhile.
                broker.reload(
                    settings, {name: self._security.parts(name) for name in broker.listeners}
                )
            self._quotas.limit_connections()
            for broker in list(self._brokers.values()):  # another may apply to those that wait
                await self._slices.run(broker.rules.waiting.calling())
            log.info("settings reloaded")
            for lending in unused:
                await self._slices.run(lending.freeing())

    def _read(
        self, config: Path, before: Settings
    ) -> tuple[Settings, tuple[str, ...], dict[str, ListenerParts]] | str:
        """Return settings, those that need a restart, and parts; or what is wrong with them."""
        try:
            settings, needs_restart = take_over(before, load_settings(config))
            return settings, needs_restart, self._security.all_parts(settings)
        except (ConfigError, OSError) as error:
            # Not the error itself: its frames hold all that was read, and the loop would free that.
            return str(error)
