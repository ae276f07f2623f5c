"""
Charge topics that are created, deleted or grown at one broker, and journal each charge (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate.quota.key import MUTATION
from headgate.throttle.controller_mutation import STRICT_SINCE
from headgate.throttle.registry import UNCHARGED, Throttle

if TYPE_CHECKING:
    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.charging.managers import Managers
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.throttle.controller_mutation import MutationQuota

MUTATION_NAME: Final = MUTATION.name


class MutationCharges:
    """
    Charges of topics that are created, deleted or given more partitions.

    Args:
        managers: of the broker.
        journal: where every charge is written down.
        clock: returns epoch milliseconds.
    """

    def __init__(self, managers: Managers, journal: Journal, clock: Callable[[], int]) -> None:
        self._managers = managers
        self._manager = managers.mutation
        self._journal = journal
        self._clock = clock

    def quota(self, context: Context, plan: RequestPlan, now_ms: int) -> MutationQuota:
        """
        Return the quota to charge one request's topics to.

        Versions of a request that know THROTTLING_QUOTA_EXCEEDED get a strict quota, which
        refuses topics; older ones get a permissive one, which only throttles.
        """
        observes = MUTATION not in self._managers.active
        knows = plan.version >= STRICT_SINCE.get(plan.key, 0)
        strict = observes or (knows and not context.exempt)
        user, client_id = context.principal, context.charged_id
        return self._manager.quota(user, client_id, now_ms, strict=strict, observes=observes)

    def charged(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        partitions: float,
        quota: MutationQuota,
        size: int | None,
        now_ms: int,
    ) -> None:
        """Journal a topic's charge or refusal; ``size`` comes with a request's first topic only."""
        kind, decision = "norecord", UNCHARGED
        if quota.decided_ms is not None:
            kind = "strict" if quota.is_strict else "record"
            decision = self._decision(context, quota.decided_ms)
        self._journal.note(
            kind, client, context, plan, MUTATION_NAME, now_ms, partitions, decision, size=size
        )

    def give_back(
        self, client: ClientConnection, context: Context, plan: RequestPlan, partitions: int
    ) -> None:
        """Take back the charge of a topic that the broker refused."""
        now_ms = self._clock()
        quota = self._manager.quota(context.principal, context.charged_id, now_ms, strict=False)
        quota.record(-partitions, now_ms)
        if quota.decided_ms is not None:
            back = self._decision(context, 0)
            self._journal.note(
                "unrecord", client, context, plan, MUTATION_NAME, now_ms, partitions, back
            )

    def left(self, context: Context, quota: MutationQuota, now_ms: int) -> Throttle:
        """Return what is left of a request's throttle."""
        return self._decision(context, quota.throttle_time_ms(now_ms))

    def _decision(self, context: Context, throttle_ms: int) -> Throttle:
        tags = self._manager.tags(context.principal, context.charged_id)
        return Throttle(throttle_ms, *tags, self._manager.bound(tags))
