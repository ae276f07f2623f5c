"""The migration of a real cluster from ZooKeeper to KRaft, as docs/howto/upgrade.md has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.suite import set_key
from headgate.cli.main import load
from headgate.config import Settings
from headgate.embedded.tools import CONFIGS
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.store import open_store
from kit.migrating import Migrating, migrating

from .gateway_kit import wait_for
from .test_gateway_store import Host, refusal, until_ready

pytestmark = [pytest.mark.kafka3, pytest.mark.slow]

ALICE = QuotaEntity.of(user="alice")
ADMIN = "User:ANONYMOUS"
store_command, doctor, apply, configs, undo = (
    load(name) for name in ("store", "doctor", "apply", "kafka-configs", "undo")
)


@pytest.fixture
def cluster() -> Iterator[Migrating]:
    with migrating() as cluster:
        yield cluster


class Home(Host):
    """A gateway's folder, before the real cluster."""

    def __init__(self, folder: Path, cluster: Migrating, url: str) -> None:
        upstream: Any = cluster.kafka.brokers[1].ports
        super().__init__(folder, _Port(upstream.plaintext), url)  # type: ignore[arg-type]
        self.properties["headgate.lease.ttl.ms"] = "10000"
        self.properties["headgate.admin.principals"] = ADMIN
        self.settings = Settings.from_properties(self.properties)
        text = "".join(f"{k}={v}\n" for k, v in self.properties.items())
        self.config.write_text(text)


class _Port:
    def __init__(self, port: int) -> None:
        self.port = port


def in_force(gateway: GatewayThread) -> dict[Any, float | None]:
    table = gateway.call(lambda: gateway.gateway.in_force.table)
    return {key: table.get(ALICE, key) for key in (PRODUCER, PRODUCER_IDS)}


def limits(gateway: GatewayThread) -> Any:
    return gateway.call(lambda: gateway.gateway.in_force.broker_configs)


def set_in_the_cluster(cluster: Migrating, rate: int) -> None:
    change = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    cluster.kafka.tool(CONFIGS, *change, "--add-config", f"producer_byte_rate={rate}")


def ways(cluster: Migrating, file: Path, gateway: GatewayThread) -> list[Callable[[], object]]:
    """Each way by which an operator changes what Kafka has in ZooKeeper."""
    zookeeper = ["--zookeeper", cluster.zookeeper.address, "--alter"]
    alice = [*zookeeper, "--entity-type", "users", "--entity-name", "alice", "--add-config"]
    all_brokers = [*zookeeper, "--entity-type", "brokers", "--entity-default", "--add-config"]
    front = ["--bootstrap-server", gateway.gateway.bootstrap("PLAINTEXT"), "--alter"]
    user = [*front, "--entity-type", "users", "--entity-name", "alice", "--add-config"]
    broker = [*front, "--entity-type", "brokers", "--entity-default", "--add-config"]
    return [
        lambda: configs([*alice, "producer_byte_rate=3000"]),
        lambda: configs([*alice, "SCRAM-SHA-256=[password=other]"]),
        lambda: configs([*all_brokers, "max.connections=99"]),
        lambda: configs([*all_brokers, "max.connections.per.ip.overrides=10.0.0.1:5"]),
        lambda: configs([*user, "producer_byte_rate=3000"]),
        lambda: configs([*broker, "max.connections=99"]),
        lambda: apply(["--store", cluster.url, str(file)]),
    ]


def test_a_migration_loses_no_quota(
    cluster: Migrating, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Home(tmp_path, cluster, cluster.url)
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: [{entity: {user: alice}, producer_byte_rate: 3000}]")
    with contextlib.closing(open_store(cluster.url)) as store:
        store.alter([set_key(ALICE, PRODUCER, 1_000.0)])
        store.alter([set_key(ALICE, PRODUCER_IDS, 50.0)])
        store.broker_settings.alter("", {"max.connections": "200"})
        with host.gateway() as gateway:
            until_ready(gateway)

            # 1. A KRaft controller takes the cluster over; ZooKeeper is still read and written.
            cluster.start_controller()
            cluster.let_the_broker_migrate()
            assert cluster.registered()["kraftControllerEpoch"] >= 0
            wait_for(lambda: gateway.call(gateway.gateway.health.note), "a note")
            until_ready(gateway)
            assert "--bootstrap-server" in refusal(gateway)
            capsys.readouterr()
            for way in ways(cluster, file, gateway):
                assert way() != 0
                told = "".join(capsys.readouterr())
                assert "has taken this cluster over" in told
            assert doctor(["--store", cluster.url]) == 3
            assert "has taken this cluster over" in capsys.readouterr().out
            assert undo(["--store", cluster.url, store.history.entries()[0].change]) != 0
            # What is said to be the way is seen by the gateway too, and stays.
            set_in_the_cluster(cluster, 2_000)
            wait_for(lambda: in_force(gateway)[PRODUCER] == 2_000.0, "the cluster's change")
            cluster.restart_controller()
            assert in_force(gateway) == {PRODUCER: 2_000.0, PRODUCER_IDS: 50.0}
            assert [r.error for r in store.alter([set_key(ALICE, PRODUCER_IDS, 60.0)])] == [None]

            # 2. The broker becomes one of KRaft.
            cluster.make_the_broker_kraft()
            set_in_the_cluster(cluster, 2_500)
            wait_for(lambda: in_force(gateway)[PRODUCER] == 2_500.0, "the cluster's change")

    # 3. The store is copied.
    new = f"kafka://{cluster.kafka.bootstrap()}"
    assert store_command(["copy", "--from", cluster.url, "--to", new]) == 0
    capsys.readouterr()

    # 4. The gateway uses the new one, 5. and the migration ends.
    host = Home(tmp_path, cluster, new)
    with host.gateway() as gateway:
        until_ready(gateway)
        assert in_force(gateway) == {PRODUCER: 2_500.0, PRODUCER_IDS: 60.0}
        assert limits(gateway) == {"": {"max.connections": "200"}}
        assert gateway.call(gateway.gateway.health.note) is None
    cluster.finish()
    with contextlib.closing(open_store(new)) as store:
        assert [r.error for r in store.alter([set_key(ALICE, PRODUCER, 4_000.0)])] == [None]
        assert store.snapshot().get(ALICE, PRODUCER) == 4_000.0

    # Who copies it again, with quotas that were changed since, is told.
    assert store_command(["copy", "--from", cluster.url, "--to", new]) == 1
    assert "2500 and 4000 there" in capsys.readouterr().err
