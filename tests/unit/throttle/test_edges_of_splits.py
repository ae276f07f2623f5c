"""Splits by demand at their edges, number by number: docs/explanation/cluster-quotas.md's rules."""

from __future__ import annotations

from math import fsum, inf, sqrt

import pytest

from headgate.throttle.cluster import (
    BACKLOG,
    HIGHEST,
    MARGIN,
    MEMORY,
    NOTHING,
    ClusterSplitter,
    DemandEstimate,
    split_demands,
)
from headgate.throttle.observation import Observation

TAGS = ("u", "")


def seen(used: float, waited: float = 0.0, **more: float) -> Observation:
    return Observation(used, waited > 0, waited=waited, **more)  # type: ignore[arg-type]


def test_what_is_observed_is_nothing_unless_told() -> None:
    assert Observation(1.0, throttled=True)[2:] == (0.0, 0, None, True)
    assert NOTHING == (0.0, False, 0.0, 0, None, True)


def test_a_demand_seen_whole_is_its_mean_and_room_for_the_noise_that_is_left() -> None:
    estimate = DemandEstimate(2.0)
    mean = 100.0
    for used, rounds in zip([100.0, 104.0, 96.0, 102.0] * 3, range(1, 13), strict=True):
        count = min(rounds, MEMORY)
        mean += (used - mean) / count
        noise = sqrt(max(used, estimate.mean) * used / 50)
        told = estimate.update(seen(used, requests=50), 1000.0)
        assert told == pytest.approx(mean * (1 + MARGIN) + noise / count**2)
        assert (estimate.rounds, estimate.mean) == (count, pytest.approx(mean))
    # It moves by more than fifty requests explain: what was known isn't so now.
    told = estimate.update(seen(400.0, requests=1600), 1000.0)
    assert (told, estimate.mean, estimate.rounds) == (400 * (1 + MARGIN) + 10.0, 400.0, 1)


def test_noise_of_two_deviations_still_belongs_to_the_mean() -> None:
    for used, rounds in ((120.0, 2), (121.0, 1)):
        estimate = DemandEstimate(2.0)
        estimate.update(seen(100.0, requests=144), 1000.0)
        estimate.update(seen(used, requests=144), 1000.0)
        assert estimate.rounds == rounds


def test_a_period_without_requests_counted_is_one_request() -> None:
    estimate = DemandEstimate(2.0)
    assert estimate.update(seen(100.0, requests=0), 1000.0) == 100 * (1 + MARGIN) + 100
    assert DemandEstimate(2.0).update(seen(100.0, requests=1), 1000.0) == 100 * (1 + MARGIN) + 100


@pytest.mark.parametrize(
    ("waited", "credit", "likely"),
    [
        (0.1, None, 100 + 100 / (0.9 * 2)),  # a bucket holds a second of its split
        (0.5, None, 100 + 100 / (0.5 * 2)),
        (0.5, 60.0, 100 + 60 / (0.5 * 2)),
        (0.5, 0.0, 150.0),  # never less than what was used
        (0.94, 10_000.0, HIGHEST * 150),  # never more than that many times it
    ],
)
def test_a_demand_partly_seen_is_what_emptied_the_bucket(
    waited: float, credit: float | None, likely: float
) -> None:
    estimate = DemandEstimate(2.0)
    first = estimate.update(Observation(150.0, True, waited, 9, credit, True), 100.0)
    assert first == pytest.approx(likely)
    again = estimate.update(Observation(150.0, True, waited, 9, credit, True), 100.0)
    assert again == pytest.approx(likely)  # nothing of it was ever seen whole
    estimate.update(seen(150.0, requests=9), 100.0)
    after = estimate.update(Observation(150.0, True, waited, 9, credit, True), 100.0)
    assert after == pytest.approx(likely * (1 + BACKLOG))


def test_a_bucket_seldom_or_no_longer_overdrawn_has_shown_its_demand() -> None:
    for waited, overdrawn in ((0.0999, True), (0.5, False)):
        estimate = DemandEstimate(2.0)
        told = estimate.update(Observation(100.0, True, waited, 100, None, overdrawn), 100.0)
        assert (told, estimate.rounds) == (100 * (1 + MARGIN) + 10, 1)


def test_a_hidden_demand_may_grow_twice_and_is_then_unbounded() -> None:
    estimate = DemandEstimate(2.0)
    estimate.update(seen(100.0, requests=100), 100.0)
    told = [estimate.update(seen(120.0, 0.95), 100.0) for _ in range(4)]
    assert told == [150.0, 240.0, inf, inf]
    assert (estimate.mean, estimate.rounds, estimate.hidden) == (120.0, 0, 4)
    # All slept while an earlier request was repaid: that shows nothing, and half of it does.
    assert estimate.update(seen(49.9, 1.0), 100.0) == 120.0
    assert estimate.update(seen(49.9, 1.0), 300.0) == 300.0
    assert estimate.hidden == 4
    assert estimate.update(seen(50.0, 1.0), 100.0) == inf
    estimate.update(seen(100.0, requests=100), 100.0)
    assert estimate.update(seen(100.0, 1.0), 100.0) == 125.0  # in a row, it said


def test_what_nobody_asked_for_is_dealt_out_and_never_more() -> None:
    # 2 % equally, then demand, then half of the rest equally and half by demand.
    assert split_demands(1000.0, {1: 0.0, 2: 0.0}) == {1: 500.0, 2: 500.0}
    half = split_demands(1000.0, {1: 210.0, 2: 10.0})
    assert half == {1: 210.0 + 195.0 + 195.0 * 2, 2: 10.0 + 195.0}
    hungry = split_demands(1000.0, {1: 210.0, 2: 110.0}, {2})
    assert hungry == pytest.approx({1: 210.0, 2: 790.0})
    both = split_demands(1000.0, {1: 210.0, 2: 110.0, 3: 10.0}, {1, 2})
    assert sum(both.values()) == pytest.approx(1000.0)
    assert both[3] < 11
    assert split_demands(1000.0, {}) == {}


def test_rounding_never_deals_out_more_than_the_quota() -> None:
    for count in range(1, 60):
        for quota in (1.0, 0.1, 1e9 / 3, 7.0):
            splits = split_demands(quota, {b: inf if b % 2 else quota / 7 for b in range(count)})
            assert 0.999 * quota < fsum(splits.values()) <= quota


def test_a_splitter_remembers_those_with_traffic_that_are_alive_and_have_a_quota() -> None:
    splitter: ClusterSplitter[int] = ClusterSplitter(2000)
    other = ("v", "")
    quotas = {TAGS: 1000.0, other: 1000.0}
    busy = {b: {TAGS: seen(400.0, 1.0), other: seen(100.0)} for b in (1, 2)}
    splitter.round(quotas, [1, 2], busy)
    assert len(splitter._estimates) == 4
    splitter.round(quotas, [1], {1: busy[1]})
    assert set(splitter._estimates) == {(TAGS, 1), (other, 1)}
    splitter.round({TAGS: 1000.0}, [1], {1: busy[1]})
    assert set(splitter._estimates) == {(TAGS, 1)}
    for _ in range(3):
        splitter.round({TAGS: 1000.0}, [1], {})
    assert splitter._estimates == {}  # its traffic has gone
    idle: ClusterSplitter[int] = ClusterSplitter(2000)
    idle.round(quotas, [1], {1: {TAGS: NOTHING, other: Observation(0.0, throttled=True)}})
    assert (TAGS, 1) not in idle._estimates


def test_one_hidden_period_makes_a_broker_hungry() -> None:
    splitter: ClusterSplitter[int] = ClusterSplitter(2000)
    splits = splitter.round(
        {TAGS: 1000.0}, [1, 2], {1: {TAGS: seen(500.0, 1.0)}, 2: {TAGS: seen(1.0, requests=100)}}
    )[TAGS]
    assert splits[1] > 985
