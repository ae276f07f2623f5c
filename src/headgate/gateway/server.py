"""
The gateway: brokers discovered, ports opened, quotas watched, until told to stop.

``Gateway`` runs on a running (uvloop) event loop; ``GatewayThread`` brings a loop and a thread of
its own, for tests, notebooks and the demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import uvloop

from headgate.config.listeners import HostPort, SecurityProtocol
from headgate.errors import ConfigError, HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.answers import Answers
from headgate.gateway.enforcement import Enforcement
from headgate.gateway.front import BrokerFront, ListenerFace
from headgate.gateway.hangup import HangupWatch
from headgate.gateway.identity import make_identity
from headgate.gateway.journal import NO_JOURNAL, Journal
from headgate.gateway.limits import connection_limits, ip_rates
from headgate.gateway.link import ReadBuffer
from headgate.gateway.plans import build_plans
from headgate.metrics.meters import Meters
from headgate.quota.key import CONNECTION
from headgate.quota.table import QuotaTable, TableDelta
from headgate.throttle.connection import host_address

if TYPE_CHECKING:
    from headgate.config.settings import ClientSecurity, Settings
    from headgate.gateway.commands import Ask
    from headgate.gateway.link import Link
    from headgate.metrics.samples import BrokerView
    from headgate.store.base import QuotaStore

log = logging.getLogger("headgate.gateway")

_SWEEP_S: Final = 1.0
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
    }
)
"""Settings a running gateway keeps: managers and ports are made of them."""
_LOOK_AGAIN_S: Final = 1.0
"""Wait between an answer that names an unknown broker and the look-up: one for a burst of them."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class GatewayError(HeadgateError):
    """The gateway can't start; says what, where and the way out."""


class Gateway:
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
    ) -> None:
        self.settings = settings
        self.store = store
        self.table = QuotaTable() if table is None else table
        self._upstreams = dict(upstreams or {})
        self._admin = settings.upstream_admin if admin is None else admin
        self._only = only_brokers
        self.journal: Journal = NO_JOURNAL if journal is None else journal
        self.fronts: dict[int, BrokerFront] = {}
        self.clusters: dict[str, up.Cluster] = {}
        self.unexposed: set[int] = set()
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}
        self.answers = Answers(self)
        self.ready = False
        self._books: dict[str, dict[int, tuple[str, int]]] = {}
        self._watches: list[Any] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._plans = build_plans(pass_unknown=settings.unknown_apis == "pass")
        self._buffer = ReadBuffer()
        self._hangup: HangupWatch | None = None
        self._stopping = False
        self._look_soon = asyncio.Event()

    # --- start ------------------------------------------------------------------------------

    async def start(self) -> None:
        """
        Find the brokers, put the quotas in force, open the ports.

        Raises:
            GatewayError: the upstream doesn't answer, or a port can't be had.
            StoreError: the store can't be read.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        self._hangup = HangupWatch(loop)
        try:
            await self._discover_all(first=True)
            if self.store is not None:
                await self._watch_store(loop)
            for listener in self.settings.listener_list:
                self._books[listener.name] = {}
            self._open_new_brokers()
        except BaseException:
            await self.stop(0)
            raise
        for front in self.fronts.values():
            front.start()
        self.ready = True
        self._spawn(self._refresh())
        self._spawn(self._sweep())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say that a callback failed: its connection is lost, clients loop; so not every time."""
        minute = int(time.monotonic() // 60)
        if getattr(self, "_failure_minute", None) == minute:
            return
        self._failure_minute = minute
        log.error("callback failed: %s", context.get("message"), exc_info=context.get("exception"))

    async def _discover_all(self, *, first: bool) -> None:
        """Ask each listener's upstream for its brokers; the first time it must answer."""
        for listener in self.settings.listener_list:
            own = self.settings.for_listener(listener.name)
            bootstrap = self._upstreams.get(listener.name) or own.upstream or ()
            protocol = self._upstream_protocol(listener.name)
            security = replace(self._admin, security_protocol=protocol)
            known = self.clusters.get(listener.name)
            if known is not None:
                bootstrap = [*bootstrap, *known.brokers.values()]
            try:
                self.clusters[listener.name] = await up.discover(
                    bootstrap,
                    security,
                    self._upstream_tls(listener.name, protocol),
                    own.upstream_connect_timeout_ms,
                )
            except up.UpstreamError as error:
                if first:
                    raise GatewayError(
                        f"the upstream of listener {listener.name} doesn't answer: {error}. Is "
                        "the cluster up, and is headgate.upstream (or "
                        f"listener.name.{listener.name.lower()}.headgate.upstream) right?"
                    ) from error
                log.warning("upstream of listener %s: %s", listener.name, error)

    def _upstream_tls(self, listener: str, protocol: SecurityProtocol) -> Any:
        if not protocol.tls:
            return None
        from headgate.gateway.tls import client_context

        return client_context(self.settings.for_listener(listener).upstream_ssl)

    def _server_tls(self, listener: str, protocol: SecurityProtocol) -> Any:
        if not protocol.tls:
            return None
        from headgate.gateway.tls import server_context

        own = self.settings.for_listener(listener)
        return server_context(own.ssl, own.ssl_client_auth)

    def _open_new_brokers(self) -> None:
        """Open the ports of brokers that have none yet; a mapping never changes."""
        ids = sorted({b for cluster in self.clusters.values() for b in cluster.brokers})
        for broker_id in ids:
            if self._only is not None and broker_id not in self._only:
                self._expose_elsewhere(broker_id)
                continue
            front = self.fronts.get(broker_id)
            if front is None:
                front = self._make_front(broker_id)
                if front is None:
                    continue
                self.fronts[broker_id] = front
            for name, cluster in self.clusters.items():
                where = cluster.brokers.get(broker_id)
                if where is None:
                    continue
                face = front.faces.get(name)
                if face is not None:
                    face.upstream = where
                    continue
                self._open_face(front, name, where)

    def _make_front(self, broker_id: int) -> BrokerFront | None:
        if not any(
            self.settings.ports.bind(listener.name, broker_id)
            for listener in self.settings.listener_list
        ):
            if broker_id not in self.unexposed:
                self.unexposed.add(broker_id)
                log.warning(
                    "broker %d has no port here and stays unexposed; widen headgate.broker.id.min "
                    "and headgate.broker.id.max, or list it in headgate.broker.ports",
                    broker_id,
                )
            return None
        now = _now_ms()
        meters = Meters()
        rules = Enforcement(self.settings, broker_id, now, self.journal, meters)
        rules.load(self.table, now)
        assert self._hangup is not None
        front = BrokerFront(
            broker_id,
            self.settings,
            rules,
            meters,
            self._plans,
            self._buffer,
            self._hangup,
            self._ask,
            now,
        )
        front.limits_changed(connection_limits(self.settings, self.broker_configs, broker_id))
        for ip, rate in ip_rates(self.table):
            front.quotas.set_ip_rate(ip, rate)
        return front

    def _expose_elsewhere(self, broker_id: int) -> None:
        """Another worker fronts this broker; clients still have to be told where."""
        for name in self._books:
            told = self.settings.ports.advertised(name, broker_id)
            if told is not None and told.port:
                self._books[name][broker_id] = (told.host or "127.0.0.1", told.port)

    def _open_face(self, front: BrokerFront, name: str, where: HostPort) -> None:
        bind = self.settings.ports.bind(name, front.broker_id)
        told = self.settings.ports.advertised(name, front.broker_id)
        if bind is None or told is None:
            return
        listener = next(item for item in self.settings.listener_list if item.name == name)
        own = self.settings.for_listener(name)
        protocol = self._upstream_protocol(name)
        face = ListenerFace(
            name,
            where,
            self._books[name],
            make_identity(own, listener),
            self._server_tls(name, listener.protocol),
            self._upstream_tls(name, protocol),
            own,
            self._look_soon.set,
        )
        try:
            _, port = front.open(face, bind, _now_ms())
        except OSError as error:
            raise GatewayError(
                f"listener {name} of broker {front.broker_id} can't listen on {bind}: "
                f"{error.strerror or error}. Choose other ports in listeners, or stop what holds it"
            ) from error
        host = told.host or bind.host or "127.0.0.1"
        self._books[name][front.broker_id] = (host, told.port or port)
        if self.ready:
            front.acceptors[name].start()

    # --- quotas and settings ----------------------------------------------------------------

    async def _watch_store(self, loop: asyncio.AbstractEventLoop) -> None:
        store = self.store
        assert store is not None

        def quotas(table: QuotaTable, delta: TableDelta) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._quotas_changed, table, delta)

        def brokers(configs: Mapping[str, Mapping[str, str]]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._brokers_changed, configs)

        self._watches.append(await loop.run_in_executor(None, store.watch, quotas))
        self._watches.append(await loop.run_in_executor(None, store.watch_broker_configs, brokers))

    def _quotas_changed(self, table: QuotaTable, delta: TableDelta) -> None:
        self.table = table
        now = _now_ms()
        for front in self.fronts.values():
            front.rules.update(delta, now)
            front.meters.store_version = table.version
            for change in delta.changes:
                if change.key == CONNECTION:
                    ip = change.entity.ip
                    front.quotas.set_ip_rate(
                        host_address(ip) if isinstance(ip, str) else None, change.new
                    )

    def _brokers_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        self.broker_configs = configs
        for broker_id, front in self.fronts.items():
            front.limits_changed(connection_limits(self.settings, configs, broker_id))

    def _ask(self, front: BrokerFront, face: ListenerFace, link: Link, ask: Ask) -> None:
        task = asyncio.get_running_loop().create_task(self.answers.answer(front, face, link, ask))
        link.tasks.add(task)
        task.add_done_callback(link.tasks.discard)

    async def topics(
        self, face: ListenerFace, names: Sequence[str] | None
    ) -> list[tuple[str, uuid.UUID, int]]:
        """Ask the upstream for topics' partitions (name, id, count); None: of all topics."""
        protocol = self._upstream_protocol(face.name)
        connection = await up.connect(
            face.upstream,
            replace(self._admin, security_protocol=protocol),
            face.upstream_tls,
            face.settings.upstream_connect_timeout_ms,
        )
        try:
            return await up.topic_partitions(connection, names)
        finally:
            await connection.close()

    def _upstream_protocol(self, listener: str) -> SecurityProtocol:
        own = self.settings.for_listener(listener)
        return own.upstream_security_protocol or self.settings.protocol_of(listener)

    # --- while it runs ----------------------------------------------------------------------

    async def _refresh(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.upstream_refresh_ms / 1000):
                    await self._look_soon.wait()
                    await asyncio.sleep(_LOOK_AGAIN_S)
            self._look_soon.clear()
            try:
                await self._discover_all(first=False)
                self._open_new_brokers()
            except GatewayError as error:
                log.error("%s", error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = _now_ms()
            for front in self.fronts.values():
                front.sweep(now)

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
            log.error("settings not reloaded: %s", error)
            return
        for name in sorted(_FIXED):
            if getattr(fresh, name) != getattr(self.settings, name):
                log.warning("%s changed; that needs a restart", name)
        self.settings = replace(
            fresh, **{name: getattr(self.settings, name) for name in sorted(_FIXED)}
        )
        for front in self.fronts.values():
            front.reload(self.settings)
            for name, face in front.faces.items():
                face.settings = self.settings.for_listener(name)
                face.server_tls = self._server_tls(name, self.settings.protocol_of(name))
                face.upstream_tls = self._upstream_tls(name, self._upstream_protocol(name))
        self._brokers_changed(self.broker_configs)
        log.info("settings reloaded")

    def views(self, now_ms: int | None = None) -> list[BrokerView]:
        """Return what the metrics are read from, one per broker."""
        now = _now_ms() if now_ms is None else now_ms
        return [front.view(now) for front in self.fronts.values()]

    def bootstrap(self, listener: str) -> str:
        """Return ``host:port,…`` of every broker fronted, as clients are told."""
        return ",".join(f"{host}:{port}" for host, port in self._books[listener.upper()].values())

    def addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """Return broker id to the address clients of a listener are told."""
        return dict(self._books[listener.upper()])

    # --- stop -------------------------------------------------------------------------------

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
        await asyncio.gather(*(front.drain(timeout) for front in self.fronts.values()))
        loop = asyncio.get_running_loop()
        for watch in self._watches:
            await loop.run_in_executor(None, watch.close)
        if self._hangup is not None:
            self._hangup.close()
        await loop.run_in_executor(None, self.journal.close)


class GatewayThread:
    """
    A gateway on a loop and thread of its own; a context manager.

    Args:
        make: builds the gateway; called on the thread.
    """

    def __init__(self, make: Callable[[], Gateway]) -> None:
        self._make = make
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._drain_ms: int | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-gateway", daemon=True)
        self.gateway: Gateway

    def _run(self) -> None:
        uvloop.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.gateway = self._make()
            await self.gateway.start()
        except BaseException as error:
            self._error = error
            self._started.set()
            return
        self._started.set()
        await self._stop.wait()
        await self.gateway.stop(self._drain_ms)

    def start(self) -> Self:
        """Start, and return when the ports are open; raises what the start raised."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function on the loop's thread and return its value."""
        assert self._loop is not None

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def bootstrap(self, listener: str) -> str:
        """Return ``host:port,…`` as clients of a listener are told."""
        return self.gateway.bootstrap(listener)

    def views(self) -> Iterable[BrokerView]:
        """Return what the metrics are read from, as of now."""
        views: list[BrokerView] = self.call(self.gateway.views)
        return views

    def stop(self, drain_ms: int | None = None) -> None:
        """Stop; may be called twice."""
        self._drain_ms = drain_ms
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
