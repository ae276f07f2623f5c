"""What a change of quotas or settings does to those who are being served, and to what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.gates import GateKey
from headgate.metrics.meters import Meters
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, PRODUCER_BPS, REQUEST, QuotaType
from headgate.quota.table import QuotaTable, TableChange, TableDelta
from headgate.throttle.registry import EXPIRY_MS, SENSORS_AT_ONCE, Throttle
from headgate.wire import apis

from .enforcement_kit import BASE, T0, Client, made, plan_of

HEARTBEAT = 12
ALICE = QuotaEntity.of(user="alice")


def test_sessions_ask_again_as_soon_as_a_changed_default_judges_anybody() -> None:
    """A default is put in force in steps; none ends with sensors and sessions of two minds."""
    anyone = QuotaEntity.of(user=DEFAULT)
    rules, kept = made({anyone: {PRODUCER: 100.0}})
    for number in range(3 * SENSORS_AT_ONCE):
        rules.managers.produce.record(f"u{number}", "c", 1, T0)
    before = rules.contexts.epoch
    steps = 0
    for _ in rules.updating(TableDelta((TableChange(anyone, PRODUCER, 100.0, 200.0),), 0, 1)):
        steps += 1
        if rules.managers.produce.bound(("u0", "")) == 200.0:
            assert rules.contexts.epoch > before
            assert kept.rows == [("quota", 1, PRODUCER, anyone, 200.0, T0)]
    assert steps > 2


@pytest.mark.parametrize("names", [{"user": "alice"}, {"client_id": "app"}])
def test_a_higher_quota_opens_the_gate_of_a_quota_id_sooner(names: Mapping[str, str]) -> None:
    entity = QuotaEntity.of(**names)
    rules, _ = made({entity: {CONSUMER: 100.0}})
    context, client = rules.context("alice", "app"), Client()
    taken: Any = client
    rules.fetch(taken, context, plan_of(apis.FETCH, 11), 100, 50_000, T0)
    gate = rules.gates.get(
        GateKey(CONSUMER.name, names.get("user", ""), names.get("client_id", ""))
    )
    assert gate is not None
    closed_ms = gate.opens_ms(T0) - T0
    rules.update(TableDelta((TableChange(entity, CONSUMER, 100.0, 200.0),), 0, 1), T0)
    assert gate.opens_ms(T0) - T0 == closed_ms // 2 > 0


def test_a_split_that_moves_is_written_down() -> None:
    rules, kept = made({ALICE: {PRODUCER_BPS: 100.0}})
    manager: Any = rules.managers.by_key[PRODUCER_BPS]
    manager.record("alice", "c", 1, T0)
    manager.sensor(("alice", "")).set_bound(30.0, T0 + 5)
    assert kept.rows == [("bound", 1, PRODUCER_BPS, ("alice", ""), 30.0, T0 + 5)]


def test_throttles_are_counted_where_the_caller_counts_until_the_quota_id_is_gone() -> None:
    meters = Meters()
    settings = Settings.from_properties(BASE)
    rules = Enforcement(settings, 1, lambda: T0, meters=meters)
    rules.load(QuotaTable.of({ALICE: {PRODUCER: 1.0}}), T0)
    client: Any = Client()
    context = rules.context("alice", "c")
    assert rules.produce(client, context, plan_of(apis.PRODUCE, 7), 1_000, None, True, T0) > 0
    assert list(meters.throttled[QuotaType.PRODUCER_BYTE_RATE]) == [("alice", "")]
    list(rules.expire(T0 + EXPIRY_MS + 60_000))
    assert not meters.throttled[QuotaType.PRODUCER_BYTE_RATE]


@pytest.mark.parametrize(("quota", "exempt"), [(None, False), (1e6, True)])
def test_the_time_of_what_has_no_answer_is_exempt_while_time_is_counted(
    quota: float | None, exempt: bool
) -> None:
    rules, _ = made({ALICE: {PRODUCER: 1e9, **({REQUEST: quota} if quota else {})}})
    client: Any = Client()
    client.spent_ns = 5_000_000
    context = rules.context("alice", "c")
    rules.produce(client, context, plan_of(apis.PRODUCE, 7), 100, None, False, T0)
    assert (rules.managers.request.exempt.peek(T0)[0] > 0) is exempt
    assert not rules.managers.request.peek(("alice", ""), T0)


def test_the_first_ms_of_mutations_is_told() -> None:
    rules, _ = made({ALICE: {MUTATION: 1.0}})
    client: Any = Client()
    context = rules.context("alice", "c")
    for left_ms in (0, 1):
        left = Throttle(left_ms, "alice", "", 1.0)
        assert rules.request(client, context, plan_of(HEARTBEAT, 3), 9, T0, left) == left_ms


@pytest.mark.parametrize(("fetch", "held"), [("deliver", True), ("kafka", False)])
def test_fetches_wait_at_gates_where_they_are_delivered_and_those_of_shares_always(
    fetch: str, held: bool
) -> None:
    rules, _ = made({ALICE: {CONSUMER: 1.0}}, fetch=fetch)
    context = rules.context("alice", "c")
    gates = (GateKey(CONSUMER.name, "alice", ""),)
    assert context.share_gates == gates
    assert context.gates == (gates if held else ())


def test_old_contexts_are_freed_though_none_of_them_has_a_quota() -> None:
    rules, _ = made()
    for number in range(10):
        assert not rules.context(f"u{number}", "c").limited
    rules.contexts.expire()
    assert len(rules.contexts._old_contexts) == 10
    list(rules.contexts.tidy())
    assert rules.contexts._old_contexts == {}
