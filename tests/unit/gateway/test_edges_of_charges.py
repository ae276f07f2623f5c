"""Charging at its edges: what managers are made of, the last unit that fits, one ms of throttle."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.lanes import (
    MOST_HELD,
    REPAYS_MS,
    Debts,
    Lane,
    LaneBook,
    LaneKey,
    lane_key,
)
from headgate.gateway.charging.managers import Managers, sensors_of
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.charging.repaying import SEEN_MS
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    CONSUMER_SHARES,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
)
from headgate.throttle.overrides import KAFKA_3_9

T0 = 1_700_000_000_000
ALICE = QuotaEntity.of(user="alice")
TAGS = ("alice", "")


BASE = {
    "headgate.upstream": "127.0.0.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}


def managers(**properties: str) -> Managers:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return Managers(Settings.from_properties({**BASE, **named}), T0)


SET = {
    "quota_window_num": "3",
    "quota_window_size_seconds": "2",
    "controller_quota_window_num": "4",
    "controller_quota_window_size_seconds": "5",
    "producer_id_quota_window_num": "6",
    "producer_id_quota_window_size_seconds": "7",
    "producer_id_quota_cache_window_seconds": "8",
    "headgate_splits_period_ms": "9000",
    "headgate_quota_rules": "3.9",
}
CAPACITIES = {
    "headgate.capacity.producer_byte_rate": "10",
    "headgate.capacity.consumer_byte_rate": "11",
}


def test_each_manager_is_made_of_its_own_settings() -> None:
    named = {key.replace("_", "."): value for key, value in SET.items()}
    made = Managers(Settings.from_properties({**BASE, **named, **CAPACITIES}), T0)
    windows = {
        key: (made.by_key[key].num_samples, made.by_key[key].window_ms)
        for key in (PRODUCER, CONSUMER, REQUEST, MUTATION, PRODUCER_IDS)
    }
    assert windows == {
        PRODUCER: (3, 2000),
        CONSUMER: (3, 2000),
        REQUEST: (3, 2000),
        MUTATION: (4, 5000),
        PRODUCER_IDS: (6, 7000),
    }
    assert made.producer_ids.cache_window_ms == 8000
    caps = {k: made.by_key[k].max_throttle_ms for k in (REQUEST, PRODUCER_BPS, CONSUMER_BPS)}
    assert caps == {REQUEST: 2000, PRODUCER_BPS: 18_000, CONSUMER_BPS: 18_000}
    assert (made.produce_shares.capacity_bps, made.fetch_shares.capacity_bps) == (10.0, 11.0)
    for key, manager in made.by_key.items():
        assert str(manager.type) == key.type
        manager.update_quota(ALICE, None, T0)  # 3.9's rules keep the flag of a level once touched
        kept = key in (PRODUCER, CONSUMER, REQUEST, MUTATION)
        assert bool(manager.flags) is kept, key
        assert manager._next_tick_ms == T0 + 30_000
    assert made.produce._overrides.rules is KAFKA_3_9
    for key in (PRODUCER_BPS, CONSUMER_BPS, PRODUCER_SHARES, CONSUMER_SHARES):
        assert made.by_key[key].shows_rates
        assert (made.by_key[key].num_samples, made.by_key[key].window_ms) == (3, 2000)


def test_static_defaults_are_each_types_own() -> None:
    made = managers(quota_producer_default="100", quota_consumer_default="200")
    assert (made.produce.bound(("", "c")), made.fetch.bound(("", "c"))) == (100.0, 200.0)
    smooth = managers(headgate_pacing="smooth", quota_consumer_default="200")
    assert smooth.produce.flags == 0
    assert smooth.fetch.bound(("", "c")) == 200.0


def test_smooth_pacing_holds_the_burst_that_is_set() -> None:
    made = managers(
        headgate_pacing="smooth",
        headgate_pacing_burst_seconds="0.1",
        headgate_pacing_burst_overrides="users/bob:3,users/<default>:0.0001",
    )
    least = managers(headgate_pacing="smooth", headgate_pacing_burst_seconds="0.001")
    assert least.produce.burst_of(("", "c")) == 0.001  # type: ignore[union-attr]
    bursts = [made.produce.burst_of((user, "")) for user in ("bob", "carol")]  # type: ignore[union-attr]
    assert bursts == [3.0, 0.001]
    assert made.produce.burst_of(("", "c")) == 0.1  # type: ignore[union-attr]
    told = sensors_of(made.by_key)
    assert told[PRODUCER.name](("bob", "")) == {
        "rule": "paced", "num_samples": 1, "window_ms": 3000,
    }  # fmt: skip


def test_a_replay_is_told_how_each_sensor_decides() -> None:
    told = {name: of(TAGS) for name, of in sensors_of(managers().by_key).items()}
    usual = {"num_samples": 11, "window_ms": 1000}
    paced = {"rule": "paced", "num_samples": 1, "window_ms": 1000}
    assert told == {
        PRODUCER.name: {"rule": "sampled", **usual},
        CONSUMER.name: {"rule": "sampled", **usual},
        REQUEST.name: {"rule": "sampled", **usual, "max_throttle_ms": 1000},
        MUTATION.name: {"rule": "bucket", **usual},
        PRODUCER_IDS.name: {"rule": "bucket", **usual},
        PRODUCER_BPS.name: {**paced, "max_throttle_ms": 10_000},
        CONSUMER_BPS.name: {**paced, "max_throttle_ms": 10_000},
        PRODUCER_SHARES.name: {**paced, "max_throttle_ms": 2000},
        CONSUMER_SHARES.name: {**paced, "max_throttle_ms": 2000},
    }


def test_a_fetch_asks_for_no_more_than_its_quota_has_left() -> None:
    kafka = managers(headgate_fetch="kafka")
    deliver = managers()
    smooth = managers(headgate_pacing="smooth", headgate_pacing_burst_overrides="users/bob:0.05")
    for made in (kafka, deliver, smooth):
        assert made.fetch_limit("alice", "c", T0) == float("inf")
        made.fetch.update_quota(QuotaEntity.of(user=DEFAULT), 1000.0, T0)
    assert kafka.fetch_limit("alice", "c", T0) == 10_000.0  # KIP-74's: the whole window
    assert deliver.fetch_limit("alice", "c", T0) == 10_000.0
    deliver.fetch.record("alice", "c", 6_000, T0)
    kafka.fetch.record("alice", "c", 6_000, T0)
    assert deliver.fetch_limit("alice", "c", T0) == 4_000.0  # what is left of it
    assert kafka.fetch_limit("alice", "c", T0) == 10_000.0
    deliver.fetch.record("alice", "c", 3_500, T0)
    assert deliver.fetch_limit("alice", "c", T0) == 1_000.0  # a sample's worth at least
    assert smooth.fetch_limit("alice", "c", T0) == 500.0  # half a second's
    assert smooth.fetch_limit("bob", "c", T0) == 50.0  # or the burst
    for made in (kafka, deliver):
        made.fetch.update_quota(QuotaEntity.of(user=DEFAULT), 2.0**31 / 10, T0)
        assert made.fetch_limit("alice", "c", T0) == 2.0**31


@pytest.mark.parametrize(
    ("enforce", "kind", "owes"),
    [
        (
            "all",
            RequestKind.PRODUCE,
            [REQUEST, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS],
        ),
        ("all", RequestKind.MUTATION, [REQUEST, MUTATION]),
        ("all", RequestKind.FETCH, [REQUEST]),
        ("missing", RequestKind.PRODUCE, [PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS]),
        ("missing", RequestKind.MUTATION, []),
        ("observe", RequestKind.PRODUCE, []),
    ],
)
def test_a_request_owes_by_the_quotas_in_force_that_it_is_charged_to(
    enforce: str, kind: RequestKind, owes: list[Any]
) -> None:
    made = Managers(
        Settings.from_properties({**BASE, **CAPACITIES, "headgate.enforce": enforce}), T0
    )
    assert list(made.lanes_of("alice", "c", kind)) == []
    for number, manager in enumerate(made.by_key.values()):
        manager.update_quota(ALICE, 5.0 + number, T0)
    assert set(made.lanes_of("alice", "c", kind)) == {
        lane_key(key.name, "alice", "", "alice") for key in owes
    }
    assert list(made.lanes_of("bob", "c", kind)) == []
    assert set(made.finite("alice", "c")) == {k for k in made.by_key if k in made.active}
    assert made.splits


def test_two_that_repay_different_debts_never_wait_for_each_other() -> None:
    """Each would hold what the other waits for, until the ten seconds of both are over."""
    rate, shares = (lane_key(key.name, "alice", "", "") for key in (PRODUCER, PRODUCER_SHARES))
    for keys in ([rate, shares], [shares, rate]):
        book = LaneBook()

        def left_behind(key: LaneKey, book: LaneBook = book) -> None:
            gone = Debts(book)
            gone.owe(key, Lane(T0 + 1000, T0, 100.0))
            gone.leave(T0)

        left_behind(shares)
        first, second = Debts(book), Debts(book)
        assert first.enter(keys, T0) == T0 + 1000
        left_behind(rate)
        second.enter(keys, T0)
        assert first.enter(keys, T0 + 1000) == T0 + 1000
        assert first.is_in(keys) and first.waits_at is None
        second.enter(keys, T0 + 1000)
        assert second.waits_at == shares
        first.charged(0, T0 + 1000)
        assert second.enter(keys, T0 + 1000 + SEEN_MS) == T0 + 1000 + SEEN_MS
        assert second.is_in(keys)


# -- headroom


# -- gates and lanes


def test_a_throttle_of_one_ms_closes_the_gate_for_it() -> None:
    gates = Gates(lambda _: None)
    key = GateKey(CONSUMER.name, "alice", "")
    gates.charged(key, 0, 100.0, T0)
    assert gates.get(key) is None
    gates.charged(key, 1, 100.0, T0)
    gate = gates.get(key)
    assert gate is not None
    assert (gate.opens_ms(T0), gates.any_at((key,))) == (T0 + 1, True)
    assert not gate.idle(T0)
    assert gate.idle(T0 + 1)
    gate.charged(1000, 100.0, T0 + 2)
    gate.requoted(200.0, T0 + 502)  # twice the quota repays the half that is left in half the time
    assert gate.opens_ms(T0 + 502) == T0 + 752
    gate.requoted(100.0, T0 + 502)  # a lower one makes nobody wait longer than was told
    assert gate.opens_ms(T0 + 502) == T0 + 752


def test_a_debt_ends_for_a_newcomer_when_it_would_have_for_who_left_it() -> None:
    key = lane_key("producer_byte_rate", "alice", "", "alice")
    lane = Lane(T0 + 1000, T0, 100.0)
    assert [lane.until(T0 + ms) for ms in (0, 999, 1000, 1001)] == [
        T0 + 1000, T0 + 1000, T0 + 1000, T0 + 1001,
    ]  # fmt: skip
    assert lane.until(T0 - 500) == T0 + 500  # set back: no longer than was told
    book = LaneBook()
    first, second = Debts(book), Debts(book)
    first.owe(key, lane)
    first.owe(key, Lane(T0 + 400, T0, 100.0))  # the later end counts
    second.owe(key, Lane(T0 + 500, T0, 100.0))
    for one in (first, second):
        one.leave(T0)
    assert len(book) == 2
    for expected in (500, 1000):
        newcomer = Debts(book)
        assert newcomer.enter([key], T0) == T0 + expected
        told = newcomer.waits_by
        assert told and (told.key, told.closed) == (key.quota_type, True)
        assert newcomer.enter([key], T0) == T0  # once
    third = Debts(book)  # waits until the others are charged, and ten seconds more at most
    assert third.enter([key], T0) == T0 + 1000 + REPAYS_MS
    assert third.waits_at == key
    third.leave(T0)
    book = LaneBook()
    late = Debts(book)
    late.leave(T0)
    late.owe(key, lane)  # charged after it had closed
    assert len(book) == 1
    assert Debts(book).enter([key], T0 + 1000) == T0 + 1000
    many = Debts(book)
    for number in range(MOST_HELD + 1):
        many.owe(lane_key("producer_byte_rate", f"u{number}", "", ""), lane)
    assert len(book) == 1  # the one that it remembers no longer is left at once
    assert lane_key("t", "", "c", "alice").principal == "alice"
    assert lane_key("t", "alice", "c", "alice").principal == ""


def test_who_is_exempt_after_a_reload_is_throttled_no_more_and_the_reverse() -> None:
    def settings(exempt: str) -> Settings:
        return Settings.from_properties({**BASE, "headgate.exempt.principals": f"User:{exempt}"})

    rules = Enforcement(settings("bob"), 1, lambda: T0)
    rules.managers.produce.update_quota(QuotaEntity.of(user=DEFAULT), 1.0, T0)
    assert [rules.context(name, "c").exempt for name in ("alice", "bob")] == [False, True]
    rules.reload(settings("alice"))
    assert [rules.context(name, "c").exempt for name in ("alice", "bob")] == [True, False]


def test_a_topic_that_the_broker_refused_is_given_back() -> None:
    rules = Enforcement(Settings.from_properties(BASE), 1, lambda: T0)
    rules.managers.mutation.update_quota(ALICE, 1.0, T0)
    quota = rules.managers.mutation.quota("alice", "c", T0, strict=True)
    quota.record(20, T0)
    assert rules.managers.mutation.peek(TAGS, T0) == -9.0
    client: Any = None  # nothing is written down here
    plan: Any = None
    rules.mutations.give_back(client, rules.context("alice", "c"), plan, 5)
    assert rules.managers.mutation.peek(TAGS, T0) == -4.0
