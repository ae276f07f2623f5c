"""
Quotas of a cluster, over connections to its servers: what both kinds of servers have in common.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headgate.admin.target import ChangeRequest, EntityQuery, QuotaTarget, left_out
from headgate.client.nodes import Nodes
from headgate.client.waiting import limited
from headgate.errors import ApiError, ConfigError, HeadgateError, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.store.base import AuditEvent, HistoryEntry

CHANGE_TIMEOUT_MS: Final = 60_000
"""How long servers may take for one request of a change."""

Part = Sequence[QuotaAlteration]
"""The alterations of one request."""


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

    def _refuse_end(self, request: ChangeRequest) -> None:
        """
        Refuse a change that has an end.

        Raises:
            ConfigError: it does.
        """
        if request.until_ms is not None:
            raise ConfigError(
                "the end of a quota (until) is kept in a Headgate store, as Kafka has no place for "
                "it; give --store"
            )

    async def errors(self, request: ChangeRequest) -> Sequence[ApiError | None]:
        """
        Change quotas; return the error of each alteration.

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
            results = await self.alter(request)
        except ApiError as error:
            return [error] * len(request.alterations)
        told = {result.entity: result.error for result in results}
        return [told.get(a.entity, left_out(a.entity)) for a in request.alterations]

    async def _in_parts(
        self,
        parts: Sequence[Part],
        send: Callable[[Part], Coroutine[Any, Any, Sequence[AlterResult]]],
    ) -> AsyncIterator[tuple[Part, Sequence[AlterResult]]]:
        """
        Send one request after another; yield each with its results.

        What was answered is changed and stays so, whatever becomes of the rest: once a request has
        failed, the results of this one and of all that follow have its error.

        Args:
            parts: one for each request.
            send: sends one, and returns its results; has ``CHANGE_TIMEOUT_MS`` for it.

        Raises:
            HeadgateError: the first request failed.
        """
        failed: HeadgateError | None = None
        told: Sequence[AlterResult]
        for number, part in enumerate(parts):
            if failed is not None:
                yield part, _failures(part, failed, "not sent, as the request before failed: ")
                continue
            try:
                told = await limited(CHANGE_TIMEOUT_MS, send(part))
            except HeadgateError as error:
                if number == 0:
                    raise
                failed = error
                told = _failures(part, error)
            yield part, told

    async def close(self) -> None:
        """Close the connections."""
        await self._nodes.close()


def _failures(part: Part, failed: HeadgateError, why: str = "") -> list[AlterResult]:
    code = getattr(failed, "code", getattr(failed, "kafka_code", KafkaError.UNKNOWN_SERVER_ERROR))
    return [AlterResult(a.entity, ApiError(code, f"{why}{failed}")) for a in part]
