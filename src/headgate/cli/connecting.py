"""
From the flags of a tool to the store or servers that they name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headgate.admin.client_settings import strangers
from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.cli.joptsimple import Option, OptionSet
from headgate.cli.output import complain, printable
from headgate.config import store_kinds
from headgate.errors import ConfigError


class MalformedProperties(ConfigError):
    """A properties file that Java wouldn't read; the message is Java's."""


def load_properties(path: str) -> dict[str, str]:
    """
    Read a properties file: as UTF-8 or, if it isn't UTF-8, as Latin-1, Java's encoding.

    Raises:
        MalformedProperties: a backslash and u without four hexadecimal digits.
        OSError: it can't be read.
    """
    from headgate.config.properties import parse_properties

    raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    found, bad = parse_properties(text)
    if bad:
        raise MalformedProperties("Malformed \\uxxxx encoding.")
    return {entry.key: entry.value for entry in found}


STORE: Final = Option(
    "store",
    f"A Headgate store instead of a server: {store_kinds.forms(' or ')}.",
    "String: URL",
)
"""The flag of the two tools that read theirs as Kafka's do."""


def connect(options: OptionSet, tool: str) -> OpenTarget:
    """
    Return the store or servers that such a tool's flags name.

    Raises:
        OptionError: a flag is given more than once.
        OSError: the file can't be read.
        ConfigError: settings that make no sense.
    """
    address = Address(
        options.value("bootstrap-server") or options.value("bootstrap-controller") or "",
        options.value("store"),
        read_client_config(options.value("command-config")),
        tool=tool,
        create=options.has("alter") and not options.has("validate-only"),
        planned=options.has("validate-only"),
    )
    return OpenTarget(address.checked())


def open_servers(servers: str | None, config_file: str | None, tool: str) -> OpenTarget:
    """
    Return the servers that flags name.

    Args:
        servers: ``--bootstrap-server``.
        config_file: ``--command-config``, or None.
        tool: the program; requests have it as their client-id.

    Raises:
        OSError: the file can't be read.
        ConfigError: settings that make no sense.
    """
    address = Address(servers or "", config=read_client_config(config_file), tool=tool)
    return OpenTarget(address.checked())


def read_client_config(config_file: str | None) -> dict[str, str]:
    """
    Return the client settings of a file; warn of those that don't exist, and leave them out.

    Raises:
        OSError: the file can't be read.
    """
    config = load_properties(config_file) if config_file is not None else {}
    for name in list(config):
        for told in strangers([name]):
            # Kafka's tools, which may use the same file, also warn and go on.
            complain(printable(f"warning: {config_file}: {told}"))
            del config[name]
    return config
