"""`headgate console user`: what it checks when a user is made, not when the console starts next."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate.console.access.users import Users
from headgate.console.database import Database

FILE = "tenants:\n  payments: {principals: [alice]}\n  search: {principals: [bob]}\n"


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    """``user("add tom …")``: the exit code, and what was said on stderr."""

    def run(words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
        code = main(["console", "user", *words.split(), "--data", str(tmp_path / "data")])
        return code, capsys.readouterr().err

    return run


def listed(folder: Path) -> list[tuple[str, ...]]:
    with contextlib.closing(Database(folder / "data")) as database:
        return [tuple(found) for found in Users(database).listed()]


def test_a_mistyped_tenant_is_refused_when_it_is_said(tmp_path: Path, user: object) -> None:
    assert callable(user)
    file = tmp_path / "tenants.yaml"
    file.write_text(FILE)
    add = "add tom --role tenant --tenant"
    code, said = user(f"{add} paymnets --tenants {file}")
    assert code == 1 and f"{file} has no tenant paymnets; did you mean payments?" in said
    assert listed(tmp_path) == []
    code, said = user(f"{add} paymnets")
    assert code == 0 and "no file of tenants is known yet (--tenants)" in said
    with contextlib.closing(Database(tmp_path / "data")) as database:
        Users(database).remember(str(file))  # as a console does that starts with it
    assert user("role tom --role tenant --tenant paymnet")[0] == 1
    assert user("role tom --role tenant --tenant payments")[0] == 0
    assert listed(tmp_path) == [("tom", "tenant", "payments")]


def test_a_command_changes_a_role(tmp_path: Path, user: object) -> None:
    assert callable(user)
    assert user("add ada --role viewer")[0] == 0
    assert user("role ada --role operator")[0] == 0
    assert listed(tmp_path) == [("ada", "operator", "")]
    assert user("role ada")[0] == 2
    assert user("role bob --role viewer")[0] == 1
    assert user("role ada --role tenant")[0] == 1
