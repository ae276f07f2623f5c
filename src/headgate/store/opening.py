"""
Opens a store by its URL; the libraries of a home are loaded only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import ConfigError
from headgate.store.base import QuotaStore

SCHEMES = "sqlite:PATH, zookeeper://HOST:PORT[,HOST:PORT][/CHROOT] or kafka://HOST:PORT"


def open_store(url: str, settings: Mapping[str, str] | None = None) -> QuotaStore:
    """
    Open the store a URL names.

    Args:
        url: ``sqlite:PATH``, ``zookeeper://HOST:PORT[,HOST:PORT]/CHROOT``, ``kafka://HOST:PORT``.
        settings: properties by name (``headgate.store.*``, ``zookeeper.*``); None for none.

    Raises:
        ConfigError: the URL names no store.
        StoreError: it can't be reached.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.strip("/"):
        from headgate.store.sqlite import SqliteStore

        return SqliteStore(rest)
    raise ConfigError(f"headgate.store: {url!r} names no store; use {SCHEMES}")
