"""``headgate.enforce``: whose throttles are in force; whatever it is, everything is measured."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from headgate.config import Settings
from headgate.errors import ApiError, KafkaError
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    CONSUMER_BPS,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    REQUEST,
    QuotaKey,
)
from headgate.usage.rows import batch_of
from headgate.wire import apis

from .conftest import Setup
from .test_journal import Kept

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")
PLANS = build_plans()
KAFKAS = {PRODUCER, CONSUMER, REQUEST, MUTATION}
BEYOND = {PRODUCER_BPS, CONSUMER_BPS, PRODUCER_IDS}
AMOUNT = dict.fromkeys((PRODUCER, PRODUCER_BPS), 50_000)
AMOUNT |= dict.fromkeys((CONSUMER, CONSUMER_BPS), 50_000 - 4)  # without the correlation id
AMOUNT |= {PRODUCER_IDS: 500, MUTATION: 500, REQUEST: 90}
IN_FORCE = {"all": KAFKAS | BEYOND, "missing": BEYOND, "observe": set()}


def asked_for_much(setup: Setup, key: QuotaKey, now_ms: int) -> int:
    """Have alice use far more than one a second of what is limited; return the throttle, ms."""
    rules, session = setup.rules, setup.session
    context = rules.context("alice", "app")
    produce, fetch = PLANS[apis.PRODUCE << 16 | 7], PLANS[apis.FETCH << 16 | 11]
    create = PLANS[apis.CREATE_TOPICS << 16 | 7]
    session.spent_ns = 900_000_000
    if key in (PRODUCER, PRODUCER_BPS):
        return rules.produce(session, context, produce, 50_000, None, 0, True, now_ms)
    if key is PRODUCER_IDS:
        ids = frozenset(range(500))
        return rules.produce(session, context, produce, 100, ids, 0, True, now_ms)
    if key in (CONSUMER, CONSUMER_BPS):
        return rules.fetch(session, context, fetch, 100, 50_000, 0, now_ms)
    if key is REQUEST:
        return rules.request(session, context, PLANS[12 << 16 | 3], 100, 0, now_ms)
    quota = rules.mutations.quota(context, create, now_ms)
    quota.record(500, now_ms)
    rules.mutations.charged(session, context, create, 500, quota, 100, now_ms)
    return rules.mutation(session, context, create, 100, 0, quota, now_ms)


@pytest.mark.parametrize("enforce", IN_FORCE)
@pytest.mark.parametrize("key", sorted(KAFKAS | BEYOND, key=str), ids=str)
def test_all_is_measured_and_journaled_and_throttled_as_told(
    gateway: Make, key: QuotaKey, enforce: str
) -> None:
    kept = Kept()
    setup = gateway(
        {ALICE: {key: 1.0}},
        {"headgate.enforce": enforce},
        journal=UsageJournal(kept, 11, 1000),  # type: ignore[arg-type]
    )
    rules, now_ms = setup.rules, setup.play.now_ms
    told = [asked_for_much(setup, key, now_ms)]
    if key is MUTATION:
        assert rules.counts_mutations
        # The first is accepted whole, as the bucket is full.
        if enforce == "all":
            with pytest.raises(ApiError) as refused:
                asked_for_much(setup, key, now_ms + 1)
            assert refused.value.code == KafkaError.THROTTLING_QUOTA_EXCEEDED
            told = [1]
        else:
            told.append(asked_for_much(setup, key, now_ms + 1))
    assert (max(told) > 0) == (key in IN_FORCE[enforce])
    assert rules.context("alice", "app").limited == (key in IN_FORCE[enforce])
    [sensor] = rules.managers.by_key[key].sensors()
    reading = sensor.peek(now_ms + 1)
    used = reading[0] > 1 if isinstance(reading, tuple) else reading < 0
    assert used, reading
    kind = "strict" if key is MUTATION else "record"
    charged, *_ = [
        row
        for row in batch_of(kept.events, "worker", 1).to_pylist()
        if (row["kind"], row["quota_type"]) == (kind, key.name) and row["amount"]
    ]
    assert charged["amount"] == pytest.approx(AMOUNT[key])
    assert charged["bound"] == 1.0
    assert (charged["throttle_time_ms"] > 0) == (kind == "record")  # decided, told or not
    if enforce == "observe":
        assert charged["told_throttle_time_ms"] in (0, None)


def test_what_would_have_been_refused_is_shown_and_owed_by_nobody(gateway: Make) -> None:
    setup = gateway({ALICE: {MUTATION: 1.0}}, {"headgate.enforce": "observe"})
    rules, now_ms = setup.rules, setup.play.now_ms
    for _ in range(20):
        assert asked_for_much(setup, MUTATION, now_ms) == 0
    [sensor] = rules.managers.by_key[MUTATION].sensors()
    assert sensor.peek(now_ms) == 11 - 500  # the first is charged, as it would have been
    assert sensor.rate.peek(now_ms)[0] == 20 * 500 / 30  # all are seen


def test_the_settings_may_switch_while_running(gateway: Make) -> None:
    setup = gateway({ALICE: {MUTATION: 1.0, PRODUCER: 1.0}}, {"headgate.enforce": "observe"})
    rules, now_ms = setup.rules, setup.play.now_ms
    assert asked_for_much(setup, PRODUCER, now_ms) == 0
    assert asked_for_much(setup, MUTATION, now_ms) == 0
    every = {"headgate.upstream": "embedded", "headgate.enforce": "all"}
    rules.reload(Settings.from_properties(every))
    # What was sampled while nothing was in force counts for its window; a bucket owes nothing.
    assert asked_for_much(setup, PRODUCER, now_ms) > 0
    assert asked_for_much(setup, MUTATION, now_ms) == 0
    with pytest.raises(ApiError):
        asked_for_much(setup, MUTATION, now_ms)


BUCKETS = {PRODUCER, CONSUMER, MUTATION} | BEYOND
OF_KAFKA = {"headgate.enforce": "missing"}, {"headgate.enforce": "all"}
EXEMPT = {"headgate.exempt.principals": "User:alice"}, {}


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        *((before, after, key) for before, after in (
            ({"headgate.enforce": "observe"}, {"headgate.enforce": "all"}), EXEMPT,
        ) for key in sorted(BUCKETS, key=str)),
        *((*OF_KAFKA, key) for key in sorted(BUCKETS & KAFKAS, key=str)),
        ({"headgate.enforce": "observe"}, {"headgate.enforce": "missing"}, PRODUCER_BPS),
    ],
    ids=str,
)  # fmt: skip
def test_a_bucket_that_comes_into_force_owes_nothing(
    gateway: Make, before: dict[str, str], after: dict[str, str], key: QuotaKey
) -> None:
    paced = {"headgate.upstream": "embedded", "headgate.pacing": "smooth"}
    kept = Kept()
    journal = UsageJournal(kept, 11, 1000)  # type: ignore[arg-type]
    bob = QuotaEntity.of(user="bob")
    setup = gateway({ALICE: {key: 1.0}, bob: {key: 1.0}}, {**paced, **before}, journal=journal)
    rules, now_ms = setup.rules, setup.play.now_ms
    for _ in range(3):
        asked_for_much(setup, key, now_ms)
    [sensor] = rules.managers.by_key[key].sensors()
    assert sensor.peek(now_ms) < -100
    rules.reload(Settings.from_properties({**paced, **after}))
    assert sensor.peek(now_ms) > 0
    assert rules.context("alice", "app").limited
    moved = [
        row["value"]
        for row in batch_of(kept.events, "worker", 1).to_pylist()
        if (row["kind"], row["quota_type"]) == ("bound", key.name)
    ]
    assert moved[-2:] == [inf, 1.0]
    owed = sensor.peek(now_ms)
    rules.reload(Settings.from_properties({**paced, **after}))  # what is in force stays as it is
    assert sensor.peek(now_ms) == owed
    assert len(batch_of(kept.events, "worker", 1).to_pylist()) == len(kept.events)


@pytest.mark.parametrize("key", sorted(KAFKAS | BEYOND, key=str), ids=str)
def test_exempt_principals_are_measured_by_every_quota_and_throttled_by_none(
    gateway: Make, key: QuotaKey
) -> None:
    setup = gateway(
        {ALICE: {key: 1.0}, QuotaEntity.of(user="bob"): {key: 1.0}},
        {"headgate.exempt.principals": "User:alice;User:nobody"},
    )
    rules, now_ms = setup.rules, setup.play.now_ms
    assert [asked_for_much(setup, key, now_ms) for _ in range(3)] == [0, 0, 0]
    assert not rules.context("alice", "app").limited
    assert rules.context("bob", "app").limited
    [sensor] = rules.managers.by_key[key].sensors()
    reading = sensor.peek(now_ms)
    assert reading[0] > 1 if isinstance(reading, tuple) else reading < 0
    assert rules.meters.throttled == {}
