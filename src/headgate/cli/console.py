"""
`headgate console`: serve the page that says who is throttled now, and why; keep its local users.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

from headgate.cli.connecting import load_properties, open_servers
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.flags import add_connection, add_place_flags
from headgate.cli.results import Result
from headgate.config.listeners import HostPort
from headgate.errors import ConfigError
from headgate.words import moment

if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget
    from headgate.config.console import ConsoleSettings
    from headgate.config.settings import Settings

_LISTEN: Final = HostPort("127.0.0.1", 8088)
_TOOL: Final = "headgate console"
_ROLES: Final = ("viewer", "tenant", "operator")


class Console(Result):
    """
    A console that was ended, by its URL; or its local users; or the tokens of its API.

    Args:
        url: of the console.
        users: with name, role and tenant.
        tokens: those that haven't ended, without themselves.
        token: one that was made; nobody can read it again.
    """

    url: str | UnsetType = UNSET
    users: list[dict[str, str]] | UnsetType = UNSET
    tokens: list[dict[str, str | int]] | UnsetType = UNSET
    token: str | UnsetType = UNSET


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        _TOOL,
        "Serve a web page that says who is throttled now, by which quota and why, and how much "
        "headroom others have. Quotas come from the store, or from the servers if no store is "
        "given; use and throttling come from a gateway. Without --data nobody signs in, the page "
        "is read-only, and it is served on loopback only. `headgate console user` lists, adds and "
        "removes users; `headgate console token` does so with tokens of its API.",
        _serve,
        example=f"{_TOOL} --bootstrap-server localhost:19092 --store sqlite:quotas.db",
    )
    add_place_flags(made)
    add_connection(made)
    made.add_argument(
        "--config", metavar="FILE", help="properties with headgate.console.* and headgate.store"
    )
    made.add_argument("--listen", metavar="HOST:PORT", help=f"default: {_LISTEN}")
    made.add_argument(
        "--url", metavar="URL", help="what browsers open, where a proxy or name stands before it"
    )
    made.add_argument(
        "--data", metavar="DIR", help="for users, sessions and requests for a raise; people sign in"
    )
    made.add_argument(
        "--journal",
        metavar="DIR",
        help="the gateway's journals, for use over time and what-if on the last hour",
    )
    made.add_argument("--tenants", metavar="FILE", help="the principals of each tenant, YAML")
    made.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    actions = made.add_subparsers(metavar="[ACTION]")
    _add_user(actions)
    _add_token(actions)
    return made


def _add_user(actions: argparse._SubParsersAction[Parser]) -> None:
    made = actions.add_parser(
        "user",
        help="list, add, change and remove local users, instead of serving",
        description="List, add and remove the console's local users, or give one another password "
        "or role. Passwords are asked for on the terminal, or read from stdin, one line.",
        does=_user,
        example=f"{_TOOL} user add ada --role operator --data console",
    )
    made.add_argument("action", choices=("list", "add", "password", "role", "remove"))
    made.add_argument("name", metavar="NAME", nargs="?", help="of the user")
    made.add_argument("--data", metavar="DIR", required=True, help="the console's folder")
    made.add_argument("--role", choices=_ROLES, help="of a user that is added, or the new one")
    made.add_argument("--tenant", metavar="T", default="", help="for the role tenant")
    made.add_argument(
        "--tenants",
        metavar="FILE",
        help="the file in which T must be; default: that of the console last started with DIR",
    )


def _add_token(actions: argparse._SubParsersAction[Parser]) -> None:
    made = actions.add_parser(
        "token",
        help="list, make and end tokens of the API, instead of serving",
        description="List, make and end tokens of the console's HTTP API. A token is a local "
        "user's: it may what that user may at that moment. It is printed once, when it is made.",
        does=_token,
        example=f"{_TOOL} token add nightly --user ada --scope read --data console",
    )
    made.add_argument("action", choices=("list", "add", "end"))
    made.add_argument("name", metavar="NAME", nargs="?", help="what it is for; to end it: its id")
    made.add_argument("--data", metavar="DIR", required=True, help="the console's folder")
    made.add_argument("--user", metavar="U", help="whose it is; of a list: only this user's")
    made.add_argument("--scope", choices=("read", "change"), help="what it may; default: read")
    made.add_argument("--days", metavar="N", type=int, help="after which it ends; default: 90")


def _token(arguments: argparse.Namespace) -> Console:
    from headgate.clock import now_ms
    from headgate.console.access.tokens import Tokens
    from headgate.console.access.users import Users
    from headgate.console.access.viewer import Scope
    from headgate.console.database import Database

    name, action, user = arguments.name, arguments.action, arguments.user
    if (name is None) != (action == "list"):
        raise BadUsage(f"{action} takes {'no' if action == 'list' else 'a'} NAME")
    if action != "add" and (arguments.scope or arguments.days is not None):
        raise BadUsage("add takes --scope and --days, and nothing else does")
    if (action == "add") != (user is not None) and action != "list":
        raise BadUsage("add takes --user, and end doesn't")
    with contextlib.closing(Database(Path(arguments.data))) as database:
        users, tokens = Users(database), Tokens(database, now_ms)
        made: str | UnsetType = UNSET
        if user is not None and users.role_of(user) is None:
            raise ConfigError(f"there is no user {user}")
        if action == "add":
            days = 90 if arguments.days is None else arguments.days
            made = tokens.make(user, name, Scope(arguments.scope or "read"), days)
        elif action == "end" and not tokens.end(name):
            raise ConfigError(f"there is no token {name}")
        found = tokens.listed(user)
    if made is not UNSET:
        say(made)
    else:
        for token in found:
            ends = moment(token.ends_ms)
            say(printable(f"{token.id}  {token.owner}  {token.scope}  {ends}  {token.label}"))
    return Console(tokens=[dict(t._asdict()) for t in found], token=made)


def _user(arguments: argparse.Namespace) -> Console:
    from headgate.console.access.users import Users
    from headgate.console.access.viewer import Role
    from headgate.console.database import Database

    name, action = arguments.name, arguments.action
    if (name is None) != (action == "list"):
        raise BadUsage(f"{action} takes {'no' if action == 'list' else 'a'} NAME")
    if (arguments.role is None) != (action not in ("add", "role")):
        raise BadUsage("add and role take --role, and nothing else does")
    with contextlib.closing(Database(Path(arguments.data))) as database:
        users = Users(database)
        if arguments.tenant:
            _check_tenant(arguments.tenant, arguments.tenants or users.tenants_file)
        if action == "add":
            users.add(name, Role(arguments.role), arguments.tenant, _password())
        elif action == "password":
            users.set_password(name, _password())
        elif action == "role":
            users.set_role(name, Role(arguments.role), arguments.tenant)
        elif action == "remove":
            users.remove(name)
        found = users.listed()
    for user in found:
        say(printable("  ".join(filter(None, (user.name, user.role, user.tenant)))))
    return Console(users=[dict(u._asdict()) for u in found])


def _check_tenant(tenant: str, file: str | Path | None) -> None:
    """
    Check that a file of tenants has a tenant.

    Raises:
        ConfigError: it doesn't have it, or can't be read.
    """
    from headgate.console.access.tenants import read_tenants, unknown_tenant

    if file is None:
        complain(f"note: no file of tenants is known yet (--tenants), so {tenant} isn't checked")
        return
    tenants = read_tenants(Path(file))
    if tenant not in tenants:
        raise ConfigError(unknown_tenant(tenant, tenants, str(file)))


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise ConfigError("the two passwords differ")
    return first


def open_targets(
    *, store: str | None, servers: str | None, config_file: str | None, settings: Settings | None
) -> tuple[OpenTarget, OpenTarget | None]:
    """
    Return where quotas are, a store that is open already; and the gateway, None without servers.

    Args:
        store: its URL.
        servers: the gateway's.
        config_file: for connecting to the servers, or to a store without servers.
        settings: for connecting to the store; None: none were given.

    Raises:
        ConfigError: settings make no sense.
        StoreError: the store can't be reached.
    """
    from headgate.admin.open_target import OpenTarget
    from headgate.admin.opening import Address

    gateway = open_servers(servers, config_file, _TOOL) if servers else None
    if not store:
        assert gateway is not None
        return gateway, gateway
    is_read = config_file and not servers and settings is None  # else nothing of it is used
    config = load_properties(config_file) if config_file and is_read else {}
    quotas = OpenTarget(Address(store=store, config=config, settings=settings, tool=_TOOL))
    opened = quotas.store()
    assert opened is not None
    if opened.ends is not None:
        opened.home.watch()  # what ends, in time
    return quotas, gateway


def _settings(arguments: argparse.Namespace) -> tuple[ConsoleSettings, Settings | None]:
    """Return the console's settings, flags before the file, and the whole file's; None: no file."""
    from headgate.config import Settings, load_settings

    whole = load_settings(arguments.config) if arguments.config else None
    console = (whole or Settings.from_properties({})).console
    try:
        listener = HostPort.parse(arguments.listen) if arguments.listen else console.listener
    except ValueError as error:
        raise BadUsage(f"--listen: {error}") from None
    console = replace(
        console,
        listener=listener or _LISTEN,
        url=arguments.url or console.url,
        data_dir=arguments.data or console.data_dir,
        tenants_file=arguments.tenants or console.tenants_file,
        command_config=arguments.command_config or console.command_config,
    )
    return console, whole


def _serve(arguments: argparse.Namespace) -> Console:
    from headgate.clock import now_ms
    from headgate.console.access.names import check_reach
    from headgate.console.access.opening import left_out, open_access, tenants_of
    from headgate.console.access.users import Users
    from headgate.console.app import make_app
    from headgate.console.database import Database
    from headgate.console.parts import ConsoleParts
    from headgate.console.serve import PemFiles, end_with_parent, listen, serve
    from headgate.console.what_if import preload

    settings, whole = _settings(arguments)
    assert settings.listener is not None
    store, from_file = arguments.store, None
    if store is None and whole is not None and "headgate.store" in whole.given:
        store, from_file = whole.store, whole
    if not store and not arguments.bootstrap_server:
        raise BadUsage("give --bootstrap-server of a gateway, --store, or both")
    check_reach(settings, settings.listener)
    tenants = tenants_of(settings)
    quotas, gateway = open_targets(
        store=store,
        servers=arguments.bootstrap_server,
        config_file=settings.command_config,
        settings=from_file,
    )
    database = Database(Path(settings.data_dir)) if settings.data_dir else None
    try:
        sock = listen(settings.listener)
        here = replace(settings.listener, port=sock.getsockname()[1])
        access = open_access(settings, here, tenants, database, now_ms)
        if database is not None:
            for note in left_out(Users(database), tenants):
                complain(printable(note))
        journal = arguments.journal
        if journal is None and whole is not None and whole.usage.kind == "files":
            told = arguments.with_parent or "headgate.usage" in whole.given
            journal = whole.usage.place if told else None
        parts = ConsoleParts(quotas, gateway, database, now_ms, Path(journal) if journal else None)
        app = make_app(parts, access)
        tls = None
        if settings.certificate and settings.key:
            tls = PemFiles(Path(settings.certificate), Path(settings.key))
        url = settings.url or f"http{'s' if tls else ''}://{here}"
        if arguments.with_parent:
            end_with_parent()

        def ready() -> None:
            complain(f"Console: {url}/ (Ctrl-C ends it)")
            if parts.journal is not None:
                preload()

        serve(app, sock, tls, ready)
    finally:
        quotas.close()
        if gateway is not None:
            gateway.close()
        if database is not None:
            database.close()
    return Console(url=f"{url}/")
