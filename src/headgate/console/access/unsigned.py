"""
Without sign-in: everybody on this machine reads everything, and changes nothing.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from headgate.console.access.tenants import NO_TENANTS
from headgate.console.access.viewer import Role, Viewer

_ANYBODY: Final = Viewer("anybody on this machine", Role.VIEWER)


class Unsigned:
    """
    Everybody is a viewer. Browsers aren't told to use TLS, because loopback has other servers too.

    Args:
        origins: where our own pages come from.
        hosts: the host names that requests may have.
    """

    secure = False
    tenants = NO_TENANTS

    def __init__(self, origins: frozenset[str], hosts: frozenset[str]) -> None:
        self.origins = origins
        self.hosts = hosts

    async def viewer_of(self, request: Request) -> tuple[Viewer | None, str]:
        """Return the one viewer there is."""
        return _ANYBODY, "anybody"
