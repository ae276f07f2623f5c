"""The contract of every quota store, as tests; each home's test module subclasses it."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from headgate.errors import ApiError, KafkaError, StoreError, StoreMovedOn, StoreReplaced
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    CONSUMER_BPS,
    KEYS,
    MUTATION,
    PRODUCER,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.quota.table import QuotaTable, alterations_of
from headgate.store import AuditEvent, QuotaStore
from headgate.store.identity import StoreIdentity


class Opener(Protocol):
    """Opens one more store on the test's home."""

    def __call__(self, *, create: bool = True) -> QuotaStore: ...


ALICE = QuotaEntity.of(user="alice")
BOB = QuotaEntity.of(user="bob")
ENTITIES = [
    ALICE,
    QuotaEntity.of(user=DEFAULT),
    QuotaEntity.of(user="<default>"),
    QuotaEntity.of(user="CN=a b,O=*"),
    QuotaEntity.of(user="ürsüla/π"),
    QuotaEntity.of(client_id="cl/ient:1 *+%é"),
    QuotaEntity.of(client_id=DEFAULT),
    QuotaEntity.of(client_id="clients"),
    QuotaEntity.of(user="alice", client_id="etl"),
    QuotaEntity.of(user="alice", client_id=DEFAULT),
    QuotaEntity.of(user=DEFAULT, client_id="etl"),
    QuotaEntity.of(user=DEFAULT, client_id=DEFAULT),
    QuotaEntity.of(user="CN=a b,O=*", client_id="<default>"),
]


def alteration(entity: QuotaEntity, **keys: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, tuple(Op(QuotaKey.parse(k), v) for k, v in keys.items()))


def set_key(entity: QuotaEntity, key: QuotaKey, value: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, (Op(key, value),))


def errors(results: Any) -> list[str | None]:
    return [None if r.error is None else r.error.message for r in results]


class Seen:
    """What a watch was told; waits for a condition, and fails loudly after a long while."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.changed = threading.Condition()

    def __call__(self, *event: Any) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), f"never came; seen: {self.events}"

    @property
    def table(self) -> QuotaTable:
        table = self.events[-1][0]
        assert isinstance(table, QuotaTable)
        return table


class Died(BaseException):
    """Ends a call as a kill of its process does: nothing in the store may catch it to go on."""


class Moments:
    """Has something happen once amid a call: between two of the steps that the call consists of."""

    def __init__(self) -> None:
        self._left = -1
        self._what: Callable[[], object] = lambda: None

    def at(self, number: int, what: Callable[[], object]) -> None:
        """Have something happen before the step of this number, from 0."""
        self._left, self._what = number, what

    def passed(self) -> None:
        """Tell that a step comes."""
        left, self._left = self._left, self._left - 1
        if left == 0:
            self._what()

    def happened(self) -> bool:
        """Whether the call came that far; nothing happens from now on."""
        happened, self._left = self._left < 0, -1
        return happened


def called(
    monkeypatch: pytest.MonkeyPatch, passed: Callable[[], None], owner: Any, *names: str
) -> None:
    """Tell before each call of these functions of a class or module."""

    def telling(inner: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any, **more: Any) -> Any:
            passed()
            return inner(*args, **more)

        return told

    for name in names:
        monkeypatch.setattr(owner, name, telling(getattr(owner, name)))


class StoreContract:
    """Subclasses give ``open_home``: opens one more store on this test's own empty home."""

    #: Whether a watch looks again and again, and how many looks after a change show it at most.
    polls = False
    most_looks = 2
    #: Of how many steps a read or a change consists at least: else nothing can come amid it.
    fewest_steps = 3

    @pytest.fixture
    def open_home(self) -> Iterator[Opener]:
        raise NotImplementedError

    @pytest.fixture
    def empty_home(self) -> Callable[[], None]:
        """Take everything away from this test's home past any store."""
        raise NotImplementedError

    @pytest.fixture
    def reading(self) -> Moments:
        """The moments of a call that reads."""
        raise NotImplementedError

    @pytest.fixture
    def changing(self) -> Moments:
        """The moments of a change in which another process may make one too."""
        raise NotImplementedError

    @pytest.fixture
    def dying(self) -> Moments:
        """The moments of a change in which its process may die."""
        raise NotImplementedError

    def impatient(self, store: QuotaStore) -> QuotaStore:
        """Have a store take another process for dead that is in the middle of a change."""
        return store

    @pytest.fixture
    def store(self, open_home: Opener) -> QuotaStore:
        return open_home()

    # --- reading and changing

    def test_a_new_home_is_empty(self, store: QuotaStore) -> None:
        assert isinstance(store, QuotaStore)
        assert len(store.snapshot()) == 0
        assert store.history() == []
        assert store.audit_log() == []
        assert dict(store.broker_configs()) == {}

    def test_every_entity_is_kept_apart_under_its_own_name(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        wanted = {entity: {PRODUCER: 1000.0 + i} for i, entity in enumerate(ENTITIES)}
        results = store.alter([set_key(e, PRODUCER, v[PRODUCER]) for e, v in wanted.items()])
        assert errors(results) == [None] * len(ENTITIES)
        assert [r.entity for r in results] == ENTITIES
        assert store.snapshot() == QuotaTable.of(wanted)
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_ip_entities(self, store: QuotaStore, open_home: Opener) -> None:
        wanted = {QuotaEntity.of(ip=ip): {CONNECTION: 7.0} for ip in ("127.0.0.1", "::1", DEFAULT)}
        assert errors(store.alter([set_key(e, CONNECTION, 7.0) for e in wanted])) == [None] * 3
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_every_key_can_be_kept(self, store: QuotaStore, open_home: Opener) -> None:
        where = {key: QuotaEntity.of(ip=DEFAULT) if key is CONNECTION else ALICE for key in KEYS}
        for key, entity in where.items():
            assert errors(store.alter([set_key(entity, key, 42.0)])) == [None], key
        table = open_home().snapshot()
        assert {key: table.get(entity, key) for key, entity in where.items()} == dict.fromkeys(
            KEYS, 42.0
        )
        for key, entity in where.items():
            assert errors(store.alter([set_key(entity, key, None)])) == [None], key
        assert len(open_home().snapshot()) == 0

    def test_values_come_back_to_the_last_bit(self, store: QuotaStore, open_home: Opener) -> None:
        values = [
            (PRODUCER, 9223372036854775807.0),
            (PRODUCER, 9007199254740993.0),
            (PRODUCER, 1.0),
            (CONSUMER_BPS, 123456789012.0),
            (REQUEST, 12.75),
            (REQUEST, 0.1),
            (MUTATION, 1e-4),
            (MUTATION, 1e22),
            (PRODUCER_IDS, 0.001),
            (PRODUCER_SHARES, 3.0),
        ]
        other = open_home()
        for key, value in values:
            assert errors(store.alter([set_key(ALICE, key, value)])) == [None]
            assert other.snapshot().get(ALICE, key) == value, (key, value)

    def test_an_entity_goes_with_its_last_key(self, store: QuotaStore, open_home: Opener) -> None:
        store.alter([alteration(ALICE, producer_byte_rate=1.0, consumer_byte_rate=2.0)])
        store.alter([alteration(ALICE, producer_byte_rate=None)])
        assert open_home().snapshot() == QuotaTable.of({ALICE: {CONSUMER: 2.0}})
        store.alter([alteration(ALICE, consumer_byte_rate=None)])
        assert len(open_home().snapshot()) == 0

    def test_own_changes_are_in_the_next_snapshot(self, store: QuotaStore) -> None:
        for value in range(1, 6):
            store.alter([set_key(ALICE, REQUEST, value)])
            assert store.snapshot().get(ALICE, REQUEST) == value

    def test_versions_grow(self, store: QuotaStore) -> None:
        versions = [store.snapshot().version]
        for value in (1.0, 2.0):
            store.alter([set_key(ALICE, PRODUCER, value)])
            versions.append(store.snapshot().version)
        assert versions == sorted(set(versions))

    def test_clearing_what_is_not_set_is_no_error_and_no_change(self, store: QuotaStore) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        before = store.snapshot().version
        unset = [set_key(BOB, PRODUCER, None), set_key(ALICE, CONSUMER, None)]
        assert errors(store.alter(unset)) == [None, None]
        assert store.snapshot().version == before
        assert len(store.history()) == 1

    # --- refusals

    def test_validate_only_changes_nothing(self, store: QuotaStore) -> None:
        asked = [set_key(ALICE, PRODUCER, 5.0), set_key(BOB, PRODUCER, 0.0)]
        checked = store.alter(asked, validate_only=True)
        assert errors(checked) == [None, "Quota producer_byte_rate must be greater than 0"]
        assert len(store.snapshot()) == 0
        assert store.history() == []

    def test_one_entity_refused_does_not_spoil_the_others(self, store: QuotaStore) -> None:
        asked = [
            set_key(BOB, PRODUCER, -1.0),
            set_key(ALICE, PRODUCER, 1.0),
            set_key(QuotaEntity({"GROUP": "internal-group"}), PRODUCER, 1.0),
            set_key(QuotaEntity({}), PRODUCER, 1.0),
        ]
        results = store.alter(asked)
        assert errors(results) == [
            "Quota producer_byte_rate must be greater than 0",
            None,
            "Unhandled client quota entity type: GROUP",
            "Invalid empty client quota entity",
        ]
        assert {int(r.error.code) for r in results if r.error} == {KafkaError.INVALID_REQUEST}
        assert store.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})

    def test_an_entity_is_altered_whole_or_not_at_all(self, store: QuotaStore) -> None:
        store.alter([alteration(ALICE, producer_byte_rate=1.0)])
        half = alteration(ALICE, producer_byte_rate=2.0, consumer_byte_rate=1.5)
        assert errors(store.alter([half])) == ["consumer_byte_rate cannot be a fractional value."]
        assert store.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})

    def test_what_is_no_quota_is_refused(self, store: QuotaStore) -> None:
        for value in (math.nan, 0.0, -3.0, -math.inf):
            results = store.alter([set_key(ALICE, REQUEST, value)])
            assert errors(results) == ["Quota request_percentage must be greater than 0"], value
        assert len(store.snapshot()) == 0

    def test_a_second_alteration_of_one_entity_is_refused_the_first_holds(
        self, store: QuotaStore
    ) -> None:
        results = store.alter([set_key(ALICE, PRODUCER, 1.0), set_key(ALICE, PRODUCER, 2.0)])
        assert results[1].error is not None
        assert store.snapshot().get(ALICE, PRODUCER) == 1.0

    def test_nothing_asked_nothing_answered(self, store: QuotaStore) -> None:
        assert store.alter([]) == []

    # --- watching

    def test_a_watch_begins_with_the_whole_table(self, store: QuotaStore) -> None:
        # So high that a Kafka, whose quotas they are, doesn't make the next writer wait.
        store.alter([set_key(e, PRODUCER, 1e9 + i) for i, e in enumerate(ENTITIES)])
        seen = Seen()
        store.watch(seen)
        table, delta = seen.events[0]
        assert table == store.snapshot()
        assert QuotaTable().apply(alterations_of(delta.changes))[0] == table
        assert delta.to_version == table.version

    def test_deltas_in_order_rebuild_the_table(self, store: QuotaStore, open_home: Opener) -> None:
        seen = Seen()
        store.watch(seen)
        other = open_home()
        other.alter([alteration(ALICE, producer_byte_rate=1.0, consumer_byte_rate=2.0)])
        store.alter([set_key(BOB, PRODUCER_IDS, 3.0)])
        other.alter([set_key(ALICE, PRODUCER, None), set_key(BOB, REQUEST, 4.0)])
        store.alter([set_key(ALICE, CONSUMER, 5.0)])
        wanted = {ALICE: {CONSUMER: 5.0}, BOB: {PRODUCER_IDS: 3.0, REQUEST: 4.0}}
        seen.until(lambda: seen.table == QuotaTable.of(wanted))
        rebuilt = QuotaTable()
        version = 0
        for table, delta in seen.events:
            rebuilt = rebuilt.apply(alterations_of(delta.changes))[0]
            assert rebuilt == table
            assert delta.from_version in (0, version)
            version = delta.to_version
            assert version == table.version

    def test_all_who_watch_are_told_even_if_one_raises(self, open_home: Opener) -> None:
        store, other = open_home(), open_home()
        first, second, third = Seen(), Seen(), Seen()

        def raises(*event: Any) -> None:
            first(*event)
            if len(first.events) > 1:
                raise ValueError("a watcher's own mistake")

        store.watch(raises)
        store.watch(second)
        other.watch(third)
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        wanted = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
        for seen in (first, second, third):
            seen.until(lambda seen=seen: seen.table == wanted)
        store.alter([set_key(ALICE, PRODUCER, 2.0)])
        wanted = QuotaTable.of({ALICE: {PRODUCER: 2.0}})
        for seen in (first, second, third):
            seen.until(lambda seen=seen: seen.table == wanted)

    def test_a_closed_watch_is_silent(self, store: QuotaStore) -> None:
        closed, open_ = Seen(), Seen()
        watch = store.watch(closed)
        store.watch(open_)
        watch.close()
        watch.close()
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        open_.until(lambda: len(open_.table) == 1)
        assert len(closed.events) == 1

    def test_a_watch_may_close_itself(self, store: QuotaStore) -> None:
        watches: list[Any] = []
        once, always = Seen(), Seen()

        def closing(*event: Any) -> None:
            once(*event)
            if watches:
                watches[0].close()

        watches.append(store.watch(closing))
        store.watch(always)
        for value in (1.0, 2.0):
            store.alter([set_key(ALICE, PRODUCER, value)])
            always.until(lambda value=value: always.table.get(ALICE, PRODUCER) == value)
        assert len(once.events) == 2

    def test_setting_the_same_value_again_is_no_change(self, store: QuotaStore) -> None:
        seen = Seen()
        store.watch(seen)
        for value in (1.0, 1.0, 2.0):
            store.alter([set_key(ALICE, PRODUCER, value)])
        seen.until(lambda: seen.table.get(ALICE, PRODUCER) == 2.0)
        assert [(h.before, h.after) for h in store.history()] == [(None, 1.0), (1.0, 2.0)]
        assert all(delta.changes for _, delta in seen.events[1:])

    # --- history and audit

    def test_history_says_who_changed_what_from_what_to_what_by_which_tool(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0)], who="User:ops", tool="kafka-configs")
        store.alter([set_key(ALICE, PRODUCER, 2.0)], who="User:eve", tool="console")
        store.alter([set_key(BOB, PRODUCER_IDS, 9.0)], who="User:ops", tool="apply")
        store.alter([set_key(ALICE, PRODUCER, None)], who="User:ops", tool="kafka-quotas")
        entries = open_home().history()
        assert [(h.who, h.tool, h.entity, h.key, h.before, h.after) for h in entries] == [
            ("User:ops", "kafka-configs", ALICE, PRODUCER, None, 1.0),
            ("User:eve", "console", ALICE, PRODUCER, 1.0, 2.0),
            ("User:ops", "apply", BOB, PRODUCER_IDS, None, 9.0),
            ("User:ops", "kafka-quotas", ALICE, PRODUCER, 2.0, None),
        ]
        times = [h.t_ms for h in entries]
        assert times == sorted(times)
        assert [h.entity for h in store.history(entity=BOB)] == [BOB]
        assert store.history(limit=2) == entries[-2:]
        assert store.history(entity=ALICE, limit=1) == entries[-1:]
        assert store.history(limit=0) == []

    def test_refused_attempts_are_kept(self, store: QuotaStore, open_home: Opener) -> None:
        store.audit(AuditEvent("User:eve", "admin", "alter_client_quotas", "refused", "{user=a}"))
        store.audit(AuditEvent("User:eve", "admin", "describe_client_quotas", "refused", t_ms=7))
        kept = open_home().audit_log()
        assert [(e.who, e.tool, e.action, e.outcome, e.subject) for e in kept] == [
            ("User:eve", "admin", "alter_client_quotas", "refused", "{user=a}"),
            ("User:eve", "admin", "describe_client_quotas", "refused", ""),
        ]
        assert kept[0].t_ms > 0
        assert kept[1].t_ms == 7
        assert store.audit_log(limit=1) == kept[-1:]

    def test_history_says_which_call_made_a_change_and_why(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        both = [set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER_IDS, 2.0)]
        store.alter(both, who="ops", tool="apply", message="Müller's ticket 17")
        store.alter([set_key(ALICE, PRODUCER, 3.0)], who="ops", tool="apply")
        first, second, third = open_home().history()
        assert {first.message, second.message} == {"Müller's ticket 17"}
        assert first.change == second.change != ""
        assert third.message == ""
        assert third.change not in ("", first.change)

    # --- which store it is

    def test_a_home_is_one_store_whoever_opens_it(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        found = store.identity()
        assert found is not None
        assert len(found.id) == 16
        assert open_home().identity() == found == open_home(create=False).identity()
        assert store.identify() == found

    def test_the_revision_grows_with_what_changes_and_nothing_else(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        def revision() -> int:
            found = open_home(create=False).identity()
            assert found is not None
            return found.revision

        at = [revision()]
        for change in (
            lambda: store.alter([set_key(ALICE, PRODUCER, 1.0)]),
            lambda: store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)]),
            lambda: store.alter([set_key(ALICE, PRODUCER, None)]),
            lambda: store.alter_broker_configs("1", {"max.connections": "5"}),
        ):
            change()
            at.append(revision())
        assert at == sorted(set(at))
        store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        store.alter([set_key(ALICE, PRODUCER, 2.0)], validate_only=True)
        store.alter([set_key(ALICE, PRODUCER, -1.0)])
        store.alter_broker_configs("1", {"max.connections": "5"})
        store.audit(AuditEvent("eve", "admin", "alter", "refused"))
        lease = store.lease("broker-1", "worker", 60_000)
        assert lease is not None
        assert lease.renew()
        store.history()
        assert revision() == at[-1]

    def test_what_reads_makes_nothing_and_what_changes_makes_it_ready(
        self, open_home: Opener, empty_home: Callable[[], None]
    ) -> None:
        empty_home()
        try:
            reader = open_home(create=False)
        except StoreError as exc:
            assert "there is no" in str(exc)
        else:
            assert len(reader.snapshot()) == len(reader.history()) == len(reader.audit_log()) == 0
            assert dict(reader.broker_configs()) == {}
            assert reader.identity() is None
            assert open_home(create=False).identity() is None
        open_home().alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        late = open_home(create=False)
        assert errors(late.alter([set_key(BOB, PRODUCER_IDS, 1.0)])) == [None]
        assert late.identity() == open_home(create=False).identity()

    def test_a_change_that_goes_by_another_revision_is_refused_whole(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        def revision() -> int:
            return store.identify().revision

        seen = revision()
        asked = [set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER, 1.0)]
        assert errors(store.alter(asked, at_revision=seen)) == [None, None]
        for key in (PRODUCER, PRODUCER_IDS):
            with pytest.raises(
                StoreMovedOn, match=f"based on revision {seen}; nothing was changed"
            ):
                store.alter([set_key(ALICE, key, 2.0)], at_revision=seen)
        open_home().alter([set_key(BOB, PRODUCER_IDS, 7.0)])
        assert errors(store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)], at_revision=revision())) == [
            None
        ]
        wanted = {
            ALICE: {PRODUCER: 1.0, PRODUCER_IDS: 2.0},
            BOB: {PRODUCER: 1.0, PRODUCER_IDS: 7.0},
        }
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_an_emptied_home_is_not_the_store_and_takes_no_changes(
        self, store: QuotaStore, open_home: Opener, empty_home: Callable[[], None]
    ) -> None:
        seen, brokers = Seen(), Seen()
        store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        store.alter_broker_configs("1", {"max.connections": "5"})
        known = store.identify()
        store.watch(seen)
        store.watch_broker_configs(brokers)
        assert store.trouble() is None
        empty_home()
        with pytest.raises(StoreReplaced, match=known.id):
            store.snapshot()
        for key in (PRODUCER_IDS, PRODUCER):
            with pytest.raises(StoreReplaced):
                store.alter([set_key(ALICE, key, 2.0)])
        with pytest.raises(StoreReplaced):
            store.alter_broker_configs("1", {"max.connections": "6"})
        assert store.identity() is None

        other = open_home()  # as a tool would that is to change something
        other.alter([set_key(BOB, PRODUCER_IDS, 9.0)])
        found = other.identity()
        assert found is not None
        assert found.id != known.id
        with pytest.raises(StoreReplaced, match=rf"{known.id}.*{found.id}"):
            store.snapshot()
        with pytest.raises(StoreReplaced):
            store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)])
        with pytest.raises(StoreReplaced):
            store.lease("broker-1", "worker", 60_000)
        assert len(seen.events) == len(brokers.events) == 1
        for _ in range(600):
            if found.id in str(store.trouble()):
                break
            threading.Event().wait(0.05)
        assert found.id in str(store.trouble())

        store.accept(found)
        seen.until(lambda: seen.table == QuotaTable.of({BOB: {PRODUCER_IDS: 9.0}}))
        brokers.until(lambda: dict(brokers.events[-1][0]) == {})
        assert errors(store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)])) == [None]
        assert set(other.snapshot().entities) == {ALICE, BOB}

    def test_emptying_by_the_tools_is_a_change_like_any_other(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER_IDS, 1.0)])
        seen = Seen()
        store.watch(seen)
        known = store.identify()
        open_home().alter([set_key(ALICE, PRODUCER, None), set_key(BOB, PRODUCER_IDS, None)])
        seen.until(lambda: len(seen.table) == 0)
        now = store.identity()
        assert now is not None
        assert now.follows(known)

    def test_a_store_that_took_over_says_from_whom(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        before = store.identify()
        old = StoreIdentity("0123456789abcdef", 41, (("fedcba9876543210", 7),))
        told = store.succeed(old)
        assert told.succeeds == (("0123456789abcdef", 41), ("fedcba9876543210", 7))
        assert told.revision > before.revision
        found = open_home().identity()
        assert found is not None
        assert found.follows(old)
        assert found.follows(StoreIdentity("fedcba9876543210", 7))
        assert not found.follows(old._replace(revision=42))
        assert not found.follows(StoreIdentity("0123456789abcdee", 1))

    # --- broker settings

    def test_broker_settings_are_set_and_removed_per_broker(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.alter_broker_configs("", {"max.connection.creation.rate": "100"}, who="User:ops")
        one = {"max.connections": "5", "listener.name.external.max.connections.per.ip": "2"}
        store.alter_broker_configs("1", one)
        store.alter_broker_configs("1", {"max.connections.per.ip.overrides": "h:1,127.0.0.1:9"})
        store.alter_broker_configs("1", {"max.connections": None})
        wanted = {
            "": {"max.connection.creation.rate": "100"},
            "1": {
                "listener.name.external.max.connections.per.ip": "2",
                "max.connections.per.ip.overrides": "h:1,127.0.0.1:9",
            },
        }
        assert {b: dict(c) for b, c in open_home().broker_configs().items()} == wanted
        lines = [(e.who, e.action, e.outcome, e.subject, e.detail) for e in store.audit_log()]
        assert lines[0] == (
            "User:ops",
            "alter_broker_configs",
            "done",
            "default of brokers",
            "max.connection.creation.rate: unset -> 100",
        )
        assert lines[-1][4] == "max.connections: 5 -> unset"
        store.alter_broker_configs("", {"max.connection.creation.rate": None})
        assert set(open_home().broker_configs()) == {"1"}

    def test_broker_settings_that_cannot_be_are_refused_whole(self, store: QuotaStore) -> None:
        for broker, name, value, says in (
            ("1", "max.connections", "-1", "Value must be at least 0"),
            # 0 would lock every client out, also one that wants to change it back.
            ("1", "max.connections", "0", "Invalid max.connections 0"),
            ("", "max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
            ("1", "listener.name.x.max.connections", "0", "Invalid max.connections 0"),
            ("1", "max.connections.per.ip", "0", "can be set to zero only if max.connections.per"),
            ("1", "max.connections", "many", "Not a number of type INT"),
            ("1", "max.connections", "3000000000", "Not a number of type INT"),
            ("1", "max.connections.per.ip.overrides", "host", "isn't of the form host:count"),
            ("1", "log.retention.ms", "1", "isn't a setting kept here"),
            ("one", "max.connections", "1", "must be an integer"),
        ):
            with pytest.raises(ApiError, match=says):
                store.alter_broker_configs(broker, {"max.connections.per.ip": "1", name: value})
        assert dict(store.broker_configs()) == {}

    def test_no_connections_of_an_address_go_with_exceptions_only(self, store: QuotaStore) -> None:
        both = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"}
        store.alter_broker_configs("1", both)
        with pytest.raises(ApiError, match="can be set to zero only if"):
            store.alter_broker_configs("1", {"max.connections.per.ip.overrides": None})
        store.alter_broker_configs("", {"max.connections.per.ip.overrides": "10.0.0.2:5"})
        store.alter_broker_configs("1", {"max.connections.per.ip.overrides": None})
        store.alter_broker_configs("1", {"max.connections.per.ip": None})
        assert set(store.broker_configs()) == {""}

    def test_broker_settings_validate_only(self, store: QuotaStore) -> None:
        store.alter_broker_configs("1", {"max.connections": "1"}, validate_only=True)
        assert dict(store.broker_configs()) == {}
        assert store.audit_log() == []

    def test_broker_settings_are_watched(self, store: QuotaStore, open_home: Opener) -> None:
        seen = Seen()
        watch = store.watch_broker_configs(seen)
        assert dict(seen.events[0][0]) == {}
        open_home().alter_broker_configs("2", {"max.connections": "3"})
        seen.until(lambda: dict(seen.events[-1][0].get("2", {})) == {"max.connections": "3"})
        store.alter_broker_configs("2", {"max.connections": None})
        seen.until(lambda: dict(seen.events[-1][0]) == {})
        watch.close()

    # --- leases

    def test_one_holder_at_a_time_and_epochs_grow(self, open_home: Opener) -> None:
        one, two = open_home(), open_home()
        first = one.lease("broker-1", "worker-a", 60_000)
        assert first is not None
        assert first.held()
        assert two.lease("broker-1", "worker-b", 60_000) is None
        assert two.lease("broker-2", "worker-b", 60_000) is not None
        assert first.renew()
        first.release()
        assert not first.held()
        second = two.lease("broker-1", "worker-b", 60_000)
        assert second is not None
        assert second.epoch > first.epoch
        assert not first.renew()
        first.release()
        assert second.held()

    def test_a_lease_runs_out_and_its_old_holder_is_fenced(self, open_home: Opener) -> None:
        one, two = open_home(), open_home()
        first = one.lease("broker-1", "worker-a", 200)
        assert first is not None
        second = None
        for _ in range(600):
            second = two.lease("broker-1", "worker-b", 60_000)
            if second is not None:
                break
            threading.Event().wait(0.05)
        assert second is not None
        assert not first.held()
        assert not first.renew()
        assert second.epoch > first.epoch

    def test_a_restarted_owner_fences_its_former_self(self, open_home: Opener) -> None:
        before = open_home().lease("broker-1", "worker-a", 60_000)
        after = open_home().lease("broker-1", "worker-a", 60_000)
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        assert not before.renew()
        assert after.renew()

    # --- several at once

    def test_several_writers_at_once_lose_nothing(self, open_home: Opener) -> None:
        stores = [open_home() for _ in range(3)]
        keys = [PRODUCER, CONSUMER, REQUEST]
        failures: list[BaseException] = []

        def write(store: QuotaStore, key: QuotaKey) -> None:
            try:
                for value in range(1, 9):
                    asked = [set_key(ALICE, key, value)]
                    asked.append(set_key(QuotaEntity.of(user=f"{key.type}-{value}"), key, value))
                    assert errors(store.alter(asked, who=key.type)) == [None, None]
            except BaseException as exc:
                failures.append(exc)

        threads = [
            threading.Thread(target=write, args=pair) for pair in zip(stores, keys, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        table = open_home().snapshot()
        assert dict(table.entities[ALICE]) == dict.fromkeys(keys, 8.0)
        assert len(table) == 1 + 3 * 8
        entries = stores[0].history(entity=ALICE)
        for key in keys:
            mine = [(h.before, h.after) for h in entries if h.key == key]
            assert mine == [(None, 1.0)] + [(v, v + 1.0) for v in range(1, 8)]
            assert {h.who for h in entries if h.key == key} == {key.type}

    def test_history_and_values_have_one_order_whoever_writes(self, open_home: Opener) -> None:
        stores = [open_home() for _ in range(4)]
        entities = [ALICE, BOB, QuotaEntity.of(user="carol")]
        failures: list[BaseException] = []

        def write(store: QuotaStore, mine: int) -> None:
            try:
                for turn in range(6):
                    entity = entities[(turn + mine) % 3]
                    value = None if turn == 4 else 100.0 * turn + mine + 1
                    for key in (PRODUCER, PRODUCER_IDS):
                        asked = [set_key(entity, key, value)]
                        assert errors(store.alter(asked, who=f"w{mine}")) == [None]
            except BaseException as exc:
                failures.append(exc)

        threads = [
            threading.Thread(target=write, args=(store, n)) for n, store in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        table = open_home().snapshot()
        history = stores[0].history()
        for entity in entities:
            for key in (PRODUCER, PRODUCER_IDS):
                chain = [(h.before, h.after) for h in history if (h.entity, h.key) == (entity, key)]
                assert [before for before, _ in chain] == [
                    None,
                    *(after for _, after in chain[:-1]),
                ]
                assert chain[-1][1] == table.get(entity, key)
        assert {h.who for h in history} == {"w0", "w1", "w2", "w3"}

    def test_a_change_by_another_is_seen_within_two_looks(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        looks: list[None] = []
        inner: Any = store
        look = inner._look

        def counted() -> None:
            looks.append(None)
            look()

        inner._look = counted
        if self.polls:  # two of them are within a second
            assert 2 * inner._poll_s < 1
        else:  # told, not found by asking again and again
            inner._poll_s = 3600
        seen = Seen()
        store.watch(seen)
        other = open_home()
        for value in (1.0, 2.0, 3.0):
            for key in (PRODUCER, PRODUCER_IDS):
                other.alter([set_key(ALICE, key, value)])
                before = len(looks)
                seen.until(lambda key=key, value=value: seen.table.get(ALICE, key) == value)
                assert len(looks) - before <= self.most_looks

    # --- what is there in part

    def test_a_pair_is_read_though_its_user_has_nothing(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        pairs = {
            QuotaEntity.of(user=user, client_id=client): {key: 5.0}
            for user in ("alice", DEFAULT)
            for client, key in (("etl", PRODUCER), (DEFAULT, PRODUCER_SHARES), ("app", CONSUMER))
        }
        known, seen = open_home(), Seen()
        known.watch(seen)
        asked = [set_key(pair, key, 5.0) for pair, own in pairs.items() for key in own]
        assert errors(store.alter(asked)) == [None] * 6
        assert open_home().snapshot() == known.snapshot() == QuotaTable.of(pairs)
        seen.until(lambda: seen.table == QuotaTable.of(pairs))
        # What the user had and has no more leaves the pairs as they are.
        for value in (1.0, None):
            store.alter([set_key(ALICE, PRODUCER, value), set_key(ALICE, REQUEST, value)])
        assert open_home().snapshot() == known.snapshot() == QuotaTable.of(pairs)
        assert {h.entity for h in open_home().history()} == {*pairs, ALICE}

    def test_a_change_amid_a_read_is_in_the_next_read(
        self, store: QuotaStore, open_home: Opener, reading: Moments
    ) -> None:
        """Of what is read and of which version it is, the version must not be the newer one."""
        other = open_home()
        made = iter(range(1, 1_000))

        def change() -> None:
            value = float(next(made))
            asked = [set_key(ALICE, PRODUCER, value), set_key(BOB, PRODUCER_IDS, value)]
            assert errors(other.alter(asked)) == [None, None]
            other.alter_broker_configs("1", {"max.connections": f"{value:.0f}"})

        moments = 0
        for number in range(200):
            change()
            reading.at(number, change)
            store.snapshot()
            if not reading.happened():
                break
            moments += 1
            assert store.snapshot() == other.snapshot(), number
            assert store.broker_configs() == other.broker_configs(), number
        assert moments >= self.fewest_steps
        for number in range(0, 200, 3):  # a store that reads for the first time
            late = open_home()
            reading.at(number, change)
            late.snapshot()
            if not reading.happened():
                break
            assert late.snapshot() == other.snapshot(), number
        assert number >= 3

    def test_a_change_amid_a_change_is_not_lost_in_silence(
        self, store: QuotaStore, open_home: Opener, changing: Moments
    ) -> None:
        other = self.impatient(open_home())

        def change() -> None:
            # Its last keys go, and then it is made again.
            asked = [set_key(ALICE, PRODUCER, None)], [set_key(ALICE, CONSUMER, 3.0)]
            assert [errors(other.alter(each)) for each in asked] == [[None], [None]]

        for number in range(200):
            value = None if number % 2 else number + 1.0
            other.alter([alteration(ALICE, producer_byte_rate=None, consumer_byte_rate=None)])
            other.alter([alteration(ALICE, producer_byte_rate=7.0)])
            changing.at(number, change)
            try:
                assert errors(store.alter([set_key(ALICE, PRODUCER, value)])) == [None]
            except StoreError as exc:
                assert exc.retriable
                told = False
            else:
                told = True
            if not changing.happened():
                break
            table = other.snapshot()
            assert table.get(ALICE, CONSUMER) == 3.0, number
            if told:  # else it may have been made after that
                assert value in {h.after for h in other.history() if h.key == PRODUCER}, number
                self.is_told_in_order(other)
        assert number >= 1

    def test_what_one_who_died_amid_a_change_left_is_told_in_order(
        self, store: QuotaStore, open_home: Opener, dying: Moments
    ) -> None:
        other = self.impatient(open_home())

        def die() -> None:
            raise Died

        other.alter([set_key(ALICE, PRODUCER, 1.0)])
        for number in range(200):
            value, who = 2.0 * number + 2.0, f"writer {number}"
            dying.at(number, die)
            try:
                store.alter([set_key(ALICE, PRODUCER, value)], who=who)
            except Died:
                store = open_home()
            if not dying.happened():
                break
            assert errors(other.alter([set_key(ALICE, PRODUCER, value + 1.0)])) == [None]
            self.is_told_in_order(other)
            made = [h for h in other.history() if h.after == value]
            assert {h.who for h in made} <= {who}, number
        assert number >= self.fewest_steps

    def is_told_in_order(self, store: QuotaStore) -> None:
        """Each change in the history begins where the one before it ended, and ends at what is."""
        history, table = store.history(), store.snapshot()
        for entity, key in {(h.entity, h.key) for h in history}:
            told = [(h.before, h.after) for h in history if (h.entity, h.key) == (entity, key)]
            assert [before for before, _ in told] == [None, *(after for _, after in told[:-1])]
            assert told[-1][1] == table.get(entity, key)

    # --- closing

    def test_a_closed_store_says_so(self, store: QuotaStore) -> None:
        seen = Seen()
        store.watch(seen)
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.snapshot()
        with pytest.raises(StoreError, match="closed"):
            store.alter([set_key(ALICE, PRODUCER, 1.0)])
