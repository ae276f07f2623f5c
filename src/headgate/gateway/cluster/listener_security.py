"""
Each listener's protocol and TLS towards clients, and towards the brokers.

There are two ways to a broker. Clients' connections use ``headgate.upstream.*``. The gateway's own
requests use ``headgate.upstream.admin.*``; these credentials are never used for a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.client.tls import ClientContexts, client_context, server_context
from headgate.config.listeners import HostPort, Listener, SecurityProtocol
from headgate.errors import ConfigError
from headgate.gateway.broker.dialing import ListenerParts
from headgate.gateway.identity.identity import make_identity
from headgate.gateway.identity.lending import Lending, rows_of
from headgate.gateway.upstream import NO_USER, without_user

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from headgate.config.security import ClientSecurity, Tls
    from headgate.config.settings import Settings
    from headgate.gateway.store_link.in_force import InForceNow

_SAID_OF_TLS: Final = (
    "enabled_protocols",
    "cipher_suites",
    "endpoint_identification_algorithm",
)
OWN_PROTOCOL: Final = "headgate.upstream.admin.security.protocol"
CLIENTS_PROTOCOL: Final = "headgate.upstream.security.protocol"


class ListenerSecurity:
    """
    The protocol, credentials and TLS of each listener, on both sides.

    Args:
        in_force: the settings.
        upstreams: bootstrap servers by listener name, instead of ``headgate.upstream``.
        admin: credentials for the gateway's own questions, instead of
            ``headgate.upstream.admin.*``.
        owner_of: owners of delegation tokens by their id.
    """

    def __init__(
        self,
        in_force: InForceNow,
        upstreams: Mapping[str, Sequence[HostPort]],
        admin: ClientSecurity | None,
        owner_of: Callable[[str], str | None],
    ) -> None:
        self._in_force = in_force
        self._upstreams = upstreams
        self._admin = in_force.settings.upstream_admin if admin is None else admin
        self._owner_of = owner_of
        self._contexts = ClientContexts()
        # What ``take`` was given, and the settings that it was made from.
        self._taken: tuple[Settings | None, dict[str, ListenerParts]] = None, {}
        # Every listener, and the one whose way to the broker it uses.
        self._listeners: dict[str, tuple[Listener, str | None]] = {
            listener.name: (listener, listener.name) for listener in in_force.settings.listener_list
        }

    def add(self, listener: Listener, way: str | None) -> None:
        """
        Add a listener that isn't in ``listeners``: the admin listener.

        Args:
            listener: its name and protocol.
            way: the listener whose way to the broker it uses; None: it reaches no broker.
        """
        self._listeners[listener.name] = listener, way
        self._taken[1].pop(listener.name, None)

    def bootstrap(self, name: str) -> Sequence[HostPort]:
        """Return the servers that are asked for a listener's brokers."""
        return (
            self._upstreams.get(name) or self._in_force.settings.for_listener(name).upstream or ()
        )

    # --- clients ----------------------------------------------------------------------------

    def all_parts(self, settings: Settings) -> dict[str, ListenerParts]:
        """
        Make the parts of each listener that come from its settings; may run on a thread.

        The credentials file is read once: 5,000 principals take 0.2 s.

        Raises:
            ConfigError: as for ``parts``.
        """
        read = functools.cache(rows_of)
        return {name: self._made(name, settings, read) for name in list(self._listeners)}

    def take(self, settings: Settings, parts: Mapping[str, ListenerParts]) -> list[Lending]:
        """
        Have these parts in force, and new TLS contexts for the gateway's own requests.

        Args:
            settings: which the parts were made from, and which are in force now.
            parts: of every listener.

        Returns:
            Those that were lent from until now.
        """
        _, before = self._taken
        self._taken = settings, dict(parts)
        self._contexts = ClientContexts()
        return [part.lending for part in before.values() if part.lending is not None]

    def parts(self, name: str) -> ListenerParts:
        """
        Return the parts of a listener that come from its settings.

        They are those in force on other brokers: no file is read again for each broker.

        Raises:
            ConfigError: a certificate, the credentials file or the principal builder can't be used.
        """
        settings, taken = self._in_force.settings, self._taken
        if taken[0] is not settings:
            return self._made(name, settings, rows_of)
        if name not in taken[1]:
            taken[1][name] = self._made(name, settings, rows_of)
        return taken[1][name]

    def _made(
        self, name: str, settings: Settings, read: Callable[[Path], Sequence[Any]]
    ) -> ListenerParts:
        listener, way = self._listeners[name]
        own = settings.for_listener(name)
        server_tls = upstream_tls = lending = None
        if way is not None:
            protocol = _protocol(settings, way)
            upstream_tls = _upstream_tls(settings, way) if protocol.tls else None
            if listener.protocol is SecurityProtocol.SSL and own.ssl_client_auth != "none":
                lending = Lending(own, protocol, read)
        identity = make_identity(own, listener, owner_of=self._owner_of)
        if listener.protocol.tls:
            with _of_listener(name):
                server_tls = server_context(own.ssl, own.ssl_client_auth)
        return ListenerParts(own, identity, server_tls, upstream_tls, lending)

    def upstream_tls(self, listener: str) -> ssl.SSLContext:
        """
        Make TLS for clients' connections to brokers.

        Raises:
            ConfigError: a store can't be read.
        """
        return _upstream_tls(self._in_force.settings, listener)

    # --- the gateway's own questions --------------------------------------------------------

    async def own(self, listener: str) -> tuple[ClientSecurity, Any]:
        """
        Return protocol and credentials, and TLS, of the gateway's own questions on a listener.

        Raises:
            ConfigError: a store can't be read.
        """
        security = self._own_security(listener)
        if not security.security_protocol.tls:
            return security, None
        tls, prefix = self._own_ssl(listener)
        context = self._contexts.ready(tls)
        if context is None:
            with _of_listener(listener, prefix):
                context = await asyncio.to_thread(self._contexts.get, tls)
        return security, context

    def _own_security(self, listener: str) -> ClientSecurity:
        protocol = _protocol(self._in_force.settings, listener)
        if self.own_setting(listener) == OWN_PROTOCOL:
            protocol = self._admin.security_protocol
        return replace(self._admin, security_protocol=protocol)

    def check_user(self) -> None:
        """
        Check that the gateway's own questions have a user where the upstream wants one.

        Raises:
            ConfigError: one has none.
        """
        settings = self._in_force.settings
        if settings.embedded:
            return  # its users are known when it has started
        problems = [
            f"listener {listener.name}: {NO_USER}"
            for listener in settings.listener_list
            if without_user(self._own_security(listener.name))
        ]
        if problems:
            raise ConfigError("\n".join(problems))

    def _own_ssl(self, listener: str) -> tuple[Tls, str]:
        """Return ``ssl.*`` of our own questions, and the prefix of their names in errors."""
        own = self._admin.ssl
        given = own.keystore_location or own.keystore_key or own.truststore_location
        if given or own.truststore_certificates:
            return own, "headgate.upstream.admin."
        # Without stores of its own it uses the clients'; its other ``ssl.*`` settings still count.
        settings = self._in_force.settings
        said = {
            field: getattr(own, field)
            for field in _SAID_OF_TLS
            if f"headgate.upstream.admin.ssl.{field.replace('_', '.')}" in settings.given
        }
        clients = settings.for_listener(listener).upstream_ssl
        if not said:
            return clients, "headgate.upstream."
        return replace(clients, **said), "headgate.upstream.admin."

    def own_setting(self, listener: str) -> str:
        """
        Return the setting that has the protocol of the gateway's own questions on a listener.

        It is ``OWN_PROTOCOL`` if that is given. But a listener with servers of its own is asked in
        the protocol of its clients' connections.
        """
        prefix = f"listener.name.{listener.lower()}."
        given = self._in_force.settings.given
        elsewhere = listener in self._upstreams or f"{prefix}headgate.upstream" in given
        if OWN_PROTOCOL in given and not elsewhere:
            return OWN_PROTOCOL
        own = f"{prefix}{CLIENTS_PROTOCOL}"
        return own if own in given else CLIENTS_PROTOCOL


def _protocol(settings: Settings, listener: str) -> SecurityProtocol:
    own = settings.for_listener(listener)
    return own.upstream_security_protocol or settings.protocol_of(listener)


def _upstream_tls(settings: Settings, listener: str) -> ssl.SSLContext:
    with _of_listener(listener, "headgate.upstream."):
        return client_context(settings.for_listener(listener).upstream_ssl)


@contextlib.contextmanager
def _of_listener(listener: str, prefix: str = "") -> Iterator[None]:
    """Name the listener in the error about a mistake in its ``ssl.*``."""
    try:
        yield
    except ConfigError as error:
        told = (prefix + p if p.startswith("ssl.") else p for p in error.problems)
        raise ConfigError([f"listener {listener}: {problem}" for problem in told]) from error
