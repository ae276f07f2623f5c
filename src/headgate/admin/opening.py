"""
The address of a target, and how a target is opened: a store, a Kafka or a gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.admin.client_settings import kafka_names
from headgate.config import store_kinds
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.admin.cluster_target import ClusterTarget
    from headgate.admin.store_target import StoreTarget
    from headgate.client.security import Security
    from headgate.config.listeners import HostPort
    from headgate.config.settings import Settings
    from headgate.store.watched import QuotaStore


class Address(NamedTuple):
    """
    Where quotas are, and who asks.

    Args:
        bootstrap: ``host:port,…``, or "" with a store.
        store: a store or its URL, or None.
        config: Kafka's client settings, by Kafka's names.
        settings: how to connect to a store; None: made from ``config``.
        who: the principal in a store's history; "": who runs the process.
        tool: the program in a store's history.
        create: make a store that is missing at the first call, even at one that only reads.
        planned: take a store's file that is missing for an empty store, until the first change.
    """

    bootstrap: str = ""
    store: str | QuotaStore | None = None
    config: Mapping[str, str] = {}
    settings: Settings | None = None
    who: str = ""
    tool: str = ""
    create: bool = False
    planned: bool = False

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.store is None:
            return self.bootstrap
        return self.store if isinstance(self.store, str) else self.store.url

    @property
    def is_missing(self) -> bool:
        """Whether it is a store's file that isn't there."""
        return self.store is not None and store_kinds.is_missing(self.name)

    def checked(self) -> Address:
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
                f"({store_kinds.forms()}), one of them"
            )
        return self._replace(bootstrap=bootstrap, config=config)


def open_store_target(address: Address) -> StoreTarget:
    """Return the target of a store, which it opens at the first call."""
    from headgate.admin.store_target import StoreTarget

    assert address.store is not None
    given = address.store

    def opener(change: bool) -> QuotaStore:
        from headgate.store import open_store

        settings = address.settings or store_settings(address.config)
        return open_store(address.name, settings, create=change or address.create)

    return StoreTarget(
        opener if isinstance(given, str) else given,
        address.name,
        who=address.who,
        tool=address.tool,
        missing=lambda: address.planned and address.is_missing,
    )


async def open_servers(address: Address) -> ClusterTarget:
    """
    Connect to servers, and find out whether they have the released quota APIs or KIP-546's draft.

    Raises:
        StoreError: the servers can't be reached.
        ConfigError: settings that make no sense.
        ApiError: the servers refuse the credentials.

    The draft's APIs 48 and 49 have the same keys and version 0 as the released ones. A gateway's
    admin listener advertises only 17, 18, 36, 48, 49 and 50. So a peer with 48 and without
    Metadata (3) is an admin listener, which speaks the draft. A KRaft controller has no Metadata
    either, but no 48.
    """
    from headgate.client.nodes import Nodes
    from headgate.wire import apis

    addresses, security = servers_of(address)
    nodes = Nodes(addresses, security)
    first = await nodes.any()
    if apis.DESCRIBE_CLIENT_QUOTAS in first.versions and apis.METADATA not in first.versions:
        from headgate.admin.draft import Kip546Target

        return Kip546Target(nodes)
    from headgate.admin.released import KafkaTarget

    return KafkaTarget(nodes)


def servers_of(address: Address) -> tuple[list[HostPort], Security]:
    """
    Return the servers' addresses, and how to connect to them.

    Raises:
        ConfigError: settings that make no sense.
    """
    from headgate.client.nodes import parse_bootstrap
    from headgate.client.security import Security

    return parse_bootstrap(address.bootstrap), Security.of(address.config, address.tool)


def store_settings(config: Mapping[str, str]) -> Settings | None:
    """
    Return the settings for opening a store, made from client settings; None if none were given.

    Args:
        config: ``zookeeper.*`` and ``headgate.*`` as in ``headgate.properties``; Kafka's client
            settings (``security.protocol``, ``sasl.*``, ``ssl.*``) for a Kafka store.

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
