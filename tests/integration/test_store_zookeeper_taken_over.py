"""What the ZooKeeper store still changes once a KRaft controller has taken the cluster over."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.suite import alteration, set_key
from headgate.cli.main import load
from headgate.embedded import EmbeddedZooKeeper
from headgate.errors import ApiError, KafkaError
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.store import open_store
from headgate.store.zookeeper.scram import alter_credentials, read_credentials
from headgate.store.zookeeper.store import ZooKeeperStore

from .gateway_kit import wait_for
from .scripted_upstream import Upstream
from .scripted_upstream import upstream as upstream
from .test_gateway_store import Host, refusal, until_ready

main_doctor = load("doctor")
pytestmark = pytest.mark.kafka3

ALICE = QuotaEntity.of(user="alice")
BOB = QuotaEntity.of(user="bob")
BOTH = QuotaEntity.of(user="both")
OVERRIDES = "max.connections.per.ip.overrides"
BROKERS = {
    "version": 2,
    "brokerid": 1,
    "timestamp": "1",
    "kraftControllerEpoch": -1,
}


class Cluster:
    """The znodes by which a cluster tells who is in charge, at a chroot of its own."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, client: Any) -> None:
        self._client = client
        self._chroot = f"/taken/{uuid.uuid4().hex}"
        self.url = f"zookeeper://{zookeeper.address}{self._chroot}"

    def begin(self) -> None:
        """Let a broker be the controller, as in ZooKeeper mode."""
        self._client.create(f"{self._chroot}/controller", json.dumps(BROKERS).encode())
        self._client.create(f"{self._chroot}/controller_epoch", b"1")

    def take_over(self) -> None:
        """Do as a KRaft controller does: the znode is made again, and the epoch is counted."""
        kraft = {**BROKERS, "brokerid": 3000, "kraftControllerEpoch": 4}
        transaction = self._client.transaction()
        transaction.set_data(f"{self._chroot}/controller_epoch", b"2")
        transaction.delete(f"{self._chroot}/controller")
        transaction.create(f"{self._chroot}/controller", json.dumps(kraft).encode())
        assert not [r for r in transaction.commit() if isinstance(r, Exception)]

    def give_back(self) -> None:
        """Do as who goes back to ZooKeeper is told to."""
        self._client.delete(f"{self._chroot}/controller")


@pytest.fixture
def cluster(zookeeper: EmbeddedZooKeeper) -> Iterator[Cluster]:
    with zookeeper.client() as client:
        yield Cluster(zookeeper, client)


@pytest.fixture
def store(cluster: Cluster) -> Iterator[ZooKeeperStore]:
    with open_store(cluster.url) as store:
        assert isinstance(store, ZooKeeperStore)
        cluster.begin()
        yield store


def told(results: list[Any]) -> list[Any]:
    errors = [result.error for result in results]
    return [e and (e.code, "--bootstrap-server" in str(e)) for e in errors]


REFUSED = (KafkaError.POLICY_VIOLATION, True)


def everybody(store: ZooKeeperStore) -> list[Callable[[], object]]:
    """Each way by which something under /config is changed."""
    return [
        lambda: alter_credentials(store, "alice", {"SCRAM-SHA-256": "x"}, who="me", tool="test"),
        lambda: alter_credentials(store, "kept", {"SCRAM-SHA-256": None}, who="me", tool="test"),
        lambda: store.broker_settings.alter("1", {"max.connections": "7"}),
        lambda: store.broker_settings.alter("1", {"max.connections": "7"}, validate_only=True),
        lambda: store.broker_settings.alter("", {OVERRIDES: "10.0.0.1:5"}),
    ]


def test_kafka_s_own_quotas_are_refused_and_ours_are_changed(
    cluster: Cluster, store: ZooKeeperStore
) -> None:
    store.alter([alteration(ALICE, producer_byte_rate=1_000.0, producer_ids_rate=1.0)])
    alter_credentials(store, "kept", {"SCRAM-SHA-256": "x"}, who="me", tool="test")
    assert store.availability.refuses is None
    cluster.take_over()
    changes = [
        set_key(ALICE, PRODUCER, 2_000.0),
        set_key(BOB, PRODUCER_IDS, 3.0),
        alteration(BOTH, producer_byte_rate=1.0, producer_ids_rate=2.0),
    ]
    assert told(store.alter(changes, validate_only=True)) == [REFUSED, None, REFUSED]
    revision = store.home.identify().revision
    assert told(store.alter(changes, at_revision=revision)) == [REFUSED, None, REFUSED]
    assert told(store.alter([set_key(ALICE, PRODUCER, None)])) == [REFUSED]
    # What has the value already isn't written, so nothing of it can be lost.
    assert told(store.alter([set_key(ALICE, PRODUCER, 1_000.0)])) == [None]
    for change in everybody(store):
        with pytest.raises(ApiError, match=r"3000 has taken .*--bootstrap-server.* kafka://") as no:
            change()
        assert no.value.code == KafkaError.POLICY_VIOLATION
    assert "KRaft controller 3000" in (store.availability.refuses or "")
    with open_store(cluster.url, create=False) as reader:
        table = reader.snapshot()
        assert "KRaft controller 3000" in (reader.availability.refuses or "")
        assert reader.broker_settings.now() == {}
        assert [str(h.entity) for h in reader.history.entries()].count(str(BOTH)) == 0
    assert table.get(ALICE, PRODUCER) == 1_000.0
    assert dict(table.entities[BOB]) == {PRODUCER_IDS: 3.0}
    assert BOTH not in table.entities
    assert read_credentials(store) == {"kept": {"SCRAM-SHA-256": "x"}}
    cluster.give_back()
    assert told(store.alter(changes)) == [None, None, None]
    assert store.availability.refuses is None


@pytest.mark.parametrize("way", range(6))
def test_a_controller_that_takes_over_amid_a_change_is_noticed(
    cluster: Cluster, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch, way: int
) -> None:
    alter_credentials(store, "kept", {"SCRAM-SHA-256": "x"}, who="me", tool="test")
    store.broker_settings.alter("1", {"max.connections": "6"})
    send = store.home.client._send
    taken = False

    def late(steps: list[Any]) -> Any:
        nonlocal taken
        if not taken and any(step.path.startswith("/config/") for step in steps):
            taken = True
            cluster.take_over()
        return send(steps)

    before = store.snapshot(), store.broker_settings.now(), read_credentials(store)
    changes = [c for n, c in enumerate(everybody(store)) if n != 3]
    monkeypatch.setattr(store.home.client, "_send", late)
    if way < len(changes):
        with pytest.raises(ApiError, match="KRaft controller 3000 has taken"):
            changes[way]()
    else:
        made = [alteration(BOTH, producer_byte_rate=1.0), set_key(BOB, PRODUCER_IDS, 3.0)]
        refused = told(store.alter(made if way == 4 else made[:1]))
        assert refused == ([REFUSED, None] if way == 4 else [REFUSED])
        store.alter([set_key(BOB, PRODUCER_IDS, None)])
    assert taken
    assert (store.snapshot(), store.broker_settings.now(), read_credentials(store)) == before


def test_a_watch_notices_that_a_controller_takes_over(
    cluster: Cluster, store: ZooKeeperStore
) -> None:
    watch = store.watch(lambda _table, _delta: None)
    cluster.take_over()
    wait_for(lambda: store.availability.refuses is not None, "the takeover")
    cluster.give_back()
    wait_for(lambda: store.availability.refuses is None, "the way back")
    watch.close()


def test_a_gateway_and_doctor_say_it(
    tmp_path: Path,
    upstream: Upstream,
    cluster: Cluster,
    store: ZooKeeperStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.alter([set_key(ALICE, PRODUCER, 1_000.0)])
    with Host(tmp_path, upstream, cluster.url).gateway() as gateway:
        until_ready(gateway)
        assert gateway.call(gateway.gateway.health.note) is None
        cluster.take_over()
        wait_for(lambda: gateway.call(gateway.gateway.health.note) is not None, "a note")
        assert "KRaft controller 3000" in gateway.call(gateway.gateway.health.note)
        until_ready(gateway)
        assert "KRaft controller 3000" in refusal(gateway)
    assert main_doctor(["--store", cluster.url]) == 3
    assert "KRaft controller 3000 has taken this cluster over" in capsys.readouterr().out
