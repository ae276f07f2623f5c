"""What a watcher writes into the history of changes that came past Headgate."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.store.base import FOREIGN
from headgate.store.kafka.state import TopicState, history_record
from headgate.store.kafka.store import KafkaStore, _Suspect

ALICE = QuotaEntity.of(user="alice")
AT = (ALICE, PRODUCER)


class Topic:
    """The topic, without Kafka."""

    def __init__(self, told: float | None) -> None:
        self.state = TopicState()
        self.state.last[AT] = told

    @contextmanager
    def locked(self) -> Iterator[TopicState]:
        yield self.state

    read = locked

    def tell(self, id_: str, before: float | None, after: float | None) -> None:
        """Another watcher's entry."""
        entry = history_record(id_, (5, FOREIGN), ALICE, [(PRODUCER, before, after)])
        self.state.apply(entry)

    def changes(self) -> list[Any]:
        return [json.loads(entry)["changes"][0][1:] for entry in self.state.history.values()]


class Watcher(KafkaStore):
    """A store that sees what it is told to see, and no more."""

    def __init__(self, topic: Topic, shown: float | None, meanwhile: Any = lambda: None) -> None:
        self._topic: Any = topic
        self.home: Any = SimpleNamespace(
            lock=threading.RLock(), poke=threading.Event(), write=self._write
        )
        self._suspects: list[_Suspect] = []
        self.shown, self.meanwhile = shown, meanwhile

    def _refresh(self) -> QuotaTable:
        found = {} if self.shown is None else {ALICE: {PRODUCER: self.shown}}
        self.meanwhile()
        return QuotaTable.of(found)

    def _write(self, decide: Any) -> None:
        for record in decide(self._topic.state):
            self._topic.state.apply(record)


def test_a_key_that_is_suspect_twice_is_told_of_once() -> None:
    topic = Topic(500.0)
    due = [_Suspect(0.0, 10, AT, None), _Suspect(0.0, 20, AT, 500.0)]
    Watcher(topic, 1_000.0)._record_unknown(due)
    assert topic.changes() == [[500.0, 1_000.0]]


def test_what_the_history_tells_already_is_not_told_again() -> None:
    topic = Topic(1_000.0)
    Watcher(topic, 1_000.0)._record_unknown([_Suspect(0.0, 10, AT, 500.0)])
    assert topic.changes() == []


def test_one_who_was_held_up_does_not_undo_in_the_history_what_another_tells() -> None:
    """It saw 7; before it comes to write, another one writes down the 8 that came after."""
    topic = Topic(1.0)
    late = Watcher(topic, 7.0, meanwhile=lambda: topic.tell("other", 1.0, 8.0))
    suspect = _Suspect(0.0, 10, AT, 1.0)
    late._record_unknown([suspect])
    assert topic.changes() == [[1.0, 8.0]]
    # It looks again, and finds nothing left to tell.
    assert late._suspects == [suspect]
    assert late.home.poke.is_set()
    late.shown, late.meanwhile = 8.0, lambda: None
    late._record_unknown(late._suspects)
    assert topic.changes() == [[1.0, 8.0]]
    # What came past Headgate since is told.
    late.shown = 9.0
    late._record_unknown([suspect])
    assert topic.changes() == [[1.0, 8.0], [8.0, 9.0]]
