"""
From flags to an admin client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.admin.client_settings import strangers
from headgate.cli.joptsimple import Option, OptionSet
from headgate.cli.output import complain, printable
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.admin import AdminClient


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
    "A Headgate store instead of a server: sqlite:PATH, zookeeper://HOST:PORT/CHROOT or "
    "kafka://HOST:PORT.",
    "String: URL",
)
"""The flag of the two tools that read theirs as Kafka's do."""


def connect(options: OptionSet, tool: str) -> AdminClient:
    """
    Make the admin client that such a tool's flags ask for.

    Raises:
        OptionError: a flag is given more than once.
        OSError: the file can't be read.
        ConfigError: settings that make no sense.
    """
    return open_client(
        servers=options.value("bootstrap-server") or options.value("bootstrap-controller"),
        store=options.value("store"),
        config_file=options.value("command-config"),
        tool=tool,
        create=options.has("alter"),
    )


def open_client(
    *,
    servers: str | None,
    store: str | None,
    config_file: str | None,
    tool: str,
    create: bool = False,
) -> AdminClient:
    """
    Make the admin client that flags ask for.

    Args:
        servers: ``--bootstrap-server``, or None.
        store: ``--store``, or None.
        config_file: ``--command-config``, or None.
        tool: the program, for a store's history.
        create: make a store that is missing; for commands that change something.

    Raises:
        OSError: the file can't be read.
        ConfigError: settings that make no sense.
    """
    from headgate.admin import AdminClient

    config = load_properties(config_file) if config_file is not None else {}
    for name in list(config):
        for told in strangers([name]):
            # Kafka's tools, which may use the same file, also warn and go on.
            complain(printable(f"warning: {config_file}: {told}"))
            del config[name]
    return AdminClient(servers, store=store, config=config, tool=tool, create=create)
