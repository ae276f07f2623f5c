"""Byte managers: which quota-id is charged, which bound it has, how it changes and expires."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity, quota_id
from headgate.quota.key import PRODUCER, QuotaType
from headgate.quota.precedence import resolve
from headgate.quota.table import QuotaTable
from headgate.throttle.java import DOUBLE_MAX, UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4, Overrides, Rules
from headgate.throttle.registry import UNCHARGED, Throttle

CASES = Path(__file__).parents[2] / "data" / "cases"
T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def manager(**settings: Any) -> ClientQuotaManager:
    return ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0, **settings)


def entity(user: str | None, client_id: str | None) -> QuotaEntity:
    def name(text: str | None) -> EntityName | None:
        return DEFAULT if text == "<default>" else text

    return QuotaEntity.of(user=name(user), client_id=name(client_id))


STEPS = json.loads((CASES / "precedence.json").read_text())["steps"]


@pytest.mark.parametrize("rules", [KAFKA_4, KAFKA_3_9], ids=lambda rules: rules.name)
def test_upstream_precedence(rules: Rules) -> None:
    m = manager(rules=rules)
    for step in STEPS:
        if step["op"] == "update":
            m.update_quota(entity(step["user"], step["client_id"]), step["quota"], T0)
            continue
        user, client = step["user"], step["client_id"]
        tags = m.tags(user, client)
        assert list(tags) == step["tags"], step
        assert m.bound(tags) == step["limit"], step
        assert m.max_in_window(user, client, T0) == step["limit"] * 10
        throttle = m.record(user, client, step["record"], T0)
        assert throttle == Throttle(step["throttle_ms"], *step["tags"], step["limit"])
        assert (throttle.throttle_time_ms > 0) is step["throttled"]


EDGES = json.loads((CASES / "resolution_edges.json").read_text())["cases"]


@pytest.mark.parametrize("case", EDGES, ids=lambda case: json.dumps(case["updates"])[:60])
def test_546_3_resolution_edges(case: dict[str, Any]) -> None:
    # The table was written for sticky flags; 4.x differs where a last quota was removed.
    for rules in (KAFKA_3_9, KAFKA_4):
        m = manager(rules=rules)
        removed = False
        for user, client, value in case["updates"]:
            m.update_quota(entity(user, client), value, T0)
            removed = removed or value is None
        tags = m.tags(case["user"], case["client_id"])
        limit = m.bound(tags)
        if rules is KAFKA_3_9 or not removed:
            assert list(tags) == case["tags"]
            assert limit == (UNLIMITED if case["limit"] is None else float(case["limit"]))


def test_4x_forgets_a_level_with_its_last_quota_and_3_9_does_not() -> None:
    for rules, flags, tags in ((KAFKA_4, 0, ("", "c")), (KAFKA_3_9, 2, ("u", ""))):
        m = manager(rules=rules)
        m.update_quota(entity("u", None), 10.0, T0)
        m.update_quota(entity("u", None), None, T0)
        assert (m.flags, m.tags("u", "c")) == (flags, tags)
    m = manager(rules=KAFKA_3_9)
    m.update_quota(entity("never", "was"), None, T0)
    assert m.flags == 4


def test_nothing_is_charged_before_the_first_quota() -> None:
    m = manager()
    assert m.record("u", "c", 10**9, T0) is UNCHARGED
    assert m.record_no_throttle("u", "c", 10**9, T0) is UNCHARGED
    assert m.max_in_window("u", "c", T0) == DOUBLE_MAX
    assert list(m.sensors()) == []
    m.update_quota(entity("<default>", None), 1000.0, T0)
    assert m.record("u", "c", 1, T0) == Throttle(0, "u", "", 1000.0)


@pytest.mark.parametrize(
    ("one", "two", "default"),
    [
        (("", "p1"), ("", "p2"), (None, "<default>")),
        (("u1", ""), ("u2", ""), ("<default>", None)),
        (("u1", "p1"), ("u2", "p2"), ("<default>", "<default>")),
    ],
    ids=["client-id", "user", "user and client-id"],
)
def test_upstream_quota_parsing(
    one: tuple[str, str], two: tuple[str, str], default: tuple[str | None, str | None]
) -> None:
    m = manager()

    def level(names: tuple[str, str]) -> QuotaEntity:
        return entity(names[0] or None, names[1] or None)

    m.update_quota(level(one), 2000.0, T0)
    m.update_quota(level(two), 4000.0, T0)
    assert m.bound(m.tags("unknown", "unknown")) == UNLIMITED
    assert (m.bound(one), m.bound(two)) == (2000.0, 4000.0)
    assert m.record(*one, 2500 * 11, T0).throttle_time_ms > 0
    m.update_quota(level(one), 3000.0, T0)
    assert m.record(*one, 0, T0) == Throttle(0, *one, 3000.0)
    m.update_quota(level(one), 500.0, T0)
    assert m.record(*one, 0, T0).throttle_time_ms > 0
    m.update_quota(level(one), None, T0)
    m.update_quota(entity(*default), 4000.0, T0)
    assert m.record(*one, 1000 * 11, T0) == Throttle(0, *one, 4000.0)


def test_upstream_violation_of_500_bytes_per_second() -> None:
    m = manager()
    m.update_quota(entity(None, "<default>"), 500.0, T0)
    now = T0
    for _ in range(10):
        assert m.record("u", "c", 400, now).throttle_time_ms == 0
        now += 1000
    assert m.record("u", "c", 2300, now + 500) == Throttle(2100, "", "c", 500.0)
    assert m.peek(("", "c"), now + 500) == 600.0
    now += 500 + 2100
    throttles = []
    for _ in range(10):
        throttles.append(m.record("u", "c", 400, now).throttle_time_ms)
        now += 1000
    assert throttles == [1200] * 8 + [1700, 0]
    assert m.record("u", "c", 0, now).throttle_time_ms == 0


def test_a_quota_change_judges_the_history_kept() -> None:
    m = manager()
    m.update_quota(entity("u", None), 1000.0, T0)
    assert m.record("u", "c", 10_000, T0).throttle_time_ms == 0
    m.update_quota(entity("u", None), 500.0, T0)
    assert m.record("u", "c", 0, T0 + 1) == Throttle(10_001 - 2, "u", "", 500.0)
    m.update_quota(entity("<default>", None), 100.0, T0)
    m.update_quota(entity("u", None), None, T0 + 1)
    assert m.record("u", "c", 0, T0 + 1).bound == 100.0


def test_tags_that_stay_keep_their_history_and_tags_that_change_start_anew() -> None:
    m = manager()
    m.update_quota(entity(None, "c"), 1000.0, T0)
    m.record("u", "c", 20_000, T0)
    m.update_quota(entity(None, "<default>"), 1000.0, T0)
    m.update_quota(entity(None, "c"), None, T0)
    assert m.record("u", "c", 0, T0).throttle_time_ms == 10_000
    m.update_quota(entity("u", None), 1000.0, T0)
    assert m.record("u", "c", 0, T0) == Throttle(0, "u", "", 1000.0)


def test_a_fetch_taken_back_leaves_no_trace_in_the_sum() -> None:
    m = ClientQuotaManager(QuotaType.CONSUMER_BYTE_RATE, start_ms=T0)
    m.update_quota(entity("u", None), 1000.0, T0)
    assert m.record("u", "c", 30_000, T0).throttle_time_ms == 20_000
    m.unrecord("u", "c", 30_000, T0)
    assert m.record("u", "c", 10_000, T0 + 1).throttle_time_ms == 0


def test_taking_back_makes_a_sensor_even_without_quotas() -> None:
    m = manager()
    assert m.unrecord("u", "c", 5, T0) == Throttle(0, "", "c", UNLIMITED)
    assert m.peek(("", "c"), T0) == -0.5


def test_a_clock_that_steps_back_is_taken_as_it_comes() -> None:
    m = manager()
    m.update_quota(entity("u", None), 100.0, T0)
    for now in (T0 + 1005, T0 + 1000, T0 + 990, T0 + 1005, T0 + 2004):
        m.record("u", "c", 250, now)
    assert m.record("u", "c", 250, T0 + 1500).throttle_time_ms == 15_000 - 10_495


def test_sensors_idle_for_an_hour_expire_at_the_next_tick() -> None:
    m = manager()
    m.update_quota(entity("<default>", None), 1.0, T0)
    for user, at in (("a", T0), ("b", T0 + 1), ("c", T0 + 30_000)):
        m.record(user, "x", 1000, at)
    assert m.expire(T0 + HOUR_MS + 29_999) == []  # the tick at one hour exactly is not yet "more"
    assert m.expire(T0 + HOUR_MS + 30_000) == [("a", ""), ("b", "")]
    assert [s.user_tag for s in m.sensors()] == ["c"]
    # The one not freed yet is gone all the same, as its tick has passed.
    assert m.record("c", "x", 0, T0 + HOUR_MS + 60_000).throttle_time_ms == 0
    assert m.expire(T0 + HOUR_MS + 60_000) == []


def test_a_sensor_survives_in_kafka_until_the_tick() -> None:
    m = manager(num_samples=2, window_ms=10 * HOUR_MS)  # samples outlive the sensor
    m.update_quota(entity("u", None), 1.0, T0)
    m.record("u", "c", 10**9, T0)
    assert m.record("u", "c", 0, T0 + HOUR_MS + 29_999).throttle_time_ms > 0
    m.record("u", "c", 10**9, T0 + HOUR_MS + 30_000)
    assert m.record("u", "d", 0, T0 + 2 * HOUR_MS + 59_999).throttle_time_ms > 0
    assert m.record("u", "c", 0, T0 + 3 * HOUR_MS + 90_000).throttle_time_ms == 0


def test_peek_of_the_unknown_is_zero() -> None:
    assert manager().peek(("nobody", ""), T0) == 0.0


def test_55_3_static_defaults_are_the_last_resort_for_client_ids() -> None:
    m = manager(static_default=1024.0)
    assert m.flags == 1
    assert m.record("u", "c", 20_480, T0) == Throttle(10_000, "", "c", 1024.0)
    m.update_quota(entity(None, "<default>"), 4096.0, T0)
    assert m.record("u", "c", 0, T0) == Throttle(0, "", "c", 4096.0)
    m.update_quota(entity(None, "<default>"), None, T0)
    assert (m.flags, m.record("u", "c", 0, T0).bound) == (1, 1024.0)
    m.update_quota(entity("u", None), 10.0, T0)
    assert m.record("u", "c", 0, T0) == Throttle(0, "u", "", 10.0)
    assert m.record("v", "c", 0, T0) == Throttle(10_000, "", "c", 1024.0)
    assert m.record("v", "", 9**9, T0) == Throttle(0, "", "", UNLIMITED)


def test_55_3_unset_or_the_largest_long_means_none() -> None:
    for nothing in (None, 9223372036854775807, float("inf")):
        assert not manager(static_default=nothing).enabled


KIP_55 = {
    entity("<default>", None): (10_000, 20_000),
    entity("user1", None): (1024, 2048),
    entity("user2", None): (4096, 8192),
    entity("user2", "clientA"): (10, 30),
    entity("user2", "clientB"): (20, 40),
    entity(None, "clientA"): (100, 200),
}


@pytest.mark.parametrize("column", [0, 1], ids=["produce", "consume"])
def test_55_19_the_sample_configuration_of_the_kip(column: int) -> None:
    m = manager(static_default=(7000, 7001)[column])
    m.load({e: values[column] for e, values in KIP_55.items()}, T0)

    def limits(user: str, *clients: str) -> list[float]:
        return [m.bound(m.tags(user, client)) for client in clients]

    assert limits("user1", "clientA", "x") == [(1024, 2048)[column]] * 2
    assert limits("user2", "clientA", "clientB") == [(10, 30)[column], (20, 40)[column]]
    shared = (4096, 8192)[column]
    assert limits("user2", "clientC", "clientD") == [shared, shared]
    m.record("user2", "clientC", shared * 11, T0)
    assert m.record("user2", "clientD", 0, T0).throttle_time_ms == 1000  # they share one budget
    assert limits("user3", "clientA") == [(10_000, 20_000)[column]]

    m.update_quota(entity("<default>", None), None, T0)
    client_a = (100, 200)[column]
    assert limits("user3", "clientA", "clientB") == [client_a, (7000, 7001)[column]]
    m.record("user3", "clientA", client_a * 11, T0)
    assert m.record("user4", "clientA", 0, T0).throttle_time_ms == 1000  # shared across users


def test_55_20_quota_id_strings() -> None:
    m = manager()
    m.load({e: v[0] for e, v in KIP_55.items() if e != entity("<default>", None)}, T0)
    ids = [
        quota_id(*m.tags(user, client))
        for user, client in (
            ("user1", "any"),
            ("user2", "clientA"),
            ("user2", "clientC"),
            ("user3", "clientA"),
        )
    ]
    assert ids == ["user1:", "user2:clientA", "user2:", ":clientA"]


def test_55_4_an_unlimited_default_user_hides_client_ids_as_in_kafka() -> None:
    m = manager()
    m.load({entity("<default>", None): UNLIMITED, entity(None, "c"): 5.0}, T0)
    assert m.record("u", "c", 10**6, T0) == Throttle(0, "u", "", UNLIMITED)


def test_a_manager_and_the_explaining_resolver_agree() -> None:
    names: list[EntityName | None] = [None, DEFAULT, "a", "b"]
    entities = [QuotaEntity.of(user=u, client_id=c) for u in names for c in names if u or c]
    for picked in range(1, 1 << len(entities), 97):
        quotas = {e: {PRODUCER: 100.0 + i} for i, e in enumerate(entities) if picked >> i & 1}
        table = QuotaTable.of(quotas)
        overrides = Overrides()
        for e, values in quotas.items():
            overrides.update(e, values[PRODUCER])
        for user in ("a", "b", "z"):
            for client in ("a", "b", "z", ""):
                told = resolve(table, user, client, PRODUCER)
                tags = overrides.tags(user, client)
                assert (tags, overrides.limit(tags)) == (told.tags, told.value)


def test_an_entity_without_user_and_client_id_is_ignored() -> None:
    m = manager()
    m.update_quota(QuotaEntity.of(ip="10.0.0.1"), 5.0, T0)
    assert not m.enabled
