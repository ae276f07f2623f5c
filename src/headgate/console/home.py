"""
What pages read and change: quotas, their history, and what goes on now.

Stores and servers are asked on worker threads, so that a slow one delays only the page that asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool

from headgate.admin.open_target import Action, OpenTarget
from headgate.admin.target import ChangeRequest, Refused
from headgate.errors import StoreError
from headgate.live.picture import Picture
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent, HistoryEntry
from headgate.store.identity import StoreIdentity

T = TypeVar("T")

MOST_QUOTAS: Final = 2_000
"""Quota-ids of a broker in a picture, unless a caller asks for more; the rest is counted."""
_MOST_ASKED: Final = 8
"""Questions about principals at once, so that a gateway that hangs leaves threads for others."""


class LiveSource(Protocol):
    """The source of what goes on now: the admin client of a gateway."""

    def describe_live(
        self, *, user: str | None = None, client_id: str | None = None, most: int = MOST_QUOTAS
    ) -> Picture:
        """Return the picture of all brokers, joined."""

    def close(self) -> None:
        """Close the connections."""


class Home:
    """
    Where quotas are kept, and the gateway that says what goes on.

    Args:
        quotas: the store, or the servers that are asked.
        live: says what goes on; None: there is no gateway.
    """

    def __init__(self, quotas: OpenTarget, live: LiveSource | None = None) -> None:
        self.name = quotas.name
        self._quotas = quotas
        self._live = live
        self._few = CapacityLimiter(_MOST_ASKED)

    def open(self) -> None:
        """
        Open the store now.

        Raises:
            StoreError: it can't be reached.
        """
        self._quotas.store()

    @property
    def has_live(self) -> bool:
        """Whether there is a gateway that says what goes on now."""
        return self._live is not None

    async def table(self) -> QuotaTable:
        """Return all quotas."""
        return await run_in_threadpool(self._quotas.table)

    async def identity(self) -> StoreIdentity | None:
        """Return the store's identity and revision; None for servers, which have none."""
        return await run_in_threadpool(self._quotas.identity)

    async def history(
        self, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Raises:
            StoreError: servers that keep no history.
        """
        return await self._of_history(lambda target: target.history(entity, limit))

    async def audit_log(self, limit: int | None = None) -> list[AuditEvent]:
        """Return what was refused or done beside quotas, oldest first."""
        return await self._of_history(lambda target: target.audit_log(limit))

    async def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        await self._of_history(lambda target: target.audit(event))

    async def _of_history(self, action: Action[T]) -> T:
        def act() -> T:
            self._quotas.find_history()
            return self._quotas.run(action)

        return await run_in_threadpool(act)

    async def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        who: str,
        message: str = "",
        validate_only: bool = False,
        at_revision: int | None = None,
    ) -> Refused:
        """
        Change quotas.

        Args:
            alterations: one per entity.
            who: the viewer's name, for the history.
            message: why, for the history; servers don't keep it.
            validate_only: check, and change nothing.
            at_revision: the revision that was previewed; None: any.

        Returns:
            Entities that were refused, each with its error.

        Raises:
            StoreMovedOn: the store is at another revision.
        """
        quotas = self._quotas
        kept = message if quotas.keeps_history else ""
        request = ChangeRequest(alterations, validate_only, kept, at_revision, who)
        if validate_only:
            return (await run_in_threadpool(quotas.validate, request)).refused
        return await run_in_threadpool(quotas.change, request)

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
        live = self._live
        if live is None:
            raise StoreError(
                f"{self.name} doesn't say what goes on now; give the console a gateway's address "
                "(--bootstrap-server)"
            )

        def ask() -> Picture:
            return live.describe_live(user=user, client_id=client_id, most=most)

        # events.Watch asks for everybody's picture one at a time; only principals' need a limit.
        limiter = None if user is None else self._few
        return await to_thread.run_sync(ask, limiter=limiter)

    def close(self) -> None:
        """Close the store and the connections to servers."""
        if self._live is not None:
            self._live.close()
        self._quotas.close()
