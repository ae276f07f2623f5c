"""
One upstream broker as its clients see it: its listeners, its rules, its connections.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError
from headgate.gateway import upstream
from headgate.gateway.acceptor import Acceptor, listen, size_buffers
from headgate.gateway.link import GOODBYE_S, Link
from headgate.gateway.log import get_logger
from headgate.gateway.session import Session
from headgate.gateway.tls import client_context
from headgate.metrics.samples import BrokerView
from headgate.throttle.connection import ConnectionQuotas
from headgate.throttle.registry import EXPIRY_PERIOD_MS

if TYPE_CHECKING:
    import ssl

    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.commands import Ask
    from headgate.gateway.enforcement import Enforcement
    from headgate.gateway.hangup import HangupWatch
    from headgate.gateway.lending import Lending
    from headgate.gateway.link import ReadBuffer
    from headgate.gateway.plans import Plan
    from headgate.gateway.rewrite import AddressBook
    from headgate.metrics.meters import Meters

log = get_logger("headgate.gateway")

_LOGGED_PER_REASON: Final = 10
"""Closes of one reason that are logged per minute; the metrics count every one."""
_SLOW_REQUEST_MS: Final = 300_000
"""A request whose bytes trickle in for longer is a slow-loris; at 100 MB it is 350 kB/s."""


class ListenerFace:
    """
    What one listener name means at one broker.

    Args:
        name: listener name.
        upstream: where its connections go; changes when the broker moves. None: nowhere, the
            gateway answers everything itself.
        addresses: what clients are told.
        make_identity: a new connection's identity, from its address and TLS.
        server_tls: for clients, or None.
        upstream_tls: for the broker, or None.
        settings: with the listener's own values.
        on_unknown: told of brokers that clients can't be told about yet.
        plans: how requests are handled, instead of the front's own.
        lending: with what clients that show a certificate go upstream; None: nobody does.
    """

    def __init__(
        self,
        name: str,
        upstream: HostPort | None,
        addresses: AddressBook,
        make_identity: Callable[[str, Any], Any],
        server_tls: ssl.SSLContext | None,
        upstream_tls: ssl.SSLContext | None,
        settings: Settings,
        on_unknown: Callable[[], None] = lambda: None,
        plans: dict[int, Plan] | None = None,
        lending: Lending | None = None,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.addresses = addresses
        self.make_identity = make_identity
        self.server_tls = server_tls
        self.upstream_tls = upstream_tls
        self.settings = settings
        self._on_unknown = on_unknown
        self.plans = plans
        self.lending = lending

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        """Have the upstream's brokers looked up soon."""
        self._on_unknown()


class BrokerFront:
    """
    The gateway's side of one upstream broker.

    Args:
        broker_id: the broker's id.
        settings: of the gateway.
        rules: of this broker.
        meters: of this broker.
        plans: by listener name.
        buffer: the loop's read buffer.
        hangup: the loop's watch.
        answer: answers an ``Ask`` of a link on a listener.
        start_ms: epoch milliseconds.
    """

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        rules: Enforcement,
        meters: Meters,
        plans: Mapping[int, Plan],
        buffer: ReadBuffer,
        hangup: HangupWatch,
        answer: Callable[[BrokerFront, ListenerFace, Link, Ask], None],
        start_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.meters = meters
        self.plans = dict(plans)
        self._buffer = buffer
        self._hangup = hangup
        self._answer = answer
        self.faces: dict[str, ListenerFace] = {}
        self.acceptors: dict[str, Acceptor] = {}
        self.links: dict[Link, tuple[str, str]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._numbers = 0
        self._expire_ms = start_ms + EXPIRY_PERIOD_MS
        self.failed_at = float("-inf")  # when the broker couldn't be reached, monotonic seconds
        self._logged: dict[str, tuple[int, int]] = {}
        self.quotas = ConnectionQuotas(
            (),
            settings.inter_broker_listener_name,
            {},
            num_samples=settings.quota_window_num,
            window_ms=settings.quota_window_ms,
            start_ms=start_ms,
        )

    # --- listeners --------------------------------------------------------------------------

    def open(self, face: ListenerFace, bind: HostPort, now_ms: int) -> tuple[str, int]:
        """
        Open a listener's port and accept on it.

        Returns:
            Where it listens.

        Raises:
            OSError: the port can't be had.
        """
        sock = listen(bind.host, bind.port, face.settings.socket_listen_backlog_size)
        self.faces[face.name] = face
        self.quotas.add_listener(face.name, now_ms)
        self.acceptors[face.name] = Acceptor(
            sock,
            face.name,
            self.broker_id,
            self.quotas,
            self.meters.listeners[face.name],
            self.rules.journal,
            lambda client, address: self.accepted(face, client, address),
        )
        return self.acceptors[face.name].address

    def start(self) -> None:
        """Accept on every listener."""
        for acceptor in self.acceptors.values():
            acceptor.start()

    def reload(self, settings: Settings) -> None:
        """Put in force what a reload may change."""
        self.settings = settings
        self.rules.reload(settings)

    def limits_changed(self, config: Mapping[str, str]) -> None:
        """Put dynamic broker settings in force."""
        self.quotas.configure(config)
        self._slot_freed()

    def _slot_freed(self) -> None:
        for acceptor in self.acceptors.values():
            acceptor.slot_freed()

    # --- connections ------------------------------------------------------------------------

    def accepted(self, face: ListenerFace, sock: socket.socket, address: str) -> None:
        """Take over a client's connection that was admitted by the quotas."""
        size_buffers(
            sock,
            face.settings.socket_send_buffer_bytes,
            face.settings.socket_receive_buffer_bytes,
        )
        task = asyncio.get_running_loop().create_task(self._open_link(face, sock, address))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_link(self, face: ListenerFace, sock: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        self._numbers += 1
        settings = face.settings
        link: Link | None = None
        transport: Any = None

        def make_link(tls: Any) -> Link:
            session = Session(
                self.rules,
                face.plans or self.plans,
                face.make_identity(address, tls),
                face,
                pass_unknown=settings.unknown_apis == "pass",
                max_request_bytes=settings.socket_request_max_bytes,
                client_ip=address,
                listener=face.name,
                connection=f"{self.broker_id}-{face.name}-{self._numbers}",
            )
            session.last_ms = time.time_ns() // 1_000_000
            made = Link(
                session,
                self._buffer,
                self._hangup,
                lambda link, ask: self._answer(self, face, link, ask),
                self._closed,
            )
            self.links[made] = (face.name, address)
            self.meters.listeners[face.name].connections += 1
            return made

        try:
            if face.server_tls is None:
                link = make_link(None)
                client = link.client
                await loop.connect_accepted_socket(lambda: client, sock)
            else:
                # The principal is in the certificate: the link is made after the handshake.
                holder = _Waiting()
                transport, _ = await loop.connect_accepted_socket(
                    lambda: holder,
                    sock,
                    ssl=face.server_tls,
                    ssl_handshake_timeout=settings.handshake_timeout_ms / 1000,
                )
                link = make_link(transport.get_extra_info("ssl_object"))
                transport.set_protocol(link.client)
                link.client.connection_made(transport)
                transport.resume_reading()
        except Exception as error:
            sock.close()
            if link is None:
                self.quotas.release(face.name, address)
                self._slot_freed()
                reason = getattr(error, "reason", "tls-failed")
                self.count_close(face.name, str(reason), address, str(error))
            else:
                link.close("client-gone", str(error))
            return
        self._make_room(face.name)
        await self._connect_upstream(face, link)

    async def _connect_upstream(self, face: ListenerFace, link: Link) -> None:
        loop = asyncio.get_running_loop()
        where = face.upstream
        if where is None:
            link.upstream_ready()
            return
        if face.lending is not None and _has_certificate(link):
            await self._connect_lent(face, face.lending, where, link)
            return
        try:
            async with asyncio.timeout(face.settings.upstream_connect_timeout_ms / 1000):
                await loop.create_connection(
                    lambda: link.broker,
                    where.host,
                    where.port,
                    ssl=face.upstream_tls,
                    server_hostname=where.host if face.upstream_tls is not None else None,
                )
        except (OSError, TimeoutError) as error:
            self.meters.upstream_failures["connect"] += 1
            self.failed_at = time.monotonic()
            link.close("upstream-unreachable", f"broker {self.broker_id} at {where}: {error}")
            return
        if link.closed is not None:
            link.broker.abort()
            return
        link.upstream_ready()

    async def _connect_lent(
        self, face: ListenerFace, lending: Lending, where: HostPort, link: Link
    ) -> None:
        """Go upstream with the credentials lent to an mTLS client's principal."""
        principal = link.session.identity.principal
        security = lending.lend(principal)
        if security is None:
            link.close(
                "no-upstream-credentials",
                f"User:{principal} has none in headgate.upstream.credentials.file, and "
                "headgate.upstream.shared.enable is false",
            )
            return
        tls = client_context(security.ssl) if security.security_protocol.tls else None
        try:
            connection = await upstream.connect(
                where, security, tls, face.settings.upstream_connect_timeout_ms
            )
        except HeadgateError as error:
            self.meters.upstream_failures["login"] += 1
            link.close("upstream-unreachable", f"broker {self.broker_id} for {principal}: {error}")
            return
        transport = connection.detach()
        link.kept = connection  # a stream writer that is collected closes its transport
        if link.closed is not None:
            transport.abort()
            return
        transport.set_protocol(link.broker)
        link.broker.connection_made(transport)
        link.upstream_ready()

    def _make_room(self, listener: str) -> None:
        """Close the least recently used connection if a protected one needed its place."""
        for name in self.faces:
            if name != listener and self.quotas.max_connections_exceeded(name):
                idle = [k for k, (on, _) in self.links.items() if on == name]
                if idle:
                    min(idle, key=lambda link: link.session.last_ms).close("max-connections")
                    return

    def _closed(self, link: Link, reason: str, detail: str) -> None:
        listener, address = self.links.pop(link)
        meters = self.meters.listeners[listener]
        meters.connections -= 1
        meters.bytes_in += link.bytes_in
        meters.bytes_out += link.bytes_out
        meters.requests += link.session.requests
        if reason == "upstream-gone":
            self.meters.upstream_failures["broke"] += 1
        self.count_close(listener, reason, address, detail)
        self.quotas.release(listener, address)
        self._slot_freed()

    def count_close(self, listener: str, reason: str, client: str, detail: str) -> None:
        """Count a close, and log it unless many of its kind were logged this minute."""
        self.meters.listeners[listener].closed[reason] += 1
        if reason in ("client-gone", "drained"):
            return
        minute = int(time.monotonic() // 60)
        last, count = self._logged.get(reason, (minute, 0))
        count = count + 1 if last == minute else 1
        self._logged[reason] = (minute, count)
        if count <= _LOGGED_PER_REASON:
            log.warning(
                "connection closed",
                reason=reason,
                listener=listener,
                broker=self.broker_id,
                client=client,
                detail=detail,
            )

    # --- housekeeping -----------------------------------------------------------------------

    def sweep(self, now_ms: int) -> None:
        """Close what is idle, slow or never authenticates; free idle sensors."""
        for link, (listener, _) in list(self.links.items()):
            settings = self.faces[listener].settings
            session = link.session
            idle_ms = settings.connections_max_idle_ms
            if idle_ms >= 0 and now_ms - session.last_ms > idle_ms:
                link.close("idle", f"nothing for {idle_ms} ms")
            elif (
                not session.identity.authenticated
                and now_ms - link.opened_ms > settings.handshake_timeout_ms
            ):
                link.close("handshake-timeout", "not authenticated in time")
            elif session.partial_since_ms and now_ms - session.partial_since_ms > _SLOW_REQUEST_MS:
                link.close("slow-request", "a request that doesn't end")
        if now_ms >= self._expire_ms:
            self._expire_ms = now_ms + EXPIRY_PERIOD_MS
            self.rules.expire(now_ms)
            self.quotas.expire(now_ms)

    def view(self, now_ms: int) -> BrokerView:
        """Return what the metrics are read from; sums up live connections first."""
        live: dict[str, list[int]] = {name: [0, 0, 0, 0] for name in self.faces}
        self.meters.queue.clear()
        for link, (listener, _) in self.links.items():
            sums = live[listener]
            sums[0] += link.bytes_in
            sums[1] += link.bytes_out
            sums[2] += link.session.requests
            link.bytes_in = link.bytes_out = link.session.requests = 0
            if link.session.throttled_until_ms:
                sums[3] += 1
                self.meters.queue[link.session.muted_by] += 1  # type: ignore[index]
        for name, (bytes_in, bytes_out, requests, muted) in live.items():
            meters = self.meters.listeners[name]
            meters.bytes_in += bytes_in
            meters.bytes_out += bytes_out
            meters.requests += requests
            meters.muted = muted
        rates: dict[tuple[str, str], tuple[float, float | None]] = {
            ("broker", ""): (self.quotas.broker_rate(now_ms), None)
        }
        for name in self.faces:
            rates["listener", name] = (self.quotas.listener_rate(name, now_ms), None)
        for ip, rate in self.quotas.ip_rates(now_ms).items():
            rates["ip", ip] = (rate, float(self.quotas.ip_bound(ip)))
        return BrokerView(self.broker_id, self.rules.by_key, self.meters, rates)

    # --- the end ----------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Take no new connections."""
        for acceptor in self.acceptors.values():
            acceptor.stop_accepting()

    def close_ports(self) -> None:
        """Let go of every port."""
        for acceptor in self.acceptors.values():
            acceptor.close()

    async def drain(self, timeout_ms: int) -> None:
        """Let requests in flight finish, then close; what isn't done in time is cut off."""
        self.close_ports()
        deadline = time.monotonic() + timeout_ms / 1000
        any_left = bool(self.links)
        while self.links:
            late = time.monotonic() >= deadline
            for link in list(self.links):
                if late or link.session.at_rest:
                    link.close("drained" if link.session.at_rest else "drain-timeout")
            if self.links:
                await asyncio.sleep(0.01)
        if any_left and timeout_ms:
            await asyncio.sleep(GOODBYE_S)
        for task in list(self._opening):
            task.cancel()


def _has_certificate(link: Link) -> bool:
    """Whether a client showed a certificate."""
    transport = link.client.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return tls is not None and bool(tls.getpeercert(binary_form=True))


class _Waiting(asyncio.Protocol):
    """Holds a TLS client's place until its link is made; reads nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.pause_reading()  # type: ignore[attr-defined]
