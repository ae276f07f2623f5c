"""
The quotas in force for one broker's clients: managers, contexts, which throttle counts.

``enforcement`` adds the charges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.charging.context import Context
from headgate.gateway.charging.fetch_gate import GateKey, Gates
from headgate.gateway.charging.headroom import Headroom, IdRoom, Room, TimeRoom, settle
from headgate.gateway.charging.journal import NO_JOURNAL, Journal
from headgate.gateway.charging.lanes import Lane, LaneBook, LaneKey, lane_key
from headgate.gateway.charging.managers import PRODUCING, Managers, limits_of, sensors_of
from headgate.metrics.meters import Meters
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    KEYS,
    PRODUCER_IDS,
    REQUEST,
    QuotaKey,
    QuotaType,
)
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import AssignedQuotaManager, PacedQuotaManager
from headgate.throttle.registry import Throttle

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.charging.client import ClientConnection
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.table import QuotaTable, TableDelta
    from headgate.throttle.overrides import Tags

_INT_MAX: Final = 2**31 - 1
_FETCHED: Final = frozenset(key.name for key in (CONSUMER, CONSUMER_BPS, CONSUMER_SHARES))
_TYPES: Final = {key.name: QuotaType(key.type) for key in KEYS}
_MOST_NAMED: Final = 1 << 24
"""Characters of their names: a client id may have 32,767 bytes."""
_MOST_CONTEXTS: Final = 1 << 16
"""Contexts remembered; a client that invents client ids costs a lookup, never memory."""


class EnforcementState:
    """
    Quotas, managers and contexts of one broker, and the choice of the throttle that counts.

    Args:
        settings: windows, static defaults, ``headgate.enforce``, exempt principals.
        broker_id: the upstream broker fronted.
        clock: returns epoch milliseconds, for charges made off the session's calls; expiry of idle
            sensors counts from now on.
        journal: where every charge is written down.
        meters: where throttles told are counted.

    Attributes:
        broker_id: the upstream broker's.
        epoch: grows when contexts handed out before may be out of date.
        counts_requests: request time is charged.
        counts_mutations: controller mutations are.
        counts_producer_ids: new producer ids are.
        empties_fetches: ``headgate.fetch=kafka``: a violating fetch is answered empty and not
            charged.
        hold_ms: the longest a fetch is held, ``headgate.fetch.hold.max.ms``.
        lanes: what connections that closed still owe.
        gates: of the quota-ids that fetched more than their quota.
        clock: as given.
    """

    def __init__(
        self,
        settings: Settings,
        broker_id: int,
        clock: Callable[[], int],
        journal: Journal = NO_JOURNAL,
        meters: Meters | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.epoch = 0
        self.counts_requests = False
        self.counts_mutations = False
        self.counts_producer_ids = False
        self.empties_fetches = settings.fetch == "kafka"
        self.hold_ms = settings.fetch_hold_max_ms
        self.journal = journal
        self.meters = Meters() if meters is None else meters
        self.clock = clock
        start_ms = clock()
        self.managers = Managers(settings, start_ms)
        self.lanes = LaneBook()
        self.gates = Gates(self.managers.owed_ms)
        self._only_bytes = False  # a produce request is charged nothing besides
        # Differs: request_percentage counts the gateway's thread, or an estimate of the broker's.
        self._upstream_time = settings.request_time == "upstream"
        self._exempt = settings.exempt_principals
        produce = self.managers.produce
        self._rates = produce if isinstance(produce, ClientQuotaManager) else None
        self._record_produce = produce.record
        self._record_fetch = self.managers.fetch.record
        self._record_request = self.managers.request.record_ns
        self._contexts: dict[tuple[str, str], Context] = {}
        self._named = 0  # characters of the contexts' names
        self._headrooms: dict[tuple[tuple[QuotaKey, Tags], ...], Headroom] = {}
        self._rooms: dict[tuple[QuotaKey, Tags], Room] = {}
        journal.start(broker_id, start_ms, settings, sensors_of(self.managers.by_key))
        for key, manager in self.managers.by_key.items():
            if isinstance(manager, PacedQuotaManager):
                manager.moved = partial(journal.bound, broker_id, key)
            if isinstance(manager, AssignedQuotaManager):
                manager.moving = self.settle
        self.managers.set_exempt(self._exempt)

    # --- quotas -----------------------------------------------------------------------------

    def update(self, delta: TableDelta, now_ms: int) -> None:
        """Put a change of the quota table in force."""
        self._apply(((c.entity, c.key, c.new) for c in delta.changes), now_ms)

    def load(self, table: QuotaTable, now_ms: int) -> None:
        """Put a whole table in force, on managers that have none yet."""
        self._apply(
            ((e, k, v) for e, values in table.entities.items() for k, v in values.items()), now_ms
        )

    def _apply(
        self, changes: Iterable[tuple[QuotaEntity, QuotaKey, float | None]], now_ms: int
    ) -> None:
        self.settle(now_ms)
        for entity, key, value in self.managers.apply(changes, now_ms):
            self.journal.quota(self.broker_id, key, entity, value, now_ms)
        self._changed(now_ms)

    def settle(self, now_ms: int) -> None:
        """Charge all that went early, by the quotas it went by: they are about to change."""
        for room in list(self._rooms.values()):  # a charge may make new ones
            settle(room, now_ms)
            room.left = 0.0

    def reload(self, settings: Settings) -> None:
        """Take over what may change while running: who is exempt, what is enforced."""
        self.settle(self.clock())
        self._exempt = settings.exempt_principals
        self.managers.set_exempt(self._exempt)
        self.managers.set_enforce(settings.enforce)
        self._changed(self.clock())

    def _changed(self, now_ms: int) -> None:
        managers = self.managers
        self.counts_requests = managers.request.enabled
        self.counts_mutations = managers.mutation.enabled
        self.counts_producer_ids = managers.producer_ids.enabled
        self._only_bytes = not (
            self.counts_requests
            or self.counts_producer_ids
            or managers.produce_active
            or self._upstream_time
        )
        self._ask_anew()
        self.gates.requoted(self.managers.gate_bound, now_ms)

    def _ask_anew(self) -> None:
        """Have every session ask for its context anew; forget what none needs until then."""
        self._contexts.clear()
        self._named = 0
        self._headrooms = {k: found for k, found in self._headrooms.items() if not found.idle}
        self._rooms = {k: room for k, room in self._rooms.items() if not room.idle}
        self.epoch += 1

    def context(self, principal: str, client_id: str) -> Context:
        """Return who is charged for a principal and client id, as the quotas are now."""
        found = self._contexts.get((principal, client_id))
        if found is None:
            self._named += len(principal) + len(client_id)
            if len(self._contexts) >= _MOST_CONTEXTS or self._named > _MOST_NAMED:
                self._ask_anew()
            exempt = principal in self._exempt
            finite = {} if exempt else self.managers.finite(principal, client_id)
            limits = limits_of(finite)
            headroom = self._headroom(finite)
            gates = tuple(
                GateKey(k.name, *tags) for k, tags in finite.items() if k.name in _FETCHED
            )
            delivers = () if self.empties_fetches else gates
            found = Context(
                principal, client_id, exempt, limits, headroom, self.epoch, delivers, gates
            )
            self._contexts[principal, client_id] = found
        return found

    def _headroom(self, finite: Mapping[QuotaKey, Tags]) -> Headroom | None:
        """Return the headroom of a client, the same for all under the same quotas."""
        quotas = tuple((k, tags) for k, tags in finite.items() if k in PRODUCING or k is REQUEST)
        if not quotas:
            return None
        headroom = self._headrooms.get(quotas)
        if headroom is None:
            timeless = self._upstream_time and REQUEST in finite
            rooms = {key: self._room(key, tags) for key, tags in quotas}
            ids, timed = rooms.pop(PRODUCER_IDS, None), rooms.pop(REQUEST, None)
            headroom = Headroom(
                tuple(rooms.values()),
                ids if isinstance(ids, IdRoom) else None,
                timed if isinstance(timed, TimeRoom) else None,
                timeless=timeless,
            )
            self._headrooms[quotas] = headroom
        return headroom

    def _room(self, key: QuotaKey, tags: Tags) -> Room:
        """Return the room of a quota-id under one quota, the same for all who share it."""
        room = self._rooms.get((key, tags))
        if room is None:
            manager = self.managers.by_key[key]
            if key is REQUEST:
                window_ms = manager.num_samples * manager.window_ms
                room = TimeRoom(partial(manager.spare_ns, tags), window_ms)
            else:
                made = IdRoom if key is PRODUCER_IDS else Room
                room = made(partial(manager.spare, tags))
            self._rooms[key, tags] = room
        return room

    def _make_way(self, context: Context, size: int, now_ms: int) -> None:
        """
        Have others charged before a charge that wasn't claimed, if they might be throttled after.

        Args:
            context: whose charge it is.
            size: bytes produced that weren't claimed of its headroom.
            now_ms: milliseconds of the epoch.
        """
        current = self.context(context.principal, context.client_id)
        if current.headroom is not None and current.headroom is not context.headroom:
            current.headroom.make_way(size, now_ms)

    def lanes_of(self, context: Context, kind: int) -> Iterable[tuple[LaneKey, float]]:
        """Return the lanes that a kind of request is charged to, each with its quota."""
        return self.managers.lanes_of(context.principal, context.client_id, kind)

    # --- decisions --------------------------------------------------------------------------

    def _decide(
        self,
        session: ClientConnection,
        context: Context,
        now_ms: int,
        request: tuple[str, Throttle],
        other: tuple[str, Throttle],
        others: Iterable[tuple[Any, ...]],
        refusing: str = "",
    ) -> int:
        """
        Take the largest throttle in force; ties in the order request, bytes, the rest.

        The quota type named ``refusing`` leaves no debt: it refuses what is over it and charges
        nothing, so a newcomer gains nothing.
        """
        if context.exempt:
            return 0
        active = self.managers.active_names
        ms = 0
        winner: tuple[Any, ...] | None = None
        for candidate in (request, other, *reversed(tuple(others))):
            name, decision = candidate[0], candidate[1]
            wait_ms: int = decision.throttle_time_ms
            if wait_ms <= 0 or name not in active:
                continue
            if name not in _FETCHED and name != refusing:  # fetches have gates
                _, user_tag, client_tag, bound = decision
                key = lane_key(name, user_tag, client_tag, context.principal)
                session.note_debt(key, Lane(now_ms + min(wait_ms, _INT_MAX), now_ms, bound))
            if wait_ms > ms:
                winner, ms = candidate, wait_ms
        if winner is None:
            return 0
        ms = ms if ms < _INT_MAX else _INT_MAX
        kind = _TYPES[winner[0]]
        self.meters.throttle(kind, winner[1].user_tag, winner[1].client_tag, ms, now_ms)
        session.muted_by = kind
        return ms

    def expire(self, now_ms: int) -> Iterator[None]:
        """Free the sensors of clients that have been idle for an hour, as Kafka does, in steps."""
        for key, manager in self.by_key.items():
            for tags in manager.expiring(now_ms):
                if tags is not None:
                    self.meters.forget(QuotaType(key.type), *tags)
                    self.journal.expire(self.broker_id, key, tags, now_ms)
                yield
        self.gates.tidy(now_ms)

    @property
    def by_key(self) -> Mapping[QuotaKey, Any]:
        """The managers, by the key they enforce; for metrics and tests."""
        return self.managers.by_key
