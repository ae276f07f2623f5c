"""Mutants that may live: each is named with its reason, and the code it changes is still there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kit.scripts import script

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def mutants() -> ModuleType:
    return script("mutants")


def test_what_may_live_names_code_that_is_there(mutants: ModuleType) -> None:
    house = ROOT / "src" / "headgate"
    stale = []
    for where, before, _ in mutants.read_allowed(mutants.ALLOWED):
        file, _, function = where.partition(" ")
        path = house / file
        text = (
            " ".join(line.strip() for line in path.read_text().splitlines())
            if path.exists()
            else ""
        )
        name = function.rpartition(".")[2]
        if before not in text or (function != "(module)" and f"def {name}(" not in text):
            stale.append((where, before))
    assert not stale, "remove these from tests/data/mutants_allowed.txt, or name the new code"


def test_the_tests_of_each_room_are_there(mutants: ModuleType) -> None:
    named = {path for paths in mutants.ROOMS.values() for path in paths}
    assert not sorted(path for path in named if not (ROOT / path).exists())


def test_a_mutant_may_live_only_with_a_reason(mutants: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "allowed.txt"
    path.write_text(
        "# all\n= Both sides give 0.\na/b.py C.f\n  - x < 1\n  + x <= 1\n  - y\n  + z\n"
    )
    where = "a/b.py C.f"
    reason = "Both sides give 0."
    assert mutants.read_allowed(path) == {
        (where, "x < 1", "x <= 1"): reason,
        (where, "y", "z"): reason,
    }
    path.write_text("a/b.py C.f\n  - x < 1\n  + x <= 1\n")
    with pytest.raises(ValueError, match=r"allowed\.txt:3: a mutant without reason"):
        mutants.read_allowed(path)


def test_fates_are_kept_between_runs_and_what_lives_needs_a_reason(
    mutants: ModuleType, tmp_path: Path
) -> None:
    path = mutants.HOUSE / "quota" / "key.py"
    drawn = [
        SimpleNamespace(path=path, function="f", before=f"x < {n}", after=f"x <= {n}", key=f"k{n}")
        for n in range(5)
    ]
    allowed = {("quota/key.py f", "x < 1", "x <= 1"): "Both sides give 0."}
    kept = tmp_path / "kept" / "fates.json"

    def told(known: dict[tuple[str, str, str], str], *, fresh: bool = False) -> Any:
        return mutants.Told("quota", drawn, known, kept, fresh=fresh)

    first = told(allowed)
    for index, fate in enumerate(("killed", "survived", "untouched", "survived")):
        first.one(index, fate)
    first.ask_types(lambda _, live, note: {3} & set(live))
    assert first.lives == [("quota/key.py f", "x < 2", "x <= 2")]
    assert first.row("s").endswith("| s | 5 | 4 | 1 | 1 | 1 | 1 |")
    again = told({})
    assert again.fates == {0: "killed", 1: "survived", 2: "untouched", 3: "refused"}
    again.one(4, "killed")
    assert [before for _, before, _ in again.lives] == ["x < 1", "x < 2"]
    assert told(allowed, fresh=True).fates == {}
