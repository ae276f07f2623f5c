"""
The host names that requests to the console may have, and the addresses it may listen on.
"""

from __future__ import annotations

import ipaddress

from headgate.config.console import ConsoleSettings
from headgate.config.listeners import WILDCARDS, HostPort
from headgate.errors import ConfigError
from headgate.throttle.connection import host_address


def is_loopback(host: str) -> bool:
    """Whether other machines can't reach a listener on this host."""
    try:
        return ipaddress.ip_address(host_address(host.strip("[]"))).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_of(
    listener: HostPort, url: str | None, *, tls: bool
) -> tuple[frozenset[str], frozenset[str]]:
    """
    Return the origins of our own pages, and the host names that requests may have.

    Args:
        listener: where the console listens; the port is the one it has.
        url: what browsers open, if that is something else: a proxy's, or a name.
        tls: whether the listener speaks TLS.

    Raises:
        ConfigError: the URL isn't one.
    """
    scheme = "https" if tls else "http"
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    names = {host.lower()}
    if is_loopback(listener.host):
        names |= {"localhost", "127.0.0.1", "[::1]"}
    default = {"http": 80, "https": 443}
    hosts = {f"{name}:{listener.port}" for name in names}
    if listener.port == default[scheme]:
        hosts |= names
    origins = {f"{scheme}://{name}" for name in hosts}
    if url is not None:
        given, separator, rest = url.partition("://")
        rest = rest.rstrip("/").lower()
        if not separator or given not in default or not rest or set(rest) & set("/?#@ "):
            raise ConfigError(f"--url {url}: expected https://NAME or https://NAME:PORT, no path")
        plain = rest.removesuffix(f":{default[given]}")
        hosts |= {rest, plain}
        origins.add(f"{given}://{plain}")
    return frozenset(origins), frozenset(hosts)


def behind_tls(settings: ConsoleSettings) -> bool:
    """Whether browsers use TLS, to the console or to a proxy in front of it."""
    return settings.certificate is not None or (settings.url or "").startswith("https://")


def check_reach(settings: ConsoleSettings, listener: HostPort) -> None:
    """
    Check that people without permission can read neither the console nor a password.

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
    if listener.host in WILDCARDS and settings.url is None:
        problems.append(f"{listener} is every address: say which one browsers open (--url)")
    if by_others and not settings.roles_file:
        problems.append(f"headgate.console.{by_others[0]} needs headgate.console.roles.file")
    if problems:
        raise ConfigError(problems)
