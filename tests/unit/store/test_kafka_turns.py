"""Changes of the Kafka store one at a time: turns, lost answers, and processes taken for dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import StoreError, StoreMovedOn, StoreSilent
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import ChangeOrigin
from headgate.store.deadline import within
from headgate.store.identity import StoreIdentity
from headgate.store.kafka.alter import KafkaAlterer
from headgate.store.kafka.state import (
    PendingChange,
    Record,
    TopicState,
    identity_record,
    is_change,
    turn_record,
)
from headgate.store.kafka.store import KafkaStore
from headgate.store.kafka.topic import QuotaTopic, once

ALICE = QuotaEntity.of(user="alice")
Values = dict[QuotaEntity, dict[QuotaKey, float]]


class Home:
    """The topic and Kafka's own quotas, in memory; it is the alterer's topic and client too."""

    def __init__(self) -> None:
        self.state = TopicState()
        self.state.apply(identity_record(StoreIdentity("id", 0)))
        self.kafka: Values = {}
        self.lost: Callable[[], object] | None = None
        self.before_alter: Callable[[], object] = lambda: None

    # the topic

    @contextmanager
    def locked(self) -> Iterator[TopicState]:
        yield self.state

    read = locked

    def wait_for_turn(self, taken: str, timeout_s: float) -> None:
        """Nobody gives a turn back here but by the end of its time."""
        threading.Event().wait(timeout_s)

    def write(self, decide: Callable[[TopicState], list[Record]]) -> None:
        """Commit, and count; where the answer is to be lost, decide again as the topic does."""
        decide = once(decide)
        while records := decide(self.state):
            identity = self.state.identity
            assert identity is not None
            if any(map(is_change, records)):
                grown = identity._replace(revision=identity.revision + 1)
                records = [*records, identity_record(grown)]
            for record in records:
                self.state.apply(record)
            if self.lost is None:
                return
            meanwhile, self.lost = self.lost, None
            meanwhile()

    # Kafka

    def alter(self, part: Sequence[QuotaAlteration], **_more: Any) -> list[Any]:
        before, self.before_alter = self.before_alter, lambda: None
        before()
        for entity, ops in part:
            self.put(entity, {op.key: op.value for op in ops})
        return []

    def put(self, entity: QuotaEntity, values: Mapping[QuotaKey, float | None]) -> None:
        new = {**self.kafka.get(entity, {}), **values}
        self.kafka[entity] = {k: v for k, v in new.items() if v is not None}

    # who changes it

    def process(self, turn_s: float = 0.05) -> Process:
        return Process(self, turn_s)

    def told(self) -> list[tuple[str, float | None, float | None]]:
        return [(e.who, e.before, e.after) for e in self.state.entries(None, None)]


class Process(KafkaAlterer):
    """One process's alterer."""

    def __init__(self, home: Home, turn_s: float) -> None:
        self.played = home
        opened = SimpleNamespace(
            url="kafka://x", client=home, topic=home, write_change=home.write, clock_ms=lambda: 7
        )
        super().__init__(opened, turn_s)  # type: ignore[arg-type]

    def _look_up(self, entities: Sequence[QuotaEntity]) -> dict[QuotaEntity, Any]:
        return {e: self.played.kafka[e] for e in entities if self.played.kafka.get(e)}

    def set(self, who: str, key: QuotaKey, value: float, at: int | None = None) -> None:
        asked = [QuotaAlteration(ALICE, (Op(key, value),))]
        theirs, ours = (asked, []) if key.known_to_kafka else ([], asked)
        self.alter(theirs, ours, QuotaTable.of(self.played.kafka), ChangeOrigin(who, "t", who), at)


@pytest.fixture
def home() -> Home:
    return Home()


def left_by_a_dead_one(home: Home, value: float) -> None:
    """Somebody took the turn, changed Kafka, and died."""
    op = (ALICE, PRODUCER), (None, value)
    home.write(
        lambda _state: [
            turn_record(PendingChange("dead", 1, ChangeOrigin("dead", "t"), dict([op])))
        ]
    )
    home.put(ALICE, {PRODUCER: value})


def test_a_change_in_the_topic_whose_answer_is_lost_is_made_once(home: Home) -> None:
    home.lost = lambda: home.process().set("b", PRODUCER_IDS, 2.0)
    home.process().set("a", PRODUCER_IDS, 1.0)
    assert home.told() == [("a", None, 1.0), ("b", 1.0, 2.0)]
    assert home.state.quotas == {ALICE: {PRODUCER_IDS: 2.0}}


def test_one_based_on_a_revision_is_not_refused_after_it_was_made(home: Home) -> None:
    home.lost = lambda: home.process().set("b", PRODUCER_IDS, 2.0)
    home.process().set("a", PRODUCER_IDS, 1.0, at=0)
    assert home.told() == [("a", None, 1.0), ("b", 1.0, 2.0)]


def test_a_change_in_kafka_whose_history_s_answer_is_lost_is_told_once(home: Home) -> None:
    process = home.process(turn_s=60.0)  # it isn't renewed meanwhile

    def at_history() -> None:
        # The first write took the turn; this is the second, and it has happened.
        home.process().set("b", PRODUCER, 2.0)

    def at_turn() -> None:
        home.lost = at_history

    home.lost = at_turn
    process.set("a", PRODUCER, 1.0)
    assert home.told() == [("a", None, 1.0), ("b", 1.0, 2.0)]
    assert home.kafka == {ALICE: {PRODUCER: 2.0}}


def test_nothing_of_the_topic_comes_between_a_turn_and_its_history(home: Home) -> None:
    """Else the history's order isn't that of the values, and revisions pass unnoticed."""
    waited = []

    def meanwhile() -> None:
        other = home.process(turn_s=0.01)
        settle = other._settle
        other._settle = lambda dead: (waited.append(dead.origin.who), settle(dead))  # type: ignore[method-assign]
        other.set("b", PRODUCER_IDS, 5.0)

    home.before_alter = meanwhile
    with pytest.raises(StoreError, match="another process went on without it"):
        home.process().set("a", PRODUCER, 1.0, at=0)
    # It waited for the turn, and only when that was over for one who died did it go on.
    assert waited == ["a"]


def test_the_revision_is_compared_after_what_a_dead_one_left_is_told(home: Home) -> None:
    left_by_a_dead_one(home, 9.0)
    with pytest.raises(StoreMovedOn):
        home.process().set("a", PRODUCER, 1.0, at=0)
    assert home.told() == [("dead", None, 9.0)]
    assert home.kafka == {ALICE: {PRODUCER: 9.0}}
    home.process().set("a", PRODUCER, 1.0, at=1)
    assert home.told() == [("dead", None, 9.0), ("a", 9.0, 1.0)]
    assert home.state.turn is None


@pytest.mark.parametrize(
    ("told", "known", "made", "entries"),
    [
        (None, None, 9.0, [(None, 9.0)]),  # it was never set
        (None, 5.0, 9.0, [(5.0, 9.0)]),  # set before there was a history
        (5.0, 5.0, 9.0, [(None, 5.0), (5.0, 9.0)]),
        (5.0, None, 9.0, [(None, 5.0), (5.0, 9.0)]),  # the dead one hadn't seen it yet
        (5.0, 4.0, 9.0, [(None, 5.0), (5.0, 9.0)]),
        (5.0, 5.0, None, [(None, 5.0), (5.0, None)]),
        (5.0, 4.0, 5.0, [(None, 5.0)]),  # it died before it changed Kafka
        (9.0, 5.0, 9.0, [(None, 9.0)]),  # it changed nothing
    ],
)
def test_a_change_whose_writer_died_begins_where_the_history_ended(
    home: Home,
    told: float | None,
    known: float | None,
    made: float | None,
    entries: list[tuple[float | None, float | None]],
) -> None:
    if told is not None:
        home.process().set("a", PRODUCER, told)
    turn = PendingChange(
        "dead", 1, ChangeOrigin("dead", "t"), {(ALICE, PRODUCER): (known, 9.0 if made else None)}
    )
    home.write(lambda _state: [turn_record(turn)])
    home.put(ALICE, {PRODUCER: made})
    home.process().set("b", PRODUCER_IDS, 1.0)
    found = [e for e in home.state.entries(None, None) if e.key == PRODUCER]
    assert [(e.before, e.after) for e in found] == entries
    assert {e.who for e in found[(told is not None) :]} <= {"dead"}


def test_one_who_was_held_up_before_it_changed_kafka_changes_nothing(home: Home) -> None:
    """Others took it for dead, and went on."""
    slow = home.process(turn_s=0.0)
    settled = slow._settled

    def held_up(alterations: Sequence[QuotaAlteration]) -> Any:
        found = settled(alterations)
        home.process(turn_s=0.01).set("b", PRODUCER, 2.0)
        return found

    slow._settled = held_up  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="another process went on without it") as raised:
        slow.set("a", PRODUCER, 1.0)
    assert raised.value.retriable
    assert home.told() == [("b", None, 2.0)]
    assert home.kafka == {ALICE: {PRODUCER: 2.0}}
    assert home.state.turn is None


def test_one_who_was_held_up_after_it_changed_kafka_is_told_of_once(home: Home) -> None:
    slow = home.process()

    def held_up(_alterations: Sequence[QuotaAlteration]) -> None:
        home.process(turn_s=0.01).set("b", PRODUCER, 2.0)

    slow._await_image = held_up  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="the history tells whether it was made"):
        slow.set("a", PRODUCER, 1.0)
    assert home.told() == [("a", None, 1.0), ("b", 1.0, 2.0)]


def test_a_turn_is_taken_anew_while_its_change_goes_on(home: Home) -> None:
    """A change of many parts is nobody's to take over."""
    process = home.process(turn_s=0.0)
    turns: list[str] = []

    def note() -> None:
        assert home.state.turn is not None
        turns.append(home.state.turn.id)

    home.before_alter = note
    process._settled = lambda _alterations: note() or ({}, [])  # type: ignore[func-returns-value, method-assign]
    process.set("a", PRODUCER, 1.0)
    assert len(set(turns)) == 2
    assert home.state.turn is None


class Reader(KafkaStore):
    """A store over the home, which sees the topic's quotas change while Kafka's are described."""

    def __init__(self, home: Home, changes: Iterator[float]) -> None:
        self._table = self._described = None
        self._in_kafka, self._quotas_version = {}, -1
        self._topic: Any = home
        self._client: Any = self
        self.played, self.changes = home, changes
        nothing = lambda *_: None  # noqa: E731
        self.home: Any = SimpleNamespace(
            lock=threading.RLock(), clock_ms=lambda: 0, read_identity=nothing, check=nothing
        )
        self.broker_settings: Any = SimpleNamespace(publish=nothing)
        self._suspects = []

    def describe(self) -> tuple[Any, ...]:
        for value in self.changes:
            self.played.put(ALICE, {PRODUCER: value})
            self.played.process().set("other", PRODUCER_IDS, value)
            break
        return ()


def test_a_read_is_made_again_where_the_topic_s_quotas_changed_meanwhile(home: Home) -> None:
    reader = Reader(home, iter((1.0, 2.0)))
    looks = []
    describe = reader.describe
    reader.describe = lambda: (looks.append(1), describe())[1]  # type: ignore[method-assign]
    assert reader._refresh().get(ALICE, PRODUCER_IDS) == 2.0
    assert len(looks) == 3


def test_a_broker_that_never_answers_is_an_error_to_try_again_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.store.kafka.topic.STEP_TIMEOUT_S", 0.01)
    topic = QuotaTopic({"bootstrap.servers": "127.0.0.1:1"}, "t", lambda _expected: None)
    monkeypatch.setattr(
        topic,
        "_admin",
        SimpleNamespace(
            list_offsets=lambda asked, **_: dict.fromkeys(asked, Future()),
            describe_topics=lambda _names: {"t": Future()},
        ),
    )
    for ask, verb in ((topic._end, "read"), (topic._topic_id, "reach")):
        with pytest.raises(StoreError, match=f"couldn't {verb} topic t: no answer") as raised:
            ask()
        assert raised.value.retriable


@pytest.mark.parametrize(
    ("where", "key", "said"),
    [
        ("read", PRODUCER, "Nothing was changed"),
        ("read", PRODUCER_IDS, "Nothing was changed"),
        ("alter", PRODUCER, "it may have been made, or may yet"),
        ("commit", PRODUCER, "Kafka has made the change"),
        ("commit", PRODUCER_IDS, "it may have been made, or may yet"),
    ],
)
def test_what_became_of_a_change_is_told_where_kafka_stops_answering(
    monkeypatch: pytest.MonkeyPatch, where: str, key: QuotaKey, said: str
) -> None:
    home = Home()

    def away(*_: Any, **__: Any) -> Any:
        raise StoreSilent("kafka://x doesn't answer")

    def commit(decide: Callable[[TopicState], list[Record]]) -> None:
        records = decide(home.state)
        if any(map(is_change, records)):
            away()
        for record in records:
            home.state.apply(record)

    if where == "commit":
        monkeypatch.setattr(home, "write", commit)
    else:
        # What is left of it to give the turn back is 3 s.
        monkeypatch.setattr("headgate.store.kafka.alter.CALL_TIMEOUT_S", 3.2)
        monkeypatch.setattr(home, where, away)
    with pytest.raises(StoreSilent, match=f"doesn't answer. .*{said}"):
        home.process().set("ops", key, 5.0)


def test_another_process_is_waited_for_as_long_as_the_change_may_take() -> None:
    home = Home()
    home.state.apply(
        turn_record(PendingChange.of("t", 7, ChangeOrigin("a", "t", "c", ""), [], QuotaTable()))
    )
    with within(0), pytest.raises(StoreError, match=r"in the middle of a change, by a\."):
        home.process().set("ops", PRODUCER, 5.0)
    home.process().set("ops", PRODUCER, 5.0)
    assert home.told() == [("ops", None, 5.0)]


def test_a_leader_that_is_gone_is_asked_for_a_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client of librdkafka's may remember it; a new one finds out who leads now."""
    monkeypatch.setattr("headgate.store.kafka.topic.TRY_S", 0.01)
    topic = QuotaTopic({"bootstrap.servers": "127.0.0.1:1"}, "t", lambda _expected: None)
    end: Future[Any] = Future()
    end.set_result(SimpleNamespace(offset=7))

    def client(found: Future[Any]) -> Any:
        return SimpleNamespace(list_offsets=lambda asked, **_: dict.fromkeys(asked, found))

    monkeypatch.setattr(topic, "_admin", client(Future()))
    monkeypatch.setattr("headgate.store.kafka.topic.AdminClient", lambda *_, **__: client(end))
    assert topic._end() == 7
