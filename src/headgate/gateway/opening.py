"""
Brokers discovered, leases taken, ports opened: one per broker and listener, never moved.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.clock import now_ms
from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.errors import HeadgateError
from headgate.gateway import upstream as up
from headgate.gateway.broker.bootstrap import BootstrapListener, admin_plans
from headgate.gateway.broker.broker import Broker
from headgate.gateway.broker.limits import connection_limits, ip_rates
from headgate.gateway.broker.listener import BrokerListener, ListenerParts
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.gateway_state import GatewayError, GatewayState
from headgate.gateway.http import HttpListener, Shown
from headgate.gateway.identity.identity import make_identity
from headgate.gateway.identity.lending import Lending
from headgate.gateway.log import get_logger
from headgate.metrics.meters import Meters

if TYPE_CHECKING:
    from headgate.gateway.connection.link import Link
    from headgate.gateway.fleet.leases import Leases
    from headgate.gateway.session.commands import Ask

log = get_logger("headgate.gateway")

_PORT_AGAIN_S: Final = 0.2
_SAY_AGAIN_S: Final = 60.0


class Opening(GatewayState):
    """Finds brokers and opens their ports."""

    def check(self) -> None:
        """
        Look whether what the settings name can be used, before anything is opened.

        Raises:
            ConfigError: a certificate, the credentials file or the principal builder can't be.
        """
        for name in self._ways:
            self._parts(name)

    async def _discover_all(self, *, first: bool) -> None:
        """Ask each listener's upstream for its brokers; the first time it must answer."""
        if first:
            self.check()
        for listener in self.settings.listener_list:
            own = self.settings.for_listener(listener.name)
            bootstrap = self._upstreams.get(listener.name) or own.upstream or ()
            protocol, admin, tls = self.own_way(listener.name)
            security = replace(admin, security_protocol=protocol)
            known = self.clusters.get(listener.name)
            if known is not None:
                bootstrap = [*bootstrap, *known.brokers.values()]
            try:
                self.clusters[listener.name] = await up.discover(
                    bootstrap,
                    security,
                    tls,
                    own.upstream_connect_timeout_ms,
                    self.own_setting(listener.name),
                )
            except up.UpstreamError as error:
                if first:
                    raise GatewayError(
                        f"the upstream of listener {listener.name} doesn't answer: {error}. Is "
                        "the cluster up, and is headgate.upstream (or "
                        f"listener.name.{listener.name.lower()}.headgate.upstream) right?"
                    ) from error
                log.warning("upstream doesn't answer", listener=listener.name, error=str(error))

    async def _open_new_brokers(self) -> None:
        """Open the ports of brokers that have none yet; a mapping never changes."""
        for name, cluster in self.clusters.items():
            self._books[name].any_controller = cluster.kraft
        ids = sorted({b for cluster in self.clusters.values() for b in cluster.brokers})
        for broker_id in ids:
            try:
                await self._open_new_broker(broker_id)
            except HeadgateError as error:
                if not self.ready:
                    raise
                # The others, and whoever stands by for this one, need not suffer for it.
                log.error("a broker can't be fronted", broker=broker_id, error=str(error))
                if self._leases is not None and broker_id not in self.brokers:
                    await self._leases.give_up(broker_id)
        self._count_brokers()
        self.fronting_changed()

    async def _open_new_broker(self, broker_id: int) -> None:
        if self._only is not None and broker_id not in self._only:
            self._expose_elsewhere(broker_id)
        elif broker_id in self.brokers:
            self._open_broker(broker_id)
        elif self._has_port(broker_id) and broker_id not in self.standing_by:
            if self._leases is None or await self._leases.take(broker_id):
                self._open_broker(broker_id)
            else:
                self._expose_elsewhere(broker_id)
                self._stand_by(broker_id, self._leases)

    def _stand_by(self, broker_id: int, leases: Leases) -> None:
        """Wait for a broker's lease, and say so."""
        log.info("standing by: another worker fronts the broker", broker=broker_id,
                 lease=leases.name_of(broker_id))  # fmt: skip
        self.standing_by.add(broker_id)
        self.spawn(self._take_over(broker_id, leases))

    async def _take_over(self, broker_id: int, leases: Leases) -> None:
        """Wait for a broker's lease, then front it."""
        say_at = 0.0
        while True:
            if broker_id not in leases.epochs:  # not yet, or lost while its ports weren't free
                await leases.wait_for(broker_id)
                log.warning("taking over", broker=broker_id)
            try:
                self._open_broker(broker_id)  # or what of it wasn't to be had before
                self._open_shared()
                break
            except (HeadgateError, OSError) as error:
                # The ports of a worker that was just killed may linger for a moment; one that
                # hangs holds them until it goes on or is killed.
                if time.monotonic() >= say_at:
                    say_at = time.monotonic() + _SAY_AGAIN_S
                    log.warning("can't take over yet", broker=broker_id, error=str(error))
                await asyncio.sleep(_PORT_AGAIN_S)
        self.standing_by.discard(broker_id)
        self._count_brokers()
        self.fronting_changed()

    def _lost(self, broker_id: int) -> None:
        """Stop fronting a broker whose lease is somebody else's; stand by for it."""
        front = self.brokers.pop(broker_id, None)
        if front is not None:
            front.stop_accepting()
            if broker_id == min(self.exposed(), default=None):
                self._close_shared()
            self.spawn(front.drain(0))
        if self._leases is not None and broker_id not in self.standing_by:
            self._stand_by(broker_id, self._leases)
        self.fronting_changed()

    def _open_broker(self, broker_id: int) -> None:
        """Front a broker, or follow it to a new address."""
        front = self.brokers.get(broker_id)
        if front is None:
            front = self._make_front(broker_id)
            self.brokers[broker_id] = front
        try:
            for name, cluster in self.clusters.items():
                where = cluster.brokers.get(broker_id)
                if where is None:
                    continue
                face = front.faces.get(name)
                if face is not None:
                    if face.upstream != where:
                        log.info("broker moved", broker=broker_id, listener=name, to=str(where))
                    face.upstream = where
                else:
                    self._open_face(front, name, where)
        except (HeadgateError, OSError):
            if not any(a.started for a in front.acceptors.values()):
                del self.brokers[broker_id]
                front.close_ports()
            raise

    def _make_front(self, broker_id: int) -> Broker:
        now = now_ms()
        meters = Meters()
        rules = Enforcement(self.settings, broker_id, now_ms, self.journal, meters)
        rules.load(self.coming, now)
        assert self._hangup is not None
        front = Broker(
            broker_id,
            self.settings,
            rules,
            meters,
            self._plans,
            self._buffer,
            self._hangup,
            self._ask,
            now,
            self.hosts.address,
        )
        front.limits_changed(connection_limits(self.settings, self.broker_configs, broker_id))
        self._ip_rates = ip_rates(self.table, self.hosts.address)
        for ip, rate in self._ip_rates.items():
            front.quotas.set_ip_rate(ip, rate)
        return front

    def _expose_elsewhere(self, broker_id: int) -> None:
        """Another worker fronts this broker; clients still have to be told where."""
        for name in self._books:
            told = self.settings.ports.advertised(name, broker_id)
            if told is not None and told.port:
                self._books[name][broker_id] = (told.host or "127.0.0.1", told.port)

    def _parts(self, name: str) -> ListenerParts:
        """
        Make what of a listener comes from its settings.

        Raises:
            ConfigError: a certificate, the credentials file or the principal builder can't be used.
        """
        listener, way = self._ways[name]
        own = self.settings.for_listener(name)
        upstream_tls = lending = None
        if way is not None:
            protocol = self._upstream_protocol(way)
            upstream_tls = self._upstream_tls(way, protocol)
            if listener.protocol is SecurityProtocol.SSL and own.ssl_client_auth != "none":
                lending = Lending(own, protocol)
        return ListenerParts(
            own,
            make_identity(own, listener, owner_of=self.token_owners.owner_of),
            self._server_tls(name, listener.protocol),
            upstream_tls,
            lending,
        )

    def _open_face(self, front: Broker, name: str, where: HostPort) -> None:
        bind = self.settings.ports.bind(name, front.broker_id)
        told = self.settings.ports.advertised(name, front.broker_id)
        if bind is None or told is None:
            return
        face = BrokerListener(
            name, where, self._books[name], self._parts(name), self._look_soon.set
        )
        try:
            _, port = front.open(face, bind, now_ms())
        except OSError as error:
            raise GatewayError(
                f"listener {name} of broker {front.broker_id} can't listen on {bind}: "
                f"{error.strerror or error}. Choose other ports in listeners, or stop what holds it"
            ) from error
        host = told.host or bind.host or "127.0.0.1"
        self._books[name][front.broker_id] = (host, told.port or port)
        if self.ready:
            front.acceptors[name].start()

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
                self.http = HttpListener(where, Shown(self))
            except OSError as error:
                raise GatewayError(
                    f"{given} can't listen on {where}: {error.strerror or error}. Choose another "
                    "port (a standby on the same host needs its own: --http HOST:PORT), or stop "
                    "what holds it"
                ) from error

    def _open_shared(self) -> None:
        """
        Open the listeners that aren't one broker's: admin and bootstrap.

        They belong to the worker that fronts the lowest broker; a standby opens them when it does.
        """
        if min(self.exposed(), default=None) not in self.brokers:
            return
        endpoint = self.settings.admin_listener
        if endpoint is not None and self.admin_address is None:
            self._open_admin(endpoint)
        opened = {listener.endpoint for listener in self._bootstraps}
        for endpoint in self.settings.bootstrap_listener:
            if endpoint in opened:
                continue
            try:
                self._bootstraps.append(BootstrapListener(self, endpoint))
            except OSError as error:
                raise GatewayError(
                    f"headgate.bootstrap.listener can't listen on {endpoint.address}: "
                    f"{error.strerror or error}. Choose another port, or stop what holds it"
                ) from error

    def _close_shared(self) -> None:
        """Close what another worker opens now: it fronts the lowest broker."""
        for listener in self._bootstraps:
            listener.close()
        self._bootstraps.clear()
        self.admin_address = None  # its port was the front's, and went with it

    def _open_admin(self, endpoint: Endpoint) -> None:
        """
        Open the listener of KIP-546's own calls.

        It belongs to the lowest broker: its calls are charged there, and SASL is asked of it.
        """
        if not self.brokers:
            return
        front = self.brokers[min(self.brokers)]
        protocol = self.settings.protocol_of(endpoint.name)
        asked: BrokerListener | None = None
        if protocol.sasl:
            asked = next(
                (
                    front.faces[item.name]
                    for item in self.settings.listener_list
                    if item.protocol.sasl and item.name in front.faces
                ),
                None,
            )
            if asked is None:
                raise GatewayError(
                    f"headgate.admin.listener {endpoint} wants SASL, which a broker must check: "
                    "give a SASL listener in listeners too"
                )
        listener = Listener(endpoint.name, protocol, endpoint.address, endpoint.address)
        # The way to the broker is the asked listener's, whatever ours speaks to administrators.
        self._ways[endpoint.name] = listener, asked.name if asked else None
        face = BrokerListener(
            endpoint.name,
            asked.upstream if asked else None,
            {},
            self._parts(endpoint.name),
            plans=admin_plans(),
        )
        try:
            self.admin_address = front.open(face, endpoint.address, now_ms())
        except OSError as error:
            raise GatewayError(
                f"headgate.admin.listener can't listen on {endpoint.address}: "
                f"{error.strerror or error}. Choose another port, or stop what holds it"
            ) from error
        if self.ready:
            front.acceptors[endpoint.name].start()

    def _ask(self, front: Broker, face: BrokerListener, link: Link, ask: Ask) -> None:
        task = asyncio.get_running_loop().create_task(self.answers.answer(front, face, link, ask))
        link.tasks.add(task)
        task.add_done_callback(link.tasks.discard)

    def _count_brokers(self) -> None:
        """Tell managers how many brokers share a cluster-wide quota."""
        brokers = len({b for cluster in self.clusters.values() for b in cluster.brokers})
        now = now_ms()
        for front in self.brokers.values():
            front.rules.managers.produce_bps.set_brokers(brokers, now)
            front.rules.managers.fetch_bps.set_brokers(brokers, now)
