"""A held fetch at its edges: since when it waits, until when, and at which gates."""

from __future__ import annotations

from collections.abc import Callable

from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.hold import HELD, LITTLE, PASS, Hold
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER_BPS

from .enforcement_kit import made

ALICE = QuotaEntity.of(user="alice")
T0 = 1_700_000_000_000
ONE, TWO = (GateKey(name, "alice", "") for name in ("consumer_byte_rate", "other"))


def closed(skew: Callable[[], int] = lambda: 0, **left_ms: int) -> Gates:
    """Gates that stay closed for so long."""
    gates = Gates(lambda _: None, skew)
    for name, ms in left_ms.items():
        gates.charged({"one": ONE, "two": TWO}[name], ms, 100.0, T0)
    return gates


def test_every_gate_has_to_let_it_pass() -> None:
    gates = closed(one=10, two=1_000)
    hold = Hold(gates)
    assert hold.admit((ONE, TWO), "alice", T0 + 20, 5_000, T0 + 20) == HELD
    assert (hold.waiting, hold.wake_ms) == (True, T0 + 1_000)
    assert hold.rest(T0 + 20) == (980, TWO)
    assert hold.rest(T0 + 1_000) == (0, ONE)
    assert hold.admit((ONE, TWO), "alice", T0 + 1_000, 5_000, T0 + 1_000) == PASS
    assert (hold.waiting, hold.take_waited(), hold.take_waited()) == (False, 980, 0)


def test_each_fetch_is_held_for_so_long_from_its_own_coming() -> None:
    hold = Hold(closed(one=10_000))
    for came_ms in (T0, T0 + 500, T0 + 1_000):
        assert hold.admit((ONE,), "alice", came_ms, 100, came_ms) == HELD
        assert hold.wake_ms == came_ms + 100
        assert hold.admit((ONE,), "alice", came_ms + 99, 100, came_ms + 99) == HELD
        assert hold.admit((ONE,), "alice", came_ms + 100, 100, came_ms + 100) == LITTLE
        assert (hold.expired, hold.idle) == (True, False)
        hold.emptied()
        assert (hold.expired, hold.asks_nothing, hold.waiting) == (False, False, False)
    assert hold.take_waited() == 300


def test_what_was_delivered_ends_its_place_and_the_next_begins_anew() -> None:
    gates = closed(one=100)
    hold = Hold(gates)
    assert hold.idle
    assert hold.admit((ONE,), "alice", T0, 1_000, T0) == HELD
    hold.pass_unasked(T0 + 10)
    assert (hold.asks_nothing, hold.waiting) == (True, False)
    assert hold.admit((ONE,), "alice", T0, 1_000, T0 + 200) == PASS
    hold.charged(T0 + 200)
    assert (hold.idle, hold.asks_nothing) == (True, False)
    gates.charged(ONE, 5_000, 100.0, T0 + 200)
    assert hold.admit((ONE,), "alice", T0 + 2_000, 1_000, T0 + 2_000) == HELD


def test_a_clock_that_is_set_back_makes_nobody_wait_longer() -> None:
    skew_ms = 0
    gates = closed(lambda: skew_ms, one=60_000)
    first, second = Hold(gates), Hold(gates)
    assert first.admit((ONE,), "alice", T0 + 900, 100, T0 + 900) == HELD
    assert second.admit((ONE,), "alice", T0 + 1_000, 100, T0 + 1_000) == HELD
    assert second.wake_ms == T0 + 1_100
    skew_ms = -500
    assert second.admit((ONE,), "alice", T0 + 1_000, 100, T0 + 500) == HELD
    assert second.wake_ms == T0 + 600
    assert second.admit((ONE,), "alice", T0 + 1_000, 100, T0 + 600) == LITTLE


def test_who_changes_its_quota_id_or_leaves_waits_at_the_old_gate_no_more() -> None:
    gates = closed(one=1_000, two=500)
    hold, after = Hold(gates), Hold(gates)
    nudged = []
    after.nudge = lambda: nudged.append("after")
    for one in (hold, after):
        assert one.admit((ONE,), "alice", T0, 9_000, T0) == HELD
    assert hold.wake_ms == T0 + 1_000
    assert after.wake_ms == T0 + 9_000  # it is told when the other has gone
    assert hold.admit((TWO,), "alice", T0, 9_000, T0 + 1) == HELD
    assert nudged == ["after"]
    assert hold.wake_ms == T0 + 500
    hold.leave()
    two = gates.get(TWO)
    assert two is not None
    assert two.idle(T0 + 500)
    assert two.place("alice") is not None
    assert after.admit((ONE,), "alice", T0, 9_000, T0 + 1_000) == PASS


def test_who_waits_at_another_gate_keeps_nobody_waiting_where_it_had_its_turn() -> None:
    gates = closed(two=1_000)
    nudged: list[str] = []
    both, after = Hold(gates), Hold(gates)
    both.nudge, after.nudge = (lambda: nudged.append("both")), (lambda: nudged.append("after"))
    assert both.admit((ONE, TWO), "alice", T0, 10_000, T0 + 1) == HELD
    assert after.admit((TWO,), "alice", T0, 10_000, T0 + 2) == HELD
    gates.charged(ONE, 8_000, 100.0, T0 + 500)
    assert both.admit((ONE, TWO), "alice", T0, 10_000, T0 + 1_000) == HELD
    assert both.wake_ms == T0 + 8_500
    assert set(nudged) == {"after"}
    assert after.admit((TWO,), "alice", T0, 10_000, T0 + 1_000) == PASS
    gates.charged(TWO, 9_000, 100.0, T0 + 1_010)  # where it had its turn, it isn't asked again
    assert both.admit((ONE, TWO), "alice", T0, 10_000, T0 + 8_500) == PASS


def test_the_gate_that_opens_last_is_waited_at_first() -> None:
    gates = closed(one=500, two=1_000)
    both, after = Hold(gates), Hold(gates)
    assert both.admit((ONE, TWO), "alice", T0, 10_000, T0 + 1) == HELD
    assert both.wake_ms == T0 + 1_000
    assert after.admit((ONE,), "alice", T0, 10_000, T0 + 2) == HELD
    assert after.wake_ms == T0 + 500  # nobody stands before it there


def test_who_waits_at_a_bucket_is_woken_when_its_bound_moves_or_lapses() -> None:
    rules, _ = made({ALICE: {CONSUMER_BPS: 1_000.0}})
    manager, tags = rules.managers.fetch_bps, ("alice", "")
    keys = rules.context("alice", "app").share_gates
    throttle = manager.record("alice", "app", 9_000, T0)
    rules.gates.charged(keys[0], throttle.throttle_time_ms, throttle.bound, T0)
    hold, woken = Hold(rules.gates), []
    hold.nudge = lambda: woken.append("hold")
    assert hold.admit(keys, "alice", T0, 60_000, T0) == HELD
    assert hold.wake_ms == T0 + 1_000  # its bound may lapse before all is repaid
    manager.assign({tags: 8_000.0}, T0 + 500, T0 + 60_000)
    assert woken == ["hold"]
    assert hold.admit(keys, "alice", T0, 60_000, T0 + 500) == HELD
    assert hold.wake_ms == T0 + 500 + 938  # 7,500 bytes at 8,000 a second
