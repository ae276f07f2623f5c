"""
Clients' connections taken over: TLS, a link for each, the way to the broker, and their end.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.gateway import upstream
from headgate.gateway.broker.front_state import FrontState
from headgate.gateway.connection.acceptor import size_buffers
from headgate.gateway.connection.link import Link
from headgate.gateway.log import get_logger, tells_all
from headgate.gateway.session.session import Session

log = get_logger("headgate.gateway")

_TOO_LATE: Final = "the broker took too long"

if TYPE_CHECKING:
    from headgate.config.listeners import HostPort
    from headgate.gateway.broker.listener import BrokerListener
    from headgate.gateway.identity.lending import Lending


class Taking(FrontState):
    """Takes over connections that the quotas have admitted."""

    def accepted(self, face: BrokerListener, sock: socket.socket, address: str) -> None:
        """Take over a client's connection that was admitted by the quotas."""
        size_buffers(
            sock,
            face.settings.socket_send_buffer_bytes,
            face.settings.socket_receive_buffer_bytes,
        )
        task = asyncio.get_running_loop().create_task(self._open_link(face, sock, address))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_link(self, face: BrokerListener, sock: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        accepted_ms = now_ms()
        self._numbers += 1
        settings = face.settings
        link: Link | None = None
        transport: Any = None

        def make_link(tls: Any) -> Link:
            if self.ending:  # accepted before, or its handshake took until now
                raise FrontEnds
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
            session.last_ms = now_ms()
            made = Link(
                session,
                self._buffer,
                self._hangup,
                lambda link, ask: self._answer(self, face, link, ask),
                self._closed,
                self.refusals,
            )
            made.opened_ms = accepted_ms  # the TLS handshake counts as well
            self.links[made] = (face.name, address)
            self.meters.listeners[face.name].connections += 1
            if tells_all():
                log.debug("connection opened", connection=session.connection, client=address)
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
                if holder.lost or transport.is_closing():  # nobody else would tell the link
                    raise ConnectionResetError("hung up after its TLS handshake")
        except BaseException as error:
            if transport is not None:
                transport.abort()  # it has the descriptor: closing the socket wouldn't
            sock.close()
            if link is None:
                self.quotas.release(face.name, address)
                self._slot_freed()
                self.count_close(face.name, _why(error), address, str(error))
            else:
                link.close("client-gone", str(error))
            if isinstance(error, Exception):
                return
            raise  # cancelled: the front ends
        if link.closed is not None:
            return
        # A client that goes needs no connection to its broker any more.
        task = asyncio.current_task()
        link.tasks.add(task)
        try:
            self._make_room(face.name)
            await self._connect_upstream(face, link)
        except Exception as error:
            # Whatever it was: a client left alone with nobody behind would wait for ever.
            log.exception("the way to a broker failed", broker=self.broker_id, listener=face.name)
            link.close("upstream-unreachable", f"broker {self.broker_id}: {error!r}")
        finally:
            link.tasks.discard(task)

    async def _connect_upstream(self, face: BrokerListener, link: Link) -> None:
        loop = asyncio.get_running_loop()
        where = face.upstream
        if where is None:
            link.upstream_ready()
            return
        if face.lending is not None and _has_certificate(link):
            await self._connect_lent(face, face.lending, where, link)
            return
        task = asyncio.current_task()
        assert task is not None
        broker = link.broker
        # What asyncio.timeout does, at a fifth of its cost.
        timer = loop.call_later(
            face.settings.upstream_connect_timeout_ms / 1000, task.cancel, _TOO_LATE
        )
        try:
            if face.upstream_tls is None:
                await loop.create_connection(lambda: broker, where.host, where.port)
            else:
                await loop.create_connection(
                    lambda: broker,
                    where.host,
                    where.port,
                    ssl=face.upstream_tls,
                    server_hostname=where.host,
                )
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if error.args != (_TOO_LATE,) or task.uncancel():
                    raise
                error = TimeoutError(f"no answer in {face.settings.upstream_connect_timeout_ms} ms")
            self.meters.upstream_failures["connect"] += 1
            self.failed_at = time.monotonic()
            link.close("upstream-unreachable", f"broker {self.broker_id} at {where}: {error}")
            return
        finally:
            timer.cancel()
        if link.closed is not None:
            link.broker.abort()
            return
        link.upstream_ready()

    async def _connect_lent(
        self, face: BrokerListener, lending: Lending, where: HostPort, link: Link
    ) -> None:
        """Go upstream with the credentials lent to an mTLS client's principal."""
        principal = link.session.identity.principal
        security = lending.lend(principal)
        if security is None:
            link.refuse(
                "no-upstream-credentials",
                f"User:{principal} has none in headgate.upstream.credentials.file, and "
                "headgate.upstream.shared.enable is false",
            )
            return
        tls = None
        try:
            if security.security_protocol.tls:
                tls = lending.ready_context(security.ssl) or await asyncio.to_thread(
                    lending.context, security.ssl
                )
            connection = await upstream.connect(
                where, security, tls, face.settings.upstream_connect_timeout_ms
            )
            transport = connection.detach()
        except HeadgateError as error:
            self.meters.upstream_failures["login"] += 1
            link.close("upstream-unreachable", f"broker {self.broker_id} for {principal}: {error}")
            return
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
        self.count_close(listener, reason, address, detail, link.session)
        self.quotas.release(listener, address)
        self._slot_freed()


class FrontEnds(Exception):
    """Nobody is taken any more: this gateway ends, or another fronts the broker now."""


def _has_certificate(link: Link) -> bool:
    """Whether a client showed a certificate."""
    transport = link.client.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return tls is not None and bool(tls.getpeercert(binary_form=True))


def _why(error: BaseException) -> str:
    """Return the reason for which a connection ended before it was one."""
    if isinstance(error, asyncio.CancelledError | FrontEnds):
        return "drained"
    if isinstance(error, ConnectionAbortedError):
        return "handshake-timeout"  # so says the loop of a TLS handshake that takes too long
    if isinstance(error, HeadgateError):
        return str(getattr(error, "reason", "tls-failed"))
    return "tls-failed"


class _Waiting(asyncio.Protocol):
    """Holds a TLS client's place until its link is made; reads nothing."""

    lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.pause_reading()  # type: ignore[attr-defined]
