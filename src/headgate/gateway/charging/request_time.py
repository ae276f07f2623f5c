"""
Thread time of one broker's requests: measure or estimate it, and charge it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.quota.key import REQUEST
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.request import PERCENT_PER_NS, RequestQuotaManager

if TYPE_CHECKING:
    from headgate.gateway.charging.client import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.journal import Journal
    from headgate.gateway.charging.plans import RequestPlan

REQUEST_NAME: Final = REQUEST.name
_LONG_POLLS: Final = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup, ShareFetch: they wait in the broker, and no wait is charged."""


class RequestTime:
    """
    Charges of request time.

    Args:
        manager: of the request quota.
        journal: where every charge is written down.
        upstream: ``headgate.request.time=upstream``: the broker's time is estimated and counts too.

    Attributes:
        counts: a quota of request time exists, so requests are charged.
    """

    counts: bool

    def __init__(self, manager: RequestQuotaManager, journal: Journal, *, upstream: bool) -> None:
        # Differs: request_percentage counts the gateway's thread, or an estimate of the broker's.
        self.upstream = upstream
        self._record = manager.record_ns
        self._record_network = manager.record_network_ns
        self._journal = journal

    def take(self, client: ClientConnection, plan: RequestPlan, now_ms: int) -> int:
        """Return the thread time that a charged request took, ns; the next counts from 0."""
        if client.repays & plan.bit:
            client.repaid(plan, now_ms)
        spent_ns = client.spent_ns
        client.spent_ns = 0
        return spent_ns + self.upstream_ns(client, plan, now_ms) if self.upstream else spent_ns

    def upstream_ns(self, client: ClientConnection, plan: RequestPlan, now_ms: int) -> int:
        """Return the broker's thread time, by how long its answer took; 0 unless it counts."""
        if not self.upstream or plan.key in _LONG_POLLS:
            return 0
        return max(now_ms - client.asked_ms, 0) * 1_000_000

    def charge(self, context: Context, spent_ns: int, now_ms: int) -> Throttle:
        """Charge a request's time and decide."""
        decision = self._record(context.principal, context.charged_id, spent_ns, now_ms)
        if context.headroom is not None and context.headroom.time is not None:
            context.headroom.time.spent(spent_ns, now_ms)
        return decision

    def network(self, client: ClientConnection, context: Context, nanos: int, now_ms: int) -> None:
        """Charge the time it took to send an answer; the next decision sees it."""
        decision = self._record_network(context.principal, context.charged_id, nanos, now_ms)
        if context.headroom is not None and context.headroom.time is not None:
            context.headroom.time.spent(nanos, now_ms)
        if decision is not UNCHARGED:
            percent = nanos * PERCENT_PER_NS
            note = self._journal.note
            note("record", client, context, None, REQUEST_NAME, now_ms, percent, decision)
