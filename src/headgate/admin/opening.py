"""
Open the backend of an admin client: for a store, a Kafka or a gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.admin.backend import Backend
from headgate.admin.client_settings import kafka_names
from headgate.errors import ConfigError
from headgate.store.watched import QuotaStore

if TYPE_CHECKING:
    from headgate.client.security import Security
    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings


class Target(NamedTuple):
    """
    What an admin client was pointed at.

    Args:
        bootstrap: ``host:port,…``, or "" with a store.
        store: a store or its URL, or None.
        config: Kafka's client settings, by Kafka's or librdkafka's names.
        who: the principal in a store's history.
        tool: the program in a store's history.
        create: make a store that is missing at the first call, even at one that only reads.
    """

    bootstrap: str
    store: str | QuotaStore | None
    config: Mapping[str, str]
    who: str
    tool: str
    create: bool

    def checked(self) -> Target:
        """
        Return it with settings by Kafka's names, and with the servers that these may name.

        Raises:
            TypeError: the servers aren't text.
            ConfigError: neither or both of servers and store, or settings that don't exist.
        """
        if not isinstance(self.bootstrap, str):
            raise TypeError(
                "bootstrap servers are text, host:port,…; a client's settings go into config: "
                "AdminClient(config={'bootstrap.servers': …})"
            )
        config = kafka_names(self.config)
        bootstrap = self.bootstrap
        if self.store is None and not bootstrap:
            bootstrap = config.get("bootstrap.servers", "")
        if bool(bootstrap) == (self.store is not None):
            raise ConfigError(
                "an admin client needs bootstrap servers (host:port) or a store "
                "(sqlite:PATH, zookeeper://…, kafka://…), one of them"
            )
        return self._replace(bootstrap=bootstrap, config=config)


async def open_backend(target: Target) -> Backend:
    """
    Open the store, or connect to the servers and find what they are.

    Raises:
        StoreError: the store or servers can't be reached.
        ConfigError: settings that make no sense.
        ApiError: the servers refuse the credentials.
    """
    if target.store is not None:
        from headgate.admin.local import LocalBackend, principal

        who = target.who or await asyncio.to_thread(principal)
        url = target.store if isinstance(target.store, str) else target.store.url
        if not isinstance(target.store, str):
            return LocalBackend(target.store, who=who, tool=target.tool, url=url)
        from headgate.store import open_store

        settings = store_settings(target.config)

        def opener(change: bool) -> QuotaStore:
            return open_store(url, settings, create=change or target.create)

        return LocalBackend(opener, who=who, tool=target.tool, url=url)
    return await _open_servers(target)


async def _open_servers(target: Target) -> Backend:
    """
    Connect to servers, and find out whether they have the released quota APIs or KIP-546's draft.

    The draft's APIs 48 and 49 have the same keys and version 0 as the released ones. A gateway's
    admin listener advertises only 17, 18, 36, 48, 49 and 50. So a peer with 48 and without
    Metadata (3) is an admin listener, which speaks the draft. A KRaft controller has no Metadata
    either, but no 48.
    """
    from headgate.client.nodes import Nodes, connect_first
    from headgate.wire import apis

    addresses, security = servers_of(target)
    first = await connect_first(addresses, security)
    nodes = Nodes(addresses, security, first)
    if apis.DESCRIBE_CLIENT_QUOTAS in first.versions and apis.METADATA not in first.versions:
        from headgate.admin.draft import DraftBackend

        return DraftBackend(nodes)
    from headgate.admin.released import ReleasedBackend

    return ReleasedBackend(nodes)


def servers_of(target: Target) -> tuple[list[HostPort], Security]:
    """
    Return the servers' addresses, and how to connect to them.

    Raises:
        ConfigError: settings that make no sense.
    """
    from headgate.client.nodes import parse_bootstrap
    from headgate.client.security import Security

    return parse_bootstrap(target.bootstrap), Security.of(target.config, target.tool)


def store_settings(config: Mapping[str, str]) -> Settings | None:
    """
    Return the settings for opening a store, made from client settings; None if none were given.

    Args:
        config: ``zookeeper.*`` and ``headgate.*`` as in ``headgate.properties``; Kafka's client
            settings (``security.protocol``, ``sasl.*``, ``ssl.*``) for ``kafka://``.

    Raises:
        ConfigError: every mistake at once.
    """
    if not config:
        return None
    from headgate.client.security import jaas_options
    from headgate.config.settings import Settings

    found: dict[str, str] = {}
    for name, value in config.items():
        if name.startswith(("zookeeper.", "headgate.")):
            found[name] = value
        elif name == "sasl.jaas.config":
            options = jaas_options(value)
            for option in ("username", "password"):
                if option in options:
                    found |= {f"{side}sasl.{option}": options[option] for side in _SIDES}
        elif name == "security.protocol" or name.startswith(("sasl.", "ssl.")):
            found |= {f"{side}{name}": value for side in _SIDES}
    return Settings.from_properties(found)


# Client settings are used for the gateway's own connections and for a kafka:// store.
_SIDES: Final = ("headgate.upstream.admin.", "headgate.store.kafka.")
