"""
What the gateway writes down of every charge, apart from how it is kept.

``Journal`` does nothing; the one that writes files is made when ``headgate.usage`` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.context import Context
    from headgate.gateway.plans import Plan
    from headgate.gateway.session import Session
    from headgate.quota.key import QuotaKey
    from headgate.throttle.registry import Throttle


class Journal:
    """Keep nothing (``headgate.usage=none``); the interface of those that do."""

    def start(self, broker_id: int, t_ms: int, settings: Settings) -> None:
        """Managers of a broker begin empty, with these windows."""

    def quota(
        self, broker_id: int, key: QuotaKey, entity: object, value: float | None, t_ms: int
    ) -> None:
        """A quota is in force from now on; None: removed."""

    def record(
        self,
        session: Session,
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
    ) -> None:
        """A charge with a decision."""

    def network(
        self, session: Session, context: Context, t_ms: int, amount: float, decision: Throttle
    ) -> None:
        """A charge of network time, without a decision."""

    def expire(self, broker_id: int, key: QuotaKey, tags: tuple[str, str], t_ms: int) -> None:
        """A sensor was idle for too long and is gone."""

    def connection(
        self, broker_id: int, listener: str, client_ip: str, t_ms: int, throttle_ms: int
    ) -> None:
        """A connection was accepted, after a delay or not."""

    def close(self) -> None:
        """Finish the open file."""


NO_JOURNAL: Final = Journal()
