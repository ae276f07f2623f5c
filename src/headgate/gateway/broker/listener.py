"""
One listener of one broker: where its connections go, what its clients are told, what it accepts on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ssl

    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.connection.acceptor import Acceptor
    from headgate.gateway.identity.lending import Lending
    from headgate.gateway.session.rewrite import AddressBook
    from headgate.metrics.meters import ListenerMeters


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
