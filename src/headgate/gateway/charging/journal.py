"""
The record of every charge: what the gateway writes to the usage journal.

``Journal`` does nothing; ``usage_journal`` has the one that writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.context import Context
    from headgate.gateway.charging.managers import Sensors
    from headgate.gateway.charging.plans import Plan
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import QuotaKey
    from headgate.throttle.registry import Throttle


class Journal:
    """Keep nothing (``headgate.usage=none``); the interface of those that do."""

    def start(
        self,
        broker_id: int,
        t_ms: int,
        settings: Settings,
        sensors: Sensors,
    ) -> None:
        """
        A broker's managers begin without sensors; ``sensors`` says how those of each type decide.
        """

    def quota(
        self, broker_id: int, key: QuotaKey, entity: QuotaEntity, value: float | None, t_ms: int
    ) -> None:
        """A quota is in force from now on; None: removed."""

    def record(
        self,
        client: ClientConnection,
        context: Context,
        plan: Plan,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
        told_ms: int,
        upstream_ms: int,
        size: int,
        handler_ns: int,
        producer_ids: frozenset[int] | None,
    ) -> None:
        """A charge with a decision; UNCHARGED: there is no quota of the type."""

    def unchecked(
        self,
        client: ClientConnection,
        context: Context,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
    ) -> None:
        """A charge without a decision: network time."""

    def unrecord(
        self,
        client: ClientConnection,
        context: Context,
        plan: Plan,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
    ) -> None:
        """A charge taken back."""

    def mutation(
        self,
        client: ClientConnection,
        context: Context,
        plan: Plan,
        t_ms: int,
        partitions: float,
        decision: Throttle,
        size: int | None,
        *,
        strict: bool,
    ) -> None:
        """A topic's partitions were charged, or refused (strict); size: with the first topic."""

    def told(
        self,
        client: ClientConnection,
        context: Context,
        plan: Plan,
        quota_type: str,
        t_ms: int,
        left: Throttle,
        told_ms: int,
        upstream_ms: int,
    ) -> None:
        """A request is answered, with what is left of decisions made when it was charged."""

    def bound(
        self, broker_id: int, key: QuotaKey, tags: tuple[str, str], value: float, t_ms: int
    ) -> None:
        """The limit of a pacing bucket moved."""

    def expire(self, broker_id: int, key: QuotaKey, tags: tuple[str, str], t_ms: int) -> None:
        """A sensor was idle for too long and is gone."""

    def connection(
        self, broker_id: int, listener: str, client_ip: str, t_ms: int, throttle_ms: int
    ) -> None:
        """A connection was accepted, after a delay or not."""

    def producer_id(
        self,
        client: ClientConnection,
        context: Context,
        plan: Plan,
        t_ms: int,
        size: int,
        upstream_ms: int,
    ) -> None:
        """A broker gave out a producer id; nothing is charged for it."""

    def held(
        self, client: ClientConnection, context: Context, plan: Plan, waited_ms: int, t_ms: int
    ) -> None:
        """A fetch was held for its quota-id's turn; nothing is charged for it."""

    @property
    def events(self) -> tuple[int, int]:
        """Events written and dropped so far."""
        return (0, 0)

    def close(self) -> None:
        """Finish the open file."""


NO_JOURNAL: Final = Journal()
