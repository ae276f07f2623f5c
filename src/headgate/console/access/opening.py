"""
Makes from settings what knows who comes in; refuses settings that would let in too many.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.config.console import ConsoleSettings
from headgate.config.listeners import HostPort
from headgate.console.access.failures import Failures
from headgate.console.access.names import is_loopback, names_of
from headgate.console.access.oidc import CALLBACK, Oidc
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import Roles, read_roles
from headgate.console.access.sessions import OIDC, Sessions
from headgate.console.access.sign_in import OIDC_COOKIE, SignIn, cookie_name
from headgate.console.access.tenants import NO_TENANTS, Tenants, read_tenants
from headgate.console.access.unsigned import Unsigned
from headgate.console.access.users import Users
from headgate.console.database import Database
from headgate.errors import ConfigError

_ALL: Final = frozenset({"", "0.0.0.0", "::"})


def tenants_of(settings: ConsoleSettings) -> Tenants:
    """
    Return the principals of each tenant.

    Raises:
        ConfigError: the file can't be read.
    """
    return read_tenants(Path(settings.tenants_file)) if settings.tenants_file else NO_TENANTS


def behind_tls(settings: ConsoleSettings) -> bool:
    """Whether browsers speak TLS, to the console or to a proxy before it."""
    return settings.certificate is not None or (settings.url or "").startswith("https://")


def check_reach(settings: ConsoleSettings, listener: HostPort) -> None:
    """
    See that nobody reads the console, or a password, who shouldn't.

    Args:
        settings: of the console.
        listener: where it will listen.

    Raises:
        ConfigError: what is missing; all of it at once.
    """
    problems = []
    if bool(settings.certificate) != bool(settings.key):
        problems.append("the certificate and its key go together: headgate.console.ssl.*")
    by_others = [
        name
        for name, value in (
            ("oidc.issuer", settings.oidc_issuer),
            ("proxy.user.header", settings.proxy_user_header),
        )
        if value
    ]
    if settings.data_dir is None:
        problems += [
            f"headgate.console.{name} needs headgate.console.data.dir (--data), for sessions"
            for name in by_others
        ]
        reach = listener.host if settings.url is None else settings.url.partition("://")[2]
        if not is_loopback(listener.host) or not is_loopback(reach.rsplit(":", 1)[0]):
            problems.append(
                f"others could reach {settings.url or listener}, and nobody has to sign in: listen "
                "on 127.0.0.1 without --url, or give a folder for users (--data DIR)"
            )
    elif not is_loopback(listener.host) and not behind_tls(settings):
        problems.append(
            f"passwords would cross the network unencrypted to {listener}: give a certificate "
            "(headgate.console.ssl.*), or the https:// address of a proxy (--url)"
        )
    if listener.host in _ALL and settings.url is None:
        problems.append(f"{listener} is every address: say which one browsers open (--url)")
    if by_others and not settings.roles_file:
        problems.append(f"headgate.console.{by_others[0]} needs headgate.console.roles.file")
    if problems:
        raise ConfigError(problems)


def open_access(
    settings: ConsoleSettings,
    here: HostPort,
    tenants: Tenants,
    database: Database | None,
    clock_ms: Callable[[], int],
) -> SignIn | Unsigned:
    """
    Return what knows who comes in.

    Args:
        settings: checked by ``check_reach``.
        here: where the console listens, with the port that it has.
        tenants: the principals of each tenant.
        database: the console's own state; None: nobody signs in.
        clock_ms: the wall clock, epoch ms.

    Raises:
        ConfigError: files that can't be read, addresses that are none.
    """
    tls = settings.certificate is not None
    origins, hosts = names_of(here, settings.url, tls=tls)
    if database is None:
        return Unsigned(origins, hosts)
    secure = behind_tls(settings)
    users = Users(database)
    for user in users.listed():
        if user.tenant and user.tenant not in tenants:
            raise ConfigError(
                f"user {user.name} is of tenant {user.tenant}, which headgate.console.tenants.file "
                "doesn't have"
            )
    sessions = Sessions(database, clock_ms, settings.session_idle_ms, settings.session_max_ms)
    sessions.end_all(OIDC)  # the file of roles may have changed
    oidc = None
    if settings.oidc_issuer is not None:
        if not settings.oidc_client_id:
            raise ConfigError("headgate.console.oidc.issuer needs headgate.console.oidc.client.id")
        own = settings.url or f"{'https' if tls else 'http'}://{here}"
        secret = settings.oidc_client_secret
        oidc = Oidc(
            settings.oidc_issuer,
            settings.oidc_client_id,
            secret.value if secret else None,
            settings.oidc_scope,
            own.rstrip("/") + CALLBACK,
            cookie_name(OIDC_COOKIE, secure=secure),
        )
    return SignIn(
        origins=origins,
        hosts=hosts,
        secure=secure,
        users=users,
        sessions=sessions,
        proxies=Proxies(
            settings.proxy_addresses, settings.proxy_user_header, settings.proxy_groups_header
        ),
        roles=read_roles(Path(settings.roles_file)) if settings.roles_file else Roles({}),
        tenants=tenants,
        oidc=oidc,
        failures=Failures(),
    )
