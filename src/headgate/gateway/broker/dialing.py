"""
A listener of a broker, and the way from a client's connection to the broker behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.client.connection import Unreachable
from headgate.errors import HeadgateError
from headgate.gateway import upstream

if TYPE_CHECKING:
    import ssl

    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.connection.acceptor import Acceptor
    from headgate.gateway.connection.hosts import BrokerHosts
    from headgate.gateway.connection.link import Link
    from headgate.gateway.identity.lending import Lending
    from headgate.gateway.session.rewrite import AddressBook
    from headgate.metrics.meters import ListenerMeters, Meters


class ListenerParts(NamedTuple):
    """
    The parts of a listener that are made from its settings, and replaced when these change.

    Attributes:
        settings: with the listener's own values.
        make_identity: makes a new connection's identity, from its address and TLS.
        server_tls: for clients, or None.
        upstream_tls: for the broker, or None.
        lending: the credentials upstream of clients that show a certificate; None: no client does.
    """

    settings: Settings
    make_identity: Callable[[str, Any], Any]
    server_tls: ssl.SSLContext | None
    upstream_tls: ssl.SSLContext | None
    lending: Lending | None


class BrokerListener:
    """
    One listener of one broker; ``Broker.open`` opens its port.

    Args:
        name: listener name.
        upstream: where its connections go; changes when the broker moves. None: nowhere, the
            gateway answers everything itself.
        addresses: what clients are told.
        parts: made of the settings.
        on_unknown: called when an answer names brokers that have no address for clients yet.
        plans: how requests are handled, instead of the broker's own.

    Attributes:
        acceptor: accepts at its port.
        meters: count its connections.
    """

    acceptor: Acceptor
    meters: ListenerMeters

    def __init__(
        self,
        name: str,
        upstream: HostPort | None,
        addresses: AddressBook,
        parts: ListenerParts,
        on_unknown: Callable[[], None] = lambda: None,
        plans: Mapping[int, RequestPlan] | None = None,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.addresses = addresses
        self._on_unknown = on_unknown
        self.plans = plans
        self.take(parts)

    def take(self, parts: ListenerParts) -> None:
        """Put settings in force, for connections from now on."""
        self.settings = parts.settings
        self.pass_unknown = parts.settings.unknown_apis == "pass"
        self.make_identity = parts.make_identity
        self.server_tls = parts.server_tls
        self.upstream_tls = parts.upstream_tls
        self.lending = parts.lending

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        """Have the upstream's brokers looked up soon."""
        self._on_unknown()


_TOO_LATE: Final = "the broker took too long"


class Dialer:
    """
    Connects clients' links to one broker.

    Args:
        broker_id: the broker's, for messages.
        meters: of the broker; count what fails.
        hosts: knows the addresses of brokers' hosts.

    Attributes:
        failed_at: when the broker couldn't be reached last, monotonic seconds.
    """

    def __init__(self, broker_id: int, meters: Meters, hosts: BrokerHosts) -> None:
        self._broker_id = broker_id
        self._meters = meters
        self._hosts = hosts
        self.failed_at = float("-inf")

    def connect(self, listener: BrokerListener, link: Link) -> Coroutine[Any, Any, None]:
        """Return what connects a link to the broker, or closes it on failure, in its task."""
        where = listener.upstream
        if where is None:
            return self._stay(link)
        if listener.lending is not None and _has_certificate(link):
            return self._connect_lent(listener, listener.lending, where, link)
        return self._connect(listener, where, link)

    async def _stay(self, link: Link) -> None:
        """Connect to no broker: the gateway answers everything itself."""
        link.upstream_ready()

    async def _connect(self, listener: BrokerListener, where: HostPort, link: Link) -> None:
        task = link.task
        assert task is not None
        loop = asyncio.get_running_loop()
        timeout_ms = listener.settings.upstream_connect_timeout_ms
        more: dict[str, Any] = {}
        if listener.upstream_tls is not None:
            more = {"ssl": listener.upstream_tls, "server_hostname": where.host}
        # What asyncio.timeout does, at a fifth of its cost.
        timer = loop.call_later(timeout_ms / 1000, task.cancel, _TOO_LATE)
        try:
            addresses = self._hosts.known(where.host) or await self._hosts.look_up(where.host)
            for address in addresses:
                try:
                    # ``pop`` returns our protocol to the loop without a call in Python.
                    await loop.create_connection([link.broker].pop, address, where.port, **more)
                    break
                except OSError:
                    if address is addresses[-1]:
                        raise
        except (OSError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if error.args != (_TOO_LATE,) or task.uncancel():
                    raise
                error = TimeoutError(f"no answer in {timeout_ms} ms")
            self._meters.upstream_failures["connect"] += 1
            self.failed_at = time.monotonic()
            self._hosts.forget(where.host)
            link.close("upstream-unreachable", f"broker {self._broker_id} at {where}: {error}")
            return
        finally:
            timer.cancel()
        if link.closed is not None:
            link.broker.abort()
            return
        link.upstream_ready()

    async def _connect_lent(
        self, listener: BrokerListener, lending: Lending, where: HostPort, link: Link
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
                tls = lending.contexts.ready(security.ssl) or await asyncio.to_thread(
                    lending.contexts.get, security.ssl
                )
            connection = await upstream.connect(
                where, security, tls, listener.settings.upstream_connect_timeout_ms
            )
            transport = connection.detach()
        except HeadgateError as error:
            unreachable = isinstance(error.__cause__, Unreachable | TimeoutError)
            self._meters.upstream_failures["connect" if unreachable else "login"] += 1
            if unreachable:
                self.failed_at = time.monotonic()
            link.close("upstream-unreachable", f"broker {self._broker_id} for {principal}: {error}")
            return
        link.kept = connection  # a stream writer that is collected closes its transport
        if link.closed is not None:
            transport.abort()
            return
        transport.set_protocol(link.broker)
        link.broker.connection_made(transport)
        link.upstream_ready()


def _has_certificate(link: Link) -> bool:
    """Whether a client showed a certificate."""
    transport = link.client.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    return tls is not None and bool(tls.getpeercert(binary_form=True))
