"""`headgate splits` says what is wrong with its flags before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.main import load

main_splits = load("splits")


GIVEN = ["--topic", "usage", "--kafka-config", "bootstrap.servers=127.0.0.1:1"]


@pytest.mark.parametrize(
    ("flags", "said", "status"),
    [
        ([*GIVEN, "--period-ms", "100"], "--period-ms is at least 500", 2),
        ([*GIVEN, "--lag-ms", "-1"], "--lag-ms at least 0", 2),
        ([*GIVEN, "--brokers", "1;2"], "--brokers 1;2: write ids such as 1,2,3", 2),
        (["--topic", "usage"], "--topic needs --kafka-config bootstrap.servers=HOST:PORT", 2),
        (["--journals", "/d"], "--splits-topic needs --kafka-config bootstrap.servers=HOST", 2),
        (["--topic", "usage", "--kafka-config", "x"], "--kafka-config x: write NAME=VALUE", 2),
        (["--journals", "/no/such", *GIVEN[2:]], "--journals /no/such is no directory", 1),
    ],
)
def test_a_mistake_is_said_at_once(
    flags: list[str], said: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_splits([*flags, "--quotas", str(tmp_path / "q.yaml")]) == status
    assert said in capsys.readouterr().err


def test_a_mistake_in_the_quotas_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quotas = tmp_path / "q.yaml"
    quotas.write_text("quotas: [{entity: {user: alice}, producer_byte_rate: much}]")
    assert main_splits([*GIVEN, "--quotas", str(quotas)]) == 1
    assert "producer_byte_rate" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--quotas", "q"], [*GIVEN, "--journals", "d", "--quotas", "q"]])
def test_journals_come_from_a_topic_or_from_directories(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_splits(flags) == 2
    assert "--topic" in capsys.readouterr().err
