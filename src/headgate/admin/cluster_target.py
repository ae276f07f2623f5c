"""
Quotas of a cluster, over connections to its servers: what both kinds of servers have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from headgate.admin.target import ChangeRequest, EntityQuery, QuotaTarget, left_out
from headgate.client.nodes import Nodes
from headgate.client.waiting import limited
from headgate.errors import ApiError, ConfigError, StoreError
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.store.base import AuditEvent, HistoryEntry

CHANGE_TIMEOUT_MS: Final = 60_000
"""How long servers may take for one request of a change that commands or the console make."""


class ClusterTarget(QuotaTarget):
    """
    Servers of a cluster: brokers, or gateways.

    Args:
        nodes: finds and keeps connections.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def table(self) -> QuotaTable:
        """Return all quotas."""
        return QuotaTable(await self.describe(EntityQuery((), draft=True)))

    async def identity(self) -> None:
        """Return None: a cluster has no identity."""

    async def history(
        self, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Refuse: Kafka's protocol has no word for the history."""
        self._keeps_none()

    async def audit_log(self, limit: int | None = None) -> list[AuditEvent]:
        """Refuse: as ``history``."""
        self._keeps_none()

    async def audit(self, event: AuditEvent) -> None:
        """Refuse: as ``history``."""
        self._keeps_none()

    def _keeps_none(self) -> NoReturn:
        raise StoreError(f"{','.join(map(str, self._nodes.bootstrap))} keeps no history")

    async def errors(self, request: ChangeRequest) -> Sequence[ApiError | None]:
        """
        Change quotas within ``CHANGE_TIMEOUT_MS``; return the error of each alteration.

        An answer that refuses the whole request refuses each entity.

        Raises:
            ConfigError: a message is given.
        """
        if request.message:
            raise ConfigError(
                "--message is kept in a store's history, which Kafka's protocol has no word for; "
                "give --store"
            )
        try:
            results = await limited(CHANGE_TIMEOUT_MS, self.alter(request))
        except ApiError as error:
            return [error] * len(request.alterations)
        told = {result.entity: result.error for result in results}
        return [told.get(a.entity, left_out(a.entity)) for a in request.alterations]

    async def close(self) -> None:
        """Close the connections."""
        await self._nodes.close()
