"""Token buckets and controller mutations: Kafka's unit tests restated as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ApiError, KafkaError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.throttle.controller_mutation import STRICT_SINCE, ControllerMutationQuotaManager
from headgate.throttle.java import UNLIMITED
from headgate.throttle.registry import UNCHARGED
from headgate.throttle.token_bucket import TokenBucket, token_throttle_time_ms

CASES = json.loads((Path(__file__).parents[2] / "data" / "cases" / "token_bucket.json").read_text())
T0 = 1_700_000_000_000


@pytest.mark.parametrize("trace", CASES["traces"], ids=lambda trace: trace["name"])
def test_bucket_traces(trace: dict[str, Any]) -> None:
    bucket = TokenBucket(trace["quota"], trace["samples"], trace["window_ms"])
    now = T0
    for event in trace["events"]:
        now += event.get("sleep_ms", 0)
        if "record" in event:
            bucket.record(event["record"], now)
            assert bucket.peek(now) == event["tokens"]
        elif "measure" in event:
            assert bucket.measure(now) == event["measure"]


@pytest.mark.parametrize("case", CASES["throttle_ms"])
def test_time_to_repay(case: dict[str, Any]) -> None:
    assert token_throttle_time_ms(case["tokens"], case["quota"]) == case["expected"]


def mutations(quota: float | None, samples: int = 10) -> ControllerMutationQuotaManager:
    manager = ControllerMutationQuotaManager(num_samples=samples, window_ms=1000, start_ms=T0)
    if quota is not None:
        manager.update_quota(QuotaEntity.of(user="u"), quota, T0)
    return manager


@pytest.mark.parametrize("mode", ["strict", "permissive"])
def test_one_requests_quota(mode: str) -> None:
    case = CASES[mode]
    manager = mutations(case["quota"], case["samples"])
    quota = manager.quota("u", "c", T0, strict=mode == "strict")
    now = T0
    for event in case["events"]:
        now += event.get("sleep_ms", 0)
        if "record" in event:
            error = None
            try:
                quota.record(event["record"], now)
            except ApiError as refused:
                error = refused
            assert (error is None) is event["accepted"]
            if error is not None:
                assert error.code == KafkaError.THROTTLING_QUOTA_EXCEEDED == event["error"]
                assert error.throttle_time_ms == event["throttle_ms"]
            if "tokens" in event:
                assert manager.peek(("u", ""), now) == event["tokens"]
            assert quota.is_exceeded is event.get("exceeded", False)
        assert quota.throttle_time_ms(now) == event["throttle_ms"]


def test_the_managers_own_record_is_strict() -> None:
    case = CASES["manager"]
    manager = mutations(case["quota"], case["samples"])
    now = T0
    for event in case["events"]:
        now += event.get("sleep_ms", 0)
        for _ in range(event.get("repeat", 1)):
            if "record" in event:
                before = manager.peek(("u", ""), now)
                throttle = manager.record("u", "c", event["record"], now)
                assert throttle.throttle_time_ms == event["throttle_ms"]
                charged = manager.peek(("u", ""), now) != before
                assert charged is event.get("recorded", True)
            now += event.get("then_sleep_ms", 0)


@pytest.mark.parametrize("case", CASES["integration"]["requests"], ids=lambda case: case["mode"])
def test_two_topics_of_thirty_partitions(case: dict[str, Any]) -> None:
    manager = mutations(None if case["mode"] == "unbounded" else 2.0)
    quota = manager.quota("u", "c", T0, strict=case["mode"] != "permissive")
    errors = []
    for _ in range(case["topics"]):
        try:
            quota.record(case["partitions_each"], T0)
            errors.append(0)
        except ApiError as refused:
            errors.append(int(refused.code))
    assert errors == case["errors"]
    assert quota.throttle_time_ms(T0) == case["max_throttle_ms"]


def test_strict_versions_are_kafkas() -> None:
    since = CASES["integration"]["strict_since"]
    assert {
        19: since["CreateTopics"],
        20: since["DeleteTopics"],
        37: since["CreatePartitions"],
    } == STRICT_SINCE


def test_a_strict_quota_refuses_in_kafkas_words_and_a_permissive_one_charges() -> None:
    manager = mutations(1.0, samples=1)
    manager.record("u", "c", 100, T0)
    with pytest.raises(ApiError, match=r"The throttling quota has been exceeded\."):
        manager.quota("u", "c", T0, strict=True).record(1, T0)
    manager.quota("u", "c", T0, strict=False).record(1, T0)
    assert manager.peek(("u", ""), T0) == -100.0


def test_without_quotas_everything_is_unbounded() -> None:
    manager = mutations(None)
    quota = manager.quota("u", "c", T0, strict=True)
    quota.record(10**9, T0)
    assert (quota.is_strict, quota.was_charged, quota.decided_ms) == (False, True, None)
    assert (quota.is_exceeded, quota.throttle_time_ms(T0)) == (False, 0)
    assert manager.record("u", "c", 10**9, T0) is UNCHARGED
    assert manager.peek(("u", ""), T0) == UNLIMITED


def test_a_new_rate_refills_from_the_last_refill_on_and_cuts_to_the_new_burst() -> None:
    manager = mutations(2.0)
    manager.record("u", "c", 30, T0)
    assert manager.peek(("u", ""), T0) == -10
    manager.update_quota(QuotaEntity.of(user="u"), 4.0, T0 + 1000)
    assert manager.peek(("u", ""), T0 + 1000) == -6
    manager.update_quota(QuotaEntity.of(user="u"), None, T0 + 1000)
    manager.update_quota(QuotaEntity.of(user=DEFAULT), 0.5, T0 + 1000)
    assert manager.peek(("u", ""), T0 + 60_000) == 5


def test_mutations_are_counted_for_metrics() -> None:
    manager = mutations(100.0)
    manager.record("u", "c", 60, T0)
    sensor = manager.sensor(("u", ""))
    assert sensor is not None
    assert sensor.rate.peek(T0)[0] == 2.0  # 60 over 30 s


def test_a_bucket_without_a_quota_holds_everything_and_records_nothing() -> None:
    bucket = TokenBucket(None)
    bucket.record(5, T0)
    assert (bucket.tokens, bucket.measure(T0), bucket.burst) == (0.0, UNLIMITED, UNLIMITED)


def test_a_clock_starting_at_zero_finds_an_empty_bucket_unless_told() -> None:
    assert TokenBucket(5.0, 10, 1000).measure(0) == 0.0
    assert TokenBucket(5.0, 10, 1000, tokens=50.0).measure(0) == 50.0
    assert TokenBucket(5.0, 10, 1000).measure(T0) == 50.0
    bucket = TokenBucket(5.0, 10, 1000)
    bucket.measure(T0)
    assert bucket.measure(T0 - 2000) == 40.0  # a clock that steps back takes tokens away
