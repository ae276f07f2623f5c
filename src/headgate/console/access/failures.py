"""
Failed sign-ins are slowed, for each user name and for each address, in bounded memory.

Names and addresses are hashed into a fixed number of places. So an attacker can't make the console
forget failures by trying a million names. Two names that share a place are slowed together.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from typing import Final

_PLACES: Final = 16_384
_FREE: Final = 5
"""Failures in a row that cost nothing: people mistype."""
_FIRST_MS: Final = 1_000
_MOST_MS: Final = 60_000
"""The wait doubles up to this, so that nobody can lock a user out for long."""
_FORGOTTEN_MS: Final = 900_000
"""A place without failures for this long starts at 0 again."""
MOST_BY_ADDRESS: Final = 4
"""For its address, a failure counts a fourth: several people may share an address."""


class Failures:
    """The failed sign-ins of the last while."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(16)
        self._count = [0.0] * _PLACES
        self._last_ms = [0] * _PLACES

    def wait_ms(self, name: str, address: str, now_ms: int) -> int:
        """
        Return for how long another try is refused.

        Args:
            name: of the user, whether there is one or not.
            address: where the try comes from.
            now_ms: the time.
        """
        return max(self._left_ms(place, now_ms) for place in self._places(name, address))

    def tried(self, name: str, address: str, now_ms: int) -> None:
        """Count a try before it is known to have failed, so that many at once are counted."""
        for place, much in zip(
            self._places(name, address), (1.0, 1.0 / MOST_BY_ADDRESS), strict=True
        ):
            if now_ms - self._last_ms[place] >= _FORGOTTEN_MS:
                self._count[place] = 0.0
            self._count[place] += much
            self._last_ms[place] = now_ms

    def succeeded(self, name: str, address: str) -> None:
        """Forget the user's failures, but only this try of the address: others may fail there."""
        user, where = self._places(name, address)
        self._count[user] = 0.0
        self._count[where] = max(0.0, self._count[where] - 1.0 / MOST_BY_ADDRESS)

    def _left_ms(self, place: int, now_ms: int) -> int:
        beyond = self._count[place] - _FREE
        since = now_ms - self._last_ms[place]
        if beyond < 0 or since >= _FORGOTTEN_MS:
            return 0
        wait = min(_MOST_MS, _FIRST_MS * 2 ** min(beyond, 16))
        return max(0, int(wait) - since)

    def _places(self, name: str, address: str) -> tuple[int, int]:
        return self._place("user", name), self._place("address", _network(address))

    def _place(self, kind: str, text: str) -> int:
        data = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "big") % _PLACES


def _network(address: str) -> str:
    """Return the address; for IPv6 its /64, which is what one customer of a provider has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 6:
        mapped = found.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)
