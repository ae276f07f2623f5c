"""
The quotas in force for one broker's clients: managers, contexts, which throttle counts.

``enforcement`` adds the charges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.context import UNLIMITED, Context, SessionRules
from headgate.gateway.headroom import Headroom
from headgate.gateway.journal import NO_JOURNAL, Journal
from headgate.gateway.managers import Managers, sensors_of
from headgate.metrics.meters import Meters
from headgate.quota.key import (
    KEYS,
    QuotaKey,
    QuotaType,
)
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.registry import Throttle

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.session_state import SessionState
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.table import QuotaTable, TableDelta

_INT_MAX: Final = 2**31 - 1
_TYPES: Final = {key.name: QuotaType(key.type) for key in KEYS}
_MOST_NAMED: Final = 1 << 24
"""Characters of their names: a client id may have 32,767 bytes."""
_MOST_CONTEXTS: Final = 1 << 16
"""Contexts remembered; a client that invents client ids costs a lookup, never memory."""


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class EnforcementState(SessionRules):
    """
    Quotas, managers and contexts of one broker, and the choice of the throttle that counts.

    Args:
        settings: windows, static defaults, ``headgate.enforce``, exempt principals.
        broker_id: the upstream broker fronted.
        start_ms: epoch milliseconds; expiry of idle sensors counts from it.
        journal: where every charge is written down.
        meters: where throttles told are counted.

    Attributes:
        clock: returns epoch milliseconds, for charges made off the session's calls.
    """

    def __init__(
        self,
        settings: Settings,
        broker_id: int,
        start_ms: int,
        journal: Journal = NO_JOURNAL,
        meters: Meters | None = None,
    ) -> None:
        super().__init__(broker_id, empties_fetches=settings.fetch == "kafka")
        self.journal = journal
        self.meters = Meters() if meters is None else meters
        self.clock: Callable[[], int] = _wall_clock
        self.managers = Managers(settings, start_ms)
        self._only_bytes = False  # a produce request is charged nothing besides
        self._upstream_time = settings.request_time == "upstream"
        self._exempt = settings.exempt_principals
        produce = self.managers.produce
        self._rates = produce if isinstance(produce, ClientQuotaManager) else None
        self._record_produce = produce.record
        self._record_fetch = self.managers.fetch.record
        self._record_request = self.managers.request.record_ns
        self._contexts: dict[tuple[str, str], Context] = {}
        self._named = 0  # characters of the contexts' names
        self._headrooms: dict[tuple[str, str], Headroom] = {}
        journal.start(broker_id, start_ms, settings, sensors_of(self.managers.by_key))
        for key, manager in self.managers.by_key.items():
            if isinstance(manager, PacedQuotaManager):
                manager.moved = partial(journal.bound, broker_id, key)

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
        for entity, key, value in self.managers.apply(changes, now_ms):
            self.journal.quota(self.broker_id, key, entity, value, now_ms)
        self._changed()

    def reload(self, settings: Settings) -> None:
        """Take over what may change while running: who is exempt, what is enforced."""
        self._exempt = settings.exempt_principals
        self.managers.set_enforce(settings.enforce)
        self._changed()

    def _changed(self) -> None:
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
        for headroom in self._headrooms.values():
            headroom.quota_changed()

    def _ask_anew(self) -> None:
        """Have every session ask for its context anew; forget what none needs until then."""
        self._contexts.clear()
        self._named = 0
        self._headrooms = {t: room for t, room in self._headrooms.items() if not room.idle}
        self.epoch += 1

    def context(self, principal: str, client_id: str) -> Context:
        """Return who is charged for a principal and client id, as the quotas are now."""
        found = self._contexts.get((principal, client_id))
        if found is None:
            self._named += len(principal) + len(client_id)
            if len(self._contexts) >= _MOST_CONTEXTS or self._named > _MOST_NAMED:
                self._ask_anew()
            exempt = principal in self._exempt
            limits = UNLIMITED if exempt else self.managers.limits(principal, client_id)
            headroom = self._headroom(principal, client_id) if limits.produces else None
            found = Context(principal, client_id, exempt, limits, headroom)
            self._contexts[principal, client_id] = found
        return found

    def _headroom(self, principal: str, client_id: str) -> Headroom | None:
        """Return the headroom of a quota-id, one for all that share it."""
        tags = self.managers.headroom_tags(principal, client_id)
        if tags is None or (self._exempt and not tags[0]):
            return None  # what exempt principals produce under a client id counts, unannounced
        headroom = self._headrooms.get(tags)
        if headroom is None:
            headroom = Headroom(partial(self.managers.spare, tags))
            self._headrooms[tags] = headroom
        return headroom

    # --- decisions --------------------------------------------------------------------------

    def _decide(
        self,
        session: SessionState,
        context: Context,
        now_ms: int,
        request: tuple[str, Throttle],
        other: tuple[str, Throttle],
        others: Iterable[tuple[Any, ...]],
    ) -> int:
        """Take the largest throttle in force; ties in the order request, bytes, the rest."""
        if context.exempt:
            return 0
        active = self.managers.active_names
        ms = 0
        winner: tuple[Any, ...] | None = None
        for candidate in (request, other, *reversed(tuple(others))):
            if candidate[1].throttle_time_ms > ms and candidate[0] in active:
                winner, ms = candidate, candidate[1].throttle_time_ms
        if winner is None:
            return 0
        ms = ms if ms < _INT_MAX else _INT_MAX
        kind = _TYPES[winner[0]]
        self.meters.throttle(kind, winner[1].user_tag, winner[1].client_tag, ms, now_ms)
        session.muted_by = kind
        return ms

    def expire(self, now_ms: int) -> None:
        """Free the sensors of clients that have been idle for an hour, as Kafka does."""
        for key, manager in self.by_key.items():
            for tags in manager.expire(now_ms):
                self.meters.forget(QuotaType(key.type), *tags)
                self.journal.expire(self.broker_id, key, tags, now_ms)
        self.managers.producer_ids.cleanup(now_ms)

    @property
    def by_key(self) -> Mapping[QuotaKey, Any]:
        """The managers, by the key they enforce; for metrics and tests."""
        return self.managers.by_key
