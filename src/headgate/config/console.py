"""The console's settings, as a table."""

# ruff: noqa: E501, RUF009 - a table's rows read best whole; each is made of a call

from __future__ import annotations

from dataclasses import dataclass

from headgate.config import kinds as k
from headgate.config.kinds import Password
from headgate.config.listeners import HostPort
from headgate.config.setting import row


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """How the console is reached, and how people sign in."""

    listener: HostPort | None = row("listener", k.ADDRESS, None,
        "Where the console is served (HTTP, or HTTPS with a certificate). `headgate serve` starts one if this is set.")
    url: str | None = row("url", k.TEXT, None,
        "What browsers open, `https://NAME` or `https://NAME:PORT`, where a proxy or a name stands before the listener. A browser that calls the console by any other name is refused.")
    certificate: str | None = row("ssl.certificate", k.PATH, None,
        "Certificate chain, a PEM file; makes the listener HTTPS.")
    key: str | None = row("ssl.key", k.PATH, None,
        "Its private key, a PEM file.")
    data_dir: str | None = row("data.dir", k.PATH, None,
        "Folder for users, sessions and asks for a raise. Without it nobody signs in, and the console is read-only and on loopback only.")
    command_config: str | None = row("command.config", k.PATH, None,
        "Properties with which the console asks the gateway, as for `--command-config`.")
    tenants_file: str | None = row("tenants.file", k.PATH, None,
        "A YAML file with the principals of each tenant: `tenants: {payments: {principals: [alice, bob]}}`.")
    roles_file: str | None = row("roles.file", k.PATH, None,
        "A YAML file with the roles of people who sign in by OIDC or a proxy: `oidc: [{subject: '2482', role: operator}]`, `proxy: [{group: ops, role: viewer}]`. Who isn't in it is refused.")
    session_idle_ms: int = row("session.idle.ms", k.integer(60_000), 3_600_000,
        "A session that wasn't used for this long is over.")
    session_max_ms: int = row("session.max.ms", k.integer(60_000), 43_200_000,
        "A session is over after this long, used or not.")
    oidc_issuer: str | None = row("oidc.issuer", k.TEXT, None,
        "An OpenID Connect provider's issuer; its metadata is at `/.well-known/openid-configuration` below it. The redirect URI to register there is `headgate.console.url` and `/sign-in/oidc/callback`.")
    oidc_client_id: str | None = row("oidc.client.id", k.TEXT, None,
        "The console's client id at the provider.")
    oidc_client_secret: Password | None = row("oidc.client.secret", k.PASSWORD, None,
        "Its secret.")
    oidc_scope: str = row("oidc.scope", k.TEXT, "openid",
        "What the provider is asked for; add the scope that brings the claim `groups` if roles are by group.")
    proxy_addresses: tuple[str, ...] = row("proxy.addresses", k.WORDS, (),
        "Addresses or networks (`10.0.0.5`, `10.1.0.0/24`) of proxies that sign people in. Their headers are believed; the same headers from anywhere else are removed.")
    proxy_user_header: str | None = row("proxy.user.header", k.TEXT, None,
        "The header in which such a proxy names the user, such as `X-Forwarded-User`.")
    proxy_groups_header: str | None = row("proxy.groups.header", k.TEXT, None,
        "The header in which it lists the user's groups, separated by commas.")
# fmt: on
