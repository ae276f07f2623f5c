"""
Open a store by its URL. The libraries of a kind of store are loaded only when it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from headgate.config import store_kinds
from headgate.config.settings import Settings
from headgate.errors import ConfigError
from headgate.store.watched import QuotaStore


def open_store(url: str, settings: Settings | None = None, *, create: bool = True) -> QuotaStore:
    """
    Open the store a URL names.

    Args:
        url: of one of the kinds in ``config/store_kinds.py``, such as ``sqlite:PATH``.
        settings: how to connect (``zookeeper.*``, ``headgate.store.*``); None for plaintext.
        create: make the store when it is missing, for a caller that is going to change it. Without
            it nothing is written before the first change, and a file or chroot that is missing is
            an error.

    Raises:
        ConfigError: the URL names no store.
        StoreError: it can't be reached.
    """
    try:
        kind, place = store_kinds.checked(url)
    except ValueError as exc:
        raise ConfigError(f"headgate.store: {exc}") from None
    module, _, function = kind.opener.partition(":")
    opener = getattr(import_module(module), function)
    return cast(QuotaStore, opener(place, settings, create=create))
