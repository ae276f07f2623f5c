"""
Charges of request time, of topics and of fetches; and which throttle counts when several quotas
decide on one request.

The largest counts. The request quota wins ties, producer ids lose them. Throttles are never added,
and only the winner's throttle-time metric is touched. Source: KafkaApis
(``handleProduceRequest``, ``handleFetchRequest``), KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.charging.clients import Told
from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.lanes import Lane, lane_key
from headgate.gateway.charging.managers import FETCHING, Managers
from headgate.gateway.charging.plans import RequestKind
from headgate.quota.key import CONSUMER, KEYS, MUTATION, REQUEST, QuotaType
from headgate.throttle.controller_mutation import STRICT_SINCE
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS, RequestQuotaManager
from headgate.wire.messages import fetch as fetch_message
from headgate.wire.messages import share as share_message

if TYPE_CHECKING:
    from headgate.gateway.charging.clients import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.metrics.meters import Meters
    from headgate.throttle.controller_mutation import MutationQuota

INT_MAX: Final = 2**31 - 1
_FETCHED: Final = frozenset(key.name for key in FETCHING)
TYPES: Final = {key.name: QuotaType(key.type) for key in KEYS}
"""The quota type of each key, by the key's name."""


@dataclass(eq=False)
class Decisions:
    """
    The choice of the throttle that a client is muted for, and what its answer tells about that.

    Args:
        managers: say which quota types are in force.
        gates: of the quota-ids.
        meters: count the throttles told.
        journal: where each throttled answer is written down.
    """

    _managers: Managers
    _gates: Gates
    _meters: Meters
    _journal: Journal

    def choose(
        self,
        client: ClientConnection,
        context: Context,
        now_ms: int,
        request: tuple[str, Throttle],
        other: tuple[str, Throttle],
        others: Iterable[tuple[Any, ...]] = (),
        refusing: str = "",
    ) -> int:
        """
        Take the largest throttle in force, and note what the client owes by each.

        Args:
            client: the connection that the request came by.
            context: who is charged.
            now_ms: epoch ms.
            request: name of the request quota, and its decision.
            other: likewise of the bytes or the mutations.
            others: likewise of what else is charged; what follows name and decision isn't read.
            refusing: a quota type that refuses what is over it and charges nothing. It leaves no
                debt: by connecting again a client gains nothing from it.

        Returns:
            Milliseconds; 0 when nothing throttles.
        """
        if context.exempt:
            return 0
        active = self._managers.active_names
        ms = 0
        winner: Told | None = None
        for candidate in (request, other, *others):
            name, decision = candidate[0], candidate[1]
            wait_ms: int = decision.throttle_time_ms
            if wait_ms <= 0 or name not in active:
                continue
            _, user_tag, client_tag, bound = decision
            used = self._managers.used(name, (user_tag, client_tag), now_ms)
            if name not in _FETCHED and name != refusing:  # fetches have gates
                key = lane_key(name, user_tag, client_tag, context.principal)
                until_ms = now_ms + min(wait_ms, INT_MAX)
                client.note_debt(key, Lane(until_ms, now_ms, bound, used=used))
            if wait_ms > ms:
                ms = wait_ms
                winner = Told(name, user_tag, client_tag, now_ms, bound, used)
        if winner is None:
            return 0
        ms = ms if ms < INT_MAX else INT_MAX
        kind = TYPES[winner.key]
        self._meters.waits(kind, winner.user_tag, winner.client_tag, ms, now_ms)
        client.told = winner
        return ms

    def close_gate(self, name: str, decision: Throttle, now_ms: int) -> None:
        """Close the gate of a quota-id that owes more than it may, by its quota key's name."""
        ms, user_tag, client_tag, bound = decision
        managers = self._managers
        if name not in managers.active_names or ms < managers.most_owed_ms(name):
            return
        told = None
        if ms > 0:
            used = managers.used(name, (user_tag, client_tag), now_ms)
            told = Told(name, user_tag, client_tag, now_ms, bound, used)
        self._gates.charged(GateKey(name, user_tag, client_tag), ms, bound, now_ms, told)

    def tell(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        why: Told | None,
        left_ms: int,
        upstream_ms: int,
        since_ms: int,
        now_ms: int,
    ) -> None:
        """
        Note that a throttled request is answered; one without an answer, when it has passed.

        Args:
            client: the connection that the request came by.
            context: who was charged.
            plan: how its API is handled.
            why: what decided; None: only the broker throttles.
            left_ms: what is left of the decision.
            upstream_ms: what the broker told.
            since_ms: how long ago it was charged, by the wall clock; unused without ``why``.
            now_ms: epoch ms.
        """
        name, decision, since = "", None, None
        if why is not None:
            since = float(since_ms)
            name, user_tag, client_tag, _, bound, *_ = why
            decision = Throttle(left_ms, user_tag, client_tag, bound)
            if left_ms > 0:
                self._meters.throttle(TYPES[name], user_tag, client_tag, left_ms, now_ms)
        self._journal.note(
            "told", client, context, plan, name, now_ms, since, decision,
            told_ms=max(left_ms, upstream_ms), upstream_ms=upstream_ms,
        )  # fmt: skip


REQUEST_NAME: Final = REQUEST.name
_LONG_POLLS: Final = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup, ShareFetch: they wait in the broker, and no wait is charged."""


class RequestTime:
    """
    Charges of request time.

    Args:
        manager: of the request quota.
        journal: where every charge is written down.
        thread_ns: a clock that is never set, ns.
        upstream: ``headgate.request.time=upstream``: the broker's time is estimated and counts too.

    Attributes:
        counts: a quota of request time exists, so requests are charged.
    """

    counts: bool

    def __init__(
        self,
        manager: RequestQuotaManager,
        journal: Journal,
        thread_ns: Callable[[], int],
        *,
        upstream: bool,
    ) -> None:
        # Differs: request_percentage counts the gateway's thread, or an estimate of the broker's.
        self.upstream = upstream
        self._record = manager.record_ns
        self._record_network = manager.record_network_ns
        self._journal = journal
        self._thread_ns = thread_ns

    def take(self, client: ClientConnection) -> int:
        """Return the thread time of a client that isn't charged yet, ns, up to this moment."""
        spent_ns, client.spent_ns = client.spent_ns, 0
        if client.began_ns:
            now_ns = self._thread_ns()
            spent_ns += now_ns - client.began_ns
            client.began_ns = now_ns
        return spent_ns

    def answered(
        self, client: ClientConnection, context: Context, plan: RequestPlan, now_ms: int
    ) -> None:
        """Charge the broker's thread time, by how long its answer took, where that counts."""
        if self.upstream and plan.key not in _LONG_POLLS and now_ms > client.asked_ms:
            self.network(client, context, (now_ms - client.asked_ms) * 1_000_000, now_ms)

    def charge(self, context: Context, spent_ns: int, now_ms: int) -> Throttle:
        """Charge a request's time and decide."""
        return self._record(context.principal, context.charged_id, spent_ns, now_ms)

    def network(self, client: ClientConnection, context: Context, nanos: int, now_ms: int) -> None:
        """Charge the time it took to send an answer; the next decision sees it."""
        decision = self._record_network(context.principal, context.charged_id, nanos, now_ms)
        if decision is not UNCHARGED:
            percent = nanos * PERCENT_PER_NS
            note = self._journal.note
            note("record", client, context, None, REQUEST_NAME, now_ms, percent, decision)


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


_FETCH: Final = CONSUMER.name
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = RequestKind.FETCH


@dataclass(eq=False)
class FetchCharges:
    """
    Charges of Fetch and ShareFetch; arguments in common as ``Enforcement`` says.

    Args:
        managers: of the broker.
        decisions: say which throttle counts, and close gates.
        time: charges request time.
        gates: of the quota-ids.
        journal: where every charge is written down.
        meters: where held fetches are counted.
        delivers: ``headgate.fetch=deliver``: a violating fetch is delivered and closes its gates.
    """

    _managers: Managers
    _decisions: Decisions
    _time: RequestTime
    _gates: Gates
    _journal: Journal
    _meters: Meters
    _delivers: bool

    def __post_init__(self) -> None:
        self._record = self._managers.fetch.record
        self._choose, self._close_gate = self._decisions.choose, self._decisions.close_gate

    def charge(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        size: int,
        answer_bytes: int,
        now_ms: int,
        *,
        withheld: bool = False,
    ) -> int:
        """
        Charge a Fetch or ShareFetch by its answer's size, ``answer_bytes``.

        A delivery closes the gates of its quota-ids. For an answer that is ``withheld``, the result
        is how long they stay closed.
        """
        user, client_id = context.principal, context.charged_id
        if client.repays & plan.bit:
            client.repaid(plan, now_ms)
        spent_ns = self._time.take(client)
        is_share = plan.kind is not _KIND_FETCH
        if is_share:
            charged = share_message.charged_bytes(answer_bytes)
        else:
            charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        by_request = UNCHARGED
        if self._time.counts:
            by_request = self._time.charge(context, spent_ns, now_ms)
        by_bytes = self._record(user, client_id, charged, now_ms)
        others: list[tuple[str, Throttle, float]] = []
        for name, manager in self._managers.fetch_active:
            others.append((name, manager.record(user, client_id, charged, now_ms), charged))
        ours = 0
        if withheld:
            rest, why = self._rest(client, now_ms)
            ours = self._choose(client, context, now_ms, (REQUEST_NAME, by_request), rest)
            if ours and why and client.told and client.told.key == why.key:
                client.told = why  # it is over by the fetch that closed the gate, not by this one
        elif others or by_bytes.throttle_time_ms > 0 or by_request.throttle_time_ms > 0:
            ours = self._choose(
                client, context, now_ms, (REQUEST_NAME, by_request), (_FETCH, by_bytes), others
            )
            if ours and not context.exempt and (is_share or self._delivers):
                self._close_gate(_FETCH, by_bytes, now_ms)
                for name, decision, _ in others:
                    self._close_gate(name, decision, now_ms)
        record = self._journal.record
        if by_request is not UNCHARGED:
            record(client, context, plan, REQUEST_NAME, now_ms, spent_ns * PERCENT_PER_NS,
                   by_request, ours, size, spent_ns, None)  # fmt: skip
        record(client, context, plan, _FETCH, now_ms, charged, by_bytes, ours, answer_bytes,
               spent_ns, None)  # fmt: skip
        for name, decision, amount in others:
            record(client, context, plan, name, now_ms, amount, decision, ours, answer_bytes,
                   spent_ns, None)  # fmt: skip
        return ours

    def _rest(
        self, client: ClientConnection, now_ms: int
    ) -> tuple[tuple[str, Throttle], Told | None]:
        """Return how long a withheld fetch's gates stay closed, as a decision, and why they do."""
        rest_ms, key = (0, None) if client.hold is None else client.hold.rest(now_ms)
        if key is None or not rest_ms:
            return (_FETCH, UNCHARGED), None
        gate = self._gates.get(key)
        bound = self._managers.gate_bound(key)
        decision = Throttle(rest_ms, key.user_tag, key.client_tag, bound)
        return (key.quota_type, decision), None if gate is None else gate.told

    def held(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        waited_ms: int,
        now_ms: int,
    ) -> None:
        """Note how long a fetch was held, in the metrics and in the journal."""
        meters = self._meters
        meters.fetches_held += 1
        meters.fetch_held_ms += waited_ms
        self._journal.note("held", client, context, plan, _FETCH, now_ms, float(waited_ms))

    def take_back(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        answer_bytes: int,
        now_ms: int,
    ) -> None:
        """Take a fetch's charge back: its answer was emptied."""
        user, client_id = context.principal, context.charged_id
        charged = fetch_message.charged_bytes(answer_bytes, plan.version)
        note = self._journal.note
        decision = self._managers.fetch.unrecord(user, client_id, charged, now_ms)
        note("unrecord", client, context, plan, _FETCH, now_ms, charged, decision)
        for name, manager in self._managers.fetch_active:
            decision = manager.unrecord(user, client_id, charged, now_ms)
            note("unrecord", client, context, plan, name, now_ms, charged, decision)
