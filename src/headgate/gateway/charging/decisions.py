"""
Which throttle counts when several quotas decide on one request: the largest.

The request quota wins ties, producer ids lose them. Throttles are never added, and only the
winner's throttle-time metric is touched. Source: KafkaApis (``handleProduceRequest``,
``handleFetchRequest``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.charging.lanes import Lane, lane_key
from headgate.gateway.charging.managers import FETCHING, Managers
from headgate.gateway.charging.told import Told
from headgate.quota.key import KEYS, QuotaType

if TYPE_CHECKING:
    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.metrics.meters import Meters
    from headgate.throttle.registry import Throttle

INT_MAX: Final = 2**31 - 1
_FETCHED: Final = frozenset(key.name for key in FETCHING)
TYPES: Final = {key.name: QuotaType(key.type) for key in KEYS}
"""The quota type of each key, by the key's name."""


@dataclass(eq=False)
class Decisions:
    """
    The choice of the throttle that a client is told and muted for.

    Args:
        managers: say which quota types are in force.
        meters: count the throttles told.
    """

    _managers: Managers
    _meters: Meters

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
        for candidate in (request, other, *reversed(tuple(others))):
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
        self._meters.throttle(kind, winner.user_tag, winner.client_tag, ms, now_ms)
        client.told = winner
        return ms
