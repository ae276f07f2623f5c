"""Connection quotas at the edges: one ms of delay, the last number, addresses that expire."""

from __future__ import annotations

import pytest

from headgate.errors import ConfigError
from headgate.throttle.connection import ConnectionQuotas, Outcome
from headgate.throttle.java import INT_MAX

T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def quotas(**settings: int) -> ConnectionQuotas:
    return ConnectionQuotas(["A", "B"], "B", start_ms=T0, **settings)


def test_a_refusal_of_one_ms_is_a_refusal() -> None:
    """11 windows of 1 s: 10,001 connections in 10 s at a rate of 1,000 wait for 1 ms."""
    q = quotas()
    q.set_ip_rate(None, 1000)
    for _ in range(10_000):
        assert q.admit("A", "10.0.0.1", T0).outcome is Outcome.ACCEPTED
    assert q.admit("A", "10.0.0.1", T0) == (Outcome.THROTTLED, 1)


def test_an_address_sensor_expires_at_the_tick_whoever_notices_it() -> None:
    for idle_since, lives in ((T0 + 29_999, False), (T0 + 30_000, True)):
        for notice in (
            lambda q, now: q.reserve("A", now),
            lambda q, now: q.admit("A", "10.0.0.2", now),
            lambda q, now: list(q.expiring(now)),
        ):
            q = quotas()
            q.set_ip_rate(None, 5)
            q.admit("A", "10.0.0.1", idle_since)
            notice(q, T0 + 30_000 + HOUR_MS - 1)
            assert "10.0.0.1" in dict(q.ip_rates(T0 + HOUR_MS))
            notice(q, T0 + 30_000 + HOUR_MS)
            assert ("10.0.0.1" in dict(q.ip_rates(T0 + HOUR_MS))) is lives
            notice(q, T0 + 60_000 + HOUR_MS)
            assert "10.0.0.1" not in dict(q.ip_rates(T0 + HOUR_MS))


def test_a_new_rate_judges_the_addresses_that_are_known() -> None:
    q = quotas()
    q.set_ip_rate(None, 100)
    for _ in range(20):
        assert q.admit("A", "10.0.0.1", T0).throttle_time_ms == 0
    q.set_ip_rate(None, 1)
    assert q.admit("A", "10.0.0.1", T0).outcome is Outcome.THROTTLED
    q.set_ip_rate("10.0.0.1", 100)
    assert q.admit("A", "10.0.0.1", T0).outcome is Outcome.ACCEPTED
    q.set_ip_rate("10.0.0.1", None)
    assert q.admit("A", "10.0.0.1", T0).outcome is Outcome.THROTTLED


def test_limits_are_whole_numbers_up_to_javas_last_int() -> None:
    q = quotas()
    q.configure({"max.connections": str(INT_MAX), "max.connection.creation.rate": " 0 "})
    assert q.slot_available("A")
    for bad in (str(INT_MAX + 1), "-1", "1.0", "\u0663", ""):
        with pytest.raises(ConfigError):
            q.configure({"max.connections": bad})
    for bad in (":5", "host", "host:", "host:-1", "5"):
        with pytest.raises(ConfigError):
            q.configure({"max.connections.per.ip.overrides": bad})


def test_without_settings_nothing_is_limited() -> None:
    q = quotas()
    assert (q.max_connections, q.max_per_ip, q.broker.bound) == (INT_MAX, INT_MAX, INT_MAX)
    assert (q.listener_limit("A"), q.ip_bound("10.0.0.1")) == (INT_MAX, INT_MAX)
    assert (q.num_samples, q.window_ms) == (11, 1000)
    q.configure({"max.connections": "1", "max.connections.per.ip": "1"})
    assert q.admit("A", "10.0.0.1", T0).outcome is Outcome.ACCEPTED
    assert not q.slot_available("A")
    q.configure({})
    assert q.slot_available("A")
