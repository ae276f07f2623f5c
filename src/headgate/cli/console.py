"""
`headgate console`: serve the web page that says who is held now, and why.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.cli.connecting import open_client
from headgate.cli.contract import BadUsage, Parser, command
from headgate.cli.output import complain
from headgate.cli.quotas.flags import add_connection, add_place_flags
from headgate.cli.quotas.quota_home import open_quota_store
from headgate.cli.results import Served

if TYPE_CHECKING:
    from headgate.console.home import Home

_LISTEN: Final = "127.0.0.1:8088"
_TOOL: Final = "headgate console"


def main(argv: Sequence[str]) -> int:
    """Run `headgate console`."""
    return command(parser(), argv, _serve)


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        _TOOL,
        "Serve a web page that says who is held now, by which quota, how much room others have, "
        "and why. Quotas come from the store, or from the servers if no store is given; what goes "
        "on now comes from a gateway.",
        example=f"{_TOOL} --bootstrap-server localhost:19092 --store sqlite:quotas.db",
    )
    add_place_flags(made)
    add_connection(made)
    made.add_argument("--listen", metavar="HOST:PORT", default=_LISTEN, help=f"default: {_LISTEN}")
    made.add_argument(
        "--url", metavar="URL", help="what browsers open, where a proxy or name stands before it"
    )
    return made


def open_home(arguments: argparse.Namespace) -> Home:
    """
    Open the store, and a client for the gateway.

    Raises:
        ConfigError: neither was given, or settings make no sense.
        StoreError: the store can't be reached.
    """
    from headgate.admin.home import OpenHome
    from headgate.console.home import Home

    store, servers = arguments.store, arguments.bootstrap_server
    if not store and not servers:
        raise BadUsage("give --bootstrap-server of a gateway, --store, or both")
    file = arguments.command_config
    client = None
    if servers:
        client = open_client(servers=servers, store=None, config_file=file, tool=_TOOL)
    quotas = OpenHome(
        store or servers,
        _TOOL,
        store=open_quota_store(store, None if servers else file) if store else None,
        client=client,
        servers=servers or "",
        open_store=lambda url: open_quota_store(url, file),
    )
    return Home(quotas, client if hasattr(client, "describe_live") else None)


def _serve(arguments: argparse.Namespace) -> Served:
    from headgate.clock import now_ms
    from headgate.config.listeners import HostPort
    from headgate.console.access.tenants import NO_TENANTS
    from headgate.console.access.unsigned import Unsigned
    from headgate.console.app import make_app
    from headgate.console.parts import ConsoleParts
    from headgate.console.serve import is_loopback, listen, names_of, serve

    try:
        wanted = HostPort.parse(arguments.listen)
    except ValueError as error:
        raise BadUsage(f"--listen: {error}") from None
    if not is_loopback(wanted.host):
        raise BadUsage(
            f"--listen {wanted}: others could reach it, and nobody has to sign in; listen on "
            "127.0.0.1"
        )
    home = open_home(arguments)
    sock = listen(wanted)
    here = replace(wanted, port=sock.getsockname()[1])
    origins, hosts = names_of(here, arguments.url, tls=False)
    app = make_app(ConsoleParts(home, None, NO_TENANTS, now_ms), Unsigned(origins, hosts))
    try:
        serve(app, sock, None, lambda: complain(f"Console: http://{here}/ (Ctrl-C ends it)"))
    finally:
        home.close()
    return Served(url=f"http://{here}/")
