"""Apache Kafka's recorded answers, replayed through the array kernel in uneven batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.golden_kernel import check_kernel

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


def test_the_documented_command_uses_the_kernel() -> None:
    file = GOLDEN / "token_bucket_2x30000ms_1000.0.jsonl.gz"
    done = subprocess.run(
        [sys.executable, "-m", "kit.golden_kernel", str(file)],
        env=os.environ | {"PYTHONPATH": str(GOLDEN.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("\n1228 events, 0 differ\n")
