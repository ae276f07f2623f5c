"""Managers at the edges of their rules: the tick itself, exactly the quota, one more, one less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle import registry
from headgate.throttle.bloom import BloomFilter, ScalableBloomFilter
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.java import LONG_MAX, LONG_MIN, UNLIMITED, java_round
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4, Overrides
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import ProducerIdQuotaManager
from headgate.throttle.registry import UNCHARGED, SensorRegistry
from headgate.throttle.request import RequestQuotaManager
from headgate.throttle.sensor import SampledRate
from headgate.throttle.shares import SharesQuotaManager

T0 = 1_700_000_000_000
TICK_MS, HOUR_MS = 30_000, 3_600_000
PRODUCE = QuotaType.PRODUCER_BYTE_RATE
USER = QuotaEntity.of(user="u")
TAGS = ("u", "")

MAKE: dict[str, Callable[..., Any]] = {
    "sampled": lambda **s: ClientQuotaManager(PRODUCE, **s),
    "request": RequestQuotaManager,
    "paced": lambda **s: PacedQuotaManager(PRODUCE, **s),
    "bps": lambda **s: BpsQuotaManager(PRODUCE, 2, **s),
    "shares": lambda **s: SharesQuotaManager(PRODUCE, 1000.0, **s),
    "mutation": ControllerMutationQuotaManager,
    "producer ids": ProducerIdQuotaManager,
}
CHARGE: dict[str, Callable[[Any, int], object]] = {
    kind: lambda m, now: m.record("u", "c", 1, now) for kind in MAKE
}
CHARGE["producer ids"] = lambda m, now: m.record("u", [now], now)

# What lets a manager notice that time has passed, of each kind of manager that writes it out.
NOTICE: dict[tuple[str, str], Callable[[Any, int], object]] = {
    **{(kind, "record"): charge for kind, charge in CHARGE.items()},
    ("sampled", "record_no_throttle"): lambda m, now: m.record_no_throttle("u", "c", 1, now),
    ("sampled", "unrecord"): lambda m, now: m.unrecord("u", "c", 1, now),
    ("sampled", "max_in_window"): lambda m, now: m.max_in_window("u", "c", now),
    ("sampled", "measure"): lambda m, now: m.measure(TAGS, now),
    ("sampled", "advance"): lambda m, now: m.advance(now),
    ("sampled", "update_quota"): lambda m, now: m.update_quota(USER, 7.0, now),
    ("paced", "unrecord"): lambda m, now: m.unrecord("u", "c", 1, now),
    ("mutation", "quota"): lambda m, now: m.quota("u", "c", now, strict=True),
    ("mutation", "measure"): lambda m, now: m.measure(TAGS, now),
}


@pytest.mark.parametrize(("kind", "call"), NOTICE)
def test_a_sensor_expires_at_the_tick_that_finds_it_idle_for_more_than_an_hour(
    kind: str, call: str
) -> None:
    """Metrics.ExpireSensorTask runs each 30 s; SensorAccess: 3600 s, and not a ms less."""
    for idle_since, lives in ((T0 + TICK_MS - 1, False), (T0 + TICK_MS, True)):
        for start_ms in (T0, T0 - TICK_MS):
            m = MAKE[kind](start_ms=start_ms)
            m.update_quota(USER, 1000.0, T0)
            CHARGE[kind](m, idle_since)
            (old,) = m.sensors()
            NOTICE[kind, call](m, T0 + TICK_MS + HOUR_MS - 1)
            assert old in m.sensors()
            old.last_record_ms = idle_since  # the call may have been a charge
            NOTICE[kind, call](m, T0 + TICK_MS + HOUR_MS)
            assert (old in m.sensors()) is lives
            assert (m.sensor(TAGS) is old) is lives


def test_a_known_sensor_is_looked_up_again_once_it_has_expired() -> None:
    for idle_since, known in ((T0 + TICK_MS - 1, False), (T0 + TICK_MS, True)):
        m = ClientQuotaManager(PRODUCE, start_ms=T0)
        m.update_quota(USER, 1000.0, T0)
        m.record("u", "c", 1, idle_since)
        sensor = m.charged("u", "c")
        assert sensor is not None
        m.advance(T0 + TICK_MS + HOUR_MS - 1)
        decided = m.record_again(sensor, 1, T0 + TICK_MS + HOUR_MS)
        assert (decided is not None) is known


def test_what_is_charged_keeps_a_sensor_alive() -> None:
    for kind, charge in CHARGE.items():
        m: SensorRegistry = MAKE[kind](start_ms=T0)
        m.update_quota(USER, 1000.0, T0)
        charge(m, T0)
        charge(m, T0 + HOUR_MS // 2)
        (old,) = m.sensors()
        assert old.last_record_ms == T0 + HOUR_MS // 2
        assert m.expire(T0 + TICK_MS + HOUR_MS) == []
        assert m.expire(T0 + TICK_MS + HOUR_MS * 2) == [TAGS]


@pytest.mark.parametrize("kind", MAKE)
def test_every_manager_obeys_what_it_was_made_with(kind: str) -> None:
    m: SensorRegistry = MAKE[kind](rules=KAFKA_3_9, start_ms=T0 + 7)
    m.update_quota(USER, None, T0 + 7)
    assert m.flags == 2  # 3.9 keeps the flag of a level once touched
    m.update_quota(USER, 1000.0, T0 + 7)
    CHARGE[kind](m, T0 + 8)
    assert m.expire(T0 + 7 + HOUR_MS + TICK_MS - 1) == []
    assert m.expire(T0 + 7 + HOUR_MS + TICK_MS) == [TAGS]


@pytest.mark.parametrize("kind", ["sampled", "request", "mutation", "producer ids"])
def test_windows_are_kafkas_unless_set(kind: str) -> None:
    usual = MAKE[kind]()
    assert (usual.num_samples, usual.window_ms) == (11, 1000)  # quota.window.num, .size.seconds
    made = MAKE[kind](num_samples=3, window_ms=500)
    made.update_quota(USER, 1000.0, 0)
    CHARGE[kind](made, 0)
    (sensor,) = made.sensors()
    assert (sensor.num_samples, sensor.window_ms) == (3, 500)
    if kind == "producer ids":
        assert (sensor.rate.num_samples, sensor.rate.window_ms) == (3, 500)
    assert usual.expire(HOUR_MS + TICK_MS) == []
    assert usual._next_tick_ms == HOUR_MS + 2 * TICK_MS  # ticks count from 0, every 30 s


def test_each_manager_tells_its_type_and_its_cap() -> None:
    told = {kind: make().type for kind, make in MAKE.items()}
    assert told["request"] is QuotaType.REQUEST_PERCENTAGE
    assert told["mutation"] is QuotaType.CONTROLLER_MUTATION_RATE
    assert told["producer ids"] is QuotaType.PRODUCER_IDS_RATE
    assert {told[kind] for kind in ("sampled", "paced", "bps", "shares")} == {PRODUCE}
    assert UNCHARGED == (0, "", "", UNLIMITED)
    caps = {k: MAKE[k]().max_throttle_ms for k in ("sampled", "request", "paced", "bps", "shares")}
    assert caps == {
        "sampled": LONG_MAX, "request": 1000, "paced": LONG_MAX, "bps": 4000, "shares": 2000,
    }  # fmt: skip


def test_javas_long_bounds_what_is_rounded() -> None:
    assert java_round(UNLIMITED) == LONG_MAX
    assert java_round(-UNLIMITED) == LONG_MIN


# -- quotas


def test_a_copy_of_quotas_goes_on_as_the_original_would() -> None:
    for rules in (KAFKA_4, KAFKA_3_9):
        original = Overrides(rules, 9.0)
        original.update(USER, 5.0)
        copied = original.copy()
        for one in (original, copied):
            assert one.update(USER, None) is True
            assert one.update(QuotaEntity.of(ip="10.0.0.1"), 1.0) is False
        assert (copied.flags, copied.limit(("", "c"))) == (
            original.flags,
            original.limit(("", "c")),
        )
        assert copied.limit(("", "c")) == 9.0


# -- sampled rates


def test_what_is_left_in_a_window_is_what_the_next_decision_lets_through() -> None:
    """Whatever was charged: below half of the window's worth, above it, and more than all of it."""
    for charged in (0, 3_000, 4_999, 5_000, 5_001, 9_000, 10_000, 12_000):
        for odd in (0, 0.5):  # a sum that isn't whole is measured
            m = ClientQuotaManager(PRODUCE, start_ms=T0)
            m.update_quota(USER, 1000.0, T0)
            m.update_quota(QuotaEntity.of(user="v"), 1.0, T0)
            m.record("v", "c", 10**6, T0)
            if charged:
                m.record("u", "c", charged + odd, T0)
            left = m.left_in_window("u", "c", T0)
            if odd and charged > 1000:
                two = ClientQuotaManager(PRODUCE, start_ms=T0)
                two.update_quota(USER, 1000.0, T0)
                two.record("u", "c", charged - 1000 + odd, T0)
                two.record("u", "c", 1000, T0 + 1500)
                window_s = 10.5  # nine whole windows, and one and a half since the first
                assert two.left_in_window("u", "c", T0 + 1500) == pytest.approx(
                    1000 * window_s - charged - odd
                )
            assert left == pytest.approx(10_000 - charged - (odd if charged else 0))
            if left > 0:
                assert m.record("u", "other", int(left), T0).throttle_time_ms == 0
                assert m.record("u", "c", 2, T0).throttle_time_ms > 0


def test_with_one_window_a_burst_is_a_rate_over_the_time_since() -> None:
    for later_ms, window_ms in ((0, 1), (1, 1), (2, 2), (3, 3)):
        m = ClientQuotaManager(PRODUCE, num_samples=1, start_ms=T0)
        m.update_quota(USER, 1000.0, T0)
        m.record("u", "c", 5, T0)
        waits_ms = round((10 / (window_ms / 1000) - 1000) / 1000 * window_ms)
        assert m.record("u", "c", 5, T0 + later_ms).throttle_time_ms == waits_ms
        assert m.peek(TAGS, T0 + later_ms) == 10 / (window_ms / 1000)
        assert m.measure(TAGS, T0 + later_ms) == (10 / (window_ms / 1000), window_ms)


def test_what_a_sensor_has_summed_is_told_however_it_sums() -> None:
    m = ClientQuotaManager(PRODUCE, start_ms=T0)
    m.update_quota(USER, 1000.0, T0)
    m.record("u", "c", 100, T0)
    m.record("u", "c", 20, T0 + 1500)
    (sensor,) = m.sensors()
    assert (sensor.exact, sensor.total) == (True, 120)
    m.record("u", "c", 0.5, T0 + 1600)
    assert (sensor.exact, sensor.total) == (False, 120.5)


@pytest.mark.parametrize("elapsed_ms", [-25_000, -2_500, -2_000, -1_999, -1_000, -999, -1])
@pytest.mark.parametrize("amount", [100, 0.5])
def test_a_clock_set_back_divides_as_java_does(elapsed_ms: int, amount: float) -> None:
    """Rate.windowSize: whole windows are rounded towards zero, and those missing are added."""
    rate = SampledRate(11, 1000)
    rate.record(amount, T0)
    full = -(-elapsed_ms // 1000)
    window_ms = elapsed_ms + (10 - full) * 1000
    expected = (amount / (window_ms / 1000.0), window_ms)
    assert rate.peek(T0 + elapsed_ms) == expected
    assert rate.charge(None, T0 + elapsed_ms) == expected


def test_new_windows_judge_the_samples_that_are_kept() -> None:
    rate = SampledRate(11, 1000)
    for second in range(8):
        rate.record(100, T0 + second * 1000)
    rate.configure(2, 500)
    assert (rate.num_samples, rate.window_ms) == (2, 500)
    # Of eight samples one is younger than two windows of 500 ms; the others begin again at now.
    assert rate.charge(None, T0 + 7_200) == (100 / 0.7, 700)
    rate.configure(4, 2000)
    assert rate.charge(None, T0 + 7_200) == (100 / 6.2, 6_200)


def test_a_sensor_that_has_left_whole_numbers_takes_no_short_way() -> None:
    """Sums of a sensor of halves are those of one that was never quick, event by event."""
    for odd in (0.5, 0.0):
        rate, m = SampledRate(3, 1000), ClientQuotaManager(PRODUCE, num_samples=3, start_ms=T0)
        m.update_quota(USER, 0.25, T0)
        now = T0
        for turn in range(400):
            now += (turn * 7919) % 900
            amount = turn % 5 + (odd if turn > 50 else 0)
            rate.record(amount, now)
            expected, window = SampledRate.charge(rate, None, now)
            ms = max(java_round((expected - 0.25) / 0.25 * window), 0)
            assert m.record("u", "c", amount, now).throttle_time_ms == ms
            assert m.peek(TAGS, now) == expected


def test_a_sensor_without_a_record_isnt_there_to_be_measured() -> None:
    m = ClientQuotaManager(PRODUCE, start_ms=T0)
    m.update_quota(USER, 1000.0, T0)
    assert m.measure(TAGS, T0) is None
    assert ControllerMutationQuotaManager(start_ms=T0).measure(TAGS, T0) is None


# -- buckets


def test_an_entitys_own_burst_goes_before_the_common_one() -> None:
    m = PacedQuotaManager(PRODUCE, bursts={QuotaEntity.of(user="v"): 5.0}, start_ms=T0)
    m.update_quota(QuotaEntity.of(user=DEFAULT), 1000.0, T0)
    assert [m.burst_of((user, "")) for user in ("u", "v")] == [1.0, 5.0]
    assert m.record("u", "c", 1001, T0).throttle_time_ms == 1
    assert m.record("v", "c", 5000, T0).throttle_time_ms == 0
    assert m.record("v", "c", 1, T0).throttle_time_ms == 1


def test_what_a_bucket_owes_is_told_whole() -> None:
    m = PacedQuotaManager(PRODUCE, period_ms=1000, start_ms=T0)
    m.update_quota(USER, 1000.0, T0)
    assert m.owed_ms(TAGS, T0) == 0
    assert m.record("u", "c", 11_000, T0).throttle_time_ms == 2000
    assert [m.owed_ms(TAGS, T0 + ms) for ms in (0, 1, 9_999, 10_000)] == [10_000, 9_999, 1, 0]
    assert m.owed_ms(TAGS, T0 - 5) == 10_000  # a clock set back repays nothing
    m.update_quota(USER, 10_000_000.0, T0)
    m.record("u", "c", 1, T0)  # what rounds to nothing isn't owed
    assert m.owed_ms(TAGS, T0 + 1) == 0


def test_a_bucket_goes_on_when_its_clock_is_set_back() -> None:
    hour_ms = 3_600_000
    m = PacedQuotaManager(PRODUCE, start_ms=T0)
    m.update_quota(USER, 1000.0, T0)
    assert m.record("u", "c", 5_000, T0).throttle_time_ms == 4_000
    assert m.owed_ms(TAGS, T0 - 900) == 4_000  # the next charge waits until it has caught up
    assert m.owed_ms(TAGS, T0) == 4_000
    back = T0 - hour_ms
    assert m.owed_ms(TAGS, back) == 4_000  # what it owed it owes
    assert m.owed_ms(TAGS, back + 3_000) == 1_000
    assert m.record("u", "c", 1_000, back + 4_000).throttle_time_ms == 1_000
    # Set back again, by a charge: nothing is gained, and nothing stands still.
    for n in range(1, 6):
        assert m.record("u", "c", 500, back - n * hour_ms).throttle_time_ms == 1_000 + n * 500
    assert m.owed_ms(TAGS, back - 5 * hour_ms + 3_500) == 0


def test_what_is_taken_back_was_not_used() -> None:
    m = PacedQuotaManager(PRODUCE, period_ms=1000, num_samples=2, window_ms=30_000, start_ms=T0)
    m.shows_rates = True
    m.update_quota(USER, 1000.0, T0)
    m.record("u", "c", 900, T0)
    m.unrecord("u", "c", 300, T0)
    (sensor,) = m.sensors()
    assert sensor.rate.total == 600
    (seen,) = m.observe(T0 + 1000).values()
    assert (seen.used_per_s, seen.requests) == (600.0, 1)
    m.record("u", "c", 100, T0 + 1500)
    (seen,) = m.observe(T0 + 3000).values()  # over the two seconds since the last look
    assert seen.used_per_s == 50.0
    m.record("u", "c", 5, T0 + 3001)
    (seen,) = m.observe(T0 + 3001).values()
    assert seen.used_per_s == 5000.0


def test_a_bucket_of_nothing_waits_for_the_whole_period() -> None:
    m = PacedQuotaManager(PRODUCE, period_ms=1000, start_ms=T0)
    m.update_quota(USER, 0.0, T0)
    m.record("u", "c", 0, T0)
    (seen,) = m.observe(T0).values()
    (seen,) = m.observe(T0 + 1000).values()
    assert (seen.waited, seen.throttled) == (0.0, False)  # nothing is owed
    assert m.record("u", "c", 1, T0 + 1000).throttle_time_ms == 2000
    (seen,) = m.observe(T0 + 2000).values()
    assert (seen.waited, seen.throttled) == (1.0, True)


def test_an_assigned_bound_holds_through_its_last_moment_and_is_then_forgotten() -> None:
    for late, bound in ((0, 300.0), (1, 1000.0)):
        m = PacedQuotaManager(PRODUCE, period_ms=1000, start_ms=T0)
        m.update_quota(USER, 1000.0, T0)
        m.assign({TAGS: 300.0}, T0, valid_until_ms=T0 + 500)
        assert m.record("u", "c", 0, T0 + 500 + late).bound == bound
        m.assign({TAGS: 200.0}, T0 + 600, valid_until_ms=T0 + 700)
        assert m.record("u", "c", 0, T0 + 700 + late).bound == (1000.0 if late else 200.0)
        m.assign({}, T0 + 900, valid_until_ms=T0 + 1000)
        assert m._assigned == {}
        m.assign({TAGS: 200.0}, T0 + 901, valid_until_ms=T0 + 901 + 2 * HOUR_MS)
        m.expire(T0 + HOUR_MS + 2 * TICK_MS)
        assert m.record("u", "c", 0, T0 + HOUR_MS + 3 * TICK_MS).bound == 200.0  # in a new bucket


def test_a_split_is_in_force_until_it_lapses_and_follows_its_quota() -> None:
    def cut(quota: float) -> BpsQuotaManager:
        made = BpsQuotaManager(PRODUCE, 4, start_ms=T0)
        made.update_quota(USER, quota, T0)
        return made

    m = cut(1000.0)
    assert m.split(TAGS, T0) == 250.0
    m.assign({TAGS: 700.0}, T0, T0 + 6000)
    assert [m.split(TAGS, T0 + ms) for ms in (0, 6000, 6001)] == [700.0, 700.0, 250.0]
    m.update_quota(USER, 500.0, T0)  # no bucket yet: the split assigned is scaled all the same
    assert m.record("u", "c", 0, T0).bound == 350.0
    # From and to a quota that can't be scaled, each broker gets its equal part.
    for before, after, bound in (
        (0.0, 80.0, 20.0),
        (UNLIMITED, 80.0, 20.0),
        (80.0, UNLIMITED, UNLIMITED),
    ):
        m = cut(before)
        m.record("u", "c", 0, T0)
        m.assign({TAGS: 7.0}, T0, T0 + 6000)
        m.update_quota(USER, after, T0 + 1)
        assert m.record("u", "c", 0, T0 + 1).bound == bound
        m.set_brokers(2, T0 + 2)
        (sensor,) = m.sensors()
        assert sensor.bound == min(bound * 2, UNLIMITED)
        assert m.record("u", "c", 0, T0 + 6001).bound == min(bound * 2, UNLIMITED)


# -- controller mutations


def test_who_only_watches_is_charged_and_never_refused() -> None:
    m = ControllerMutationQuotaManager(start_ms=T0)
    free = m.quota("u", "c", T0, strict=True, observes=True)
    assert (free.is_strict, free.was_charged) == (False, True)
    assert (free.decided_ms, free.is_exceeded, free.throttle_time_ms(T0)) == (None, False, 0)
    m.update_quota(USER, 1.0, T0)
    watched = m.quota("u", "c", T0, strict=True, observes=True)
    assert watched.decided_ms == 0
    watched.record(20, T0)
    assert (watched.is_strict, watched.was_charged, watched.is_exceeded) == (True, True, False)
    watched.record(5, T0)
    assert (watched.was_charged, watched.is_exceeded, watched.decided_ms) == (False, True, 9000)
    (sensor,) = m.sensors()
    assert (sensor.rate.total, sensor.tokens) == (25, -9.0)


# -- producer ids


def test_ids_wait_from_the_first_token_owed_and_not_before() -> None:
    half = ProducerIdQuotaManager(num_samples=2, start_ms=T0)
    half.update_quota(USER, 2.75, T0)
    assert half.last_new == 0
    assert half.record("u", range(5), T0).throttle_time_ms == 0  # half a token is left
    assert half.last_new == 5
    m = ProducerIdQuotaManager(num_samples=2, start_ms=T0)
    m.update_quota(USER, 3.0, T0)
    assert m.record("u", range(6), T0).throttle_time_ms == 0  # the bucket of 2 x 1 s x 3 is empty
    assert m.record("u", [6], T0).throttle_time_ms == 333


def test_filters_grow_by_halves_of_their_error_up_to_the_most_they_hold() -> None:
    assert BloomFilter(1, 0.01).num_probes == 7
    ids = ScalableBloomFilter(10, 0.01, most_ids=31)
    for number in range(32):
        newest = ids._slices[-1]
        assert len(ids._slices) < 3 or newest.count <= newest.capacity
        ids.add(number)
    assert (len(ids._slices), ids._room, ids._slices[-1].count) == (3, 0, 2)  # one too many
    sizes = [(one.capacity, one.num_bits) for one in ids._slices]
    assert sizes == [
        (count, BloomFilter(count, 0.01 / 2**place).num_bits)
        for place, count in enumerate((10, 20, 1), 1)
    ]
    manager = ProducerIdQuotaManager()
    manager.add("u", 1, T0)
    ((_, made),) = manager._cache["u"]._layers
    assert made._slices[0].num_bits == BloomFilter(1000, 0.0025).num_bits


def test_names_remembered_are_bounded_in_number_and_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for most, named in ((4, 1 << 20), (1 << 20, 40)):
        monkeypatch.setattr(registry, "_MOST_REMEMBERED", most)
        monkeypatch.setattr(registry, "_MOST_NAMED", named)
        m = ClientQuotaManager(PRODUCE, start_ms=T0)
        m.update_quota(USER, 1000.0, T0)
        for turn in range(50):
            m.record("u", f"client-{turn:02}", 1, T0)
            assert m.charged("u", f"client-{turn:02}") is not None
            assert len(m._charged) <= 4
        assert m.num_sensors == 1


# -- shares


def test_shares_are_enforced_while_there_are_some_and_the_capacity_is_known() -> None:
    m = SharesQuotaManager(PRODUCE, 1000.0, start_ms=T0)
    assert not m.enabled
    for entity in (QuotaEntity.of(client_id="c"), USER):
        m.update_quota(entity, 1, T0)
        assert m.enabled
    assert not SharesQuotaManager(PRODUCE, None).enabled
    assert m.divided_until_ms == 0


def test_what_all_without_shares_use_is_taken_from_the_capacity() -> None:
    m = SharesQuotaManager(PRODUCE, 1000.0, start_ms=T0)
    for user in "uv":
        m.update_quota(QuotaEntity.of(user=user), 1, T0)
    m.rebalance(T0)
    m.record("u", "c", 600, T0)
    m.record("v", "c", 400, T0)
    m.record("w", "c", 0, T0)
    assert m.rebalance(T0 + 1000) == {}  # exactly the capacity
    for user, used in (("u", 900), ("v", 50), ("w", 100), ("x", 200)):
        m.record(user, "c", used, T0 + 1500)
    assert m.rebalance(T0 + 2000) == {("u", ""): 650.0, ("v", ""): 50.0}


def test_one_who_wants_little_may_grow_to_a_tenth_of_his_level() -> None:
    m = SharesQuotaManager(PRODUCE, 1000.0, start_ms=T0)
    for user, weight in (("u", 1), ("v", 4)):
        m.update_quota(QuotaEntity.of(user=user), weight, T0)
    m.rebalance(T0)
    m.record("u", "c", 5000, T0)
    m.record("v", "c", 1, T0)
    assert m.rebalance(T0 + 1000) == {("u", ""): 920.0, ("v", ""): 80.0}
