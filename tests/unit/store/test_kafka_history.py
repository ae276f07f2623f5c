from __future__ import annotations

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store.base import UNKNOWN
from headgate.store.kafka_state import TopicState, history_record

ALICE = QuotaEntity.of(user="alice")


def test_a_change_that_two_watchers_wrote_down_is_told_once() -> None:
    state = TopicState()
    steps = [
        ("a", "ops", None, 5.0),
        ("b", UNKNOWN, 5.0, 9.0),
        ("c", UNKNOWN, 5.0, 9.0),
        ("d", UNKNOWN, 9.0, 5.0),
        ("e", UNKNOWN, 5.0, 9.0),
    ]
    for id_, who, before, after in steps:
        state.history[id_] = (
            history_record(id_, (1, who, who), ALICE, [(PRODUCER, before, after)]).value or b""
        )
    told = [(e.who, e.before, e.after) for e in state.entries(ALICE, None)]
    assert told == [
        ("ops", None, 5.0),
        (UNKNOWN, 5.0, 9.0),
        (UNKNOWN, 9.0, 5.0),
        (UNKNOWN, 5.0, 9.0),
    ]
