"""`headgate import`, `headgate export --to`, and other tools' files in plan and apply."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.quota.file import read_quotas_file

DATA = Path(__file__).parents[2] / "data" / "quotas"
QUOTAS = "quotas:\n- entity: {user: alice}\n  producer_byte_rate: 5\n"
MODULE = (
    'module "m" {\n  source = "./m"\n}\nresource "kafka_quota" "a" {\n  entity_name = "alice"\n'
    '  entity_type = "user"\n  config = { producer_byte_rate = 5 }\n}\n'
)


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    (tmp_path / "q.yaml").write_text(
        QUOTAS + "- {entity: {ip: 10.0.0.1}, connection_creation_rate: 5}\n"
    )
    place = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    assert load("apply")([*place, str(tmp_path / "q.yaml")]) == 0
    return place


def test_import_writes_a_quotas_file_and_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe, out = DATA / "q1-describe-3x.txt", tmp_path / "quotas.yaml"
    assert load("import")([str(describe)]) == 0
    printed = capsys.readouterr()
    assert f"note: {describe}:4: not quotas: 1 line of SCRAM credentials" in printed.err
    assert load("import")([str(describe), "--out", str(out)]) == 0
    assert out.read_text() == printed.out
    assert read_quotas_file(out).table == read_quotas_file(describe).table
    assert load("import")([str(describe), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["of"], told["entities"], len(told["notes"])) == ("kafka-configs", 3, 1)
    assert told["quotas"][0]["entity"] == {"user": "orders"}
    assert load("import")([str(describe), "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["quotas"]) == 3


def test_import_reads_stdin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO((DATA / "q6-terraform.tf").read_text()))
    assert load("import")(["-", "--from", "terraform"]) == 0
    printed = capsys.readouterr()
    assert "producer_byte_rate: 5242880" in printed.out
    assert "Kafka names users without their type: CN=pay/producer" in printed.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["q9-kafbat.json"], "Kafbat's API writes null"),
        (["q2-describe-2x.txt", "--from", "rpk"], "this isn't what `rpk"),
        (["q13-user-prefix.yaml"], "a quotas file already"),
        (["q2-describe-2x.txt", "--strimzi", "x"], "--strimzi chooses among resources"),
    ],
)
def test_import_refuses(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("import")([str(DATA / words[0]), *words[1:]]) == 1
    printed = capsys.readouterr()
    assert told in printed.err
    assert not printed.out


@pytest.mark.parametrize(
    "name", ["ansible", "helmsman", "jikkou", "julie", "kafka-configs", "kafka-quotas", "rpk"]
)
def test_export_writes_what_import_reads(
    name: str, store: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    assert load("export")([*store, "--to", name, "--out", str(file)]) == 0
    left_out = "left out: {ip=10.0.0.1}" in capsys.readouterr().err
    assert left_out == (not name.startswith("kafka-"))
    assert load("import")([str(file), "--from", name]) == 0
    assert capsys.readouterr().out.startswith(QUOTAS)
    assert load("plan")([*store, str(file)]) == 0


def test_export_writes_terraform_and_json(
    store: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert load("export")([*store, "--to", "terraform"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('resource "kafka_quota" "quota_1" {\n  entity_name = "alice"\n')
    (tmp_path / "q.tf").write_text(text)
    assert load("plan")([*store, str(tmp_path / "q.tf")]) == 0
    assert load("plan")([*store, "--prune", str(tmp_path / "q.tf")]) == 1
    assert "`headgate import FILE --out quotas.yaml`" in capsys.readouterr().err
    imported = str(tmp_path / "imported.yaml")
    assert load("import")([str(tmp_path / "q.tf"), "--out", imported]) == 0
    assert load("plan")([*store, "--prune", imported]) == 0
    capsys.readouterr()
    assert load("export")([*store, "--to", "rpk", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["quotas"][0]["entity"] == [{"name": "alice", "type": "user"}]
    assert load("export")([*store, "--to", "rpk", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["quotas"] == told["quotas"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--to", "strimzi"], "give --strimzi CLUSTER"),
        (["--to", "rpk", "--strimzi", "c"], "--strimzi is for Strimzi's resources"),
        (["--to", "terraform", "--format", "json"], "writes a text, which isn't JSON"),
        (["--to", "terraform", "--json"], "give --out FILE"),
    ],
)
def test_export_refuses_flags_that_do_not_go_together(
    words: list[str], told: str, store: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert load("export")([*store, *words]) == 2
    assert told in capsys.readouterr().err


def test_nothing_is_pruned_because_of_a_part_that_is_not_read(
    store: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.tf"
    file.write_text(MODULE)
    for command in ("plan", "apply"):
        assert load(command)([*store, "--prune", str(file)]) == 1
        assert "--prune would remove what stands there" in capsys.readouterr().err
    assert load("apply")([*store, str(file)]) == 0
    assert "the module m may hold quotas, and isn't read" in capsys.readouterr().err
    assert load("plan")([*store, str(tmp_path / "q.yaml")]) == 0  # all is there still
