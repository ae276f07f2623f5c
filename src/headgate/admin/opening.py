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
    from headgate.config.settings import Settings


class Target(NamedTuple):
    """
    What an admin client was pointed at.

    Args:
        bootstrap: ``host:port,…``, or "" with a store.
        store: a store or its URL, or None.
        config: Kafka's client settings.
        who: the principal in a store's history.
        tool: the program in a store's history.
        create: make a store that is missing at the first call, even at one that only reads.
    """

    bootstrap: str
    store: str | QuotaStore | None
    config: Mapping[str, str]
    who: str
    tool: str
    create: bool = False

    @classmethod
    def of(
        cls,
        bootstrap_servers: str | None,
        store: str | QuotaStore | None,
        config: Mapping[str, str],
        who: str,
        tool: str,
        create: bool = False,
    ) -> Target:
        """
        Check what was given.

        Raises:
            ConfigError: neither or both of servers and store, or settings that don't exist.
        """
        config = kafka_names(config)
        bootstrap = bootstrap_servers or (
            "" if store is not None else config.get("bootstrap.servers", "")
        )
        if bool(bootstrap) == (store is not None):
            raise ConfigError(
                "an admin client needs bootstrap servers (host:port) or a store "
                "(sqlite:PATH, zookeeper://…, kafka://…), one of them"
            )
        return cls(bootstrap, store, config, who, tool, create)


async def open_backend(target: Target) -> Backend:
    """
    Open the store, or connect to the servers and find what they are.

    Raises:
        StoreError: the store or servers can't be reached.
        ConfigError: settings that make no sense.
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
    from headgate.admin.remote import open_remote

    return await open_remote(target.bootstrap, target.config, target.tool)


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
