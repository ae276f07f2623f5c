"""`headgate console token`: makes, lists and ends tokens of the console's API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.clock import now_ms
from headgate.console.access.tokens import PREFIX, Token, Tokens
from headgate.console.access.users import Users
from headgate.console.access.viewer import Role, Scope
from headgate.console.database import Database

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``token("add ci …")``: the exit code, stdout and stderr."""
    with contextlib.closing(Database(tmp_path / "data")) as database:
        Users(database).add("ada", Role.OPERATOR, "", "correct horse battery")
        Users(database).add("bob", Role.VIEWER, "", "correct horse battery")

    def run(words: str) -> tuple[int, str, str]:
        code = main(["console", "token", *words.split(), "--data", str(tmp_path / "data")])
        return code, *capsys.readouterr()

    return run


def found(folder: Path, token: str) -> Token | None:
    with contextlib.closing(Database(folder / "data")) as database:
        return Tokens(database, now_ms).find(token)


def test_it_is_printed_once_listed_and_ended(tmp_path: Path, token: Run) -> None:
    code, made, _ = token("add nightly --user ada --scope change --days 7")
    assert code == 0 and made.startswith(PREFIX)
    kept = found(tmp_path, made.strip())
    assert kept is not None
    assert (kept.owner, kept.label, kept.scope) == ("ada", "nightly", Scope.CHANGE)
    assert kept.ends_ms - kept.made_ms == 7 * 86_400_000
    code, listed, _ = token("list")
    assert listed.split()[:3] == [kept.id, "ada", "change"]
    assert made.strip() not in listed
    assert token("list --user bob")[1] == ""
    assert token(f"end {kept.id}")[0] == 0
    assert found(tmp_path, made.strip()) is None
    assert token(f"end {kept.id}")[0] == 1


def test_for_programs_it_is_json(tmp_path: Path, token: Run) -> None:
    told = json.loads(token("add ci --user bob --json")[1])
    kept = found(tmp_path, told["token"])
    assert kept is not None and kept.scope == Scope.READ
    assert [t["id"] for t in told["tokens"]] == [kept.id]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("add ci", 2, "add takes --user"),
        ("add --user ada", 2, "add takes a NAME"),
        ("list --days 7", 2, "add takes --scope and --days"),
        ("end 1 --user ada", 2, "end doesn't"),
        ("add ci --user eve", 1, "there is no user eve"),
        ("add ci --user ada --days 0", 1, "after 1 to 366 days"),
        ("end 1", 1, "there is no token 1"),
    ],
)
def test_what_makes_no_sense_is_refused(token: Run, words: str, code: int, said: str) -> None:
    found = token(words)
    assert (found[0], found[1]) == (code, "")
    assert said in found[2]
