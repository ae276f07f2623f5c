"""Every clause of the KIPs (tests/data/seeds.json) has a test whose name holds its id."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLAUSES: dict[str, str] = json.loads((TESTS / "data" / "seeds.json").read_text(encoding="utf-8"))


DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


@functools.cache
def names_of_tests() -> tuple[str, ...]:
    paths = sorted(TESTS.rglob("test_*.py"))
    return tuple(name for path in paths for name in DEFINED.findall(path.read_text("utf-8")))


@pytest.mark.parametrize("clause", CLAUSES, ids=str)
def test_a_test_bears_the_id_of_every_clause(clause: str) -> None:
    token = clause.replace("-", "_")
    bearing = [n for n in names_of_tests() if f"_{token}_" in f"_{n.removeprefix('test_')}_"]
    assert bearing, f"no test bears {clause}: {CLAUSES[clause]}"
