"""Apache Kafka's recorded answers, replayed through the managers: every event, every bit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headgate.testing.golden import check, main, same

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
INDEX = {row["file"]: row for row in json.loads((GOLDEN / "index.json").read_text())}


@pytest.mark.parametrize("name", sorted(INDEX))
def test_managers_give_kafkas_own_answers(name: str) -> None:
    told: list[str] = []
    events, differ = check(GOLDEN / name, tell=told.append)
    assert differ == 0, "\n".join(told)
    assert events == INDEX[name]["events"]


def test_a_wrong_answer_is_counted_told_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress((GOLDEN / "rate_2x1000ms.jsonl.gz").read_bytes()).decode().split("\n")
    rows = [json.loads(line) for line in lines[:40]]
    broken = next(row for row in rows[1:] if row["o"].get("value"))
    broken["o"]["value"] = broken["o"]["value"] * (1 + 2**-52)
    plain = tmp_path / "broken.jsonl"
    plain.write_text("\n".join(json.dumps(row) for row in rows))
    assert main([str(plain)]) == 1
    printed = capsys.readouterr().out
    assert printed.endswith("39 events, 1 differ\n")
    assert "Kafka" in printed
    assert main([]) == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        (1.0, 1.0, True),
        (1.0, 1, True),  # Java prints a whole double as 1.0; JSON readers may not keep the point
        (0.0, -0.0, False),
        (float("nan"), "NaN", True),
        (float("-inf"), "-Infinity", True),
        (1, 1, True),
        (True, 1, False),
        ("", None, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([False, True], [False, True], True),
        ([False], [False, True], False),
    ],
)
def test_doubles_are_compared_by_their_bits(ours: object, theirs: object, equal: bool) -> None:
    assert same(ours, theirs) is equal
