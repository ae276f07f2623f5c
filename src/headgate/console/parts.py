"""
The objects that pages use: ``parts(request)`` and ``viewer(request)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from anyio import to_thread
from starlette.requests import Request

from headgate.admin.open_target import OpenTarget
from headgate.console.access.viewer import Viewer
from headgate.console.database import Database
from headgate.errors import StoreError
from headgate.live.picture import Picture
from headgate.quota.file import digest_of
from headgate.quota.table import QuotaTable
from headgate.store.identity import StoreIdentity
from headgate.wire.messages.live import LiveRequest

MOST_QUOTAS: Final = 2_000
"""Quota-ids of a broker in a picture, unless a caller asks for more; the rest is counted."""


class LiveSource(Protocol):
    """The source of what goes on now: a gateway."""

    async def live_beside(self, request: LiveRequest) -> Picture:
        """Return the picture of all brokers, joined (``OpenTarget.live_beside``)."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """
    What the console is made of.

    Args:
        quotas: the store, or the servers that are asked.
        live: says what goes on now; None: there is no gateway.
        database: the console's own state; None where nobody signs in.
        clock_ms: the wall clock, epoch ms.
        journal: a gateway's directory of usage journals; None: there is none to read.
    """

    quotas: OpenTarget
    live: LiveSource | None
    database: Database | None
    clock_ms: Callable[[], int]
    journal: Path | None = None

    async def table(self) -> QuotaTable:
        """Return all quotas."""
        return await self.quotas.beside(lambda target: target.table())

    async def state(self) -> tuple[str, StoreIdentity | None, QuotaTable]:
        """
        Return all quotas, what their state is called, and the store's identity.

        The state is the store's revision, or a digest of the quotas. It is never that of later
        quotas, so a change in between is noticed.
        """
        identity = await self.quotas.beside(lambda target: target.identity())
        table = await self.table()
        if identity is not None:
            return f"{identity.id}.{identity.revision}", identity, table
        return await to_thread.run_sync(digest_of, table), None, table

    async def picture(
        self, user: str | None = None, client_id: str | None = None, most: int = MOST_QUOTAS
    ) -> Picture:
        """
        Return what goes on now.

        Args:
            user: only this principal; None: everybody.
            client_id: only this client-id; None: any.
            most: quota-ids of a broker at most.

        Raises:
            StoreError: there is no gateway, or it doesn't answer.
        """
        if self.live is None:
            raise StoreError(
                f"{self.quotas.name} doesn't say what goes on now; give the console a gateway's "
                "address (--bootstrap-server)"
            )
        return await self.live.live_beside(LiveRequest(user, client_id, most))


def parts(request: Request) -> ConsoleParts:
    """Return what the console is made of."""
    return cast("ConsoleParts", request.app.state.parts)


def viewer(request: Request) -> Viewer:
    """Return who looks; only for pages that somebody must be signed in for."""
    found = getattr(request.state, "viewer", None)
    assert isinstance(found, Viewer), "a page without roles asked who looks"
    return found
