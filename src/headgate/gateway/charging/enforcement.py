"""
The rules of one broker on live traffic: who is charged what, and who waits how long.

One ``Enforcement`` stands for one upstream broker, whatever the number of its listeners, so that
a quota per broker means what it means in Kafka. It runs on the broker's event loop alone.

Which throttle counts (``spec/request-percentage.md`` section 4): the largest; the request quota
wins ties, producer ids lose them; they are never added. Only the winner's throttle-time metric is
touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.gateway.charging.context import Context
from headgate.gateway.charging.enforcement_state import EnforcementState
from headgate.gateway.charging.fetch_gate import GateKey
from headgate.gateway.charging.plans import Kind
from headgate.quota.key import (
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_IDS,
    REQUEST,
)
from headgate.throttle.controller_mutation import MutationQuota
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS
from headgate.wire.messages import fetch as fetch_message
from headgate.wire.messages import share as share_message

if TYPE_CHECKING:
    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.plans import Plan

_INT_MAX: Final = 2**31 - 1
_PRODUCE: Final = PRODUCER.name
_FETCH: Final = CONSUMER.name
_REQUEST: Final = REQUEST.name
_MUTATION: Final = MUTATION.name
_PRODUCER_IDS: Final = PRODUCER_IDS.name
_LONG_POLLS: Final = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup, ShareFetch: they wait, which Kafka doesn't charge."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = Kind.FETCH


class Enforcement(EnforcementState):
    """
    Charge requests of one broker's clients and say how long each is to wait.

    Arguments as for ``EnforcementState``.
    """

    def fetch_limit(self, context: Context, now_ms: int) -> int | None:
        """Return the most bytes a fetch may ask for: quota x (samples - 1) windows, as Kafka."""
        if not context.limited:
            return None
        limit = self.managers.fetch_limit(context.principal, context.client_id, now_ms)
        return int(limit) if limit < _INT_MAX else None

    def produce(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        producer_ids: frozenset[int] | None,
        upstream_ms: int,
        answered: bool,
        now_ms: int,
    ) -> int:
        """
        Charge a Produce: new producer ids, bytes, request time unless acks=0.

        Returns:
            Milliseconds to tell and mute for; 0 when nothing of ours throttles.
        """
        user, client_id = context.principal, context.client_id
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if context.epoch != self.epoch:
            self._make_way(context, size, now_ms)
        if self._only_bytes:
            by_bytes: Throttle | None = None
            rates, sensor = self._rates, context.sensor
            if sensor is not None and rates is not None and context.generation == rates.generation:
                by_bytes = rates.record_again(sensor, size, now_ms)
            if by_bytes is None:
                by_bytes = self._record_produce(user, client_id, size, now_ms)
                if rates is not None:
                    context.sensor = rates.charged(user, client_id)
                    context.generation = rates.generation
            ours = 0
            if by_bytes[0] > 0:
                ours = self._decide(
                    session, context, now_ms, (_REQUEST, UNCHARGED), (_PRODUCE, by_bytes), ()
                )
            self.journal.record(
                session, context, plan, _PRODUCE, now_ms, size, by_bytes,
                ours if ours > upstream_ms else upstream_ms, upstream_ms, size, spent_ns,
                producer_ids,
            )  # fmt: skip
            return ours
        if self._upstream_time:
            spent_ns += self._service_ns(session, plan, now_ms)
        managers = self.managers
        others: list[tuple[str, Throttle, float]] = []
        if producer_ids and self.counts_producer_ids:
            by_ids = managers.producer_ids.record(user, producer_ids, now_ms)
            others.append((_PRODUCER_IDS, by_ids, managers.producer_ids.last_new))
        by_bytes = self._record_produce(user, client_id, size, now_ms)
        for name, manager in managers.produce_active:
            others.append((name, manager.record(user, client_id, size, now_ms), size))
        by_request = UNCHARGED
        if self.counts_requests:
            if answered:
                by_request = self._charge_time(context, spent_ns, now_ms)
            else:
                managers.request.record_exempt_ns(spent_ns, now_ms)
        ours = 0
        if others or by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._decide(
                session, context, now_ms, (_REQUEST, by_request), (_PRODUCE, by_bytes), others
            )
        told = ours if ours > upstream_ms else upstream_ms
        record = self.journal.record
        record(session, context, plan, _PRODUCE, now_ms, size, by_bytes, told, upstream_ms, size,
               spent_ns, producer_ids)  # fmt: skip
        if by_request is not UNCHARGED:
            record(session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS, by_request,
                   told, upstream_ms, size, spent_ns, None)  # fmt: skip
        for name, decision, amount in others:
            record(session, context, plan, name, now_ms, amount, decision, told, upstream_ms, size,
                   spent_ns, producer_ids)  # fmt: skip
        return ours

    def fetch(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        answer_bytes: int,
        upstream_ms: int,
        now_ms: int,
        *,
        withheld: bool = False,
    ) -> int:
        """
        Charge a Fetch or ShareFetch by its answer's size; arguments as the protocol says.

        A delivery closes the gates of its quota-ids; one that is withheld is told how long they
        stay closed.
        """
        user, client_id = context.principal, context.client_id
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if self._upstream_time:
            spent_ns += self._service_ns(session, plan, now_ms)
        is_share = plan.kind is not _KIND_FETCH
        if is_share:
            charged = share_message.charged_bytes(answer_bytes)
        else:
            charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        by_request = UNCHARGED
        if self.counts_requests:
            by_request = self._charge_time(context, spent_ns, now_ms)
        by_bytes = self._record_fetch(user, client_id, charged, now_ms)
        others: list[tuple[str, Throttle, float]] = []
        for name, manager in self.managers.fetch_active:
            others.append((name, manager.record(user, client_id, charged, now_ms), charged))
        ours = 0
        if withheld:
            ours = self._decide(
                session, context, now_ms, (_REQUEST, by_request), self._rest(session, now_ms), ()
            )
        elif others or by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._decide(
                session, context, now_ms, (_REQUEST, by_request), (_FETCH, by_bytes), others
            )
            if ours and not context.exempt and (is_share or not self.empties_fetches):
                self._close_gate(_FETCH, by_bytes, now_ms)
                for name, decision, _ in others:
                    self._close_gate(name, decision, now_ms)
        told = ours if ours > upstream_ms else upstream_ms
        record = self.journal.record
        if by_request is not UNCHARGED:
            record(session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS, by_request,
                   told, upstream_ms, size, spent_ns, None)  # fmt: skip
        record(session, context, plan, _FETCH, now_ms, charged, by_bytes, told, upstream_ms,
               answer_bytes, spent_ns, None)  # fmt: skip
        for name, decision, amount in others:
            record(session, context, plan, name, now_ms, amount, decision, told, upstream_ms,
                   answer_bytes, spent_ns, None)  # fmt: skip
        return ours

    def _close_gate(self, name: str, decision: Throttle, now_ms: int) -> None:
        ms, user_tag, client_tag, bound = decision
        if ms > 0 and name in self.managers.active_names:
            self.gates.charged(GateKey(name, user_tag, client_tag), ms, bound, now_ms)

    def _rest(self, session: ClientConnection, now_ms: int) -> tuple[str, Throttle]:
        """Return how long a withheld fetch's gates stay closed, as a decision of its quota."""
        rest_ms, key = (0, None) if session.hold is None else session.hold.rest(now_ms)
        if key is None:
            return _FETCH, UNCHARGED
        bound = self.managers.gate_bound(key)
        return key.quota_type, Throttle(rest_ms, key.user_tag, key.client_tag, bound)

    def held(
        self, session: ClientConnection, context: Context, plan: Plan, waited_ms: int, now_ms: int
    ) -> None:
        """Note how long a fetch was held, in the metrics and in the journal."""
        meters = self.meters
        meters.fetches_held += 1
        meters.fetch_held_ms += waited_ms
        self.journal.held(session, context, plan, waited_ms, now_ms)

    def unfetch(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        answer_bytes: int,
        now_ms: int,
    ) -> None:
        """Take a fetch's charge back: its answer was emptied (``headgate.fetch=kafka``)."""
        user, client_id = context.principal, context.client_id
        charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        decision = self.managers.fetch.unrecord(user, client_id, charged, now_ms)
        self.journal.unrecord(session, context, plan, _FETCH, now_ms, charged, decision)
        for name, manager in self.managers.fetch_active:
            decision = manager.unrecord(user, client_id, charged, now_ms)
            self.journal.unrecord(session, context, plan, name, now_ms, charged, decision)

    def request(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
    ) -> int:
        """Charge a request's time only."""
        return self._request_and(session, context, plan, size, upstream_ms, now_ms, UNCHARGED)

    def producer_id(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
    ) -> None:
        """Write down that a broker gave out a producer id; KIP-936 charges its first Produce."""
        self.journal.producer_id(session, context, plan, now_ms, size, upstream_ms)

    def _request_and(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        now_ms: int,
        mutations: Throttle,
        refusing: str = "",
    ) -> int:
        spent_ns = session.spent_ns
        session.spent_ns = 0
        if self._upstream_time:
            spent_ns += self._service_ns(session, plan, now_ms)
        decision = UNCHARGED
        if self.counts_requests:
            decision = self._charge_time(context, spent_ns, now_ms)
        ours = 0
        if decision.throttle_time_ms > 0 or mutations.throttle_time_ms > 0:
            ours = self._decide(
                session, context, now_ms, (_REQUEST, decision), (_MUTATION, mutations), (), refusing
            )
        if decision is not UNCHARGED:
            self.journal.record(
                session, context, plan, _REQUEST, now_ms, spent_ns * PERCENT_PER_NS, decision,
                max(ours, upstream_ms), upstream_ms, size, spent_ns, None,
            )  # fmt: skip
        return ours

    def _charge_time(self, context: Context, spent_ns: int, now_ms: int) -> Throttle:
        decision = self._record_request(context.principal, context.client_id, spent_ns, now_ms)
        if context.headroom is not None and context.headroom.time is not None:
            context.headroom.time.spent(spent_ns, now_ms)
        return decision

    def _service_ns(self, session: ClientConnection, plan: Plan, now_ms: int) -> int:
        """Estimate the broker's thread time by how long its answer took; long polls count 0."""
        return 0 if plan.key in _LONG_POLLS else max(now_ms - session.asked_ms, 0) * 1_000_000

    def network_time(
        self, session: ClientConnection, context: Context, nanos: int, now_ms: int
    ) -> None:
        """Charge the time it took to send an answer; the next decision sees it."""
        if self.counts_requests:
            decision = self.managers.request.record_network_ns(
                context.principal, context.client_id, nanos, now_ms
            )
            if context.headroom is not None and context.headroom.time is not None:
                context.headroom.time.spent(nanos, now_ms)
            if decision is not UNCHARGED:
                self.journal.unchecked(
                    session, context, _REQUEST, now_ms, nanos * PERCENT_PER_NS, decision
                )

    # --- controller mutations ---------------------------------------------------------------

    def mutation_quota(self, context: Context, plan: Plan, now_ms: int) -> MutationQuota:
        """Return the quota of one request that creates or deletes partitions; refuses if it may."""
        manager = self.managers.mutation
        if MUTATION not in self.managers.active:
            return manager.observed(context.principal, context.client_id, now_ms)
        if context.exempt:
            return manager.permissive(context.principal, context.client_id, now_ms)
        return manager.quota_for(
            context.principal, context.client_id, plan.key, plan.version, now_ms
        )

    def mutated(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        partitions: float,
        quota: MutationQuota,
        size: int | None,
        now_ms: int,
    ) -> None:
        """Write down a topic's charge or refusal; size: the request's, with its first topic."""
        ms = quota.decided_ms
        if ms is None:
            decision = UNCHARGED
        else:
            manager = self.managers.mutation
            tags = manager.tags(context.principal, context.client_id)
            decision = Throttle(ms, *tags, manager.bound(tags))
        self.journal.mutation(
            session, context, plan, now_ms, partitions, decision, size, strict=quota.is_strict
        )

    def give_back(
        self, session: ClientConnection, context: Context, plan: Plan, partitions: int
    ) -> None:
        """Take back the charge of a topic that the broker refused."""
        now_ms = self.clock()
        manager = self.managers.mutation
        quota = manager.permissive(context.principal, context.client_id, now_ms)
        quota.record(-partitions, now_ms)
        if quota.decided_ms is not None:
            tags = manager.tags(context.principal, context.client_id)
            back = Throttle(0, *tags, manager.bound(tags))
            self.journal.unrecord(session, context, plan, _MUTATION, now_ms, partitions, back)

    def mutation(
        self,
        session: ClientConnection,
        context: Context,
        plan: Plan,
        size: int,
        upstream_ms: int,
        quota: MutationQuota,
        now_ms: int,
    ) -> int:
        """Charge the request's time; combine with what is left of the mutations' throttle."""
        manager = self.managers.mutation
        tags = manager.tags(context.principal, context.client_id)
        left = Throttle(quota.throttle_time_ms(now_ms), *tags, manager.bound(tags))
        refusing = _MUTATION if quota.is_strict else ""
        ours = self._request_and(session, context, plan, size, upstream_ms, now_ms, left, refusing)
        if quota.decided_ms is not None:
            told = max(ours, upstream_ms)
            self.journal.told(session, context, plan, _MUTATION, now_ms, left, told, upstream_ms)
        return ours
