"""
Replays what the real kafka-configs was asked, and compares with what it printed.

The home is a Headgate store; ``tests/integration/test_cli_kafka4.py`` replays the same commands
against a real Kafka, SCRAM credentials included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.kafka_configs.kafka_configs import main

CAPTURES = Path(__file__).parents[1] / "data/captures"

# Commands a store answers otherwise on purpose, each with the reason.
SCRAM = {"add scram user", "describe alice with scram"}
DIFFERS = {
    "err: NaN",  # Kafka stores it; refused here
    "err: zero",  # 3.9.2 stores it; 4.3.1 and Headgate refuse
}


ODD_NAMES = {"add user literally <default>"}


def commands(capture: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((CAPTURES / capture).read_text())
    return [c for c in found if c["args"][0] == "--bootstrap-server"]


def expected_lines(command: dict[str, Any]) -> list[str]:
    """Leave out what only the differing commands put there: credentials, and erin's NaN or 0."""
    return sorted(
        line
        for line in command["stdout"].splitlines()
        if not line.startswith("SCRAM credential configs")
        and "'erin' are producer_byte_rate" not in line
    )


def first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


@pytest.mark.parametrize("capture", ["kafka-configs-4.3.1.json", "kafka-configs-3.9.2-zk.json"])
def test_every_captured_command_is_answered_as_kafka_did(
    capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path}/quotas.db"
    wrong = []
    compared = 0
    for command in commands(capture):
        connection = f"{command['args'][0]} {command['args'][1]}"
        status = main(["--store", url, *command["args"][2:]])
        printed = capsys.readouterr()
        if command["name"] in SCRAM | DIFFERS and command["exit"] == 0 and status == 1:
            continue
        compared += 1
        notes = [n for n in printed.err.splitlines() if n.startswith("kafka-configs: note: {user=")]
        # A name that looks like the default is noted on stderr, besides what Kafka's tool prints.
        assert bool(notes) == (command["name"] in ODD_NAMES and command["exit"] == 0)
        error = first_line(printed.err.removeprefix("".join(f"{note}\n" for note in notes)))
        error = error.replace(f"--store {url}", connection)
        wanted_error = first_line(command["stderr"])
        if capture.endswith("zk.json"):
            # 3.9.2's wording ends earlier.
            error = error.replace(
                ' or  "key=[val1,val2]" to group values which contain commas.', "."
            )
        got = (status, sorted(printed.out.splitlines()), error)
        if got != (command["exit"], expected_lines(command), wanted_error):
            wrong.append((command["name"], got))
    assert wrong == []
    assert compared >= 60


def test_nan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--store", f"sqlite:{tmp_path}/q.db", "--alter", "--user", "erin"]
    assert main([*argv, "--add-config", "producer_byte_rate=NaN"]) == 1
    assert "Quota producer_byte_rate must be greater than 0" in capsys.readouterr().err


def test_credentials_are_refused_by_a_store_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--store", f"sqlite:{tmp_path}/q.db", "--alter", "--user", "alice"]
    assert main([*argv, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]"]) == 1
    printed = capsys.readouterr()
    assert first_line(printed.err).startswith("SCRAM credentials are kept by Kafka")
    assert "--bootstrap-server" in printed.err
    assert printed.out == ""
