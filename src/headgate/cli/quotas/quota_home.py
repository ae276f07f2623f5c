"""
The home of quotas that flags name: a store, or servers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.admin.home import OpenHome
from headgate.cli.connecting import load_properties, open_client
from headgate.cli.output import complain, printable

if TYPE_CHECKING:
    from headgate.store.watched import QuotaStore


def open_quota_store(url: str, config_file: str | None, *, create: bool = False) -> QuotaStore:
    """
    Open a store with the settings of a ``--command-config`` file.

    Args:
        url: the store's.
        config_file: Kafka's client settings, ``zookeeper.*`` and ``headgate.*``; None: none.
        create: make it when it is missing; for commands that change something.

    Raises:
        OSError: the file can't be read.
        ConfigError: settings that make no sense, or a URL that names no store.
        StoreError: the store can't be reached, or isn't there.
    """
    from headgate.admin.opening import store_settings
    from headgate.store import open_store

    config = load_properties(config_file) if config_file else {}
    return open_store(url, store_settings(config), create=create)


def open_quota_home(
    arguments: argparse.Namespace, command: str, *, create: bool = False, planned: bool = False
) -> OpenHome:
    """
    Open the home that flags name.

    Args:
        arguments: with the flags of ``flags.add_place``.
        command: which command it is, for the history.
        create: make a store that is missing.
        planned: take a missing SQLite file for an empty store, which ``apply`` will make.

    Raises:
        OSError: the file of ``--command-config`` can't be read.
        ConfigError: settings that make no sense, or a URL that names no store.
        StoreError: the store can't be reached, or isn't there.
    """
    config_file = arguments.command_config
    home = OpenHome(
        str(arguments.store or arguments.bootstrap_server),
        f"headgate {command}",
        servers=arguments.bootstrap_server or "",
        open_store=lambda url: open_quota_store(url, config_file),
    )
    scheme, _, path = (arguments.store or "").partition(":")
    if planned and scheme == "sqlite" and path and not Path(path).exists():
        complain(printable(f"There is no {home.name} yet; headgate apply makes it."))
    elif arguments.store is not None:
        home.store = open_quota_store(arguments.store, config_file, create=create)
    else:
        home.client = open_client(
            servers=home.servers, store=None, config_file=config_file, tool=home.tool
        )
    return home
