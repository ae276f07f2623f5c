"""
Request percentage: how much of the broker's threads a client may use (KIP-124).

A request is charged twice to the same sensor: its handler thread's time with a check, its network
thread's time, known only when the response has been sent, without. One throttle is at most one
window. Exempt requests (inter-broker ones) are charged to one sensor of their own, never
throttled.

Source: kafka.server.ClientRequestQuotaManager; KIP-124.
"""

from __future__ import annotations

from typing import Final, Unpack

from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.registry import Common, Throttle
from headgate.throttle.sensor import LIBRARY_WINDOWS, SampledRate

PERCENT_PER_NS: Final = 100.0 / 1_000_000_000
"""Thread time in ns times this is a charge: a rate of 100 means one thread fully busy."""


class RequestQuotaManager(ClientQuotaManager):
    """
    The manager of request_percentage; amounts are thread times in ns.

    Args:
        common: as for every manager. One throttle lasts ``window_ms`` at most.

    Attributes:
        exempt: the rate of exempt thread time, in percent, over the library's own windows.
    """

    def __init__(self, **common: Unpack[Common]) -> None:
        super().__init__(QuotaType.REQUEST_PERCENTAGE, **common)
        self.max_throttle_ms = self.window_ms
        self.exempt = SampledRate(*LIBRARY_WINDOWS)

    def record_ns(self, user: str, client_id: str, time_ns: int, now_ms: int) -> Throttle:
        """Charge handler thread time (ns) and decide; see :meth:`ClientQuotaManager.record`."""
        return self.record(user, client_id, time_ns * PERCENT_PER_NS, now_ms)

    def record_network_ns(self, user: str, client_id: str, time_ns: int, now_ms: int) -> Throttle:
        """Charge network thread time (ns) without a check; only the next decision sees it."""
        return self.record_no_throttle(user, client_id, time_ns * PERCENT_PER_NS, now_ms)

    def record_exempt_ns(self, time_ns: int, now_ms: int) -> None:
        """Charge an exempt request's thread time (ns); nothing while quotas aren't enabled."""
        if self.enabled:
            self.exempt.record(time_ns * PERCENT_PER_NS, now_ms)
