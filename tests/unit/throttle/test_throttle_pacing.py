"""Token bucket managers: smooth pacing, assigned bounds, shares."""

from __future__ import annotations

import heapq
import random

import pytest

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.java import UNLIMITED
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.registry import UNCHARGED, Throttle
from headgate.throttle.shares import SharesQuotaManager, fair_shares

T0 = 1_700_000_000_000
PRODUCE = QuotaType.PRODUCER_BYTE_RATE
USER = QuotaEntity.of(user="u")
TAGS = ("u", "")


def paced(bound: float = 1000.0, **settings: int) -> PacedQuotaManager:
    made = PacedQuotaManager(PRODUCE, start_ms=T0, **settings)
    made.update_quota(USER, bound, T0)
    return made


@pytest.mark.parametrize("burst_ms", [1, 250, 1000, 10_000])
def test_the_long_run_rate_is_exactly_the_quota(burst_ms: int) -> None:
    m = paced(bound=123_457.0, burst_ms=burst_ms)
    now, sent = T0, 0
    while now < T0 + 600_000:
        sent += 7_919
        now += m.record("u", "c", 7_919, now).throttle_time_ms
    elapsed_s = (now - T0) / 1000
    # All sent was paid for, but for the burst at the start and half a millisecond of rounding.
    assert abs(sent - 123_457.0 * (elapsed_s + burst_ms / 1000)) <= 123_457.0 * 0.0005 + 1


def test_a_burst_is_forgiven_as_fast_as_the_quota_refills() -> None:
    m = paced()
    assert m.record("u", "c", 1000, T0).throttle_time_ms == 0
    assert m.record("u", "c", 500, T0) == Throttle(500, "u", "", 1000.0)
    assert m.record("u", "d", 500, T0 + 500) == Throttle(500, "u", "", 1000.0)
    assert m.record("u", "c", 1000, T0 + 10_000).throttle_time_ms == 0
    assert m.sensor(TAGS).peek(T0 + 10_500) == 500.0


def test_a_throttle_is_capped_and_the_rest_stays_owed() -> None:
    m = paced(period_ms=2000)
    assert m.record("u", "c", 11_000, T0).throttle_time_ms == 4000
    assert m.record("u", "c", 0, T0 + 4000).throttle_time_ms == 4000
    assert m.record("u", "c", 0, T0 + 8000).throttle_time_ms == 2000
    assert m.record("u", "c", 0, T0 + 10_000).throttle_time_ms == 0


def test_a_lower_bound_doesnt_reprice_what_was_used() -> None:
    m = paced(4_000_000.0)
    now = T0
    for _ in range(10):  # ten seconds at 4 MB/s
        m.record("u", "c", 4_000_000, now)
        now += 1000
    # Kafka's sampled sensor would now tell 990 s, since 4 MB/s were lowered to 0.04.
    m.update_quota(USER, 40_000.0, now)
    assert m.record("u", "c", 40_000, now).throttle_time_ms == 0
    assert m.record("u", "c", 40_000, now).throttle_time_ms == 1000


def test_what_is_owed_is_repaid_at_the_old_bound_up_to_the_change() -> None:
    m = paced()
    m.record("u", "c", 3000, T0)  # -2000
    m.update_quota(USER, 100.0, T0 + 1500)  # -500 left
    assert m.record("u", "c", 0, T0 + 1500).throttle_time_ms == 5000
    m.update_quota(USER, 100.0, T0 + 1500)
    assert m.record("u", "c", 0, T0 + 6500).throttle_time_ms == 0


def test_taking_back_never_exceeds_the_burst() -> None:
    m = paced()
    m.record("u", "c", 5000, T0)
    m.unrecord("u", "c", 5000, T0)
    m.unrecord("u", "c", 5000, T0)
    assert m.sensor(TAGS).peek(T0) == 1000.0
    assert PacedQuotaManager(PRODUCE).unrecord("u", "c", 1, T0) is UNCHARGED


def test_a_clock_that_steps_back_finds_the_bucket_as_it_was() -> None:
    m = paced()
    m.record("u", "c", 1500, T0)
    assert m.record("u", "c", 0, T0 - 5000).throttle_time_ms == 500
    assert m.sensor(TAGS).peek(T0 - 5000) == -500.0


def test_quotas_resolve_as_everywhere() -> None:
    m = PacedQuotaManager(PRODUCE, static_default=10.0, start_ms=T0)
    assert m.record("u", "c", 5, T0) == Throttle(0, "", "c", 10.0)
    m.update_quota(QuotaEntity.of(user=DEFAULT), 20.0, T0)
    assert m.record("u", "c", 5, T0) == Throttle(0, "u", "", 20.0)
    assert PacedQuotaManager(PRODUCE).record("u", "c", 5, T0) is UNCHARGED
    assert m.expire(T0 + 3_630_000) == [("", "c"), ("u", "")]
    with pytest.raises(ValueError, match="1 ms of its quota"):
        PacedQuotaManager(PRODUCE, burst_ms=0)


def test_a_rounding_to_nothing_isnt_a_throttle() -> None:
    m = paced(10_000_000.0)
    assert m.record("u", "c", 10_000_001, T0).throttle_time_ms == 0
    assert m.sensor(TAGS).peek(T0) == -1.0


def assigned() -> PacedQuotaManager:
    made = PacedQuotaManager(PRODUCE, period_ms=2000, start_ms=T0)
    made.update_quota(USER, 9000.0, T0)
    return made


def test_assigned_bounds_hold_until_they_lapse() -> None:
    m = assigned()
    assert m.record("u", "c", 0, T0).bound == 9000.0
    m.assign({TAGS: 500.0, ("v", ""): 7.0}, T0, valid_until_ms=T0 + 6000)
    assert m.record("u", "c", 0, T0 + 6000).bound == 500.0
    assert m.record("u", "c", 0, T0 + 6001).bound == 9000.0
    m.assign({TAGS: 300.0}, T0 + 6001, valid_until_ms=T0 + 9000)
    assert m.record("u", "c", 10**6, T0 + 6001) == Throttle(4000, "u", "", 300.0)


def test_a_bound_assigned_before_the_first_charge_is_found_by_it() -> None:
    m = assigned()
    m.assign({TAGS: 500.0}, T0, valid_until_ms=T0 + 6000)
    assert m.record("u", "c", 0, T0 + 1).bound == 500.0
    assert m.record("u", "c", 0, T0 + 7000).bound == 9000.0
    late = assigned()
    late.assign({TAGS: 500.0}, T0, valid_until_ms=T0 + 6000)
    assert late.record("u", "c", 0, T0 + 6001).bound == 9000.0


def test_a_period_shows_use_waiting_requests_and_credit() -> None:
    m = assigned()
    m.assign({TAGS: 1000.0}, T0, valid_until_ms=T0 + 10**6)
    m.record("u", "c", 400, T0)
    (seen,) = m.observe(T0 + 2000).values()
    assert seen == (200.0, False, 0.0, 1, 1000.0, False)
    m.record("u", "c", 2500, T0 + 2000)  # 1500 owed: overdrawn for 1500 of 2000 ms
    (seen,) = m.observe(T0 + 4000).values()
    assert seen == (1250.0, True, 0.75, 1, 1000.0, False)
    m.record("u", "c", 3000, T0 + 4000)
    (seen,) = m.observe(T0 + 6000).values()
    assert seen == (1500.0, True, 1.0, 1, 500.0, True)
    (seen,) = m.observe(T0 + 8000).values()
    assert seen == (0.0, False, 0.25, 0, 0.0, False)


def test_observing_changes_no_decision() -> None:
    watched, alone = assigned(), assigned()
    rng = random.Random(3)
    now = T0
    for _ in range(2000):
        now += rng.choice([0, 1, 7, 133, 999])
        watched.observe(now)
        size = rng.randrange(1, 9000)
        now += rng.choice([0, 3, 50])
        assert watched.record("u", "c", size, now) == alone.record("u", "c", size, now)


def test_every_move_of_a_live_bound_is_told_with_its_moment() -> None:
    m = assigned()
    told: list[tuple[tuple[str, str], float, int]] = []
    m.moved = lambda tags, bound, now_ms: told.append((tags, bound, now_ms))
    m.assign({TAGS: 500.0}, T0, valid_until_ms=T0 + 6000)  # no bucket yet: nothing moves
    m.record("u", "c", 0, T0 + 1)
    m.assign({TAGS: 500.0}, T0 + 2, valid_until_ms=T0 + 6000)  # the same again
    m.assign({TAGS: 400.0}, T0 + 3, valid_until_ms=T0 + 6000)
    m.record("u", "c", 0, T0 + 6001)
    assert told == [(TAGS, 400.0, T0 + 3), (TAGS, 9000.0, T0 + 6001)]


# -- shares


@pytest.mark.parametrize(
    ("capacity", "demands", "weights", "given"),
    [
        (90, {"a": 10, "b": 100, "c": 100}, None, {"a": 10, "b": 40, "c": 40}),
        (90, {"a": 100, "b": 100}, {"a": 2, "b": 1}, {"a": 60, "b": 30}),
        (90, {"a": 100, "b": 10}, {"a": 1, "b": 8}, {"a": 80, "b": 10}),
        (90, {"a": 10, "b": 20}, None, {"a": 10, "b": 20}),
        (0, {"a": 10, "b": 20}, None, {"a": 0, "b": 0}),
        (90, {"a": float("inf"), "b": 0}, {"a": 1, "b": 100}, {"a": 90, "b": 0}),
        (90, {}, None, {}),
    ],
)
def test_546_9_capacity_is_poured_by_weight(
    capacity: float,
    demands: dict[str, float],
    weights: dict[str, float] | None,
    given: dict[str, float],
) -> None:
    assert fair_shares(capacity, demands, weights) == given


@pytest.mark.parametrize(
    ("capacity", "demand", "weight"),
    [(-1, 1, 1), (1, -1, 1), (1, float("nan"), 1), (1, 1, 0), (1, 1, -1), (1, 1, float("inf"))],
)
def test_impossible_shares_are_refused(capacity: float, demand: float, weight: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        fair_shares(capacity, {"a": demand}, {"a": weight})


def sharing(capacity: float | None = 90_000.0) -> SharesQuotaManager:
    made = SharesQuotaManager(PRODUCE, capacity, start_ms=T0)
    made.update_quota(QuotaEntity.of(user="gold"), 2, T0)
    made.update_quota(QuotaEntity.of(user="lead"), 1, T0)
    return made


def test_546_9_without_a_capacity_shares_are_kept_but_not_enforced() -> None:
    m = sharing(None)
    assert not m.enabled
    assert m.record("gold", "c", 10**9, T0) is UNCHARGED
    assert m.rebalance(T0 + 1000) == {}
    assert m.weight(("gold", "")) == 2.0


def test_546_9_nobody_is_limited_while_demand_fits() -> None:
    m = sharing()
    for user in ("gold", "lead"):
        assert m.record(user, "c", 40_000, T0) == Throttle(0, user, "", UNLIMITED)
    assert m.rebalance(T0 + 1000) == {}
    assert m.record("gold", "c", 10**7, T0 + 1001).throttle_time_ms == 0


def test_546_9_contested_capacity_is_divided_two_to_one_and_freed_again() -> None:
    m = sharing()
    free_at = {"gold": T0, "lead": T0}
    sent = {"gold": 0, "lead": 0}
    for now in range(T0, T0 + 60_000, 10):
        if now % 1000 == 0 and now > T0:
            m.rebalance(now)
        for user in free_at:
            if now >= free_at[user]:
                free_at[user] = now + m.record(user, "c", 3_000, now).throttle_time_ms
                if now >= T0 + 10_000:
                    sent[user] += 3_000
    assert sent["gold"] / sent["lead"] == pytest.approx(2, rel=0.02)
    assert sum(sent.values()) / 50 == pytest.approx(90_000, rel=0.02)
    # Gold stops: lead alone gets everything there is.
    now = T0 + 60_000
    m.rebalance(now)
    for step in range(3):
        m.record("lead", "c", 200_000, now + step * 1000)
        allocation = m.rebalance(now + (step + 1) * 1000)
    assert allocation[("lead", "")] > 0.9 * 90_000
    # And lead stops as well: then nothing is contested.
    assert m.rebalance(now + 60_000) == {}


def test_what_others_use_leaves_less_to_share_but_never_less_than_a_tenth() -> None:
    for used, room in ((60_000, 30_000.0), (500_000, 9_000.0)):
        m = sharing()
        m.record("nobody", "c", used, T0)
        m.record("gold", "c", 50_000, T0)
        m.record("lead", "c", 50_000, T0)
        allocation = m.rebalance(T0 + 1000)
        assert sum(allocation.values()) == pytest.approx(room)
        assert allocation[("gold", "")] == pytest.approx(2 * allocation[("lead", "")])
        assert m.record("nobody", "c", 10**9, T0 + 1000).throttle_time_ms == 0


@pytest.mark.parametrize(("clients", "size"), [(1, 10_000_000), (4, 10_000_000), (4, 5_000_000)])
def test_546_9_large_requests_get_as_much_of_equal_shares_as_small_ones(
    clients: int, size: int
) -> None:
    """A period in which a tenant only repays what a large request took shows that it wants more."""
    m = SharesQuotaManager(PRODUCE, 10e6, start_ms=T0)
    for user in "ab":
        m.update_quota(QuotaEntity.of(user=user), 1, T0)
    got = dict.fromkeys("ab", 0)
    asks = [("a", size)] * clients + [("b", 100_000)] * 10
    due = [(T0 + at, at) for at in range(len(asks))]
    divide_ms = T0 + 1000
    while due[0][0] < T0 + 120_000:
        now, at = heapq.heappop(due)
        while now >= divide_ms:
            m.rebalance(divide_ms)
            divide_ms += 1000
        user, amount = asks[at]
        wait_ms = max(m.owed_ms((user, ""), now) - m.max_throttle_ms, 0)
        if not wait_ms:
            wait_ms = m.record(user, "c", amount, now).throttle_time_ms
            got[user] += amount if now >= T0 + 20_000 else 0
        heapq.heappush(due, (now + max(wait_ms, 1), at))
    assert got["a"] / 100 == pytest.approx(5e6, rel=0.1)
    assert got["b"] / 100 == pytest.approx(5e6, rel=0.1)


def test_a_period_that_ends_overdrawn_was_throttled_whatever_was_charged_in_it() -> None:
    m = paced(period_ms=1000)
    m.record("u", "c", 4_000, T0)
    shown = [m.observe(T0 + at)[TAGS] for at in (1000, 2000, 3000, 4000)]
    assert [seen.throttled for seen in shown] == [True, True, False, False]
    assert [seen.used_per_s for seen in shown] == [4000.0, 0.0, 0.0, 0.0]


def test_one_throttle_is_at_most_two_periods() -> None:
    m = sharing()
    for user in ("gold", "lead"):
        m.record(user, "c", 100_000, T0)
    m.rebalance(T0 + 1000)
    assert m.record("lead", "c", 10**9, T0 + 1000).throttle_time_ms == 2000
