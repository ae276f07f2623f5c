"""Names that don't mean what they look like are said wherever quotas are set, and found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.cli.kafka_configs.kafka_configs import main as kafka_configs
from headgate.cli.main import load
from headgate.cli.quotas.kafka_quotas import main as kafka_quotas
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.lookalikes import name_notes

LITERAL = Path(__file__).parents[2] / "data" / "quotas" / "05-literal-names.yaml"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("default", "--entity-default"),
        ("<default>", "--entity-default"),
        ("*", "--entity-default"),
        ("Default ", "--entity-default"),
        ("User:alice", "Kafka names users without their type: alice"),
        ("a,User:b", "an entity for each"),
        ("User:a, User:b", "an entity for each"),
        (" alice", "blanks at its ends"),
        ("alice\n", "blanks at its ends"),
        ("app-*", "no patterns"),
        ("CN%3Dalice", "where CN=alice is meant"),
    ],
)
def test_a_name_that_looks_like_another_is_noted(name: str, told: str) -> None:
    [note] = name_notes([QuotaEntity.of(user=name)])
    assert told in note


@pytest.mark.parametrize(
    "name", ["alice", "CN=a,OU=b", "CN=a b,O=*", "50%", "a%zz", "defaults", "user:", "a b", "a:b"]
)
def test_an_ordinary_name_is_not(name: str) -> None:
    assert name_notes([QuotaEntity.of(user=name, client_id=DEFAULT)]) == []


def test_a_prefix_of_principals_means_nothing_in_a_client_id() -> None:
    assert name_notes([QuotaEntity.of(client_id="User:alice")]) == []
    assert len(name_notes([QuotaEntity.of(client_id="app-*", user="*")])) == 2


def test_plan_apply_and_doctor_name_each_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    assert load("plan")([*store, "--json", str(LITERAL)]) == 3
    printed = capsys.readouterr()
    notes = json.loads(printed.out)["notes"]
    assert len(notes) == 7
    assert load("apply")([*store, str(LITERAL)]) == 0
    said = capsys.readouterr().err
    assert all(f"headgate apply: note: {note}\n" in said for note in notes)
    assert load("doctor")(store) == 3
    found = capsys.readouterr().out
    assert all(note in found for note in notes)
    assert load("plan")([*store, str(LITERAL)]) == 0
    assert capsys.readouterr().err == ""


def test_kafkas_tools_note_them_on_stderr_and_print_what_they_always_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    words = ["--alter", "--names", "user=User:alice", "--add", "producer_byte_rate=5"]
    assert kafka_quotas([*store, *words]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "kafka-quotas: note: {user=User%3Aalice}: the user is literally" in printed.err
    words = ["--alter", "--user", "User:alice", "--add-config", "producer_byte_rate=6"]
    assert kafka_configs([*store, *words]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Completed updating config for user User:alice.\n"
    assert "kafka-configs: note: {user=User%3Aalice}: the user is literally" in printed.err


def test_a_delete_that_removed_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    alter = [*store, "--alter", "--names", "user=alice"]
    assert kafka_quotas([*alter, "--add", "producer_byte_rate=5"]) == 0
    assert kafka_quotas([*alter, "--delete", "producer_byte_rate"]) == 0
    assert capsys.readouterr().err == ""
    assert kafka_quotas([*alter, "--delete", "producer_byte_rate"]) == 0
    nothing = "{user=alice} has no producer_byte_rate: nothing is removed\n"
    assert capsys.readouterr().err == f"kafka-quotas: note: {nothing}"
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: [{entity: {user: alice}, producer_byte_rate: null}]")
    assert load("apply")([*store, str(file)]) == 0
    assert capsys.readouterr().err == f"headgate apply: note: {nothing}"


def test_what_list_prints_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    words = ["--names", r"user=CN=a b\,O=x", "--defaults", "client-id"]
    assert kafka_quotas([*store, "--alter", *words, "--add", "producer_byte_rate=5"]) == 0
    assert kafka_quotas([*store, "--list"]) == 0
    printed = capsys.readouterr().out
    entity, value = printed.splitlines()
    assert entity == "{user=CN%3Da%20b%2CO%3Dx, client-id=<default>}"
    assert kafka_quotas([*store, "--list", "--names", entity]) == 0
    assert capsys.readouterr().out == printed
    again = [*store, "--alter", "--names", entity]
    assert kafka_quotas([*again, "--add", value]) == 0
    assert kafka_quotas([*again, "--delete", value.partition("=")[0]]) == 0
    assert kafka_quotas([*store, "--list"]) == 0
    assert capsys.readouterr() == ("", "")
    assert kafka_quotas([*store, "--list", "--names", "{user=a, user=b}"]) == 2
    assert "stands twice" in capsys.readouterr().err
