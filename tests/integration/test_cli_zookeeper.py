"""
kafka-configs --zookeeper: the seeds' own lines, verbatim, on a real ZooKeeper.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from headgate.cli import doctor
from headgate.cli.kafka_configs import main
from headgate.embedded import EmbeddedZooKeeper

pytestmark = pytest.mark.kafka3

WARNING = [
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
]
# KIP-55 "Tools" and KIP-936 "Tools", typed as there.
KIP_55 = (
    "--zookeeper localhost:2181 --alter --add-config "
    "'producer_byte_rate=1024,consumer_byte_rate=2048' --entity-name user1 --entity-type users",
    "--zookeeper localhost:2181 --alter --add-config "
    "'producer_byte_rate=10000,consumer_byte_rate=20000' --entity-type users",
    "--zookeeper localhost:2181 --alter --add-config "
    "'producer_byte_rate=10,consumer_byte_rate=20' --entity-name clientA --entity-type clients "
    "--entity-name user2 --entity-type users",
)
KIP_936 = (
    "--zookeeper localhost:2181 --alter --add-config 'producer_ids_rate=50' --entity-name user1 "
    "--entity-type users",
    "--zookeeper localhost:2181 --alter --add-config 'producer_ids_rate=200' --entity-type users",
)


class Ensemble:
    """A chroot of one's own."""

    def __init__(self, connect: str, client: KazooClient, capsys: Any) -> None:
        self.connect = connect
        self.client = client
        self._capsys = capsys

    def run(self, line: str) -> tuple[int, list[str], list[str]]:
        words = [self.connect if w == "localhost:2181" else w for w in shlex.split(line)]
        status = main(words)
        printed = self._capsys.readouterr()
        return status, printed.out.splitlines(), printed.err.splitlines()

    def config(self, path: str) -> dict[str, str] | None:
        if not self.client.exists(path):
            return None
        found: dict[str, str] = json.loads(self.client.get(path)[0])["config"]
        return found


@pytest.fixture
def ensemble(
    zookeeper: EmbeddedZooKeeper, unique: Any, capsys: pytest.CaptureFixture[str]
) -> Iterator[Ensemble]:
    chroot = f"/{unique('configs')}"
    root = KazooClient(zookeeper.address)
    root.start()
    root.ensure_path(chroot)
    root.chroot = chroot
    yield Ensemble(f"{zookeeper.address}{chroot}", root, capsys)
    root.stop()
    root.close()


def test_55_8_the_kips_lines_run_verbatim(ensemble: Ensemble) -> None:
    status, out, err = ensemble.run(KIP_55[0])
    assert (status, err) == (0, [])
    assert out == [*WARNING, "Completed updating config for entity: user-principal 'user1'."]
    assert ensemble.config("/config/users/user1") == {
        "producer_byte_rate": "1024",
        "consumer_byte_rate": "2048",
    }
    status, out, _ = ensemble.run(KIP_55[2])
    assert status == 0
    assert out[2:] == [
        "Completed updating config for entity: user-principal 'user2', client-id 'clientA'."
    ]
    assert ensemble.config("/config/users/user2/clients/clientA") == {
        "producer_byte_rate": "10",
        "consumer_byte_rate": "20",
    }


def test_55_9_leaving_out_the_name_means_the_default(ensemble: Ensemble) -> None:
    status, out, _ = ensemble.run(KIP_55[1])
    assert status == 0
    assert out[2:] == ["Completed updating config for entity: default user-principal."]
    assert ensemble.config("/config/users/<default>") == {
        "producer_byte_rate": "10000",
        "consumer_byte_rate": "20000",
    }
    line = "--zookeeper localhost:2181 --alter --add-config producer_byte_rate=7"
    assert ensemble.run(f"{line} --entity-type users --entity-type clients")[0] == 0
    assert ensemble.config("/config/users/<default>/clients/<default>") is not None
    assert ensemble.run(f"{line} --entity-type clients")[0] == 0
    assert ensemble.config("/config/clients/<default>") == {"producer_byte_rate": "7"}


def test_936_10_producer_ids_rate_for_a_user_and_the_default(ensemble: Ensemble) -> None:
    for line in (KIP_55[0], *KIP_936):
        assert ensemble.run(line)[0] == 0
    # Never in the znodes that Kafka reads: its own tool fails on keys it doesn't know.
    assert "producer_ids_rate" not in (ensemble.config("/config/users/user1") or {})
    assert ensemble.config("/headgate/quotas/users/user1") == {"producer_ids_rate": "50.0"}
    assert ensemble.config("/headgate/quotas/users/<default>") == {"producer_ids_rate": "200.0"}
    status, _, err = ensemble.run(KIP_936[1].replace("users", "clients"))
    assert status == 1
    assert err == ["requirement failed: Unknown Dynamic Configuration: Set(producer_ids_rate)."]


def test_describe_reads_as_the_zookeeper_tool_wrote_it(ensemble: Ensemble) -> None:
    for line in (*KIP_55, *KIP_936):
        assert ensemble.run(line)[0] == 0
    _, out, _ = ensemble.run("--zookeeper localhost:2181 --describe --entity-type users")
    assert sorted(out[2:]) == [
        "Configs for default user-principal are "
        "producer_ids_rate=200.0,producer_byte_rate=10000,consumer_byte_rate=20000",
        "Configs for user-principal 'user1' are "
        "producer_ids_rate=50.0,producer_byte_rate=1024,consumer_byte_rate=2048",
    ]
    pairs = "--zookeeper localhost:2181 --describe --entity-type clients --entity-type users"
    assert ensemble.run(pairs)[1][2:] == [
        "Configs for user-principal 'user2', client-id 'clientA' are "
        "producer_byte_rate=10,consumer_byte_rate=20"
    ]
    # Two types and one name: the ZooKeeper parser takes it for the user.
    assert ensemble.run(f"{pairs} --entity-name user2")[1][2:] == ensemble.run(pairs)[1][2:]
    nobody = "--zookeeper localhost:2181 --describe --entity-type users --entity-name nobody"
    assert ensemble.run(nobody)[1][2:] == ["Configs for user-principal 'nobody' are "]


@pytest.mark.parametrize(
    ("rest", "first"),
    [
        ("--entity-name u --delete-config producer_byte_rate", "Invalid config(s): producer_byte"),
        ("--entity-name u --add-config nope=1", "requirement failed: Unknown Dynamic Config"),
        ("--entity-name u --add-config producer_byte_rate=x", "Error while executing config"),
        ("--entity-name u --add-config SCRAM-SHA-256=[password=x]", "SCRAM credentials (SCRAM-S"),
        ("--entity-name u --add-config producer_byte_rate", "requirement failed: Invalid entity"),
    ],
)
def test_refusals(ensemble: Ensemble, rest: str, first: str) -> None:
    line = f"--zookeeper localhost:2181 --alter --entity-type users {rest}"
    status, _, err = ensemble.run(line)
    assert status == 1
    assert err[0].startswith(first)


def test_broker_settings(ensemble: Ensemble) -> None:
    line = "--zookeeper localhost:2181 --alter --entity-type brokers"
    rate = "max.connection.creation.rate"
    assert ensemble.run(f"{line} --entity-name 1 --add-config {rate}=10")[1][2:] == [
        "Completed updating config for entity: brokers '1'."
    ]
    assert ensemble.run(f"{line} --entity-default --add-config {rate}=100")[0] == 0
    describe = "--zookeeper localhost:2181 --describe --entity-type brokers"
    assert ensemble.run(describe)[1][2:] == [
        f"Configs for brokers '1' are {rate}=10",
        f"Configs for default brokers are {rate}=100",
    ]
    assert ensemble.run(f"{line} --entity-name 1 --delete-config max.connections")[0] == 1


def test_55d_1_doctor_reports_the_older_layout(
    ensemble: Ensemble, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ensemble.run(KIP_55[0])[0] == 0
    ensemble.client.set("/config/users", b'{"version":1,"config":{"producer_byte_rate":"9"}}')
    assert doctor.main(["--store", f"zookeeper://{ensemble.connect}"]) == 1
    assert "/config/users holds quotas of users/<default> in an older layout" in (
        capsys.readouterr().out
    )
