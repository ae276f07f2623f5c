"""
Brokers discovered, leases taken, ports opened: one per broker and listener, never moved.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.gateway import upstream as up
from headgate.gateway.enforcement import Enforcement
from headgate.gateway.extra import BootstrapListener, admin_plans
from headgate.gateway.face import ListenerFace
from headgate.gateway.front import BrokerFront
from headgate.gateway.gateway_state import GatewayError, GatewayState, now_ms
from headgate.gateway.http import HttpListener, Shown
from headgate.gateway.identity import make_identity
from headgate.gateway.lending import Lending
from headgate.gateway.limits import connection_limits, ip_rates
from headgate.gateway.log import get_logger
from headgate.metrics.meters import Meters

if TYPE_CHECKING:
    from headgate.gateway.commands import Ask
    from headgate.gateway.link import Link

log = get_logger("headgate.gateway")

_PORT_AGAIN_S: Final = 0.2


class Opening(GatewayState):
    """Finds brokers and opens their ports."""

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
                    self._admin_tls(listener.name, protocol),
                    own.upstream_connect_timeout_ms,
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
        ids = sorted({b for cluster in self.clusters.values() for b in cluster.brokers})
        for broker_id in ids:
            if self._only is not None and broker_id not in self._only:
                self._expose_elsewhere(broker_id)
                continue
            if broker_id in self.fronts:
                self._open_broker(broker_id)
            elif self._has_port(broker_id) and broker_id not in self.standing_by:
                if self._leases is None or await self._leases.take(broker_id):
                    self._open_broker(broker_id)
                else:
                    log.info("standing by: another worker fronts the broker", broker=broker_id)
                    self._expose_elsewhere(broker_id)
                    self.standing_by.add(broker_id)
                    self._spawn(self._take_over(broker_id))
        self._count_brokers()

    async def _take_over(self, broker_id: int) -> None:
        """Wait for a broker's lease, then front it."""
        assert self._leases is not None
        await self._leases.wait_for(broker_id)
        self.standing_by.discard(broker_id)
        log.warning("taking over", broker=broker_id)
        while True:
            try:
                self._open_broker(broker_id)
                break
            except GatewayError as error:
                # The ports of a worker that was just killed may linger for a moment.
                log.warning("ports not free yet", broker=broker_id, error=str(error))
                await asyncio.sleep(_PORT_AGAIN_S)
        self._count_brokers()

    def _lost(self, broker_id: int) -> None:
        """Stop fronting a broker whose lease is somebody else's; stand by for it."""
        front = self.fronts.pop(broker_id, None)
        if front is not None:
            front.stop_accepting()
            self._spawn(front.drain(0))
        if self._leases is not None and broker_id not in self.standing_by:
            self.standing_by.add(broker_id)
            self._spawn(self._take_over(broker_id))

    def _open_broker(self, broker_id: int) -> None:
        """Front a broker, or follow it to a new address."""
        front = self.fronts.get(broker_id)
        if front is None:
            front = self._make_front(broker_id)
            self.fronts[broker_id] = front
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
        except GatewayError:
            if not any(a.started for a in front.acceptors.values()):
                del self.fronts[broker_id]
                front.close_ports()
            raise

    def _make_front(self, broker_id: int) -> BrokerFront:
        now = now_ms()
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
            make_identity(own, listener, owner_of=self.token_owners.owner_of),
            self._server_tls(name, listener.protocol),
            self._upstream_tls(name, protocol),
            own,
            self._look_soon.set,
            lending=Lending(own, protocol)
            if listener.protocol is SecurityProtocol.SSL and own.ssl_client_auth != "none"
            else None,
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

    def _open_more(self) -> None:
        """Open the listeners that aren't one broker's: HTTP, admin, bootstrap."""
        brokers = {b for cluster in self.clusters.values() for b in cluster.brokers}
        if self._only is not None and min(brokers, default=0) not in self._only:
            return  # they belong to the worker of the lowest broker
        where = self.settings.http_listener
        if where is not None and not self._supervised:
            try:
                self.http = HttpListener(where, Shown(self))
            except OSError as error:
                raise GatewayError(
                    f"headgate.http.listener can't listen on {where}: {error.strerror or error}"
                ) from error
        endpoint = self.settings.admin_listener
        if endpoint is not None:
            self._open_admin(endpoint)
        for endpoint in self.settings.bootstrap_listener:
            try:
                self._bootstraps.append(BootstrapListener(self, endpoint))
            except OSError as error:
                raise GatewayError(
                    f"headgate.bootstrap.listener can't listen on {endpoint.address}: "
                    f"{error.strerror or error}"
                ) from error

    def _open_admin(self, endpoint: Endpoint) -> None:
        """
        Open the listener of KIP-546's own calls.

        It belongs to the lowest broker: its calls are charged there, and SASL is asked of it.
        """
        if not self.fronts:
            return
        front = self.fronts[min(self.fronts)]
        protocol = self.settings.protocol_of(endpoint.name)
        own = self.settings.for_listener(endpoint.name)
        asked: ListenerFace | None = None
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
        face = ListenerFace(
            endpoint.name,
            asked.upstream if asked else None,
            {},
            make_identity(own, listener, owner_of=self.token_owners.owner_of),
            self._server_tls(endpoint.name, protocol),
            # The way to the broker is the asked listener's, whatever ours speaks to administrators.
            asked.upstream_tls if asked else None,
            own,
            plans=admin_plans(),
        )
        try:
            self.admin_address = front.open(face, endpoint.address, now_ms())
        except OSError as error:
            raise GatewayError(
                f"headgate.admin.listener can't listen on {endpoint.address}: "
                f"{error.strerror or error}"
            ) from error

    def _ask(self, front: BrokerFront, face: ListenerFace, link: Link, ask: Ask) -> None:
        task = asyncio.get_running_loop().create_task(self.answers.answer(front, face, link, ask))
        link.tasks.add(task)
        task.add_done_callback(link.tasks.discard)

    def _count_brokers(self) -> None:
        """Tell managers how many brokers share a cluster-wide quota."""
        brokers = len({b for cluster in self.clusters.values() for b in cluster.brokers})
        now = now_ms()
        for front in self.fronts.values():
            front.rules.managers.produce_bps.set_brokers(brokers, now)
            front.rules.managers.fetch_bps.set_brokers(brokers, now)
