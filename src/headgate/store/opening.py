"""
Opens a store by its URL; the libraries of a home are loaded only when it is asked for.
"""

from __future__ import annotations

from headgate.config.settings import Settings
from headgate.errors import ConfigError
from headgate.store.base import QuotaStore

SCHEMES = "sqlite:PATH, zookeeper://HOST:PORT[,HOST:PORT][/CHROOT] or kafka://HOST:PORT"


def open_store(url: str, settings: Settings | None = None) -> QuotaStore:
    """
    Open the store a URL names.

    Args:
        url: ``sqlite:PATH``, ``zookeeper://HOST:PORT[,HOST:PORT]/CHROOT``, ``kafka://HOST:PORT``.
        settings: how to connect (``zookeeper.*``, ``headgate.store.*``); None for plaintext.

    Raises:
        ConfigError: the URL names no store.
        StoreError: it can't be reached.
    """
    scheme, _, rest = url.partition(":")
    place = rest.removeprefix("//").rstrip("/")
    if scheme == "sqlite" and rest.strip("/"):
        from headgate.store.sqlite import SqliteStore

        return SqliteStore(rest)
    if scheme == "zookeeper" and place and not place.startswith("/"):
        from headgate.store.zookeeper import ZooKeeperStore

        return ZooKeeperStore(place, security=settings.zookeeper if settings else None)
    if scheme == "kafka" and place and "/" not in place:
        from headgate.store.kafka import POLL_MS, KafkaStore

        return KafkaStore(
            place,
            security=settings.store_kafka if settings else None,
            poll_ms=settings.store_poll_ms if settings else POLL_MS,
        )
    raise ConfigError(f"headgate.store: {url!r} names no store; use {SCHEMES}")
