from __future__ import annotations

import json

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.store.kafka.state import TopicState
from headgate.store.kafka.store import _Suspect, _unknown

ALICE = QuotaEntity.of(user="alice")


def test_a_key_that_is_suspect_twice_is_told_of_once() -> None:
    state = TopicState()
    state.last[ALICE, PRODUCER] = 500.0
    due = [
        _Suspect(0.0, 10, ALICE, PRODUCER, None),
        _Suspect(0.0, 20, ALICE, PRODUCER, 500.0),
    ]
    (record,) = _unknown(state, QuotaTable.of({ALICE: {PRODUCER: 1_000.0}}), due)
    assert record.value is not None
    assert json.loads(record.value)["changes"] == [[str(PRODUCER), 500.0, 1_000.0]]


def test_what_the_history_tells_already_is_not_told_again() -> None:
    state = TopicState()
    state.last[ALICE, PRODUCER] = 1_000.0
    due = [_Suspect(0.0, 10, ALICE, PRODUCER, 500.0)]
    assert _unknown(state, QuotaTable.of({ALICE: {PRODUCER: 1_000.0}}), due) == []
