"""Request percentage: two charges, one cap, exempt requests (KIP-124)."""

from __future__ import annotations

from headgate.quota.entity import QuotaEntity
from headgate.throttle.registry import UNCHARGED
from headgate.throttle.request import RequestQuotaManager

T0 = 1_700_000_000_000
MS = 1_000_000


def one_percent() -> RequestQuotaManager:
    manager = RequestQuotaManager(start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="ANONYMOUS", client_id="test-client"), 1.0, T0)
    return manager


def test_upstream_violation_of_one_percent() -> None:
    manager = one_percent()
    now = T0

    def charge(ms: float) -> int:
        ns = int(ms * MS)
        return manager.record_ns("ANONYMOUS", "test-client", ns, now).throttle_time_ms

    for _ in range(10):
        assert charge(4) == 0
        now += 1000
    now += 500
    assert charge(67.1) == 210
    now += 210
    for _ in range(11):
        charge(4)
        now += 1000
    assert charge(0) == 0
    assert charge(500) == 1000  # one window, whatever the violation
    for _ in range(10):
        now += 1000
        assert charge(0) == 1000
    now += 1000
    assert charge(0) == 0


def test_network_time_is_charged_unchecked_and_felt_by_the_next() -> None:
    manager = one_percent()
    told = manager.record_network_ns("ANONYMOUS", "test-client", 900 * MS, T0)
    assert told.throttle_time_ms == 0
    assert manager.record_ns("ANONYMOUS", "test-client", 0, T0).throttle_time_ms == 1000


def test_the_cap_is_the_window() -> None:
    manager = RequestQuotaManager(window_ms=5000, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u"), 0.5, T0)
    assert manager.record_ns("u", "c", 10**12, T0).throttle_time_ms == 5000


def test_exempt_time_is_counted_apart_and_only_while_quotas_exist() -> None:
    manager = RequestQuotaManager(start_ms=T0)
    manager.record_exempt_ns(300 * MS, T0)
    assert manager.exempt.peek(T0)[0] == 0.0
    assert manager.record_ns("u", "c", MS, T0) is UNCHARGED
    manager.update_quota(QuotaEntity.of(user="u"), 1.0, T0)
    manager.record_exempt_ns(300 * MS, T0)
    assert manager.exempt.peek(T0)[0] == 1.0  # 30 percent seconds over 30 s
    assert list(manager.sensors()) == []
