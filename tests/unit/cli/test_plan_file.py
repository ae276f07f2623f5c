"""What was reviewed is what is applied, and what was done can be taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from headgate.cli.main import load
from headgate.cli.quotas.flags import moment
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.sqlite.store import SqliteStore

main_apply = load("apply")
main_export = load("export")
main_plan = load("plan")
main_undo = load("undo")

ALICE = QuotaEntity.of(user="alice")
ETL = QuotaEntity.of(user="ürs", client_id=DEFAULT)


class Home:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "quotas.db"
        self.where = ["--store", f"sqlite:{self.path}"]
        self.plan = str(folder / "plan.json")
        self.file = folder / "quotas.yaml"

    def set(self, entity: QuotaEntity, key: QuotaKey, value: float | None) -> None:
        with SqliteStore(self.path) as store:
            assert store.alter([QuotaAlteration(entity, (Op(key, value),))])[0].error is None

    def table(self) -> QuotaTable:
        with SqliteStore(self.path) as store:
            return store.snapshot()

    def wanted(self, *quotas: dict[str, object]) -> str:
        self.file.write_text(yaml.safe_dump({"quotas": list(quotas)}), encoding="utf-8")
        return str(self.file)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def alice(rate: float) -> dict[str, object]:
    return {"entity": {"user": "alice"}, "producer_byte_rate": rate}


def test_apply_does_what_the_plan_says_whatever_became_of_the_quotas_file(home: Home) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    pair = {"entity": {"user": "ürs", "client-id": None}, "producer_byte_rate": 3}
    file = home.wanted(alice(2), pair)
    args = [*home.where, "--out", home.plan, "--message", "ticket 17", file]
    assert main_plan(args) == 3
    home.wanted(alice(99))
    assert home.table() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})
    assert main_apply([*home.where, home.plan]) == 0
    assert home.table() == QuotaTable.of({ALICE: {PRODUCER: 2.0}, ETL: {PRODUCER: 3.0}})
    with SqliteStore(home.path) as store:
        assert [h.message for h in store.history.entries()] == ["", "ticket 17", "ticket 17"]


@pytest.mark.parametrize("back", [False, True])
def test_a_plan_is_refused_where_the_store_has_moved_on(
    home: Home, back: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    assert main_plan([*home.where, "--out", home.plan, home.wanted(alice(2))]) == 3
    home.set(ALICE, CONSUMER, 5.0)
    if back:  # the same values again: still not the state that was reviewed
        home.set(ALICE, CONSUMER, None)
    before = home.table()
    capsys.readouterr()
    assert main_apply([*home.where, home.plan]) == 1
    assert "has changed since the plan was made" in capsys.readouterr().err
    assert home.table() == before


def test_a_plan_is_for_one_store(home: Home, tmp_path: Path) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    assert main_plan([*home.where, "--out", home.plan, home.wanted(alice(2))]) == 3
    other = Home(tmp_path)
    other.where = ["--store", f"sqlite:{tmp_path / 'other.db'}"]
    other.path = tmp_path / "other.db"
    other.set(ALICE, PRODUCER, 1.0)
    assert main_apply([*other.where, home.plan]) == 1
    assert other.table() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})


def test_somebody_who_changes_the_store_while_a_plan_is_applied_stops_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    assert main_plan([*home.where, "--out", home.plan, home.wanted(alice(2))]) == 3
    from headgate.cli.quotas import as_code as quotas_as_code

    shown = quotas_as_code._show
    # After the check, before the change.
    monkeypatch.setattr(
        quotas_as_code, "_show", lambda *a: home.set(ETL, PRODUCER, 9.0) or shown(*a)
    )
    assert main_apply([*home.where, home.plan]) == 1
    assert home.table() == QuotaTable.of({ALICE: {PRODUCER: 1.0}, ETL: {PRODUCER: 9.0}})


@pytest.mark.parametrize(
    "text", ['{"headgate_plan": 2}', '{"headgate_plan": 1}', '{"headgate_plan": 1, "changes": [1]}']
)
def test_a_plan_that_cannot_be_read_changes_nothing(home: Home, text: str) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    Path(home.plan).write_text(text)
    assert main_apply([*home.where, home.plan]) == 1


def test_pruning_most_wants_a_number(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        home.set(QuotaEntity.of(user=f"u{number}"), PRODUCER, 1.0)
    file = home.wanted({"entity": {"user": "u0"}, "producer_byte_rate": 1})
    args = [*home.where, "--prune", file]
    assert main_apply(args) == 1
    assert "4 of 5 values would be removed; to allow that, give --max-removals 4" in (
        capsys.readouterr().err
    )
    assert len(home.table()) == 5
    assert main_apply([*args, "--max-removals", "3"]) == 1
    assert len(home.table()) == 5
    assert main_apply([*args, "--max-removals", "4"]) == 0
    assert len(home.table()) == 1


def test_a_change_is_taken_back_unless_the_same_was_changed_since(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.set(ALICE, PRODUCER, 1.0)
    pair = {"entity": {"user": "ürs", "client-id": None}, "producer_byte_rate": 3}
    assert main_apply([*home.where, home.wanted(alice(2), pair)]) == 0
    with SqliteStore(home.path) as store:
        change = store.history.entries()[-1].change
    home.set(ALICE, CONSUMER, 7.0)  # another key: not in the way
    assert main_undo([change, *home.where]) == 0
    assert home.table() == QuotaTable.of({ALICE: {PRODUCER: 1.0, CONSUMER: 7.0}})
    with SqliteStore(home.path) as store:
        assert store.history.entries()[-1].message == f"undo of {change}"
    capsys.readouterr()
    assert main_undo([change, *home.where]) == 1
    assert "changed again since: users/" in capsys.readouterr().err
    assert main_undo(["0123456789ab", *home.where]) == 1
    assert "has no change 0123456789ab" in capsys.readouterr().err


def test_back_to_what_held_at_a_time_by_a_plan(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1_000, 100_000, 1_000))
    with SqliteStore(home.path, clock_ms=lambda: next(times)) as store:
        for value in (1.0, 2.0, 3.0, None):
            store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, value),))])
        at = [h.t_ms for h in store.history.entries()]
    assert main_undo(["--since", str(at[2]), *home.where, "--out", home.plan]) == 3
    assert len(home.table()) == 0
    assert main_apply([*home.where, home.plan]) == 0
    assert home.table() == QuotaTable.of({ALICE: {PRODUCER: 2.0}})
    assert moment("2026-11-22T10:00:00Z") == moment("2026-11-22T11:00:00+01:00")
    assert moment("2026-11-22T10:00:00") == 1_795_341_600_000


@pytest.mark.parametrize("command", [load("history"), main_export])
def test_what_reads_makes_no_file(
    tmp_path: Path, command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["--store", f"sqlite:{tmp_path / 'typo.db'}"]) == 1  # type: ignore[operator]
    assert "there is no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_plan_for_a_store_to_be_makes_no_file(home: Home, tmp_path: Path) -> None:
    assert main_plan([*home.where, home.wanted(alice(2))]) == 3
    assert main_apply([*home.where, "--validate-only", home.wanted(alice(2))]) == 0
    assert main_apply([*home.where, "--validate-only", home.wanted(alice(-2))]) == 1
    assert not home.path.exists()
    assert main_apply([*home.where, home.wanted(alice(2))]) == 0
    assert json.dumps(home.path.stat().st_mode & 0o777) == str(0o600)


@pytest.mark.parametrize(
    ("message", "problem"),
    [("x" * 1_001, "is longer than 1000 bytes"), ("wh\udcdey", "isn't UTF-8")],
)
def test_a_message_that_the_history_cannot_keep_is_refused_by_name(
    home: Home, capsys: pytest.CaptureFixture[str], message: str, problem: str
) -> None:
    file = home.wanted(alice(2))
    for command in (main_plan, main_apply):
        assert command([*home.where, "--message", message, file]) == 2
        assert f"--message: the message {problem}" in capsys.readouterr().err
    assert main_plan([*home.where, "--out", home.plan, file]) == 3
    plan = json.loads(Path(home.plan).read_text())
    Path(home.plan).write_text(json.dumps({**plan, "message": message}))
    assert main_apply([*home.where, home.plan]) == 1
    assert f"plan.json: the message {problem}" in capsys.readouterr().err
    assert home.table() == QuotaTable.of({})
