"""Every clause of the KIPs (tests/data/seeds.json) has a test whose name holds its id."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLAUSES: dict[str, str] = json.loads((TESTS / "data" / "seeds.json").read_text(encoding="utf-8"))


def names_of_tests() -> list[str]:
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = (
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        found.extend(f.name for f in functions if f.name.startswith("test_"))
    return found


NAMES = names_of_tests()


@pytest.mark.parametrize("clause", CLAUSES, ids=str)
def test_a_test_bears_the_id_of_every_clause(clause: str) -> None:
    token = clause.replace("-", "_")
    bearing = [n for n in NAMES if f"_{token}_" in f"_{n.removeprefix('test_')}_"]
    assert bearing, f"no test bears {clause}: {CLAUSES[clause]}"
