"""
What a gateway has: brokers fronted, ports, quotas in force, tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.client.tls import ClientContexts, client_context, server_context
from headgate.clock import now_ms
from headgate.config.listeners import HostPort, Listener, SecurityProtocol
from headgate.errors import ConfigError, HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.broker.bootstrap import BootstrapListener
from headgate.gateway.broker.broker import Broker
from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.cluster.quota_changes import QuotaChanges
from headgate.gateway.connection.hangup import HangupWatch
from headgate.gateway.connection.hosts import Hosts
from headgate.gateway.connection.transports import ReadBuffer
from headgate.gateway.fleet.instance import Instance
from headgate.gateway.fleet.leases import Leases
from headgate.gateway.http import HttpListener
from headgate.gateway.identity.token_owners import TokenOwners
from headgate.gateway.kept.store import KeptStore
from headgate.gateway.log import get_logger
from headgate.gateway.loop.slices import Slices
from headgate.gateway.loop.watcher import Watcher
from headgate.gateway.own_answers.answers import Answers
from headgate.gateway.own_answers.topics import Topics
from headgate.gateway.session.rewrite import Addresses
from headgate.gateway.splits.streamed import StreamedSplits
from headgate.gateway.splits.supervised import WorkersPart
from headgate.metrics.expose import draw
from headgate.metrics.samples import sample_steps
from headgate.quota.table import QuotaTable, TableDelta
from headgate.wire.schema import finish

if TYPE_CHECKING:
    from headgate.config.security import ClientSecurity
    from headgate.config.settings import Settings
    from headgate.metrics.samples import BrokerView
    from headgate.quota.key import QuotaKey
    from headgate.store.base import QuotaStore

log = get_logger("headgate.gateway")

_SAID_OF_TLS: Final = (
    "enabled_protocols",
    "cipher_suites",
    "endpoint_identification_algorithm",
)


OWN_PROTOCOL: Final = "headgate.upstream.admin.security.protocol"
CLIENTS_PROTOCOL: Final = "headgate.upstream.security.protocol"


class GatewayError(HeadgateError):
    """The gateway can't start; says what, where and the way out."""


class GatewayState:
    """
    What a gateway has; the arguments are ``Gateway``'s.

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
        self._own_http = http
        self._reopen = reopen
        self.settings = settings
        self.store = store
        self.table = QuotaTable() if table is None else table
        self.coming = self.table  # what the store told last; all of it is in force a moment later
        self._upstreams = dict(upstreams or {})
        self._admin = settings.upstream_admin if admin is None else admin
        self._contexts = ClientContexts()
        self._only = only_brokers
        self._journal = journal
        self.journal = journal or Journal()
        self._usage_damaged = 0  # files set aside
        self._usage_removed = 0  # files that went because all together were too large
        self.http: HttpListener | None = None
        self.admin_address: tuple[str, int] | None = None
        self.brokers: dict[int, Broker] = {}
        self.clusters: dict[str, up.Cluster] = {}
        self.unexposed: set[int] = set()
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}
        self.watcher = Watcher()
        self.slices = Slices(watcher=self.watcher)
        self.quota_changes = QuotaChanges(self.slices, self._fronted, self._quotas_in_force, now_ms)
        self.answers = Answers(self, self.slices)
        self.kept = KeptStore(self, self._quotas_changed, self._brokers_changed)
        self.topics = Topics(self)
        self.token_owners = TokenOwners(self, self.spawn)
        self.hosts = Hosts(self.spawn)
        self._ip_rates: dict[str | None, float] = {}
        self._not_enforced: set[QuotaKey] = set()
        self.ready = False
        self.fronting_changed: Callable[[], None] = lambda: None
        self._books: dict[str, Addresses] = {}
        # Every listener, and the one whose way to the broker it goes.
        self._ways: dict[str, tuple[Listener, str | None]] = {
            listener.name: (listener, listener.name) for listener in settings.listener_list
        }
        self._tasks: set[asyncio.Task[Any]] = set()
        self._plans = build_plans(pass_unknown=settings.unknown_apis == "pass")
        self._buffer = ReadBuffer(settings.queued_max_request_bytes)
        self._hangup: HangupWatch | None = None
        self._stopping = False
        self._seen_store = False
        self._shares_seen = False  # whether it was looked for shares that nothing enforces
        self._look_soon = asyncio.Event()
        self._leases: Leases | None = None
        self._lease_threads = ThreadPoolExecutor(2, thread_name_prefix="headgate-lease")
        self._streamed: StreamedSplits | None = None
        self._part: WorkersPart | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.standing_by: set[int] = set()
        self._bootstraps: list[BootstrapListener] = []
        self._info = {
            "version": __version__,
            "enforce": settings.enforce,
            "fetch": settings.fetch,
            "pacing": settings.pacing,
            "worker": "",
        }
        self.instance = Instance(None, "")
        self.name = ""

    def _fronted(self) -> list[Broker]:
        return list(self.brokers.values())

    def _quotas_in_force(self, table: QuotaTable, delta: TableDelta) -> None:
        """All of a table is in force: what else hangs on it."""
        raise NotImplementedError

    def _quotas_changed(self, table: QuotaTable, delta: TableDelta) -> None:
        """Put changed quotas in force."""
        raise NotImplementedError

    def _brokers_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Put changed settings of brokers in force."""
        raise NotImplementedError

    def _take_name(self) -> None:
        """Become somebody: the same as before a restart, and nobody else alive."""
        settings = self.settings
        named = settings.worker_id
        if named and self._only is not None:
            named += "".join(f"-{broker}" for broker in sorted(self._only))
        host = socket.gethostname()
        self.instance = Instance(Path(settings.data_dir) / "workers", named or host)
        self.name = named or f"{host}-{self.instance.number}"
        self._info["worker"] = self.name

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run something until it ends or the gateway does."""
        task = asyncio.get_running_loop().create_task(self.watcher.watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say that a callback failed: its connection is lost, clients loop; so not every time."""
        minute = int(time.monotonic() // 60)
        if getattr(self, "_failure_minute", None) == minute:
            return
        self._failure_minute = minute
        log.error("callback failed", what=context.get("message"), exc_info=context.get("exception"))

    def not_ready(self) -> str | None:
        """Say why the gateway isn't ready to serve, or None."""
        if not self.ready:
            return "not started, or draining"
        if not self.brokers:
            return "standing by" if self.standing_by else "no broker is fronted"
        why = list(self._closed_ports())
        trouble = self.store_trouble()
        if trouble is not None and not self.kept.does_without:
            why.append(f"the last known quotas are in force: {trouble}")
        return "\n".join(why) or None

    def _closed_ports(self) -> Iterator[str]:
        """Say of each port of ours, and each that clients are told of, that it doesn't accept."""
        for broker_id, front in self.brokers.items():
            told = (name for name, book in self._books.items() if broker_id in book)
            for name in dict.fromkeys((*told, *front.acceptors)):
                acceptor = front.acceptors.get(name)
                bind = None
                if name in self._books:
                    bind = self.settings.ports.bind(name, broker_id)
                if (
                    acceptor is None
                    or not acceptor.accepting
                    or (bind is not None and bind.port not in (0, acceptor.address[1]))
                ):
                    yield f"listener {name} of broker {broker_id} doesn't accept connections"

    @property
    def has_splits(self) -> bool:
        """Whether there is a cluster-wide quota to be split."""
        return any(front.rules.managers.splits for front in self.brokers.values())

    def note(self) -> str | None:
        """Say what a ready gateway does without, or None."""
        if self._streamed is None or not self.has_splits:
            return None
        return self._streamed.note(now_ms())

    def store_trouble(self) -> str | None:
        """Say why quotas can't be read or changed now, while the last known stay in force."""
        return self.kept.trouble() or (self._leases.trouble if self._leases is not None else None)

    def bootstrap(self, listener: str) -> str:
        """Return ``host:port,…`` of every broker fronted, as clients are told."""
        return ",".join(f"{host}:{port}" for host, port in self._books[listener.upper()].values())

    def fronted_at(self, listener: str) -> str:
        """Return ``host:port,…`` of the brokers that this very gateway fronts now."""
        told = self._books[listener.upper()]
        at = (told[broker] for broker in sorted(self.brokers) if broker in told)
        return ",".join(f"{host}:{port}" for host, port in at)

    def addresses(self, listener: str) -> dict[int, tuple[str, int]]:
        """Return broker id to the address clients of a listener are told."""
        return dict(self._books[listener.upper()])

    def _upstream_protocol(self, listener: str) -> SecurityProtocol:
        own = self.settings.for_listener(listener)
        return own.upstream_security_protocol or self.settings.protocol_of(listener)

    def _upstream_tls(self, listener: str, protocol: SecurityProtocol) -> Any:
        if not protocol.tls:
            return None
        with _of_listener(listener, "headgate.upstream."):
            return client_context(self.settings.for_listener(listener).upstream_ssl)

    def _admin_tls(self, listener: str, protocol: SecurityProtocol) -> Any:
        """Return TLS for our own questions: ``headgate.upstream.admin.ssl.*`` if given."""
        if not protocol.tls:
            return None
        own = self._admin.ssl
        given = own.keystore_location or own.keystore_key or own.truststore_location
        if given or own.truststore_certificates:
            return self._contexts.get(own)
        # Without stores of its own it has the clients'; what else is said of it counts.
        said = {
            field: getattr(own, field)
            for field in _SAID_OF_TLS
            if f"headgate.upstream.admin.ssl.{field.replace('_', '.')}" in self.settings.given
        }
        tls = replace(self.settings.for_listener(listener).upstream_ssl, **said)
        with _of_listener(listener, "headgate.upstream.admin." if said else "headgate.upstream."):
            return self._contexts.get(tls)

    def _server_tls(self, listener: str, protocol: SecurityProtocol) -> Any:
        if not protocol.tls:
            return None
        own = self.settings.for_listener(listener)
        with _of_listener(listener):
            return server_context(own.ssl, own.ssl_client_auth)

    def own_way(self, listener: str) -> tuple[SecurityProtocol, ClientSecurity, Any]:
        """Return protocol, credentials and TLS of the gateway's own questions on a listener."""
        protocol = self._upstream_protocol(listener)
        if self.own_setting(listener) == OWN_PROTOCOL:
            protocol = self._admin.security_protocol
        return protocol, self._admin, self._admin_tls(listener, protocol)

    def own_setting(self, listener: str) -> str:
        """
        Return the setting that says in which protocol a listener's own questions are asked.

        Its own where it is given; but not for a listener that has servers of its own: they are
        asked as its clients come to them.
        """
        prefix = f"listener.name.{listener.lower()}."
        given = self.settings.given
        elsewhere = listener in self._upstreams or f"{prefix}headgate.upstream" in given
        if OWN_PROTOCOL in self.settings.given and not elsewhere:
            return OWN_PROTOCOL
        own = f"{prefix}{CLIENTS_PROTOCOL}"
        return own if own in self.settings.given else CLIENTS_PROTOCOL

    def exposed(self) -> list[int]:
        """Return the brokers of the cluster that have a port here, whoever fronts them."""
        found = {b for cluster in self.clusters.values() for b in cluster.brokers}
        return sorted(filter(self._has_port, found))

    def _has_port(self, broker_id: int) -> bool:
        """Whether a broker has a port here; says so once when it hasn't."""
        if any(
            self.settings.ports.bind(listener.name, broker_id)
            for listener in self.settings.listener_list
        ):
            return True
        if broker_id not in self.unexposed:
            self.unexposed.add(broker_id)
            log.warning(
                "a broker has no port here and stays unexposed; widen headgate.broker.id.min "
                "and headgate.broker.id.max, or list it in headgate.broker.ports",
                broker=broker_id,
            )
        return False

    async def metrics(self) -> dict[str, bytes]:
        """Draw every series of the brokers fronted, in slices; lines by family."""
        drawn: dict[str, bytes] = {}
        for front in list(self.brokers.values()):
            view = await self.slices.run(front.view_steps(now_ms()))
            self._complete(view, first=front is next(iter(self.brokers.values()), None))
            for name, lines in (await self.slices.run(draw(sample_steps(view, now_ms)))).items():
                drawn[name] = drawn.get(name, b"") + lines
        return drawn

    def views(self) -> list[BrokerView]:
        """Return what the metrics are read from, one per broker."""
        views = [finish(front.view_steps(now_ms())) for front in self.brokers.values()]
        for view in views:
            self._complete(view, first=view is views[0])
        return views

    def _complete(self, view: BrokerView, *, first: bool) -> None:
        """Add to what a broker shows what the process does."""
        meters = view.meters
        # The process has one journal, and one pool: at one broker, so that sums are right.
        written, dropped = self.journal.events if first else (0, 0)
        meters.usage_events, meters.usage_dropped = written, dropped
        meters.usage_damaged = self._usage_damaged if first else 0
        meters.usage_removed = self._usage_removed if first else 0
        meters.queued_bytes = self._buffer.pool.used if first else 0
        meters.loop_longest_ms = self.watcher.longest_ms if first else 0.0
        meters.loop_slow = self.watcher.slow if first else 0
        meters.store_version = self.table.version
        view.info = self._info
        view.most = self.settings.metrics_quota_ids
        told = self._streamed or self._part
        rules = self.brokers[view.broker_id].rules if view.broker_id in self.brokers else None
        meters.split_expired = (
            told is not None
            and rules is not None
            and rules.managers.splits
            and told.expired(now_ms())
        )
        meters.store_up = self.store_trouble() is None


@contextlib.contextmanager
def _of_listener(listener: str, prefix: str = "") -> Iterator[None]:
    """Say of a mistake in ``ssl.*`` whose it is."""
    try:
        yield
    except ConfigError as error:
        told = (prefix + p if p.startswith("ssl.") else p for p in error.problems)
        raise ConfigError([f"listener {listener}: {problem}" for problem in told]) from error
