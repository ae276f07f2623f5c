"""
The quotas of one broker on live traffic: who is charged what, and who waits how long.

There is one ``Enforcement`` for each upstream broker, however many listeners it has, so that a
quota per broker means what it means in Kafka. It runs on the broker's event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.gateway.charging.charges import (
    INT_MAX,
    MUTATION_NAME,
    REQUEST_NAME,
    Decisions,
    FetchCharges,
    MutationCharges,
    RequestTime,
)
from headgate.gateway.charging.contexts import Context, Contexts
from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.journal import NO_JOURNAL, Journal
from headgate.gateway.charging.lanes import LaneBook, LaneKey
from headgate.gateway.charging.managers import PRODUCING, Managers, sensors_of
from headgate.gateway.charging.waiting import Payers, Waiting, only_value
from headgate.metrics.meters import Meters
from headgate.quota.key import PRODUCER, QuotaKey, QuotaType
from headgate.quota.table import TableChange
from headgate.steps import finish
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.charging.clients import ClientConnection
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.quota.table import QuotaTable, TableDelta
    from headgate.steps import Work
    from headgate.throttle.controller_mutation import MutationQuota
    from headgate.throttle.overrides import Tags

_LOADED_AT_ONCE: Final = 16
"""Entities whose quotas a new broker takes in one step: a quarter of a millisecond."""
_PRODUCE: Final = PRODUCER.name


class Enforcement:
    """
    Charge requests of one broker's clients, and say how long each is to wait.

    Every charge returns the milliseconds that the gateway mutes the client for: the largest of the
    managers concerned, ties to the request quota, 0 in ``observe``. The request's answer tells what
    is left of that (``tell``). Arguments that charges have in common:

    - ``client``: the connection that the request came by;
    - ``context``: who is charged;
    - ``plan``: how its API is handled;
    - ``size``: bytes of the request as Kafka counts them;
    - ``now_ms``: epoch ms.

    Args:
        settings: windows, static defaults, ``headgate.enforce``, exempt principals.
        broker_id: the upstream broker's.
        clock: returns epoch milliseconds, for charges made outside a session's calls. Expiry of
            idle sensors counts from what it returns first.
        journal: where every charge is written down.
        meters: where throttles told are counted.
        skew: returns how far the wall clock is ahead of one that is never set, ms.
        thread_ns: a clock that is never set, ns, for the time that the thread takes.

    Attributes:
        managers: by what they enforce.
        contexts: who is charged for a principal and client-id.
        mutations: the charges of topics.
        lanes: what connections that closed still owe.
        gates: of the quota-ids that owe more than they may.
        waiting: connections that wait for any of these.
        fetch, unfetch, held: the charges of fetches (``FetchCharges``).
        counts_requests: request time is charged.
        counts_mutations: controller mutations are.
        counts_producer_ids: new producer ids are.
        empties_fetches: ``headgate.fetch=kafka``: a violating fetch is answered empty and not
            charged.
        hold_ms: the longest a fetch is held, ``headgate.fetch.hold.max.ms``.
    """

    def __init__(
        self,
        settings: Settings,
        broker_id: int,
        clock: Callable[[], int],
        journal: Journal = NO_JOURNAL,
        meters: Meters | None = None,
        skew: Callable[[], int] = lambda: 0,
        thread_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        start_ms = clock()
        self.broker_id = broker_id
        self.clock = clock
        self.journal = journal
        self.meters = Meters() if meters is None else meters
        self.managers = Managers(settings, start_ms)
        self.contexts = Contexts(self.managers, settings, clock, self._owes, self._dropped)
        self.mutations = MutationCharges(self.managers, journal, clock)
        self._skew = skew
        self.gates = Gates(self.managers.owed_ms, skew)
        decisions = Decisions(self.managers, self.gates, self.meters, journal)
        self._choose, self.tell = decisions.choose, decisions.tell
        self._close_gate = decisions.close_gate
        upstream = settings.request_time == "upstream"
        self._time = RequestTime(self.managers.request, journal, thread_ns, upstream=upstream)
        self.lanes = LaneBook()
        self.waiting = Waiting()
        self._others_pay: list[TableChange] = []
        self._all_may_pay = False
        self.empties_fetches = settings.fetch == "kafka"
        fetches = FetchCharges(
            self.managers,
            decisions,
            self._time,
            self.gates,
            journal,
            self.meters,
            not self.empties_fetches,
        )
        self.fetch, self.unfetch, self.held = fetches.charge, fetches.take_back, fetches.held
        self.hold_ms = settings.fetch_hold_max_ms
        produce = self.managers.produce
        self._rates = produce if isinstance(produce, ClientQuotaManager) else None
        self._record_produce = produce.record
        journal.start(broker_id, start_ms, sensors_of(self.managers.by_key))
        for key, manager in self.managers.by_key.items():
            if isinstance(manager, PacedQuotaManager):
                manager.moved = partial(self._moved, key)
        self.managers.set_exempt(self.contexts.exempt)
        self._changed()

    # --- quotas -----------------------------------------------------------------------------

    def update(self, delta: TableDelta, now_ms: int) -> None:
        """Put a change of the quota table in force."""
        finish(self.updating(delta, lambda: now_ms))

    def load(self, table: QuotaTable, now_ms: int) -> None:
        """Put a whole table in force, on managers that have none yet."""
        finish(self.loading(table, lambda: now_ms))

    def loading(self, table: QuotaTable, clock: Callable[[], int]) -> Work[None]:
        """Do as ``load``, in steps; ``clock`` returns epoch ms."""
        entities = iter(table.entities.items())
        while some := list(islice(entities, _LOADED_AT_ONCE)):
            made = [TableChange(e, k, None, v) for e, vs in some for k, v in vs.items()]
            yield from self.changing(made, clock)
            yield

    def updating(self, delta: TableDelta, clock: Callable[[], int] | None = None) -> Work[None]:
        """Do as ``update``, in steps: a default entity may concern any number of live sensors."""
        yield from self.changing(delta.changes, clock or self.clock)
        yield from self.calling()

    def changing(self, changes: Sequence[TableChange], clock: Callable[[], int]) -> Work[None]:
        """Put changes in force, in steps; those that wait are to be called next (``calling``)."""
        taken: list[TableChange] = []
        for change in changes:
            manager = self.managers.by_key.get(change.key)
            if manager is None:  # connection rates are the acceptors'
                continue
            taken.append(change)
            flags = manager.flags
            for step, _ in enumerate(manager.updating(change.entity, change.new, clock)):
                if not step:  # sessions ask again as soon as the new quota judges any client
                    self._note(taken, clock())
                yield
            if len(self.waiting):
                self._all_may_pay = self._all_may_pay or flags != manager.flags
                if not only_value(change):
                    self._others_pay.append(change)
        self._note(taken, clock())
        if any(change.entity.has_default for change in changes):
            yield from self.gates.requoting(self.managers.gate_bound, clock)

    def calling(self) -> Work[None]:
        """Have those look again, in steps, to whom other quotas apply since the last call."""
        changes, self._others_pay = self._others_pay, []
        everybody, self._all_may_pay = self._all_may_pay, False
        if everybody:
            yield from self.waiting.calling()
        elif changes:
            yield from self.waiting.calling(Payers(changes))

    def _moved(self, key: QuotaKey, tags: Tags, bound: float, now_ms: int) -> None:
        """Write down a bucket's new bound; a higher one may open its gate, a lower one close it."""
        self.journal.bound(self.broker_id, key, tags, bound, now_ms)
        gate = self.gates.get(GateKey(key.name, *tags))
        if gate is not None:
            gate.requoted(bound, self.gates.time(now_ms))
        elif key in PRODUCING:
            owed_ms = self.managers.by_key[key].owed_ms(tags, now_ms)
            self._close_gate(key.name, Throttle(owed_ms, *tags, bound), now_ms)

    def _note(self, taken: list[TableChange], now_ms: int) -> None:
        """Write down the changes that have taken effect, and have sessions ask again."""
        for entity, key, _, value in taken:
            self.journal.quota(self.broker_id, key, entity, value, now_ms)
            # An entity without a default is one quota-id, and its names are plain text. For one
            # with a default, all gates are told afterwards.
            tags = (str(entity.user or ""), str(entity.client_id or ""))
            gate = self.gates.get(GateKey(key.name, *tags))
            if gate is not None:
                gate.requoted(self.managers.by_key[key].bound(tags), self.gates.time(now_ms))
        taken.clear()
        self._changed()

    def reload(self, settings: Settings) -> None:
        """
        Take over what may change while running: who is exempt, what is enforced.

        Those that wait are to be called next (``waiting``).
        """
        now_ms, managers = self.clock(), self.managers
        held_before, exempt_before = managers.active, self.contexts.exempt
        self.contexts.exempt = settings.exempt_principals
        managers.set_exempt(settings.exempt_principals)
        managers.set_enforce(settings.enforce)
        # Nobody waited for what these owe: without this, an hour at 10 x the quota is nine hours.
        self._forgive(managers.active - held_before, None, now_ms)
        self._forgive(managers.active, exempt_before - settings.exempt_principals, now_ms)
        self._changed()

    def _forgive(
        self, keys: frozenset[QuotaKey], users: frozenset[str] | None, now_ms: int
    ) -> None:
        """Have buckets that come into force owe nothing; a journal says they had no limit."""
        for key, tags in self.managers.forgive(keys, users, now_ms):
            for bound in (UNLIMITED, self.managers.by_key[key].bound(tags)):
                self.journal.bound(self.broker_id, key, tags, bound, now_ms)

    def _changed(self) -> None:
        managers = self.managers
        managers.changed()
        self.counts_requests = self._time.counts = managers.request.enabled
        self.counts_mutations = managers.mutation.enabled
        self.counts_producer_ids = managers.producer_ids.enabled
        self._only_bytes = not (  # a produce request is charged nothing besides
            self.counts_requests or managers.produce_active or self._time.upstream
        )
        self.contexts.expire()

    def context(self, principal: str, client_id: str) -> Context:
        """Return who is charged for a principal and client-id, as the quotas are now."""
        return self.contexts.of(principal, client_id)

    def lanes_of(self, context: Context, kind: int) -> Iterable[LaneKey]:
        """Return the lanes that a kind of request is charged to."""
        return self.managers.lanes_of(context.principal, context.charged_id, kind)

    def expire(self, now_ms: int) -> Iterator[None]:
        """Free the sensors of clients that have been idle for an hour, as Kafka does, in steps."""
        for key, manager in self.managers.by_key.items():
            for tags in manager.expiring(now_ms):
                if tags is not None:
                    self._dropped(key, tags, now_ms)
                yield
        yield from self.contexts.client_ids.releasing(now_ms)
        self.meters.crowded = self.contexts.client_ids.crowded
        yield from self.contexts.tidy()
        yield from self.gates.tidying(self.clock)

    def _dropped(self, key: QuotaKey, tags: Tags, now_ms: int) -> None:
        """Note that a quota-id's sensor is gone."""
        self.meters.forget(QuotaType(key.type), *tags)
        self.journal.expire(self.broker_id, key, tags, now_ms)

    def _owes(self, key: QuotaKey, tags: Tags) -> bool:
        """Whether a quota-id still has to wait for what it was told, or for its gate."""
        told = self.meters.throttled[QuotaType(key.type)].get(tags)
        if told is not None and told.until_ms > self.clock():
            return True
        return self.gates.get(GateKey(key.name, *tags)) is not None

    # --- charges ----------------------------------------------------------------------------

    def steady_ms(self, now_ms: int) -> int:
        """Return the time by a clock that is never set, ms; ``now_ms`` is the wall clock's."""
        return now_ms - self._skew()

    def fetch_limit(self, context: Context, now_ms: int) -> int | None:
        """Return the most bytes a fetch may ask for (``Managers.fetch_limit``); None: no limit."""
        if not context.limited:
            return None
        limit = self.managers.fetch_limit(context.principal, context.charged_id, now_ms)
        return int(limit) if limit < INT_MAX else None

    def produce(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        size: int,
        producer_ids: frozenset[int] | None,
        answered: bool,
        now_ms: int,
    ) -> int:
        """
        Charge a Produce: new producer ids, bytes, request time unless acks=0.

        Returns:
            Milliseconds to mute for; 0 when no quota of the gateway's throttles.
        """
        # Differs: a Produce is charged, and a mute begins, when its last byte was passed on; in
        # Kafka when it is answered. Its answer tells what is left of the throttle then.
        # Differs: what was passed on is charged, also if no broker took it.
        user, client_id = context.principal, context.charged_id
        if client.repays & plan.bit:
            client.repaid(plan, now_ms)
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
                ours = self._choose(
                    client, context, now_ms, (REQUEST_NAME, UNCHARGED), (_PRODUCE, by_bytes), ()
                )
            self.journal.record(
                client, context, plan, _PRODUCE, now_ms, size, by_bytes, ours, size, 0, producer_ids
            )
            return ours
        spent_ns = self._time.take(client)
        managers = self.managers
        others: list[tuple[str, Throttle, float]] = []
        throttles = False
        by_bytes = self._record_produce(user, client_id, size, now_ms)
        for name, manager, charge in managers.produce_active:
            decision, amount = charge(manager, user, client_id, size, producer_ids, now_ms)
            if decision is not UNCHARGED:
                others.append((name, decision, amount))
                throttles = throttles or decision[0] > 0
        by_request = UNCHARGED
        if self.counts_requests:
            if answered:
                by_request = self._time.charge(context, spent_ns, now_ms)
            else:
                managers.request.record_exempt_ns(spent_ns, now_ms)
        ours = 0
        if throttles or by_bytes[0] > 0 or by_request[0] > 0:
            ours = self._choose(
                client, context, now_ms, (REQUEST_NAME, by_request), (_PRODUCE, by_bytes), others
            )
            if ours:
                for name, decision, _ in others:
                    self._close_gate(name, decision, now_ms)
        if client.produce_hold is not None:
            # Differs: who waited in silence for over 20 s behind others of its quota-id is told so.
            ours = client.produce_hold.told_ms(ours)
        record = self.journal.record
        record(client, context, plan, _PRODUCE, now_ms, size, by_bytes, ours, size, spent_ns,
               producer_ids)  # fmt: skip
        if by_request is not UNCHARGED:
            record(client, context, plan, REQUEST_NAME, now_ms, spent_ns * PERCENT_PER_NS,
                   by_request, ours, size, spent_ns, None)  # fmt: skip
        for name, decision, amount in others:
            record(client, context, plan, name, now_ms, amount, decision, ours, size, spent_ns,
                   producer_ids)  # fmt: skip
        return ours

    def request(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        size: int,
        now_ms: int,
        mutations: Throttle = UNCHARGED,
        refusing: str = "",
    ) -> int:
        """Charge a request's time only; the rest of its mutations' throttle counts if larger."""
        if client.repays & plan.bit:
            client.repaid(plan, now_ms)
        spent_ns = self._time.take(client)
        decision = UNCHARGED
        if self.counts_requests:
            decision = self._time.charge(context, spent_ns, now_ms)
        ours = 0
        if decision.throttle_time_ms > 0 or mutations.throttle_time_ms > 0:
            ours = self._choose(
                client,
                context,
                now_ms,
                (REQUEST_NAME, decision),
                (MUTATION_NAME, mutations),
                (),
                refusing,
            )
        if decision is not UNCHARGED:
            self.journal.record(
                client, context, plan, REQUEST_NAME, now_ms, spent_ns * PERCENT_PER_NS, decision,
                ours, size, spent_ns, None,
            )  # fmt: skip
        return ours

    def answered(
        self, client: ClientConnection, context: Context, plan: RequestPlan, now_ms: int
    ) -> None:
        """Charge the broker's thread time of a request that is answered, where it counts."""
        if self.counts_requests:
            self._time.answered(client, context, plan, now_ms)

    def network_time(
        self, client: ClientConnection, context: Context, nanos: int, now_ms: int
    ) -> None:
        """Charge the time it took to send an answer; throttles nothing until the next decision."""
        if self.counts_requests:
            self._time.network(client, context, nanos, now_ms)

    def rest_of_time(self, client: ClientConnection, context: Context, now_ms: int) -> None:
        """Charge the thread time that is left of a connection that ends."""
        if self.counts_requests:
            nanos = self._time.take(client)
            if nanos:
                self._time.network(client, context, nanos, now_ms)

    def mutation(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        size: int,
        quota: MutationQuota,
        now_ms: int,
    ) -> int:
        """Charge the request's time; combine with what is left of the mutations' throttle."""
        left = self.mutations.left(context, quota, now_ms)
        refusing = MUTATION_NAME if quota.is_strict else ""
        return self.request(client, context, plan, size, now_ms, left, refusing)
