"""
What browsers may call the console, and where its own pages come from.
"""

from __future__ import annotations

import ipaddress

from headgate.config.listeners import HostPort
from headgate.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Whether a listener on this host is out of other machines' reach."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_of(
    listener: HostPort, url: str | None, *, tls: bool
) -> tuple[frozenset[str], frozenset[str]]:
    """
    Return the origins of our own pages, and what a browser may call us.

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
