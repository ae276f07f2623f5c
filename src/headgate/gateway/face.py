"""
What one listener name means at one broker: where its connections go, and what clients are told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.lending import Lending
    from headgate.gateway.plans import Plan
    from headgate.gateway.rewrite import AddressBook


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
