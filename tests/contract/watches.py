"""Who watches is told every change in order; a history keeps them, and who made them."""

from typing import Any

from contract.homes import ALICE, BOB, ENTITIES, Homed, Opener, Seen, alteration, set_key
from headgate.quota.key import (
    CONSUMER,
    PRODUCER,
    PRODUCER_IDS,
    REQUEST,
)
from headgate.quota.table import QuotaTable, alterations_of
from headgate.store import AuditEvent, QuotaStore


class Watches(Homed):
    """Who watches is told every change in order; a history keeps them, and who made them."""

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
        assert [(h.before, h.after) for h in store.history.entries()] == [(None, 1.0), (1.0, 2.0)]
        assert all(delta.changes for _, delta in seen.events[1:])

    # --- history and audit

    def test_history_says_who_changed_what_from_what_to_what_by_which_tool(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0)], who="User:ops", tool="kafka-configs")
        store.alter([set_key(ALICE, PRODUCER, 2.0)], who="User:eve", tool="console")
        store.alter([set_key(BOB, PRODUCER_IDS, 9.0)], who="User:ops", tool="apply")
        store.alter([set_key(ALICE, PRODUCER, None)], who="User:ops", tool="kafka-quotas")
        entries = open_home().history.entries()
        assert [(h.who, h.tool, h.entity, h.key, h.before, h.after) for h in entries] == [
            ("User:ops", "kafka-configs", ALICE, PRODUCER, None, 1.0),
            ("User:eve", "console", ALICE, PRODUCER, 1.0, 2.0),
            ("User:ops", "apply", BOB, PRODUCER_IDS, None, 9.0),
            ("User:ops", "kafka-quotas", ALICE, PRODUCER, 2.0, None),
        ]
        times = [h.t_ms for h in entries]
        assert times == sorted(times)
        assert [h.entity for h in store.history.entries(entity=BOB)] == [BOB]
        assert store.history.entries(limit=2) == entries[-2:]
        assert store.history.entries(entity=ALICE, limit=1) == entries[-1:]
        assert store.history.entries(limit=0) == []

    def test_refused_attempts_are_kept(self, store: QuotaStore, open_home: Opener) -> None:
        store.history.audit(
            AuditEvent("User:eve", "admin", "alter_client_quotas", "refused", "{user=a}")
        )
        store.history.audit(
            AuditEvent("User:eve", "admin", "describe_client_quotas", "refused", t_ms=7)
        )
        kept = open_home().history.audit_log()
        assert [(e.who, e.tool, e.action, e.outcome, e.subject) for e in kept] == [
            ("User:eve", "admin", "alter_client_quotas", "refused", "{user=a}"),
            ("User:eve", "admin", "describe_client_quotas", "refused", ""),
        ]
        assert kept[0].t_ms > 0
        assert kept[1].t_ms == 7
        assert store.history.audit_log(limit=1) == kept[-1:]

    def test_history_says_which_call_made_a_change_and_why(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        both = [set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER_IDS, 2.0)]
        store.alter(both, who="ops", tool="apply", message="Müller's ticket 17")
        store.alter([set_key(ALICE, PRODUCER, 3.0)], who="ops", tool="apply")
        first, second, third = open_home().history.entries()
        assert {first.message, second.message} == {"Müller's ticket 17"}
        assert first.change == second.change != ""
        assert third.message == ""
        assert third.change not in ("", first.change)
