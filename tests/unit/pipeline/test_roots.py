"""What charges are packed under, so that plans with different quota-ids need them once."""

from __future__ import annotations

import pytest

from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.charge_index import Root, layer_of, root_of
from headgate.pipeline.replaying.packed_format import BOTH, CLIENT, NOBODY, ROOT, USER, tags_of
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS
from headgate.quota.table import QuotaTable

ALICE, USERS = QuotaEntity.of(user="alice"), QuotaEntity.of(user=DEFAULT)
CLIENTS, APP = QuotaEntity.of(client_id=DEFAULT), QuotaEntity.of(client_id="app")
PAIRS = QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)
P = "producer_byte_rate"


def plan(*entities: QuotaEntity, limit: float = 1.0) -> Quotas:
    return Quotas.of(QuotaTable.of({e: {PRODUCER: limit} for e in entities}))


@pytest.mark.parametrize(
    ("plans", "root"),
    [
        ([plan(ALICE, PAIRS, APP)], Root.SENSOR),
        ([plan(ALICE, APP), plan(ALICE, APP, limit=2.0)], Root.SENSOR),
        ([plan(USERS), plan(ALICE, USERS)], Root.USER),
        ([plan(USERS), plan(PAIRS)], Root.USER),
        ([plan(), plan(PAIRS)], Root.PAIR),
        ([plan(CLIENTS), plan()], Root.CLIENT),
        ([plan(CLIENTS), plan(PAIRS)], Root.CLIENT),
        ([plan(USERS), plan(CLIENTS)], Root.ALL),
        ([plan(USERS), plan(PAIRS), plan(APP)], Root.ALL),
    ],
)
def test_plans_that_disagree_meet_where_all_their_sensors_do(
    plans: list[Quotas], root: Root
) -> None:
    assert root_of(plans, P) is root


def test_what_a_plan_only_has_later_or_for_another_type_counts_where_it_matters() -> None:
    later = Quotas.with_history(QuotaTable.of({}), [QuotaEvent(5, APP, PRODUCER, 1.0)])
    assert root_of([plan(USERS), later], P) is Root.ALL
    fetches = Quotas.of(QuotaTable.of({USERS: {PRODUCER: 1.0}, APP: {CONSUMER: 1.0}}))
    assert root_of([plan(ALICE), fetches], P) is Root.USER
    assert root_of([plan(ALICE), fetches], "consumer_byte_rate") is Root.CLIENT
    # A static default is a client-id's.
    static = Quotas.of(QuotaTable.of({USERS: {PRODUCER: 1.0}}, static_defaults={PRODUCER: 9.0}))
    assert root_of([plan(USERS), static], P) is Root.ALL
    # Producer ids are counted by user, whatever is written down.
    ids = Quotas.of(QuotaTable.of({APP: {PRODUCER_IDS: 1.0}}))
    assert root_of([plan(), ids], "producer_ids_rate") is Root.USER


@pytest.mark.parametrize(
    ("root", "tags", "layer"),
    [
        (("", ""), ("alice", ""), USER),
        (("", ""), ("", "app"), CLIENT),
        (("", ""), ("alice", "app"), BOTH),
        (("", ""), ("", ""), ROOT),
        (("alice", ""), ("alice", ""), ROOT),
        (("alice", ""), ("alice", "app"), BOTH),
        (("alice", ""), ("", ""), NOBODY),
        (("", "app"), ("", "app"), ROOT),
    ],
)
def test_a_sensors_tags_follow_from_its_layer(
    root: tuple[str, str], tags: tuple[str, str], layer: int
) -> None:
    assert layer_of(tags, root) == layer
    assert tags_of(layer, root, ("alice", "app")) == tags


def test_a_nameless_charges_tags_are_empty() -> None:
    assert tags_of(BOTH, ("", ""), (None, None)) == ("", "")
