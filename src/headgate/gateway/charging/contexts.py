"""
Who requests are charged to at one broker, and the headrooms that clients of one quota-id share.

A context is made when a session first asks for it and kept until quotas change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.gateway.charging.clients import ClientIds
from headgate.gateway.charging.fetch_gate import GateKey
from headgate.gateway.charging.headroom import (
    Allowance,
    ChangeFlag,
    Headroom,
    IdAllowance,
    TimeAllowance,
)
from headgate.gateway.charging.managers import FETCHING, PRODUCING, Managers
from headgate.quota.key import (
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.steps import Work, look_at_young, one_by_one

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.throttle.line import Place
    from headgate.throttle.manager import RateSensor
    from headgate.throttle.overrides import Tags

MOST_CONTEXTS: Final = 1 << 16
"""Contexts kept. A client that invents client-ids costs lookups, and no memory."""
MOST_NAMED: Final = 1 << 24
"""Characters in the names of the contexts kept: a client-id may have 32,767 bytes."""

_FREED_AT_ONCE: Final = 16
"""Objects that are freed in one step, in 20 µs: a read may bring hundreds of new client-ids, and
each of them makes a step."""
_LOOKED_AT: Final = 64
"""New contexts after which the garbage collector looks at them: with each, old ones are freed."""
_SETTLED_AT_ONCE: Final = 512
"""What is settled in one step, in half a millisecond: requests and connections, and 16 for each
allowance. The last may have as much as an allowance can have (``headroom``)."""
_EACH_SETTLED: Final = 16
_ASSIGNED: Final = frozenset({PRODUCER_BPS, PRODUCER_SHARES})
"""What is produced under bounds that are assigned from time to time. So one throttle is capped."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True, eq=False)
class Context:
    """
    One principal with one client-id, by the quotas of one epoch.

    Args:
        principal: name of the principal, raw.
        client_id: as the client claims it, raw.
        charged_id: the client-id that it is charged as (``ClientIds``).
        exempt: named in ``headgate.exempt.principals``: measured, never throttled.
        limited: at least one finite quota applies.
        timed: a quota of request time does, so any request may be throttled.
        headroom: of the quotas on its time and on what it produces; None: there are none.
        epoch: of the rules.
        gates: of the quota-ids that its fetches are charged to; empty under
            ``headgate.fetch=kafka``.
        share_gates: likewise of a share group's fetches, which are delivered under either setting.
        overdue: of the quotas on what it produces whose throttles are capped: the name of each, and
            what returns how long a Produce waits for what is owed beyond the cap, ms; it takes the
            request's place and now.

    Attributes:
        fetches_alone: a fetch may be throttled by the size of its answer, which isn't known
            before. So one at a time is in flight, as in Kafka.
        sensor: what its last Produce was charged to; good while the manager's ``generation`` is
            this one's.
    """

    principal: str
    client_id: str
    charged_id: str
    exempt: bool
    limited: bool
    timed: bool
    headroom: Headroom | None
    epoch: int
    gates: tuple[GateKey, ...]
    share_gates: tuple[GateKey, ...]
    overdue: tuple[tuple[str, Callable[[Place, int], int]], ...]
    fetches_alone: bool = field(init=False)
    sensor: RateSensor | None = None
    generation: int = -1

    def __post_init__(self) -> None:
        self.fetches_alone = bool(self.share_gates)

    def of_client(self, client_id: str) -> Context:
        """Return the context of another client-id of the principal that is charged as this one."""
        return Context(
            self.principal, client_id, self.charged_id, self.exempt, self.limited, self.timed,
            self.headroom, self.epoch, self.gates, self.share_gates, self.overdue,
        )  # fmt: skip


class Contexts:
    """
    Contexts by principal and client-id.

    Args:
        managers: of the broker.
        settings: exempt principals, ``headgate.fetch``, ``headgate.request.time``,
            ``headgate.quota.client.ids``.
        clock: returns epoch ms.
        owes: whether a quota-id still has to wait for a throttle that was told, or for its gate.
        dropped: called with each quota-id whose sensor is dropped, since nothing counts there, and
            with the time.

    Attributes:
        client_ids: say as which client-id a client is charged.
        exempt: principals who are measured and never throttled.
        epoch: grows when contexts handed out before may be out of date.
    """

    def __init__(
        self,
        managers: Managers,
        settings: Settings,
        clock: Callable[[], int],
        owes: Callable[[QuotaKey, Tags], bool],
        dropped: Callable[[QuotaKey, Tags, int], None],
    ) -> None:
        self._managers = managers
        self._clock, self._owes, self._dropped = clock, owes, dropped
        self.client_ids = ClientIds(
            settings.quota_client_ids,
            managers.names,
            self._counts,
            self._drop,
            self.expire,
            clock(),
        )
        self.exempt = settings.exempt_principals
        self._delivers = settings.fetch != "kafka"
        self._upstream_time = settings.request_time == "upstream"
        self.epoch = 0
        self._contexts: dict[tuple[str, str], Context] = {}
        self._named = 0  # characters of the contexts' names
        self._headrooms: dict[tuple[tuple[QuotaKey, Tags], ...], Headroom] = {}
        self._allowances: dict[tuple[QuotaKey, Tags], Allowance] = {}
        self._used: dict[Allowance, None] = {}  # those to be settled before a quota changes
        self._changes = ChangeFlag()
        self._tidying: Iterator[None] = iter(())
        self._made = 0
        # Those of earlier epochs: what is claimed still counts, and freeing them takes time.
        self._old_contexts: dict[tuple[str, str], Context] = {}
        self._old_headrooms: dict[tuple[tuple[QuotaKey, Tags], ...], Headroom] = {}
        self._old_allowances: dict[tuple[QuotaKey, Tags], Allowance] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def of(self, principal: str, client_id: str) -> Context:
        """Return who is charged for a principal and client-id, as the quotas are now."""
        found = self._contexts.get((principal, client_id))
        if found is None:
            charged_id = self.client_ids.charged_as(principal, client_id)
            if charged_id != client_id:  # not kept: there may be any number of such clients
                return self.of(principal, charged_id).of_client(client_id)
            if len(self._contexts) >= MOST_CONTEXTS or self._named > MOST_NAMED:
                self.expire()
                self._tidying = self.tidy()
            self._named += len(principal) + len(client_id)
            next(self._tidying, None)  # far more of the old ones go than new ones come
            self._made += 1
            if not self._made % _LOOKED_AT:
                look_at_young()
            found = self._make(principal, client_id)
            self._contexts[principal, client_id] = found
        return found

    def expire(self) -> None:
        """Have every session ask for its context again; ``tidy`` frees what none asks for."""
        self._old_contexts = _joined(self._old_contexts, self._contexts)
        self._old_headrooms = _joined(self._old_headrooms, self._headrooms)
        self._old_allowances = _joined(self._old_allowances, self._allowances)
        self._contexts, self._headrooms, self._allowances = {}, {}, {}
        self._named = 0
        self.epoch += 1

    def tidy(self) -> Iterator[None]:
        """Forget, in steps, what is left of earlier epochs and isn't claimed from."""
        while self._old_contexts or self._old_headrooms:
            unused: tuple[dict[Any, Any], ...] = (self._old_contexts, self._old_headrooms)
            for old in unused:
                for _ in range(min(_FREED_AT_ONCE, len(old))):
                    old.popitem()
            yield
        for count, key in enumerate(one_by_one(self._old_allowances)):
            found = self._old_allowances.get(key)
            if found is not None and not found.claimed:  # a client may have taken it meanwhile
                del self._old_allowances[key]
                self._used.pop(found, None)
            if not count % _FREED_AT_ONCE:
                yield

    def settle(self, now_ms: int) -> None:
        """Charge early requests by the quotas in force, which are about to change."""
        used = self._used
        while used:  # a charge may use others
            some = list(used)
            used.clear()
            for allowance in some:
                allowance.ask_again(now_ms)

    def changing(self, work: Work[None], clock: Callable[[], int]) -> Work[None]:
        """
        Do work that changes quotas, in steps, when what went early by the old ones is charged.

        No connection begins to go early until it is done: else thousands could, between two steps,
        and all would have to be charged in one piece.
        """
        self._changes.under_way += 1
        try:
            yield from self.settling(clock)
            yield from work
        finally:
            self._changes.under_way -= 1

    def settling(self, clock: Callable[[], int]) -> Iterator[None]:
        """Do most of ``settle``'s work beforehand, in steps; later claims are left to it."""
        settled = 0
        for allowance in one_by_one(self._used):
            settled += _EACH_SETTLED
            if self._used.pop(allowance, self) is None:
                settled += allowance.weight
                allowance.ask_again(clock())
            if settled >= _SETTLED_AT_ONCE:
                settled = 0
                yield

    def make_way(self, context: Context, size: int, now_ms: int) -> None:
        """
        Before a charge that wasn't claimed, charge the early requests that it might throttle.

        Args:
            context: of the client that is charged; it was made before quotas changed.
            size: bytes produced that weren't claimed of the headroom it has now.
            now_ms: epoch ms.
        """
        current = self.of(context.principal, context.client_id)
        claimed = () if context.headroom is None else context.headroom.all
        if current.headroom is not None and current.headroom.all != claimed:
            current.headroom.make_way(size, now_ms)

    def quota_ids(self, principal: str, client_id: str) -> Iterator[tuple[QuotaKey, Tags]]:
        """Yield what a client is charged to, or would be, under each type that has quotas."""
        charged_id = self.client_ids.would_be(principal, client_id)
        for key, manager in self._managers.in_use:
            yield key, manager.tags(principal, charged_id)

    def _counts(self, principal: str, client_id: str) -> bool:
        """Whether anything that was charged to a client-id, or is about to be, still counts."""
        now_ms = self._clock()
        for key, manager in self._managers.in_use:
            tags = manager.tags(principal, client_id)
            if tags[1] and (
                manager.counts(tags, now_ms) or self._claimed(key, tags) or self._owes(key, tags)
            ):
                return True
        return False

    def _claimed(self, key: QuotaKey, tags: Tags) -> bool:
        """Whether requests are in flight that a quota-id will be charged for."""
        allowance = self._allowances.get((key, tags)) or self._old_allowances.get((key, tags))
        return allowance is not None and allowance.requests > 0

    def _drop(self, principal: str, client_id: str) -> None:
        """Forget the sensors of a client-id for which nothing counts."""
        for key, manager in self._managers.by_key.items():
            tags = manager.tags(principal, client_id)
            if tags[1] and manager.drop(tags):
                self._dropped(key, tags, self._clock())

    def _make(self, principal: str, client_id: str) -> Context:
        exempt = principal in self.exempt
        finite = {} if exempt else self._managers.finite(principal, client_id)
        gates = tuple(GateKey(key.name, *tags) for key, tags in finite.items() if key in FETCHING)
        return Context(
            principal,
            client_id,
            client_id,
            exempt,
            limited=bool(finite),
            timed=REQUEST in finite,
            headroom=self._headroom(finite),
            epoch=self.epoch,
            gates=gates if self._delivers else (),
            share_gates=gates,
            overdue=tuple(
                (key.name, partial(self._managers.by_key[key].overdue_ms, tags))
                for key, tags in finite.items()
                if key in _ASSIGNED
            ),
        )

    def _headroom(self, finite: Mapping[QuotaKey, Tags]) -> Headroom | None:
        """Return the headroom of a client, the same for all under the same quotas."""
        quotas = tuple((k, tags) for k, tags in finite.items() if k in PRODUCING or k is REQUEST)
        if not quotas:
            return None
        headroom = self._headrooms.get(quotas)
        if headroom is None:
            allowed = {key: self._allowance(key, tags) for key, tags in quotas}
            ids, timed = allowed.pop(PRODUCER_IDS, None), allowed.pop(REQUEST, None)
            headroom = Headroom(
                tuple(allowed.values()),
                ids if isinstance(ids, IdAllowance) else None,
                timed if isinstance(timed, TimeAllowance) else None,
                timeless=self._upstream_time and REQUEST in finite,
                changes=self._changes,
            )
            self._headrooms[quotas] = headroom
        return headroom

    def _allowance(self, key: QuotaKey, tags: Tags) -> Allowance:
        """Return the allowance of a quota-id under one quota, the same for all of its clients."""
        found = self._allowances.get((key, tags)) or self._old_allowances.pop((key, tags), None)
        if found is None:
            manager = self._managers.by_key[key]
            if key is REQUEST:
                window_ms = manager.num_samples * manager.window_ms
                found = TimeAllowance(partial(manager.spare_ns, tags), self._used, window_ms)
            else:
                made = IdAllowance if key is PRODUCER_IDS else Allowance
                found = made(partial(manager.spare, tags), self._used)
        self._allowances[key, tags] = found
        return found


def _joined(one: dict[_K, _V], other: dict[_K, _V]) -> dict[_K, _V]:
    """Return both dictionaries' entries in the larger of them."""
    if len(one) < len(other):
        one, other = other, one
    one.update(other)
    return one
