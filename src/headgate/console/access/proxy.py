"""
Users named by a proxy that signs people in. The same headers from other senders are ignored.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, NamedTuple

from starlette.types import Scope

from headgate.errors import ConfigError

_FORWARDED: Final = b"x-forwarded-for"
_MOST: Final = 500


class Named(NamedTuple):
    """The user that a proxy named."""

    user: str
    groups: frozenset[str]


class Proxies:
    """
    The proxies that are believed.

    Args:
        addresses: their addresses or networks.
        user_header: the header that names the user; None: they don't sign people in.
        groups_header: the header that lists groups.

    Raises:
        ConfigError: a text that isn't an address; a header without addresses.
    """

    def __init__(
        self, addresses: Iterable[str], user_header: str | None, groups_header: str | None
    ) -> None:
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for text in addresses:
            try:
                self._networks.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise ConfigError(f"headgate.console.proxy.addresses: {error}") from None
        if user_header and not self._networks:
            raise ConfigError(
                "headgate.console.proxy.user.header needs headgate.console.proxy.addresses: the "
                "proxies that are believed"
            )
        self._user = user_header.lower().replace("_", "-").encode() if user_header else b""
        self._groups = groups_header.lower().replace("_", "-").encode() if groups_header else b""

    @property
    def sign_in(self) -> bool:
        """Whether they name users."""
        return bool(self._user)

    def read(self, scope: Scope) -> tuple[Named | None, str]:
        """
        Remove the proxies' headers from a request, and read them if a proxy sent them.

        Args:
            scope: of the request; afterwards it has none of these headers.

        Returns:
            The user, if a believed proxy named one; and the address that the request comes from.
        """
        peer = scope["client"][0] if scope.get("client") else ""
        ours = self._believed(peer)
        taken: dict[bytes, list[str]] = {}
        kept = []
        for name, value in scope["headers"]:
            # Some proxies' own servers take _ for -, so that X_Forwarded_User is the same to them.
            if name.replace(b"_", b"-") in (self._user, self._groups, _FORWARDED):
                taken.setdefault(name, []).append(value.decode("latin-1"))
            else:
                kept.append((name, value))
        scope["headers"] = kept
        if not ours:
            return None, peer
        forwarded = ",".join(taken.get(_FORWARDED, ())).rpartition(",")[2].strip()
        users = taken.get(self._user, [])
        groups = taken.get(self._groups, [])
        # A header that came twice may be the client's own beside the proxy's: neither is believed.
        if not self._user or len(users) != 1 or not 0 < len(users[0]) <= _MOST or len(groups) > 1:
            return None, forwarded or peer
        user = users[0].encode("latin-1").decode("utf-8", "replace")
        named = frozenset(filter(None, map(str.strip, ",".join(groups).split(","))))
        return Named(user, named), forwarded or peer

    def _believed(self, peer: str) -> bool:
        try:
            found = ipaddress.ip_address(peer)
        except ValueError:
            return False
        plain = getattr(found, "ipv4_mapped", None) or found
        return any(plain in network for network in self._networks)
