"""Where quotas are, told by the environment: only where no flag tells, and credentials with it."""

from pathlib import Path

import pytest

from headgate.cli.environment import CONFIG, PLACED, SERVERS, STORE, TwoPlaces, placed
from headgate.cli.main import COMMANDS, main

HERE = {SERVERS: "kafka:9092", CONFIG: "client.properties"}
TOLD = ["--bootstrap-server", "kafka:9092", "--command-config", "client.properties"]


@pytest.mark.parametrize("command", sorted(PLACED))
def test_the_environment_tells_where_no_flag_does(command: str) -> None:
    assert command in COMMANDS
    assert placed(command, ["--x"], HERE) == [*TOLD, "--x"]
    assert placed(command, ["--x"], {STORE: "sqlite:q.db"}) == ["--store", "sqlite:q.db", "--x"]
    assert placed(command, ["--x"], {}) == ["--x"]


@pytest.mark.parametrize(
    "words",
    [
        ["--bootstrap-server", "other:1"],
        ["--bootstrap-server=other:1"],
        ["-bootstrap-server", "other:1"],
        ["--store", "sqlite:x"],
        ["--zookeeper", "z:1"],
        ["--bootstrap-controller", "c:1"],
        ["--help"],
    ],
)
def test_a_flag_goes_before_the_environment_credentials_too(words: list[str]) -> None:
    assert placed("kafka-configs", words, HERE) == words


def test_own_credentials_are_kept_and_other_commands_left_alone() -> None:
    words = ["--list", "--command-config", "mine"]
    assert placed("kafka-quotas", words, HERE) == ["--bootstrap-server", "kafka:9092", *words]
    assert placed("serve", ["--config", "f"], HERE) == ["--config", "f"]
    assert placed("kafka-configs", [], HERE) == []
    assert placed("export", [], HERE) == TOLD
    with pytest.raises(TwoPlaces, match="HEADGATE_BOOTSTRAP_SERVER and HEADGATE_STORE are both"):
        placed("export", [], {**HERE, STORE: "sqlite:q.db"})


def test_commands_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STORE, f"sqlite:{tmp_path / 'q.db'}")
    words = ["--alter", "--names=user=alice", "--add=producer_byte_rate=10MB/s"]
    assert main(["kafka-quotas", *words]) == 0
    assert main(["kafka-configs", "--describe", "--user", "alice"]) == 0
    assert main(["export"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Quota configs for user-principal 'alice' are producer_byte_rate=1.0E7",
        "quotas:",
        "- entity: {user: alice}",
        "  producer_byte_rate: 10000000",
    ]
    monkeypatch.setenv(SERVERS, "kafka:9092")
    assert main(["export"]) == 2
    assert "are both set" in capsys.readouterr().err
