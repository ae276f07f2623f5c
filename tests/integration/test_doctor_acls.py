"""`headgate doctor --config` before a real broker with an authorizer: what its user may not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.embedded import EmbeddedKafka
from headgate.store import open_store

main_doctor = load("doctor")

pytestmark = pytest.mark.kafka4
ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "needs Describe on Topic '*'"
SETTINGS = "needs DescribeConfigs on the cluster"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A broker that allows all to admin and to clients without a user, and nothing to others."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with EmbeddedKafka(extra_properties=properties) as kafka:
        yield kafka


def looked_at(
    kafka: EmbeddedKafka,
    folder: Path,
    port: int,
    capsys: pytest.CaptureFixture[str],
    enforce: str = "all",
) -> str:
    lines = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
        "headgate.upstream.admin.sasl.username": "alice",
        "headgate.upstream.admin.sasl.password": kafka.users["alice"],
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.data.dir": str(folder),
        "headgate.enforce": enforce,
        "headgate.store": f"sqlite:{folder / 'quotas.db'}",
    }
    file = folder / "headgate.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    open_store(lines["headgate.store"]).close()
    assert main_doctor(["--config", str(file)]) == 3  # nothing accepts at the gateway's port
    return capsys.readouterr().out


def test_acls_that_the_gateways_own_user_lacks_are_named_until_it_has_them(
    guarded: EmbeddedKafka, tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = looked_at(guarded, tmp_path, free_port, capsys)
    assert TOPICS in found
    assert SETTINGS in found
    allow = ["--add", "--allow-principal", "User:alice", "--operation"]
    guarded.tool(ACLS, *allow, "Describe", "--topic", "*")
    found = looked_at(guarded, tmp_path, free_port, capsys)
    assert TOPICS not in found
    assert SETTINGS in found
    guarded.tool(ACLS, *allow, "DescribeConfigs", "--cluster")
    found = looked_at(guarded, tmp_path, free_port, capsys)
    assert SETTINGS not in found


def test_limits_by_address_are_named_in_every_mode(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedKafka(extra_properties={"max.connections.per.ip": "77"}) as kafka:
        kafka.tool(
            "kafka.admin.ConfigCommand",
            *("--alter", "--add-config", "connection_creation_rate=99"),
            *("--entity-type", "ips", "--entity-default"),
        )
        found = looked_at(kafka, tmp_path, free_port, capsys, enforce="missing")
    assert "max.connections.per.ip=77 of broker 1 hits all clients of the gateway at once" in found
    assert "{ip=<default>} connection_creation_rate:per_s=99 of the brokers hits all" in found
