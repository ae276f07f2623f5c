from __future__ import annotations

import pickle

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.quota.table import QuotaTable, TableChange, alterations_of, table_delta

ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")


def test_a_table_never_changes() -> None:
    before = QuotaTable.of({ALICE: {PRODUCER: 1.0}}, version=7)
    after, delta = before.apply([QuotaAlteration(ALICE, (Op(PRODUCER, 2.0), Op(CONSUMER, 3.0)))])
    assert before.get(ALICE, PRODUCER) == 1.0
    assert (after.get(ALICE, PRODUCER), after.get(ALICE, CONSUMER)) == (2.0, 3.0)
    assert (before.version, after.version) == (7, 8)
    assert delta.changes == (
        TableChange(ALICE, PRODUCER, 1.0, 2.0),
        TableChange(ALICE, CONSUMER, None, 3.0),
    )


def test_what_changes_nothing_leaves_no_trace() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}}, version=7)
    same, delta = table.apply(
        [QuotaAlteration(ALICE, (Op(PRODUCER, 1.0),)), QuotaAlteration(BOB, (Op(PRODUCER, None),))]
    )
    assert same is table
    assert delta.changes == ()


def test_an_entity_goes_with_its_last_key() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    after, _ = table.apply([QuotaAlteration(ALICE, (Op(PRODUCER, None),))])
    assert len(after) == 0
    assert after.for_key(PRODUCER) == {}


def test_a_delta_leads_from_one_table_to_the_other() -> None:
    one = QuotaTable.of({ALICE: {PRODUCER: 1.0, CONSUMER: 5.0}})
    two = QuotaTable.of({ALICE: {PRODUCER: 2.0}, BOB: {PRODUCER: 3.0}})
    assert one.apply(alterations_of(table_delta(one, two).changes))[0] == two


def test_the_index_by_key_is_that_of_its_own_version() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    assert table.for_key(PRODUCER) == {ALICE: 1.0}
    after, _ = table.apply([QuotaAlteration(BOB, (Op(PRODUCER, 2.0),))])
    assert table.for_key(PRODUCER) == {ALICE: 1.0}
    assert after.for_key(PRODUCER) == {ALICE: 1.0, BOB: 2.0}
    assert after.keys() == (PRODUCER,)


def test_tables_travel_to_workers() -> None:
    table = QuotaTable.of({ALICE: {PRODUCER: 1.0}}, 3, {CONSUMER: 9.0})
    back = pickle.loads(pickle.dumps(table))
    assert back == table
    assert back.version == 3
