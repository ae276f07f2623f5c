"""
The clients' connections of one broker: taken over when they are accepted, counted, closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.gateway.connection.link import Link, ListenerView
from headgate.gateway.log import LogLimit, get_logger, tells_all
from headgate.gateway.session.session import Session

if TYPE_CHECKING:
    import socket

    from headgate.gateway.broker.dialing import BrokerListener, Dialer
    from headgate.gateway.charging.enforcement import Enforcement
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.connection.link import HangupWatch
    from headgate.gateway.connection.pool import ReadBuffer
    from headgate.gateway.connection.refusals import Refusals
    from headgate.gateway.connection.transports import BrokerSide
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.rewrite import Rewrite
    from headgate.metrics.meters import Meters
    from headgate.throttle.connection import ConnectionQuotas

log = get_logger("headgate.gateway")


class BrokerEnds(Exception):
    """No client is taken any more: this gateway ends, or another one fronts the broker now."""


class Clients:
    """
    The connections of one broker's clients.

    Args:
        broker_id: the broker's id.
        rules: charge what clients send.
        meters: of the broker.
        plans: how requests are handled, where a listener has no plans of its own.
        quotas: count connections.
        dialer: leads to the broker.
        listeners: of the broker, by name.
        buffer: the loop's read buffer.
        hangup: the loop's watch.
        refusals: where refused clients wait.
        on_ask: answers an ``Ask`` of a link, or does its ``Rewrite``.

    Attributes:
        links: the connections there are, in the order in which they came.
        opening: tasks of those whose TLS handshake or way to the broker isn't done.
        ending: no client is taken any more; another gateway may front the broker already.
    """

    def __init__(
        self,
        broker_id: int,
        rules: Enforcement,
        meters: Meters,
        plans: Mapping[int, RequestPlan],
        quotas: ConnectionQuotas,
        dialer: Dialer,
        listeners: Mapping[str, BrokerListener],
        buffer: ReadBuffer,
        hangup: HangupWatch,
        refusals: Refusals,
        on_ask: Callable[[Link, Ask | Rewrite], None],
    ) -> None:
        self._broker_id = broker_id
        self._rules = rules
        self._meters = meters
        self._plans = plans
        self._quotas = quotas
        self._dialer = dialer
        self._listeners = listeners
        self._buffer = buffer
        self._hangup = hangup
        self._refusals = refusals
        self._on_ask = on_ask
        self._numbers = 0
        self.links: dict[Link, None] = {}
        self.opening: set[asyncio.Task[None]] = set()
        # Of ended links: over TLS a broker's side stays until the broker has closed it too.
        self.leaving: WeakSet[BrokerSide] = WeakSet()
        self.ending = False
        self.closes = LogLimit("connections closed")  # which of them are logged

    def accepted(self, listener: BrokerListener, sock: socket.socket, address: str) -> None:
        """
        Take over a client's connection that the quotas have admitted.

        Args:
            listener: that it came to.
            sock: the connection, not blocking.
            address: the client's, as Java spells it.
        """
        link: Link | None = None
        if listener.server_tls is None:
            try:
                link = self._link(listener, address, None, now_ms())
            except Exception as error:
                self._not_taken(listener, sock, address, None, error)
                return
        opening = self._open(listener, sock, address, link)
        task = asyncio.get_running_loop().create_task(opening)
        if link is not None:
            link.task = task
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def _open(
        self, listener: BrokerListener, sock: socket.socket, address: str, link: Link | None
    ) -> None:
        """Read from a client, with TLS if it has no link yet, and lead it to the broker."""
        try:
            if link is None:
                link = await self._after_handshake(listener, sock, address)
                link.task = asyncio.current_task()
            else:
                # ``pop`` returns our protocol to the loop without a call in Python.
                await asyncio.get_running_loop().connect_accepted_socket([link.client].pop, sock)
        except BaseException as error:
            self._not_taken(listener, sock, address, link, error)
            if isinstance(error, Exception):
                return
            raise  # cancelled: the client has gone, or the broker isn't fronted any more
        if link.closed is not None:
            return
        task = link.task  # a link that closes cancels it
        try:
            if len(self._listeners) > 1:
                self._make_room(listener)
            await self._dialer.connect(listener, link)
        except Exception as error:
            # Close it, whatever failed: a client without a broker would wait for ever.
            log.exception("the connection to a broker failed", broker=self._broker_id,
                          listener=listener.name)  # fmt: skip
            link.close("upstream-unreachable", f"broker {self._broker_id}: {error!r}")
        finally:
            if link.task is task:  # an answer of ours may be under way already
                link.task = None

    async def _after_handshake(
        self, listener: BrokerListener, sock: socket.socket, address: str
    ) -> Link:
        """Make a TLS client's link: the principal may be in its certificate."""
        accepted_ms = now_ms()
        waiting = _Waiting()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: waiting,
            sock,
            ssl=listener.server_tls,
            ssl_handshake_timeout=listener.settings.handshake_timeout_ms / 1000,
        )
        link: Link | None = None
        try:
            tls = transport.get_extra_info("ssl_object")
            link = self._link(listener, address, tls, accepted_ms)  # the handshake's time counts
            transport.set_protocol(link.client)
            link.client.connection_made(transport)
            transport.resume_reading()
            if waiting.lost or transport.is_closing():  # while it had no link yet
                link.close("client-gone", "hung up after its TLS handshake")
        except Exception as error:
            transport.abort()  # it has the descriptor: closing the socket wouldn't
            if link is None:
                raise
            link.close("client-gone", str(error))
        return link

    def _link(self, listener: BrokerListener, address: str, tls: Any, accepted_ms: int) -> Link:
        """Make a client's link and session."""
        if self.ending:  # accepted before, or its handshake took until now
            raise BrokerEnds
        self._numbers += 1
        session = Session(
            self._rules,
            listener.make_identity(address, tls),
            listener.plans or self._plans,
            listener,
            pass_unknown=listener.pass_unknown,
            max_request_bytes=listener.settings.socket_request_max_bytes,
            client_ip=address,
            listener=listener.name,
            connection=f"{self._broker_id}-{listener.name}-{self._numbers}",
            last_ms=accepted_ms if tls is None else now_ms(),
        )
        link = Link(
            session,
            self._buffer,
            self._hangup,
            self._on_ask,
            self._closed,
            self._refusals,
            listener,
            address,
            accepted_ms,
        )
        self.links[link] = None
        listener.meters.connections += 1
        if tells_all():
            log.debug("connection opened", connection=session.connection, client=address)
        return link

    def _not_taken(
        self,
        listener: BrokerListener,
        sock: socket.socket,
        address: str,
        link: Link | None,
        error: BaseException,
    ) -> None:
        """Let go of a connection that couldn't be taken over."""
        sock.close()
        if link is not None:
            link.close("client-gone", str(error))
            return
        self._quotas.release(listener.name, address)
        self.slot_freed()
        self._count_close(listener, _why(error), address, str(error))

    def _make_room(self, listener: BrokerListener) -> None:
        """Close another listener's least recently used link if max.connections is exceeded."""
        for other in self._listeners.values():
            if other is not listener and self._quotas.max_connections_exceeded(other.name):
                idle = [link for link in self.links if link.listener is other]
                if idle:
                    min(idle, key=lambda link: link.session.last_ms).close("max-connections")
                    return

    def slot_freed(self) -> None:
        """A connection has closed, or a limit was changed: perhaps there is a slot now."""
        for listener in self._listeners.values():
            if listener.acceptor.blocked_since_ms:
                listener.acceptor.slot_freed()

    def _closed(self, link: Link, reason: str, detail: str) -> None:
        del self.links[link]
        if link.broker.tls:
            self.leaving.add(link.broker)
        listener = link.listener
        listener.meters.connections -= 1
        self.count_traffic(link)
        if reason == "upstream-gone":
            self._meters.upstream_failures["broke"] += 1
        self._count_close(listener, reason, link.address, detail, link.session)
        self._quotas.release(listener.name, link.address)
        self.slot_freed()

    @staticmethod
    def count_traffic(link: Link) -> None:
        """Add what has passed on a link, since this was done last, to its listener's counts."""
        meters = link.listener.meters
        meters.bytes_in += link.bytes_in
        meters.bytes_out += link.bytes_out
        meters.requests += link.session.requests_taken
        link.bytes_in = link.bytes_out = link.session.requests_taken = 0

    def _count_close(
        self,
        listener: ListenerView,
        reason: str,
        client: str,
        detail: str,
        session: Session | None = None,
    ) -> None:
        """Count a close, and log it unless many of its kind were logged this minute."""
        listener.meters.closed[reason] += 1
        ordinary = reason in ("client-gone", "drained")
        if ordinary and not tells_all():
            return
        whose = {}
        if session is not None:
            whose["connection"] = session.connection
            whose["principal"] = f"User:{session.identity.principal}"
        if ordinary:
            log.debug("connection closed", reason=reason, client=client, **whose)
        elif self.closes.passes(reason, reason=reason, broker=self._broker_id):
            log.warning(
                "connection closed",
                reason=reason,
                listener=listener.name,
                broker=self._broker_id,
                client=client,
                **whose,
                detail=detail,
            )


def _why(error: BaseException) -> str:
    """Return why a connection ended before it had a link."""
    if isinstance(error, asyncio.CancelledError | BrokerEnds):
        return "drained"
    if isinstance(error, ConnectionAbortedError):
        return "handshake-timeout"  # the loop's error for a TLS handshake that takes too long
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
