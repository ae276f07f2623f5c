"""
kafka-configs --zookeeper: the KIPs' own command lines, verbatim, on a real ZooKeeper.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from headgate.admin import AdminClient
from headgate.cli.kafka_configs.kafka_configs import main
from headgate.cli.main import load
from headgate.embedded import EmbeddedKafka, EmbeddedZooKeeper
from headgate.embedded.tools import run_tool
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.quota.precedence import resolve
from headgate.store import open_store
from kit import kip_55

main_doctor = load("doctor")

pytestmark = [pytest.mark.kafka3, pytest.mark.short]

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
    root = KazooClient(zookeeper.address, timeout=60.0)  # longer than a machine stands still
    root.start(timeout=60)
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


def test_55_9_55_5_no_name_means_the_default_at_the_kips_paths(
    ensemble: Ensemble,
) -> None:
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


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("--entity-name A --entity-type clients --entity-type users", "users/<default>/clients/A"),
        ("--entity-type users --entity-type clients --entity-name A", "users/<default>/clients/A"),
        ("--entity-name A --entity-type users --entity-type clients", "users/A/clients/<default>"),
        ("--entity-type clients --entity-type users --entity-name A", "users/A/clients/<default>"),
    ],
)
def test_55_9_a_name_belongs_to_the_type_it_stands_with(
    ensemble: Ensemble, words: str, path: str
) -> None:
    line = f"--zookeeper localhost:2181 --alter --add-config producer_byte_rate=7 {words}"
    assert ensemble.run(line)[0] == 0
    assert ensemble.config(f"/config/{path}") == {"producer_byte_rate": "7"}
    other = "users/A/clients/<default>" if path.endswith("A") else "users/<default>/clients/A"
    assert ensemble.client.exists(f"/config/{other}") is None
    described = ensemble.run(f"--zookeeper localhost:2181 --describe {words}")
    assert "producer_byte_rate=7" in described[1][-1]


def test_55_9_a_name_between_two_types_is_refused(ensemble: Ensemble) -> None:
    words = "--entity-type users --entity-name A --entity-type clients"
    line = f"--zookeeper localhost:2181 --alter --add-config producer_byte_rate=7 {words}"
    status, _, err = ensemble.run(line)
    assert status == 1
    assert "may belong to either" in err[0]
    for kind in ("users", "clients"):
        assert not ensemble.client.exists(f"/config/{kind}") or not ensemble.client.get_children(
            f"/config/{kind}"
        )


@pytest.mark.parametrize("path", kip_55.NODES)
def test_55_17_55_24_pairs_become_the_kips_json_at_the_kips_path(
    ensemble: Ensemble, path: str
) -> None:
    kips = json.loads(kip_55.NODES[path])
    pairs = ",".join(f"{key}={value}" for key, value in kips["config"].items())
    line = f"--zookeeper localhost:2181 --alter --add-config '{pairs}'"
    words = path.removeprefix("/config/").split("/")
    for kind, name in zip(words[::2], words[1::2], strict=True):
        line += f" --entity-type {kind}"
        line += "" if name == "<default>" else f" --entity-name {name}"
    assert ensemble.run(line)[0] == 0
    assert json.loads(ensemble.client.get(path)[0]) == kips


def test_55_17_55_18_what_the_kip_keeps_at_its_paths_is_in_force(ensemble: Ensemble) -> None:
    for path, data in kip_55.NODES.items():
        ensemble.client.create(path, data, makepath=True)
    with open_store(f"zookeeper://{ensemble.connect}") as store:
        table = store.snapshot()
    assert len(table.entities) == 6

    def limits(user: str, client_id: str) -> tuple[float | None, float | None]:
        produced, fetched = (resolve(table, user, client_id, key) for key in (PRODUCER, CONSUMER))
        return produced.value, fetched.value

    assert limits("user1", "any") == (1024, 2048)
    assert limits("user2", "clientA") == (10, 30)  # the prose says 20
    assert limits("user2", "clientB") == (20, 40)
    assert limits("user2", "clientC") == (4096, 8192)
    assert limits("user3", "clientA") == (10000, 20000)
    ensemble.client.delete("/config/users/<default>")
    with open_store(f"zookeeper://{ensemble.connect}") as store:
        table = store.snapshot()
    assert limits("user3", "clientA") == (100, 200)
    assert limits("user3", "clientB") == (None, None)


def test_55_21_quotas_persist_under_encoded_node_names(ensemble: Ensemble) -> None:
    user, client_id = "CN=a b,O=*", "cl/ient:1 *+%é"
    names = f"--entity-type users --entity-name '{user}'"
    names += f" --entity-type clients --entity-name '{client_id}'"
    line = f"--zookeeper localhost:2181 --alter --add-config producer_byte_rate=66666 {names}"
    assert ensemble.run(line)[0] == 0
    folder = "/config/users/CN%3Da%20b%2CO%3D%2A/clients"
    assert ensemble.client.get_children(folder) == ["cl%2Fient%3A1%20%2A%2B%25%C3%A9"]
    describe = f"--zookeeper localhost:2181 --describe {names}"
    assert ensemble.run(describe)[1][2:] == [
        f"Configs for user-principal '{user}', client-id '{client_id}' are producer_byte_rate=66666"
    ]


def test_55_25_a_client_ids_configuration_from_before_goes_on_working(ensemble: Ensemble) -> None:
    old = b'{"version":1,"config":{"producer_byte_rate":"1024","consumer_byte_rate":"2048"}}'
    ensemble.client.create("/config/clients/clientA", old, makepath=True)
    line = "--zookeeper localhost:2181 --describe --entity-type clients"
    assert ensemble.run(line)[1][2:] == [
        "Configs for client-id 'clientA' are producer_byte_rate=1024,consumer_byte_rate=2048"
    ]
    change = "--zookeeper localhost:2181 --alter --add-config producer_byte_rate=1"
    assert ensemble.run(f"{change} --entity-type clients --entity-name clientA")[0] == 0
    assert ensemble.config("/config/clients/clientA") == {
        "producer_byte_rate": "1",
        "consumer_byte_rate": "2048",
    }


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
        ("--entity-name u --add-config producer_byte_rate=10.5", "Error while executing config"),
        ("--entity-name u --add-config producer_byte_rate=5,nope=1", "requirement failed: Unkn"),
        ("--entity-name u --add-config SCRAM-SHA-256=x", "Invalid credential property SCRAM_SHA"),
        (
            "--entity-name u --add-config SCRAM-SHA-256=[iterations=4,password=x]",
            "Iterations 4 is less than the minimum 4096 required for SCRAM_SHA_256",
        ),
        ("--add-config SCRAM-SHA-256=[password=x]", "requirement failed: Unknown Dynamic Conf"),
        ("--entity-name u --delete-config SCRAM-SHA-256", "Invalid config(s): SCRAM-SHA-256"),
        ("--entity-name u --add-config producer_byte_rate", "requirement failed: Invalid entity"),
    ],
)
def test_55_24_refused_pairs_leave_no_znode(ensemble: Ensemble, rest: str, first: str) -> None:
    line = f"--zookeeper localhost:2181 --alter --entity-type users {rest}"
    status, _, err = ensemble.run(line)
    assert status == 1
    assert err[0].startswith(first)
    assert not ensemble.client.exists("/config/users/u")
    assert not ensemble.client.exists("/config/users/<default>")


def test_credentials_and_quotas_share_a_znode_and_leave_each_other_alone(
    ensemble: Ensemble,
) -> None:
    line = "--zookeeper localhost:2181 --alter --entity-type users --entity-name zkuser"
    scram = "SCRAM-SHA-256=[iterations=8192,password=x]"
    assert ensemble.run(f"{line} --add-config {scram}")[1][2:] == [
        "Completed updating config for entity: user-principal 'zkuser'."
    ]
    assert ensemble.run(f"{line} --add-config producer_byte_rate=5")[0] == 0
    config = ensemble.config("/config/users/zkuser")
    assert config is not None
    assert set(config) == {"SCRAM-SHA-256", "producer_byte_rate"}
    assert config["SCRAM-SHA-256"].startswith("salt=")
    assert config["SCRAM-SHA-256"].endswith(",iterations=8192")
    describe = "--zookeeper localhost:2181 --describe --entity-type users"
    assert ensemble.run(describe)[1][2:] == [
        f"Configs for user-principal 'zkuser' are SCRAM-SHA-256={config['SCRAM-SHA-256']},"
        "producer_byte_rate=5"
    ]
    assert ensemble.run(f"{line} --delete-config producer_byte_rate")[0] == 0
    assert set(ensemble.config("/config/users/zkuser") or {}) == {"SCRAM-SHA-256"}
    assert ensemble.run(f"{line} --delete-config SCRAM-SHA-256")[0] == 0
    # The znode goes with its last key, as in Kafka.
    assert ensemble.config("/config/users/zkuser") is None


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
    assert main_doctor(["--store", f"zookeeper://{ensemble.connect}"]) == 3
    assert "/config/users holds quotas of users/<default> in an older layout" in (
        capsys.readouterr().out
    )


# --- beside a real broker of that ensemble


CAPTURE = Path(__file__).parents[1] / "data/captures/kafka-configs-3.9.2-zk.json"
# Captured commands that are answered otherwise on purpose, each with the reason.
EXEMPT = {
    "zk: add quota",  # KIP-55's rules hold with --zookeeper
    "err: missing value",  # worded as 4.3.1 words it
}


def test_every_command_captured_on_3_9_is_answered_as_kafkas_own_tool_did(
    kafka3: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {
        "--bootstrap-server": kafka3.bootstrap("PLAINTEXT"),
        "--zookeeper": kafka3.zookeeper.address,
    }
    wrong = []
    commands: list[dict[str, Any]] = json.loads(CAPTURE.read_text())
    for command in commands:
        args = command["args"]
        wanted_error = first_line(command["stderr"]).replace(args[1], places[args[0]])
        if "WARN" in wanted_error:
            wanted_error = ""  # Kafka's own log line
        wanted = (command["exit"], told(command["stdout"]), wanted_error)
        exempt = command["name"] in EXEMPT
        for _ in range(200):  # the broker hears of a change from ZooKeeper, a moment later
            status = main([args[0], places[args[0]], *args[2:]])
            printed = capsys.readouterr()
            got = (status, told(printed.out), first_line(printed.err))
            if exempt or got == wanted:
                break
            time.sleep(0.1)
        if not exempt and got != wanted:
            wrong.append((command["name"], *got))
    assert wrong == []
    assert len(commands) > 60


def told(text: str) -> list[str]:
    """Lines without salts and without the users this cluster was made with."""
    plain = re.sub(r"SCRAM-SHA-\d+=(salt=[^,]*,\S+?,)?iterations=\d+,?( SCRAM[^ ]*)?", "", text)
    return sorted(
        line
        for line in plain.splitlines()
        if not re.search(r"zkuser|are ?$|^SCRAM credential", line)
    )


def first_line(text: str) -> str:
    """The first line but for our note, on stderr, about a user who is called <default>."""
    lines = text.splitlines()
    noted = [line for line in lines if line.startswith("kafka-configs: note: {user=%3Cdefault%3E}")]
    return ([line for line in lines if line not in noted] or [""])[0]


def test_kafkas_own_tool_still_alters_an_entity_that_has_keys_of_ours(
    kafka3: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ["--zookeeper", kafka3.zookeeper.address, "--alter", "--entity-type", "users"]
    server = ["--bootstrap-server", kafka3.bootstrap("PLAINTEXT")]
    name = ["--entity-name", "both"]
    assert main([*here, *name, "--add-config", "producer_ids_rate=50"]) == 0
    add = [*server, "--alter", "--entity-type", "users", *name, "--add-config"]
    real = run_tool("kafka.admin.ConfigCommand", [*add, "producer_byte_rate=7"], version="3.9.2")
    assert real.returncode == 0, real.stderr
    capsys.readouterr()
    describe = ["--zookeeper", kafka3.zookeeper.address, "--describe", "--entity-type", "users"]
    assert main([*describe, *name]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "Configs for user-principal 'both' are producer_ids_rate=50.0,producer_byte_rate=7"
    ]
    assert main([*here, *name, "--delete-config", "producer_ids_rate,producer_byte_rate"]) == 0


def test_a_broker_takes_credentials_that_headgate_wrote(
    kafka3: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--zookeeper", kafka3.zookeeper.address, "--alter", "--user", "scrammer"]
    assert main([*line, "--add-config", "SCRAM-SHA-512=[password=pa,ss=1]"]) == 0
    capsys.readouterr()
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'ScramLoginModule required username="scrammer" password="pa,ss=1";',
    }
    for _ in range(600):
        with AdminClient(kafka3.bootstrap("SASL_PLAINTEXT"), config=config) as client:
            answer = client.describe_quotas().entities()
            if answer.exception(120) is None:
                break
        time.sleep(0.1)
    assert answer.exception(120) is None
    assert main([*line, "--delete-config", "SCRAM-SHA-512"]) == 0
