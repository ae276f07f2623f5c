"""
Who requests are charged to at one broker.

A context is made when a session first asks for it and kept until quotas change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.gateway.charging.clients import ClientIds
from headgate.gateway.charging.gates import GateKey
from headgate.gateway.charging.managers import FETCHING, PRODUCING, Managers
from headgate.quota.key import REQUEST, QuotaKey
from headgate.steps import look_at_young

if TYPE_CHECKING:
    from headgate.config.settings import Settings
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
        alone: each request goes alone in flight: its time counts, and most of that is the broker's,
            which isn't known before the answer (``headgate.request.time=upstream``).
        epoch: of the rules.
        gates: of the quota-ids that its fetches are charged to; empty under
            ``headgate.fetch=kafka``.
        share_gates: likewise of a share group's fetches, which are delivered under either setting.
        produce_gates: of those that what it produces is charged to, whose throttles are capped.

    Attributes:
        fetches_alone: a fetch may be throttled by the size of its answer, which isn't known
            before. So one at a time is in flight, as in Kafka.
        one_fetch: one at a time is in flight for any reason: its time may be throttled, too.
        sensor: what its last Produce was charged to; good while the manager's ``generation`` is
            this one's.
    """

    principal: str
    client_id: str
    charged_id: str
    exempt: bool
    limited: bool
    timed: bool
    alone: bool
    epoch: int
    gates: tuple[GateKey, ...]
    share_gates: tuple[GateKey, ...]
    produce_gates: tuple[GateKey, ...]
    fetches_alone: bool = field(init=False)
    one_fetch: bool = field(init=False)
    sensor: RateSensor | None = None
    generation: int = -1

    def __post_init__(self) -> None:
        self.fetches_alone = bool(self.share_gates)
        self.one_fetch = self.fetches_alone or self.timed

    def of_client(self, client_id: str) -> Context:
        """Return the context of another client-id of the principal that is charged as this one."""
        return Context(
            self.principal, client_id, self.charged_id, self.exempt, self.limited, self.timed,
            self.alone, self.epoch, self.gates, self.share_gates, self.produce_gates,
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
        self._tidying: Iterator[None] = iter(())
        self._made = 0
        self._old_contexts: dict[tuple[str, str], Context] = {}  # freeing them takes time

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
        self._contexts, self._named = {}, 0
        self.epoch += 1

    def tidy(self) -> Iterator[None]:
        """Forget, in steps, what is left of earlier epochs."""
        while old := self._old_contexts:
            for _ in range(min(_FREED_AT_ONCE, len(old))):
                old.popitem()
            yield

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
            if tags[1] and (manager.counts(tags, now_ms) or self._owes(key, tags)):
                return True
        return False

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
            alone=self._upstream_time and REQUEST in finite,
            epoch=self.epoch,
            gates=gates if self._delivers else (),
            share_gates=gates,
            produce_gates=tuple(
                GateKey(key.name, *tags) for key, tags in finite.items() if key in PRODUCING
            ),
        )


def _joined(one: dict[_K, _V], other: dict[_K, _V]) -> dict[_K, _V]:
    """Return both dictionaries' entries in the larger of them."""
    if len(one) < len(other):
        one, other = other, one
    one.update(other)
    return one
