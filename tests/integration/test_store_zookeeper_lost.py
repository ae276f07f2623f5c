"""The ZooKeeper store where the answer to a change is lost, and where changes come amid a read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from contract.suite import alteration, errors, set_key
from headgate.embedded import EmbeddedZooKeeper
from headgate.errors import StoreError
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.quota.table import QuotaTable
from headgate.store import AuditEvent, open_store
from headgate.store.zookeeper.history import LOOK_BACK, ForeignChange
from headgate.store.zookeeper.read import read_entities
from headgate.store.zookeeper.scram import alter_credentials, read_credentials
from headgate.store.zookeeper.store import ZooKeeperStore
from headgate.store.zookeeper.znodes import Interrupted, TransactionStep, Znode

pytestmark = pytest.mark.kafka3

ALICE = QuotaEntity.of(user="alice")
RATE = "max.connection.creation.rate"


@pytest.fixture
def stores(zookeeper: EmbeddedZooKeeper) -> Iterator[list[ZooKeeperStore]]:
    """Two on one home, as two processes have it."""
    url = f"zookeeper://{zookeeper.address}/lost/{uuid.uuid4().hex}"
    opened = [open_store(url) for _ in range(2)]
    yield opened  # type: ignore[misc]
    for store in opened:
        store.close()


def lose_answer(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]
) -> None:
    """Have the next transaction happen, its answer be lost, and something follow at once."""
    commit = store._client.commit

    def lost(transactions: list[list[TransactionStep]]) -> list[BaseException | None]:
        monkeypatch.setattr(store._client, "commit", commit)
        assert commit(transactions) == [None] * len(transactions)
        then()
        return [Interrupted("connection loss")] * len(transactions)

    monkeypatch.setattr(store._client, "commit", lost)


def test_a_change_whose_answer_is_lost_is_made_once_though_another_follows(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    lose_answer(store, monkeypatch, lambda: other.alter([set_key(ALICE, PRODUCER, 2.0)], who="b"))
    assert errors(store.alter([set_key(ALICE, PRODUCER, 1.0)], who="a")) == [None]
    assert store.snapshot().get(ALICE, PRODUCER) == 2.0
    found = [(h.who, h.before, h.after) for h in other.history.entries()]
    assert found == [("a", None, 1.0), ("b", 1.0, 2.0)]


def test_one_based_on_a_revision_is_not_refused_after_it_was_made(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    at = store.home.identify().revision
    lose_answer(store, monkeypatch, lambda: other.alter([set_key(ALICE, PRODUCER, 2.0)]))
    assert errors(store.alter([set_key(ALICE, PRODUCER, 1.0)], at_revision=at)) == [None]
    assert store.home.identify().revision == at + 2


def test_broker_settings_whose_answer_is_lost(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    lose_answer(store, monkeypatch, lambda: None)
    store.broker_settings.alter("1", {RATE: "1"}, who="a")
    assert [line.who for line in store.history.audit_log()] == ["a"]
    lose_answer(store, monkeypatch, lambda: other.broker_settings.alter("1", {RATE: "3"}, who="b"))
    with pytest.raises(StoreError, match="others have changed it since; look what it is now"):
        store.broker_settings.alter("1", {RATE: "2"}, who="a")
    assert store.broker_settings.now() == {"1": {RATE: "3"}}
    assert [line.who for line in store.history.audit_log()] == ["a", "a", "b"]


def test_credentials_whose_answer_is_lost(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    mine, others = {"SCRAM-SHA-256": "a"}, {"SCRAM-SHA-256": "b"}
    lose_answer(store, monkeypatch, lambda: None)
    alter_credentials(store, "alice", mine, who="a", tool="t")
    assert read_credentials(other) == {"alice": mine}
    lose_answer(store, monkeypatch, lambda: None)
    alter_credentials(store, "alice", {"SCRAM-SHA-256": None}, who="a", tool="t")
    assert read_credentials(other) == {}

    def meanwhile() -> None:
        alter_credentials(other, "alice", others, who="b", tool="t")

    lose_answer(store, monkeypatch, meanwhile)
    with pytest.raises(StoreError, match="others have changed it since"):
        alter_credentials(store, "alice", mine, who="a", tool="t")
    assert read_credentials(store) == {"alice": others}


def test_an_audit_line_whose_answer_is_lost_stands_once(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = stores
    lose_answer(store, monkeypatch, lambda: None)
    store.history.audit(AuditEvent("eve", "admin", "alter_client_quotas", "refused"))
    assert [line.who for line in store.history.audit_log()] == ["eve"]


def test_an_entity_is_read_as_of_one_moment_though_it_changes_in_both_homes_meanwhile(
    stores: list[ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys stand in two znodes; the change comes when one has been read and one hasn't."""
    store, other = stores
    both = {PRODUCER: 1.0, PRODUCER_IDS: 1.0}
    other.alter([alteration(ALICE, producer_byte_rate=1.0, producer_ids_rate=1.0)])
    assert store.snapshot() == QuotaTable.of({ALICE: both})
    read = store._client.nodes
    changes = iter((2.0, 3.0))

    def nodes(paths: Iterable[str]) -> dict[str, Znode | None]:
        listed = list(paths)
        if len(listed) != 2 or not listed[0].endswith("/config/users/alice"):
            return read(listed)
        found = read(listed[:1])
        for value in changes:
            other.alter([alteration(ALICE, producer_byte_rate=value, producer_ids_rate=value)])
            break
        return {**found, **read(listed[1:])}

    monkeypatch.setattr(store._client, "nodes", nodes)
    found = read_entities(store._client, [ALICE])
    values = [node.data for node in found.values() if node and node.data]
    assert len(values) == 2
    assert all(b'"3"' in value or b'"3.0"' in value for value in values), values


def test_a_change_of_ours_is_found_behind_many_later_ones(stores: list[ZooKeeperStore]) -> None:
    """A watcher that was held up looks for the entry of what it saw long ago."""
    store, _ = stores
    for value in range(1, 2 * LOOK_BACK):
        store.alter([set_key(ALICE, PRODUCER, value)], who="ops")
    folder = "/headgate/history/users+alice"
    names = store._client.children([folder])[folder]
    nodes = store._client.nodes(f"{folder}/{name}" for name in names)
    third, fourth = sorted(node.czxid for node in nodes.values() if node)[2:4]
    seen: list[Any] = [(PRODUCER, 3.0, 4.0)]
    store.history.record_foreign([ForeignChange("users/alice", 7, third, fourth, seen)])
    assert {h.who for h in store.history.entries()} == {"ops"}
