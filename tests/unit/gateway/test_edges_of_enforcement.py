"""What enforcement does beside the sums: what it writes down, who is settled, what a plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.errors import ApiError
from headgate.gateway.charging import contexts
from headgate.gateway.charging.gates import GateKey
from headgate.gateway.charging.journal import NO_JOURNAL
from headgate.gateway.charging.plans import build_plans
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    CONSUMER_BPS,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    REQUEST,
    QuotaKey,
    QuotaType,
)
from headgate.quota.table import QuotaTable, TableChange, TableDelta, table_delta
from headgate.throttle.registry import EXPIRY_MS, Throttle
from headgate.wire import apis

from .enforcement_kit import T0, Client, made, plan_of

HEARTBEAT = 12
ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")

# -- quotas


def test_each_change_is_written_down_once_with_what_it_changed() -> None:
    rules, kept = made({ALICE: {PRODUCER: 1.0}})
    for user in ("alice", "bob"):
        rules.managers.produce.record(user, "c", 1, T0)
    anyone = QuotaEntity.of(user=DEFAULT)
    before = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    after = QuotaTable.of({ALICE: {CONSUMER: 3.0}, anyone: {PRODUCER: 2.0}, BOB: {REQUEST: 4.0}})
    rules.update(table_delta(before, after), T0 + 5)
    assert sorted(kept.rows, key=str) == sorted(
        [
            ("quota", 1, PRODUCER, ALICE, None, T0 + 5),
            ("quota", 1, CONSUMER, ALICE, 3.0, T0 + 5),
            ("quota", 1, PRODUCER, anyone, 2.0, T0 + 5),
            ("quota", 1, REQUEST, BOB, 4.0, T0 + 5),
        ],
        key=str,
    )


def test_what_is_not_charged_here_keeps_nothing_else_from_being_in_force() -> None:
    """Connection rates are the acceptors'."""
    rules, kept = made()
    changes = (
        TableChange(QuotaEntity.of(ip="10.0.0.1"), CONNECTION, None, 5.0),
        TableChange(ALICE, PRODUCER, None, 7.0),
    )
    rules.update(TableDelta(changes, 0, 1), T0)
    assert rules.managers.produce.bound(("alice", "")) == 7.0
    assert kept.rows == [("quota", 1, PRODUCER, ALICE, 7.0, T0)]


def test_a_sensor_that_was_idle_for_an_hour_is_gone_and_that_is_written_down() -> None:
    rules, kept = made({ALICE: {PRODUCER: 1.0}})
    rules.managers.produce.record("alice", "c", 1, T0)
    list(rules.expire(T0 + EXPIRY_MS))
    assert kept.rows == []
    list(rules.expire(T0 + EXPIRY_MS + 60_000))
    assert kept.rows == [("expire", 1, PRODUCER, ("alice", ""), T0 + EXPIRY_MS + 60_000)]


def test_who_is_exempt_from_the_start_takes_nothing_from_others() -> None:
    rules, _ = made(
        {QuotaEntity.of(client_id="app"): {PRODUCER: 10.0}}, exempt_principals="User:bob"
    )
    rules.managers.produce.record("bob", "app", 1_000_000, T0)
    assert rules.managers.produce.record("alice", "app", 100, T0).throttle_time_ms == 0


def test_contexts_are_bounded_by_the_characters_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contexts, "MOST_NAMED", 100)
    rules, _ = made()
    epochs = []
    for number in range(12):
        rules.context("u" * 10, f"c{number:09}")  # twenty characters each
        epochs.append(rules.contexts.epoch)
    assert [later - epochs[0] for later in epochs] == [0] * 6 + [1] * 6
    assert len(rules.contexts) == 6


# -- charges


@pytest.mark.parametrize("limits", [[PRODUCER], [PRODUCER, REQUEST]])
def test_a_charge_is_written_down_with_the_largest_throttle(limits: list[QuotaKey]) -> None:
    rules, kept = made({ALICE: dict.fromkeys(limits, 100.0)})
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.PRODUCE, 7)
    # Kafka counts a new sensor's bytes over ten seconds: 190 a second are 90 % too much for 10 s.
    assert rules.produce(client, context, plan, 1_900, None, True, T0) == 9_000
    rows = {row[1]: row[5] for row in kept.rows}
    assert set(rows.values()) == {9_000}
    assert set(rows) == {key.name for key in limits}
    assert (client.told.key, client.owes_until_ms) == (PRODUCER.name, T0 + 9_000)


@pytest.mark.parametrize("limits", [[PRODUCER], [PRODUCER, REQUEST]])
@pytest.mark.parametrize(("size", "told_ms"), [(100_000, 0), (100_004, 0), (100_006, 1)])
def test_the_first_ms_is_told(limits: list[QuotaKey], size: int, told_ms: int) -> None:
    rules, _ = made({ALICE: dict.fromkeys(limits, 10_000.0)})
    client: Any = Client()
    plan = plan_of(apis.PRODUCE, 7)
    context = rules.context("alice", "c")
    assert rules.produce(client, context, plan, size, None, True, T0) == told_ms


@pytest.mark.parametrize("key", [PRODUCER_IDS, PRODUCER_BPS])
@pytest.mark.parametrize("told_ms", [0, 1])
def test_the_first_ms_of_what_else_is_charged_is_told(
    monkeypatch: pytest.MonkeyPatch, key: QuotaKey, told_ms: int
) -> None:
    rules, _ = made({ALICE: {key: 1e9}})
    decision = Throttle(told_ms, "alice", "", 1e9)
    monkeypatch.setattr(rules.managers.by_key[key], "record", lambda *_: decision)
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.PRODUCE, 7)
    assert rules.produce(client, context, plan, 100, frozenset((7,)), True, T0) == told_ms
    assert client.debts == [key.name] * told_ms


@pytest.mark.parametrize(("spent_ns", "told_ms"), [(1_000_000_000, 0), (1_000_100_000, 1)])
@pytest.mark.parametrize("produces", [False, True])
def test_the_first_ms_of_time_is_told(spent_ns: int, told_ms: int, produces: bool) -> None:
    rules, _ = made({ALICE: {REQUEST: 10.0}})
    client: Any = Client()
    client.spent_ns = spent_ns
    context, plan = rules.context("alice", "c"), plan_of(apis.PRODUCE, 7)
    if produces:
        told = rules.produce(client, context, plan, 100, None, True, T0)
    else:
        told = rules.request(client, context, plan_of(HEARTBEAT, 3), 100, T0)
    assert told == told_ms


@pytest.mark.parametrize(
    ("properties", "strict_since"),
    [
        ({}, [6, 5, 3, 0]),  # an API without a strict version is strict from its first
        ({"exempt_principals": "User:alice"}, [None] * 4),
        ({"enforce": "observe"}, [0] * 4),
        ({"enforce": "observe", "exempt_principals": "User:alice"}, [0] * 4),
    ],
)
def test_strictness_follows_the_api_version(
    properties: dict[str, str], strict_since: list[int | None]
) -> None:
    rules, _ = made({ALICE: {MUTATION: 1.0}}, **properties)
    context, plan = rules.context("alice", "c"), plan_of(apis.CREATE_TOPICS, 5)
    for key, since in zip((19, 20, 37, 99), strict_since, strict=True):
        asked = [replace(plan, key=key, version=version) for version in range(8)]
        strict = [rules.mutations.quota(context, each, T0).is_strict for each in asked]
        assert strict == [since is not None and version >= since for version in range(8)]


def test_a_refused_mutation_leaves_no_debt_and_a_throttled_one_does() -> None:
    for version, debts in ((5, [MUTATION.name]), (6, [])):
        rules, kept = made({ALICE: {MUTATION: 1.0}})
        client: Any = Client()
        context, plan = rules.context("alice", "c"), plan_of(apis.CREATE_TOPICS, version)
        quota = rules.mutations.quota(context, plan, T0)
        quota.record(20, T0)
        assert quota.is_strict is (version == 6)
        if quota.is_strict:
            with pytest.raises(ApiError):
                quota.record(1, T0)
        kept.rows.clear()
        assert rules.mutation(client, context, plan, 100, quota, T0) == 9_000
        assert client.debts == debts
        rules.tell(client, context, plan, client.told, 8_000, 9_001, 1_000, T0 + 1_000)
        left = (8_000, "alice", "", 1.0)
        assert kept.rows == [("told", MUTATION.name, T0 + 1_000, 1_000.0, left, 9_001, 9_001)]
        counts = rules.meters.throttled[QuotaType.CONTROLLER_MUTATION_RATE]["alice", ""]
        assert (counts.count, counts.ms, counts.until_ms) == (1, 8_000, T0 + 9_000)


def test_only_quotas_in_force_close_gates() -> None:
    rules, _ = made({ALICE: {CONSUMER: 1.0, CONSUMER_BPS: 1.0}}, enforce="missing")
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.FETCH, 11)
    assert rules.fetch(client, context, plan, 100, 50_000, T0) > 0
    closed = [
        key.name
        for key in (CONSUMER, CONSUMER_BPS)
        if rules.gates.get(GateKey(key.name, "alice", ""))
    ]
    assert closed == [CONSUMER_BPS.name]


def test_what_is_taken_back_and_held_is_counted_each_time() -> None:
    rules, kept = made({ALICE: {CONSUMER: 1e6, CONSUMER_BPS: 1e6}}, fetch="kafka")
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.FETCH, 11)
    rules.fetch(client, context, plan, 100, 50_000, T0)
    kept.rows.clear()
    rules.unfetch(client, context, plan, 50_000, T0)
    rows = [(row[0], row[1], row[2], row[3]) for row in kept.rows]
    assert rows == [
        ("unrecord", key.name, T0, 50_000 - 4) for key in (CONSUMER, CONSUMER_BPS)
    ]  # fmt: skip
    assert rules.managers.fetch.peek(("alice", ""), T0) == 0.0
    for waited_ms in (3, 4):
        rules.held(client, context, plan, waited_ms, T0)
    assert (rules.meters.fetches_held, rules.meters.fetch_held_ms) == (2, 7)
    assert NO_JOURNAL.events == (0, 0)


@pytest.mark.parametrize(("asked", "waits"), [("gateway", False), ("upstream", True)])
def test_the_brokers_time_counts_where_it_is_asked_for_but_not_that_of_long_polls(
    asked: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, kept = made({ALICE: {REQUEST: 1.0}}, request_time=asked)
    polls = {"Fetch", "JoinGroup", "SyncGroup", "ShareFetch"}
    for name in (*polls, "Produce", "Metadata", "Heartbeat", "ShareAcknowledge"):
        client: Any = Client()
        client.spent_ns, client.asked_ms = 7, T0 - 3
        plan = next(plan for plan in build_plans().values() if plan.name == name)
        broker_ns = 3_000_000 if waits and name not in polls else 0
        took: list[int] = []
        monkeypatch.setattr(rules._time, "network", lambda *given, took=took: took.append(given[2]))
        context = rules.context("alice", "c")
        for now_ms in (T0, T0 - 4):  # a clock that was set back
            rules.answered(client, context, plan, now_ms)
        assert took == ([broker_ns] if broker_ns else [])
        assert (rules._time.take(client), client.spent_ns) == (7, 0)
    assert rules.context("alice", "c").alone is waits
    producing: Any = Client()
    producing.spent_ns, producing.asked_ms = 7, T0 - 3
    kept.rows.clear()
    rules.produce(producing, context, plan_of(apis.PRODUCE, 7), 50, None, True, T0)
    told_ns = {row[1]: row[-2] for row in kept.rows}
    assert told_ns == dict.fromkeys((PRODUCER.name, REQUEST.name), 7)


def test_no_throttle_is_longer_than_an_answer_can_tell() -> None:
    rules, _ = made({ALICE: {PRODUCER: 1.0}})
    client: Any = Client()
    context, plan = rules.context("alice", "c"), plan_of(apis.PRODUCE, 7)
    assert rules.produce(client, context, plan, 10**12, None, True, T0) == 2**31 - 1


def test_cluster_wide_quotas_are_split_where_there_is_one() -> None:
    for key in (PRODUCER_BPS, CONSUMER_BPS):
        rules, _ = made({ALICE: {key: 1.0}})
        assert rules.managers.splits
    assert not made({ALICE: {PRODUCER: 1.0}})[0].managers.splits
