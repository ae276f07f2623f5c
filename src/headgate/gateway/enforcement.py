"""
The rules of one broker on live traffic: managers fed from the quota table, charges, decisions.

One ``Enforcement`` stands for one upstream broker, whatever the number of its listeners, so that
a quota per broker means what it means in Kafka. It runs on the broker's event loop alone.

Which throttle counts (``spec/request-percentage.md`` section 4): the largest; the request quota
wins ties; they are never added. Only the winner's throttle-time metric is touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.context import Context
from headgate.gateway.journal import NO_JOURNAL, Journal
from headgate.gateway.plans import Kind
from headgate.metrics.meters import Meters
from headgate.quota.key import (
    CONSUMER,
    MUTATION,
    PRODUCER,
    REQUEST,
    QuotaKey,
    QuotaType,
)
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager, MutationQuota
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS, RequestQuotaManager
from headgate.wire.messages import fetch as fetch_message
from headgate.wire.messages import share as share_message

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.plans import Plan
    from headgate.gateway.session import Session
    from headgate.quota.table import QuotaTable, TableDelta

_INT_MAX: Final = 2**31 - 1
_PRODUCE: Final = QuotaType.PRODUCER_BYTE_RATE
_FETCH: Final = QuotaType.CONSUMER_BYTE_RATE
_REQUEST: Final = QuotaType.REQUEST_PERCENTAGE
_MUTATION: Final = QuotaType.CONTROLLER_MUTATION_RATE
_MOST_CONTEXTS: Final = 1 << 16
"""Contexts remembered; a client that invents client ids costs a lookup, never memory."""
MISSING_UPSTREAM: Final = frozenset({"bps", "shares"})
"""Units that no Kafka broker enforces; with producer ids what ``headgate.enforce=missing`` is."""


class Enforcement:
    """
    Charge requests of one broker's clients and say how long each is to wait.

    Args:
        settings: windows, static defaults, ``headgate.enforce``, exempt principals.
        broker_id: the upstream broker fronted.
        start_ms: epoch milliseconds; expiry of idle sensors counts from it.
        journal: where every charge is written down.
        meters: where throttles told are counted.
    """

    def __init__(
        self,
        settings: Settings,
        broker_id: int,
        start_ms: int,
        journal: Journal = NO_JOURNAL,
        meters: Meters | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.journal = journal
        self.meters = Meters() if meters is None else meters
        self.epoch = 0
        self.enforce = settings.enforce
        self._deliver = settings.fetch == "deliver"
        self._exempt = settings.exempt_principals
        windows: dict[str, Any] = {
            "num_samples": settings.quota_window_num,
            "window_ms": settings.quota_window_ms,
            "start_ms": start_ms,
        }
        self.produce_manager = ClientQuotaManager(
            _PRODUCE,
            static_default=_finite(settings.quota_producer_default),
            **windows,
        )
        self.fetch_manager = ClientQuotaManager(
            _FETCH,
            static_default=_finite(settings.quota_consumer_default),
            **windows,
        )
        self.request_manager = RequestQuotaManager(**windows)
        self.mutation_manager = ControllerMutationQuotaManager(
            num_samples=settings.controller_quota_window_num,
            window_ms=settings.controller_quota_window_size_seconds * 1000,
            start_ms=start_ms,
        )
        self._managers: dict[QuotaKey, _Managed] = {
            PRODUCER: self.produce_manager,
            CONSUMER: self.fetch_manager,
            REQUEST: self.request_manager,
            MUTATION: self.mutation_manager,
        }
        self.counts_requests = False
        self.counts_mutations = False
        self.counts_producer_ids = False
        self._contexts: dict[tuple[str, str], Context] = {}
        journal.start(broker_id, start_ms, settings)

    # --- quotas -----------------------------------------------------------------------------

    def update(self, delta: TableDelta, now_ms: int) -> None:
        """Put a change of the quota table in force."""
        self._apply(((c.entity, c.key, c.new) for c in delta.changes), now_ms)

    def load(self, table: QuotaTable, now_ms: int) -> None:
        """Put a whole table in force, on managers that have none yet."""
        self._apply(
            ((e, k, v) for e, values in table.entities.items() for k, v in values.items()), now_ms
        )

    def _apply(self, changes: Iterable[tuple[object, QuotaKey, float | None]], now_ms: int) -> None:
        for entity, key, value in changes:
            manager = self._managers.get(key)
            if manager is None:
                continue
            manager.update_quota(entity, value, now_ms)  # type: ignore[arg-type]
            self.journal.quota(self.broker_id, key, entity, value, now_ms)
        self._changed()

    def reload(self, settings: Settings) -> None:
        """Take over what may change while running: who is exempt, what is enforced."""
        self._exempt = settings.exempt_principals
        self.enforce = settings.enforce
        self._changed()

    def _changed(self) -> None:
        self.counts_requests = self.request_manager.enabled
        self.counts_mutations = self.mutation_manager.enabled and self.enforce == "all"
        self._contexts.clear()
        self.epoch += 1

    def context(self, principal: str, client_id: str) -> Context:
        """Return who is charged for a principal and client id, as the quotas are now."""
        found = self._contexts.get((principal, client_id))
        if found is None:
            exempt = principal in self._exempt
            limited = (
                not exempt
                and self.enforce == "all"
                and any(
                    m.enabled and m.bound(m.tags(principal, client_id)) < UNLIMITED
                    for m in self._managers.values()
                )
            )
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            found = Context(principal, client_id, limited, exempt)
            self._contexts[principal, client_id] = found
        return found

    # --- charges ----------------------------------------------------------------------------

    def fetch_limit(self, context: Context, now_ms: int) -> int | None:
        """Return the most bytes a fetch may ask for: quota x (samples - 1) windows, as Kafka."""
        if not context.limited or not self.fetch_manager.enabled:
            return None
        limit = self.fetch_manager.max_in_window(context.principal, context.client_id, now_ms)
        return int(limit) if limit < _INT_MAX else None

    def produce(
        self,
        session: Session,
        context: Context,
        plan: Plan,
        size: int,
        producer_ids: frozenset[int] | None,
        upstream_ms: int,
        answered: bool,
        now_ms: int,
    ) -> int:
        """
        Charge a Produce: bytes, request time unless acks=0.

        Returns:
            Milliseconds to tell and mute for; 0 when nothing of ours throttles.
        """
        user, client_id = context.principal, context.client_id
        by_bytes = self.produce_manager.record(user, client_id, size, now_ms)
        by_request = UNCHARGED
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if self.counts_requests:
            if answered:
                by_request = self.request_manager.record_ns(user, client_id, spent_ns, now_ms)
            else:
                self.request_manager.record_exempt_ns(spent_ns, now_ms)
        ours = 0
        if by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._decide(session, context, now_ms, by_request, by_bytes, _PRODUCE)
        told = ours if ours > upstream_ms else upstream_ms
        self.journal.record(
            session, context, plan, _PRODUCE, now_ms, size, by_bytes, told, upstream_ms,
            size, spent_ns,
        )  # fmt: skip
        if by_request is not UNCHARGED:
            self.journal.record(
                session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS,
                by_request, told, upstream_ms, size, spent_ns,
            )  # fmt: skip
        return ours

    def fetch(
        self,
        session: Session,
        context: Context,
        plan: Plan,
        size: int,
        answer_bytes: int,
        upstream_ms: int,
        now_ms: int,
    ) -> int:
        """Charge a Fetch or ShareFetch by its answer's size; arguments as the protocol says."""
        user, client_id = context.principal, context.client_id
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if plan.kind == Kind.FETCH:
            charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        else:
            charged = share_message.charged_bytes(answer_bytes)
        by_request = UNCHARGED
        if self.counts_requests:
            by_request = self.request_manager.record_ns(user, client_id, spent_ns, now_ms)
        by_bytes = self.fetch_manager.record(user, client_id, charged, now_ms)
        ours = 0
        if by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._decide(session, context, now_ms, by_request, by_bytes, _FETCH)
        told = ours if ours > upstream_ms else upstream_ms
        if by_request is not UNCHARGED:
            self.journal.record(
                session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS,
                by_request, told, upstream_ms, size, spent_ns,
            )  # fmt: skip
        self.journal.record(
            session, context, plan, _FETCH, now_ms, charged, by_bytes, told, upstream_ms,
            answer_bytes, spent_ns,
        )  # fmt: skip
        return ours

    def request(
        self,
        session: Session,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
    ) -> int:
        """Charge a request's time only."""
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if not self.counts_requests:
            return 0
        decision = self.request_manager.record_ns(
            context.principal, context.client_id, spent_ns, now_ms
        )
        ours = 0
        if decision.throttle_time_ms > 0:
            ours = self._decide(session, context, now_ms, decision, UNCHARGED, _REQUEST)
        self.journal.record(
            session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS, decision,
            max(ours, upstream_ms), upstream_ms, size, spent_ns,
        )  # fmt: skip
        return ours

    def clock(self) -> int:
        """Return the wall clock, epoch milliseconds: for charges made off the session's calls."""
        return time.time_ns() // 1_000_000

    def mutation_quota(self, context: Context, plan: Plan, now_ms: int) -> MutationQuota:
        """Return the quota of one request that creates or deletes partitions."""
        if context.exempt:
            return self.mutation_manager.permissive(context.principal, context.client_id, now_ms)
        return self.mutation_manager.quota_for(
            context.principal, context.client_id, plan.key, plan.version, now_ms
        )

    def mutated(
        self, session: Session, context: Context, plan: Plan, partitions: float, now_ms: int
    ) -> None:
        """Write down that partitions were charged; negative: given back."""
        manager = self.mutation_manager
        tags = manager.tags(context.principal, context.client_id)
        self.journal.record(
            session, context, plan, _MUTATION, now_ms, partitions,
            Throttle(0, *tags, manager.bound(tags)), 0, 0, 0, 0,
        )  # fmt: skip

    def give_back(self, session: Session, context: Context, plan: Plan, partitions: int) -> None:
        """Take back the charge of a topic that the broker refused."""
        now_ms = self.clock()
        self.mutation_manager.permissive(context.principal, context.client_id, now_ms).record(
            -partitions, now_ms
        )
        self.mutated(session, context, plan, -partitions, now_ms)

    def mutation(
        self,
        session: Session,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        quota: MutationQuota,
        now_ms: int,
    ) -> int:
        """Charge the request's time; combine with what is left of the mutations' throttle."""
        spent_ns = session.spent_ns
        session.spent_ns = 0
        left_ms = quota.throttle_time_ms(now_ms)
        manager = self.mutation_manager
        tags = manager.tags(context.principal, context.client_id)
        by_mutations = Throttle(left_ms, *tags, manager.bound(tags))
        by_request = UNCHARGED
        if self.counts_requests:
            by_request = self.request_manager.record_ns(
                context.principal, context.client_id, spent_ns, now_ms
            )
        ours = 0
        if left_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._decide(
                session, context, now_ms, by_request, by_mutations,
                _MUTATION,
            )  # fmt: skip
        if by_request is not UNCHARGED:
            self.journal.record(
                session, context, plan, _REQUEST, now_ms,
                spent_ns * PERCENT_PER_NS, by_request, max(ours, upstream_ms), upstream_ms, size,
                spent_ns,
            )  # fmt: skip
        return ours

    def network_time(self, session: Session, context: Context, nanos: int, now_ms: int) -> None:
        """Charge the time it took to send an answer; the next decision sees it."""
        if self.counts_requests:
            decision = self.request_manager.record_network_ns(
                context.principal, context.client_id, nanos, now_ms
            )
            self.journal.network(session, context, now_ms, nanos * PERCENT_PER_NS, decision)

    def _decide(
        self,
        session: Session,
        context: Context,
        now_ms: int,
        request: Throttle,
        other: Throttle,
        other_type: QuotaType,
    ) -> int:
        """Take the larger throttle, ties to request; note the winner; 0 when none is in force."""
        ms = other.throttle_time_ms
        winner, kind = other, other_type
        if ms <= request.throttle_time_ms:
            ms, winner, kind = request.throttle_time_ms, request, _REQUEST
        if context.exempt or self.enforce != "all":
            return 0
        ms = ms if ms < _INT_MAX else _INT_MAX
        self.meters.throttle(kind, winner.user_tag, winner.client_tag, ms, now_ms)
        session.muted_by = kind
        return ms

    def expire(self, now_ms: int) -> None:
        """Free the sensors of clients that have been idle for an hour, as Kafka does."""
        for key, manager in self._managers.items():
            for tags in manager.expire(now_ms):
                self.meters.forget(QuotaType(key.type), *tags)
                self.journal.expire(self.broker_id, key, tags, now_ms)

    @property
    def managers(self) -> Mapping[QuotaKey, _Managed]:
        """The managers in force, by the key they enforce; for metrics and tests."""
        return self._managers


_Managed = ClientQuotaManager | ControllerMutationQuotaManager


def _finite(value: int) -> float | None:
    """Return a static default as the managers take it: None for Kafka's Long.MAX_VALUE."""
    return None if value >= 2**63 - 1 else float(value)
