"""Apache Kafka's recorded answers, replayed through the array kernel in uneven batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.testing.golden import main
from headgate.testing.golden_kernel import check_kernel

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
FILES = [
    row
    for row in json.loads((GOLDEN / "index.json").read_text())
    if row["kind"] in ("client_quota", "stat")
]


@pytest.mark.parametrize("row", FILES, ids=lambda row: row["file"])
def test_the_kernel_gives_kafkas_own_answers(row: dict[str, object]) -> None:
    told: list[str] = []
    events, differ = check_kernel(GOLDEN / str(row["file"]), tell=told.append)
    assert differ == 0, "\n".join(told)
    assert events == row["events"]


def test_the_command_can_be_told_to_use_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kernel", str(GOLDEN / "token_bucket_2x30000ms_1000.0.jsonl.gz")]) == 0
    assert capsys.readouterr().out.endswith("\n1228 events, 0 differ\n")
    assert main([]) == 2
