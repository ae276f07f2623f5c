import json
from pathlib import Path

import pytest

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, PRODUCER_IDS
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent, ChangeOrigin
from headgate.store.identity import StoreIdentity
from headgate.store.kafka import state as kafka_state
from headgate.store.kafka.state import (
    PendingChange,
    Record,
    TopicState,
    audit_record,
    broker_record,
    history_record,
    identity_record,
    lease_record,
    quota_record,
    turn_record,
)
from headgate.store.leases import LeaseRecord

ALICE = QuotaEntity.of(user="alice")
PAIR = QuotaEntity.of(user="CN=a b,O=*", client_id=DEFAULT)


def fold(*records: Record) -> TopicState:
    state = TopicState()
    for record in records:
        state.apply(record)
    return state


def test_quotas_are_the_last_record_of_each_key() -> None:
    state = fold(
        quota_record(ALICE, PRODUCER_IDS, 1.0),
        quota_record(PAIR, PRODUCER_BPS, 9223372036854775807.0),
        quota_record(ALICE, PRODUCER_IDS, 2.5),
        quota_record(ALICE, PRODUCER_BPS, 3.0),
        quota_record(ALICE, PRODUCER_BPS, None),
    )
    assert state.quotas == {ALICE: {PRODUCER_IDS: 2.5}, PAIR: {PRODUCER_BPS: 2.0**63}}
    state.apply(quota_record(ALICE, PRODUCER_IDS, None))
    assert ALICE not in state.quotas


def test_a_table_made_before_is_not_changed_by_a_later_record() -> None:
    state = fold(quota_record(ALICE, PRODUCER_IDS, 1.0))
    before = dict(state.quotas)
    state.apply(quota_record(ALICE, PRODUCER_BPS, 2.0))
    assert before == {ALICE: {PRODUCER_IDS: 1.0}}


def test_history_tells_what_kafka_must_show() -> None:
    state = TopicState()
    changes = [(PRODUCER, None, 5.0), (PRODUCER_IDS, 1.0, 2.0)]
    record = history_record("1", (7, ChangeOrigin("ops", "t")), ALICE, changes)
    assert state.apply(record) == {(ALICE, PRODUCER): 5.0}
    assert state.last == {(ALICE, PRODUCER): 5.0, (ALICE, PRODUCER_IDS): 2.0}
    state.apply(history_record("2", (8, ChangeOrigin("eve", "u")), PAIR, [(PRODUCER, 5.0, None)]))
    assert [(h.t_ms, h.who, h.entity, h.before, h.after) for h in state.entries(None, None)] == [
        (7, "ops", ALICE, None, 5.0),
        (7, "ops", ALICE, 1.0, 2.0),
        (8, "eve", PAIR, 5.0, None),
    ]
    assert len(state.entries(ALICE, None)) == 2
    assert [h.who for h in state.entries(None, 1)] == ["eve"]
    assert state.entries(None, 0) == []


def test_broker_settings_leases_and_audit() -> None:
    state = fold(
        broker_record("", "max.connections", "5"),
        broker_record("1", "max.connections", "6"),
        broker_record("", "max.connections", None),
        lease_record("broker-1", LeaseRecord("a", 3, 99, 10)),
        audit_record("1", AuditEvent("eve", "admin", "alter", "refused", t_ms=5)),
        audit_record("2", AuditEvent("eve", "admin", "describe", "refused", t_ms=6)),
    )
    assert state.brokers == {"1": {"max.connections": "6"}}
    assert state.leases == {"broker-1": LeaseRecord("a", 3, 99, 10)}
    assert [e.action for e in state.audit_log(None)] == ["alter", "describe"]
    assert [e.t_ms for e in state.audit_log(1)] == [6]


def test_what_is_too_old_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_state, "KEEP_HISTORY", 3)
    state = TopicState()
    for n in range(5):
        for record in state.trimmed(1, 0):
            state.apply(record)
        change = (PRODUCER_IDS, None, 1.0 + n)
        state.apply(history_record(str(n), (n, ChangeOrigin("", "")), ALICE, [change]))
    assert [h.t_ms for h in state.entries(None, None)] == [2, 3, 4]


@pytest.mark.parametrize(
    "record",
    [
        Record(b"", None),
        Record(b"not json", b"{}"),
        Record(b"[]", b"{}"),
        Record(b'{"kind":"quota"}', b"{}"),
        Record(b'{"kind":"quota","path":"no/such/path","key":"x"}', b'{"value":1}'),
        Record(b'{"kind":"quota","path":"users/a","key":"producer_ids_rate"}', b"{}"),
        Record(b'{"kind":"history","id":"1"}', b"[]"),
        Record(b'{"kind":"from a later version"}', b"{}"),
    ],
)
def test_records_of_others_are_passed_over(record: Record) -> None:
    state = fold(record)
    assert state.quotas == {}
    assert state.last == {}


def test_keys_are_stable_text_because_compaction_goes_by_them() -> None:
    record = quota_record(PAIR, PRODUCER_BPS, 1.0)
    assert record.key == (
        b'{"kind":"quota","path":"users/CN%3Da%20b%2CO%3D%2A/clients/<default>",'
        b'"key":"producer_byte_rate:bps"}'
    )
    assert json.loads(record.value or b"") == {"value": 1.0}


def test_what_the_version_before_wrote_is_read_and_gets_an_identity_on_top() -> None:
    state = TopicState()
    before = Path(__file__).parents[2] / "data" / "before" / "topic.json"
    for key, value in json.loads(before.read_text(encoding="utf-8")):
        state.apply(Record(key.encode(), None if value is None else value.encode()))
    assert state.identity is None
    assert state.turn is None
    assert {key.name for key in state.quotas[ALICE]} == {
        "producer_byte_rate:bps",
        "producer_ids_rate",
    }
    assert [h.change for h in state.entries(None, None)] == [""] * 7
    assert state.brokers == {"1": {"max.connections": "5"}}
    assert len(state.audit) == 1
    state.apply(identity_record(StoreIdentity("0123456789abcdef", 0)))
    assert len(state.history) == 7
    # Another identity is another topic: nothing of the one before counts.
    state.apply(identity_record(StoreIdentity("fedcba9876543210", 0)))
    assert not state.history
    assert not state.quotas


def test_a_turn_comes_back_as_it_went() -> None:
    asked = [QuotaAlteration(PAIR, (Op(PRODUCER, 5.0), Op(CONSUMER, None)))]
    known = QuotaTable.of({PAIR: {CONSUMER: 2.0}})
    turn = PendingChange.of("t1", 7, ChangeOrigin("ops", "apply", "c1", "why"), asked, known)
    state = TopicState()
    state.apply(turn_record(turn))
    assert state.turn == turn
    assert turn.ops == {(PAIR, PRODUCER): (None, 5.0), (PAIR, CONSUMER): (2.0, None)}
    state.apply(turn_record(None))
    assert state.turn is None
