"""
The store or servers that a command's flags name.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.cli.connecting import load_properties, open_servers
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


def open_quota_target(
    arguments: argparse.Namespace, command: str, *, create: bool = False, planned: bool = False
) -> OpenTarget:
    """
    Return the store or servers that flags name; they are opened at the first call.

    Args:
        arguments: with the flags of ``flags.add_place``.
        command: which command it is, for the history.
        create: make a store that is missing.
        planned: take a missing SQLite file for an empty store, which ``apply`` will make.

    Raises:
        OSError: the file of ``--command-config`` can't be read.
        ConfigError: settings that make no sense.
    """
    tool, config_file = f"headgate {command}", arguments.command_config
    if arguments.store is None:
        return open_servers(arguments.bootstrap_server, config_file, tool)
    config = load_properties(config_file) if config_file else {}
    address = Address(
        store=arguments.store, config=config, tool=tool, create=create, planned=planned
    )
    if planned and address.is_missing:
        complain(printable(f"There is no {address.name} yet; headgate apply makes it."))
    return OpenTarget(address)
