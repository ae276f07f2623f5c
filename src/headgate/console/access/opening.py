"""
Make, from the settings, the object that finds out who a request comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headgate.config.console import ConsoleSettings
from headgate.config.listeners import HostPort
from headgate.console.access.failures import Failures
from headgate.console.access.names import behind_tls, names_of
from headgate.console.access.oidc import CALLBACK, Oidc
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import Roles, read_roles
from headgate.console.access.sessions import OIDC, Sessions
from headgate.console.access.sign_in import OIDC_COOKIE, SignIn, cookie_name
from headgate.console.access.tenants import NO_TENANTS, Tenants, read_tenants, unknown_tenant
from headgate.console.access.tokens import Tokens
from headgate.console.access.unsigned import Unsigned
from headgate.console.access.users import Users
from headgate.console.database import Database
from headgate.errors import ConfigError


def tenants_of(settings: ConsoleSettings) -> Tenants:
    """
    Return the principals of each tenant.

    Raises:
        ConfigError: the file can't be read.
    """
    return read_tenants(Path(settings.tenants_file)) if settings.tenants_file else NO_TENANTS


def left_out(users: Users, tenants: Tenants) -> list[str]:
    """Return who can't sign in, since the file of tenants doesn't have their tenant, and why."""
    return [
        f"{user.name} can't sign in: "
        + unknown_tenant(user.tenant, tenants, "headgate.console.tenants.file (--tenants)")
        + ". Correct the file, or: headgate console user role "
        + f"{user.name} --role tenant --tenant NAME"
        for user in users.listed()
        if user.tenant and user.tenant not in tenants
    ]


def open_access(
    settings: ConsoleSettings,
    here: HostPort,
    tenants: Tenants,
    database: Database | None,
    clock_ms: Callable[[], int],
) -> SignIn | Unsigned:
    """
    Return the object that finds out who a request comes from.

    Args:
        settings: checked by ``check_reach``.
        here: where the console listens, with the port that it has.
        tenants: the principals of each tenant.
        database: the console's own state; None: nobody signs in.
        clock_ms: the wall clock, epoch ms.

    Raises:
        ConfigError: files that can't be read, texts that aren't addresses.
    """
    tls = settings.certificate is not None
    origins, hosts = names_of(here, settings.url, tls=tls)
    if database is None:
        return Unsigned(origins, hosts)
    secure = behind_tls(settings)
    users = Users(database)
    users.remember(settings.tenants_file)
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
        tokens=Tokens(database, clock_ms),
        proxies=Proxies(
            settings.proxy_addresses, settings.proxy_user_header, settings.proxy_groups_header
        ),
        roles=read_roles(Path(settings.roles_file)) if settings.roles_file else Roles({}),
        tenants=tenants,
        oidc=oidc,
        failures=Failures(),
    )
