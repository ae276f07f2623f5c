"""Who is affected by a change, held to what the managers decide under either table."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headgate.console.preview import preview
from headgate.live.picture import BrokerPicture, ClientUse, Picture, QuotaUse
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONNECTION, PRODUCER, QuotaType
from headgate.quota.plan import plan_of
from headgate.quota.table import QuotaTable, TableChange, table_delta
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager

USERS, CLIENT_IDS = ("alice", "bob", "<script>"), ("etl", "", "<default>")
ENTITIES = [
    QuotaEntity({kind: name for kind, name in pair if name is not None})
    for pair in itertools.product(
        [("user", name) for name in (None, "alice", "bob", DEFAULT)],
        [("client-id", name) for name in (None, "etl", DEFAULT)],
    )
][1:]
TABLES = st.dictionaries(st.sampled_from(ENTITIES), st.sampled_from([10.0, 20.0]), max_size=6)


def picture(*clients: ClientUse) -> Picture:
    uses = tuple(
        QuotaUse(str(key), client.principal, "", 1.0, clients=(client,))
        for client in clients
        for key in (PRODUCER, CONNECTION)  # each stands under several quotas
    )
    return Picture(0, brokers=(BrokerPicture(0, quotas=uses, other_quotas=3),))


def decided(quotas: dict[QuotaEntity, float], user: str, client_id: str) -> object:
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    manager.load(quotas, 0)
    decision = manager.record(user, client_id, 0, 0)
    # Without a limit it doesn't matter which sensor counts.
    limited = decision.bound < UNLIMITED
    return (decision.bound, decision.user_tag, decision.client_tag) if limited else None


@given(TABLES, TABLES)
def test_those_are_affected_whose_bound_or_sensor_is_another(
    before: dict[QuotaEntity, float], after: dict[QuotaEntity, float]
) -> None:
    now, then = (QuotaTable({e: {PRODUCER: v} for e, v in t.items()}) for t in (before, after))
    plan = plan_of(now, table_delta(now, then).changes)
    pairs = list(itertools.product(USERS, CLIENT_IDS))
    found = preview(plan, picture(*(ClientUse(user, client, 2) for user, client in pairs)))
    affected = {(row.client.user, row.client.client_id) for row in found.affected}
    moved = {pair for pair in pairs if decided(before, *pair) != decided(after, *pair)}
    assert affected == moved
    assert (found.watched, found.unseen) == (len(pairs), 3)
    assert {row.connections for row in found.affected} <= {2}


def test_addresses_are_affected_by_their_own_kind_of_quota() -> None:
    rate = TableChange(QuotaEntity.of(ip="10.0.0.1"), CONNECTION, None, 5.0)
    client = ClientUse("alice", "etl", 3, addresses=(("10.0.0.1", 2), ("10.0.0.2", 1)))
    (row,) = preview(plan_of(QuotaTable(), [rate]), picture(client)).affected
    assert (row.client, row.connections) == (QuotaEntity.of(ip="10.0.0.1"), 2)
    assert (row.before.value, row.after.value) == (None, 5.0)


def test_without_a_picture_those_that_quotas_name_are_told() -> None:
    rate = TableChange(QuotaEntity.of(user="alice"), PRODUCER, None, 5.0)
    found = preview(plan_of(QuotaTable(), [rate]), None)
    assert (found.affected, found.watched) == ((), None)
    assert [line.client.user for line in found.named] == ["alice"]
