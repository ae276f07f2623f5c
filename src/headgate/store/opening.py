"""
Open a store by its URL. The libraries of a kind of store are loaded only when it is needed.
"""

from __future__ import annotations

from headgate.config.settings import Settings
from headgate.errors import ConfigError
from headgate.store.watched import QuotaStore

SCHEMES = "sqlite:PATH, zookeeper://HOST:PORT[,HOST:PORT][/CHROOT] or kafka://HOST:PORT"


def open_store(url: str, settings: Settings | None = None, *, create: bool = True) -> QuotaStore:
    """
    Open the store a URL names.

    Args:
        url: ``sqlite:PATH``, ``zookeeper://HOST:PORT[,HOST:PORT]/CHROOT``, ``kafka://HOST:PORT``.
        settings: how to connect (``zookeeper.*``, ``headgate.store.*``); None for plaintext.
        create: make the store when it is missing, for a caller that is going to change it. Without
            it nothing is written before the first change, and a file or chroot that is missing is
            an error.

    Raises:
        ConfigError: the URL names no store.
        StoreError: it can't be reached.
    """
    scheme, _, rest = url.partition(":")
    if scheme != "sqlite" and "@" in rest:
        raise ConfigError(
            f"headgate.store: {hidden(url)} holds credentials, which don't belong there; use "
            "headgate.store.zookeeper.sasl.username and .password, or headgate.store.kafka.sasl.*"
        )
    place = rest.removeprefix("//").rstrip("/")
    if scheme == "sqlite" and rest.strip("/"):
        from headgate.store.sqlite.store import SqliteStore

        return SqliteStore(rest, create=create)
    if scheme == "zookeeper" and place and not place.startswith("/"):
        from headgate.store.zookeeper.store import ZooKeeperStore

        return ZooKeeperStore(
            place, create=create, security=settings.zookeeper if settings else None
        )
    if scheme == "kafka" and place and "/" not in place:
        from headgate.store.kafka.store import POLL_MS, KafkaStore

        return KafkaStore(
            place,
            create=create,
            security=settings.store_kafka if settings else None,
            poll_ms=settings.store_poll_ms if settings else POLL_MS,
        )
    raise ConfigError(f"headgate.store: {hidden(url)!r} names no store; use {SCHEMES}")


def hidden(url: str) -> str:
    """Return a store's URL without the part before an ``@``: it may be a password."""
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite" or "@" not in rest:
        return url
    slashes = "//" if rest.startswith("//") else ""
    return f"{scheme}{colon}{slashes}***@{rest.rpartition('@')[2]}"
