"""
The record of every charge: what the gateway writes to the usage journal.

``Journal`` does nothing; ``usage_journal`` has the one that writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.charging.clients import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.managers import Sensors
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import QuotaKey
    from headgate.throttle.registry import Throttle


class Journal:
    """Keep nothing (``headgate.usage=none``); the interface of those that do."""

    def start(self, broker_id: int, t_ms: int, sensors: Sensors) -> None:
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
        plan: RequestPlan,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
        mute_ms: int,
        size: int,
        handler_ns: int,
        producer_ids: frozenset[int] | None,
    ) -> None:
        """
        A charge with a decision; UNCHARGED: there is no quota of the type.

        ``mute_ms`` is the largest of the request's decisions. What its answer tells is noted then.
        """

    def note(
        self,
        kind: str,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan | None,
        quota_type: str,
        t_ms: int,
        amount: float | None,
        decision: Throttle | None = None,
        *,
        told_ms: int | None = None,
        upstream_ms: int | None = None,
        size: int | None = None,
    ) -> None:
        """
        Any other event of a request, by its kind (``usage.format.KINDS``).

        - ``record`` without a ``plan``: a charge without a decision, network time;
        - ``unrecord``: a charge taken back;
        - ``record``, ``strict`` and ``norecord``: a topic's partitions were charged, or refused
          (strict); there is a ``size`` with a request's first topic;
        - ``told``: a throttled request is answered, ``amount`` ms after its charge, with what is
          left of the decision that counts, and with what the broker told; without a ``quota_type``
          only the broker throttles, and there is no ``amount``;
        - ``producer_id``: a broker gave out a producer id; nothing is charged for it;
        - ``held``: a fetch was held for its quota-id's turn, ``amount`` ms; nothing is charged.
        """

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

    @property
    def events(self) -> tuple[int, int]:
        """Events written and dropped so far."""
        return (0, 0)

    def close(self) -> None:
        """Finish the open file."""


NO_JOURNAL: Final = Journal()
