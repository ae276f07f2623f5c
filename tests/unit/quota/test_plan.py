from __future__ import annotations

from headgate.quota.entity import QuotaEntity
from headgate.quota.file import parse_quotas
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.quota.plan import diff, effective_changes
from headgate.quota.table import QuotaTable, TableChange

ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
CURRENT = QuotaTable.of({ALICE: {PRODUCER: 10.0, CONSUMER: 1.0}, BOB: {PRODUCER: 5.0}})


def test_what_the_file_does_not_mention_stays_unless_pruned() -> None:
    file = parse_quotas("quotas: [{entity: {user: alice}, producer_byte_rate: 4}]")
    plan = diff(CURRENT, file)
    assert plan.changes == (TableChange(ALICE, PRODUCER, 10.0, 4.0),)
    assert plan.unmentioned == (
        TableChange(ALICE, CONSUMER, 1.0, None),
        TableChange(BOB, PRODUCER, 5.0, None),
    )
    pruned = diff(CURRENT, file, prune=True)
    assert pruned.unmentioned == ()
    assert pruned.desired == QuotaTable.of({ALICE: {PRODUCER: 4.0}})


def test_a_null_value_removes_without_pruning() -> None:
    plan = diff(CURRENT, parse_quotas("quotas: [{entity: {user: bob}, producer_byte_rate: null}]"))
    assert plan.changes == (TableChange(BOB, PRODUCER, 5.0, None),)


def test_applying_reaches_the_desired_table_and_planning_again_is_empty() -> None:
    file = parse_quotas("quotas: [{entity: {user: null}, producer_byte_rate: 7}]")
    plan = diff(CURRENT, file, prune=True)
    after, _ = CURRENT.apply(plan.alterations())
    assert after == file.table
    assert diff(after, file, prune=True).is_empty


def test_the_effective_change_of_known_clients_is_told() -> None:
    file = parse_quotas("quotas: [{entity: {user: alice, client-id: etl}, producer_byte_rate: 4}]")
    clients = [QuotaEntity.of(user=user, client_id="etl") for user in ("alice", "bob")]
    (change,) = effective_changes(diff(CURRENT, file), clients)
    assert change.client == clients[0]
    assert (change.before.value, change.before.source) == (10.0, ALICE)
    assert change.after.value == 4.0
