"""The sampled rate: Kafka's own unit tests restated as data, and Java's rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.throttle.java import INT_MAX, LONG_MAX, LONG_MIN, divide, java_round, to_int32
from headgate.throttle.request import PERCENT_PER_NS
from headgate.throttle.sensor import SampledRate, throttle_time_ms

CASES = json.loads(
    (Path(__file__).parents[2] / "data" / "cases" / "sampled_rate.json").read_text("utf-8")
)
START_MS = 1_700_000_000_123
OLD_RULE = "<=3.7"


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_traces_of_upstream_tests(case: dict[str, Any]) -> None:
    rate = SampledRate(case["samples"], case["window_ms"])
    now = START_MS
    differences = []
    for event in case["events"]:
        now += event.get("sleep_ms", 0)
        if "record" in event:
            rate.record(event["record"], now)
        elif "record_ms" in event:
            rate.record(event["record_ms"] * 1000 * 1000 * PERCENT_PER_NS, now)
        elif "measure" not in event:
            continue
        value, window = rate.charge(None, now)
        throttle = 0
        if event.get("throttle_ms") is not None:
            if value > case["quota"]:
                throttle = throttle_time_ms(value, case["quota"], window)
                throttle = min(throttle, case["cap_ms"] or throttle)
            assert throttle == event["throttle_ms"]
        differences.append((value, window) != (event["rate"], event["window_ms"]))
    if case["rule"] == OLD_RULE:  # recorded for contrast: the rule changed in 3.8
        assert differences[-1] and not all(differences)
    else:
        assert not any(differences)


@pytest.mark.parametrize("case", CASES["throttle_time_direct"])
def test_throttle_time_of_a_fresh_rate(case: dict[str, Any]) -> None:
    window = SampledRate(case["samples"], 1000).charge(None, START_MS)[1]
    ms = min(throttle_time_ms(case["value"], case["quota"], window), case.get("max", LONG_MAX))
    assert ms < 0 if case["expected"] == "negative" else ms == case["expected"]


@pytest.mark.parametrize("case", CASES["int_overflow"])
def test_a_tiny_quota_wraps_in_kafka_and_only_there(case: dict[str, Any]) -> None:
    rate = SampledRate(case["samples"], case["window_ms"])
    value, window = rate.charge(case["record"], START_MS)
    ms = throttle_time_ms(value, case["quota"], window)
    assert ms == case["throttle_long"]
    assert to_int32(ms) == case["throttle_int"]


@pytest.mark.parametrize("case", CASES["burst_accept"])
def test_bursts_at_one_instant(case: dict[str, Any]) -> None:
    rate = SampledRate(case["samples"], case["window_ms"])
    accepted = 0
    for _ in range(case["attempts"]):
        value, window = rate.charge(1, START_MS)
        if value > case["quota"] and throttle_time_ms(value, case["quota"], window) > 0:
            rate.record(-1, START_MS)
        else:
            accepted += 1
    assert accepted == case["accepted"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (-0.5, 0),
        (-1.5, -1),
        (0.49999999999999994, 0),
        (4503599627370497.5, 4503599627370498),
        (9007199254740993.0, 9007199254740992),
        (1e300, LONG_MAX),
        (-1e300, LONG_MIN),
        (float("nan"), 0),
        (float("inf"), LONG_MAX),
    ],
)
def test_java_round(value: float, expected: int) -> None:
    assert java_round(value) == expected


def test_java_divides_by_zero_and_casts() -> None:
    assert divide(1.0, 0.0) == float("inf")
    assert divide(-1.0, 0.0) == float("-inf")
    assert divide(0.0, 0.0) != divide(0.0, 0.0)
    assert to_int32(INT_MAX + 1) == -INT_MAX - 1
    assert to_int32(LONG_MAX) == -1


def test_peek_tells_the_rate_and_changes_nothing() -> None:
    watched, alone = SampledRate(3, 500), SampledRate(3, 500)
    charges: list[tuple[float, int]] = []
    for step, amount in enumerate([5, 0, 7.5, 3, 1, 2, 9] * 3):
        now = START_MS + step * 370
        if step % 4 == 3:
            now += 4_000
        told = watched.peek(now)
        same = SampledRate(3, 500)
        for charge in charges:
            same.charge(*charge)
        assert told == same.charge(None, now)
        charges.append((amount, now))
        assert watched.charge(amount, now) == alone.charge(amount, now)


def test_whole_numbers_and_doubles_give_the_same_bits() -> None:
    ints, doubles = SampledRate(11, 100), SampledRate(11, 100)
    doubles._exact = False
    assert ints.exact
    assert not doubles.exact
    for step in range(2_000):
        now = START_MS + step * 37 + (step % 97) * (step % 3) - (step % 5) * 9
        amount = (step * 7919) % 100_003
        assert ints.charge(amount, now) == doubles.charge(float(amount), now)


def test_huge_amounts_leave_the_quick_way_and_stay_right() -> None:
    quick, slow = SampledRate(11, 1000), SampledRate(11, 1000)
    slow._exact = False
    for step in range(300):
        amount = 1 << (step % 70)
        now = START_MS + step * 150
        assert quick.charge(amount, now) == slow.charge(float(amount), now)


def test_many_samples_are_summed_as_doubles() -> None:
    rate = SampledRate(2_000, 10)
    assert rate.charge(5, START_MS)[0] == 5 / 19.99
    rate.configure(2, 10)
    assert rate.measure(START_MS) == 500.0


@pytest.mark.parametrize(("samples", "window"), [(0, 1000), (11, 0)])
def test_nothing_to_sample_is_refused(samples: int, window: int) -> None:
    with pytest.raises(ValueError, match="1 sample of 1 ms at least"):
        SampledRate(samples, window)
