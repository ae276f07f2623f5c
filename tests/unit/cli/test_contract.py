"""
Shell manners: what every command prints for ``--json``, its exit status, its ``--help``.

Each row of the table is run for people and with ``--json``; what the pipeline makes is tested with
Spark (tests/integration/test_spark_logs.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from headgate.cli import exit_codes
from headgate.cli.contract import BadUsage, error_of, failed, run
from headgate.cli.main import COMMANDS, main
from headgate.cli.results import Result
from headgate.errors import ApiError, KafkaError, StoreMovedOn
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store.sqlite.store import SqliteStore
from kit.schemas import RESULTS, schema_of

DONE, FAILED, USAGE, FOUND = (
    exit_codes.DONE,
    exit_codes.FAILED,
    exit_codes.USAGE,
    exit_codes.FOUND,
)


class Row(NamedTuple):
    """A command line, its exit status, and a member of the object that it prints."""

    words: str
    status: int
    member: str = ""


# STORE has quotas and a history, MISSING is no file. SAME agrees with STORE; OTHER, BAD don't.
ROWS = [
    Row("export --store STORE", DONE, "quotas"),
    Row("export --store STORE --format json", DONE, "quotas"),
    Row("export --store STORE --out OUT", DONE, "out"),
    Row("export --store MISSING", FAILED),
    Row("export", USAGE),
    Row("export --stor STORE", USAGE),
    Row("export --store STORE --to rpk", DONE, "quotas"),
    Row("import SAME", FAILED),
    Row("import NOTHING", FAILED),
    Row("import SAME --from excel", USAGE),
    Row("plan --store STORE SAME", DONE, "changes"),
    Row("plan --store STORE OTHER", FOUND, "changes"),
    Row("plan --store STORE OTHER --out OUT", FOUND, "out"),
    Row("plan --store STORE BAD", FAILED, "refused"),
    Row("plan --store STORE NOTHING", FAILED),
    Row("plan --store STORE OTHER --client x", USAGE),
    Row("apply --store STORE OTHER --validate-only", DONE, "validate_only"),
    Row("apply --store STORE OTHER", DONE, "changed"),
    Row("apply --store STORE BAD", FAILED, "refused"),
    Row("apply --store STORE", USAGE),
    Row("undo --store STORE --since 0 --validate-only", DONE, "validate_only"),
    Row("undo --store STORE --since 0 --out OUT", FOUND, "out"),
    Row("undo --store STORE 0123456789ab", FAILED),
    Row("undo --store STORE --since yesterday", USAGE),
    Row("history --store STORE", DONE, "history"),
    Row("history --store MISSING", FAILED),
    Row("history --store STORE --entity nonsense", USAGE),
    Row("store show --store STORE", DONE, "revision"),
    Row("store show --store MISSING", FAILED),
    Row("store copy --from STORE --to NEW", DONE, "target"),
    Row("store copy --from STORE --to STORE", USAGE),
    Row("store accept 0123 --config NOTHING", FAILED),
    Row("doctor --store STORE", DONE, "seen"),
    Row("doctor --store ODD", FOUND, "found"),
    Row("doctor --store MISSING", FAILED),
    Row("doctor", USAGE),
    Row("console --store STORE --listen 0.0.0.0:0", FAILED),
    Row("console user list --data OUT", DONE, "users"),
    Row("console user add ada --data OUT", USAGE),
    Row("console user remove ada --data OUT", FAILED),
    Row("console --store MISSING --listen 127.0.0.1:0", FAILED),
    Row("console", USAGE),
    Row("why --bootstrap-server 127.0.0.1:1 --user alice", FAILED),
    Row("why --bootstrap-server 127.0.0.1:1 --user alice --key bytes", USAGE),
    Row("why --user alice", USAGE),
    Row("monitoring OUT", DONE, "files"),
    Row("monitoring SAME", FAILED),
    Row("monitoring", USAGE),
    Row("kafka-quotas --store STORE --list", DONE, "entities"),
    Row("kafka-quotas --store STORE --describe --names user=alice", DONE, "quotas"),
    Row(
        "kafka-quotas --store STORE --alter --names user=a --add request_percentage=Infinity",
        DONE,
        "ops",
    ),
    Row("kafka-quotas --store STORE --alter --names user=a --add producer_byte_rate=-1", FAILED),
    Row("kafka-quotas --store STORE --nonsense", USAGE),
    Row("serve --check --config GATEWAY", DONE, "warnings"),
    Row("serve --check --config ODD_GATEWAY", FAILED),
    Row("serve --check --config NOTHING", FAILED),
    Row("serve --config GATEWAY --brokers x", USAGE),
    *(
        row
        for name in (
            *("usage", "requests", "effective", "replay"),
            *("what-if", "recommend", "chargeback", "storms"),
        )
        for row in (
            Row(f"{name} --requests NOTHING --out OUT --quotas SAME", FAILED),
            Row(f"{name} --requests NOTHING --quotas SAME", USAGE),
        )
    ),
    Row("splits --journals NOTHING --quotas SAME --kafka-config bootstrap.servers=x:1", FAILED),
    Row("splits --topic usage", USAGE),
    Row("completion bash", DONE, "script"),
    Row("completion csh", USAGE),
    Row("report --tables NOTHING", FAILED),
    Row("report --tables NOTHING --window-seconds 0", USAGE),
]


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What the capital words of the table stand for."""
    alice = {"entity": {"user": "alice"}, "producer_byte_rate": 10}
    files = {
        "SAME": alice,
        "OTHER": {**alice, "producer_byte_rate": 20},
        "BAD": {"entity": {"ip": "no such host"}, "connection_creation_rate": 5},
    }
    found = {name: f"sqlite:{tmp_path / name}.db" for name in ("STORE", "MISSING", "NEW", "ODD")}
    for name, row in files.items():
        (tmp_path / name).write_text(yaml.safe_dump({"quotas": [row]}), encoding="utf-8")
    settings = ["listeners=PLAINTEXT://127.0.0.1:19092", "headgate.upstream=embedded"]
    for name, lines in (("GATEWAY", settings), ("ODD_GATEWAY", ["listeners=PLAINTEXT:/x"])):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    gateways = ("GATEWAY", "ODD_GATEWAY")
    found |= {name: str(tmp_path / name) for name in (*files, *gateways, "OUT", "NOTHING")}
    for name, user in (("STORE", "alice"), ("ODD", "<default>")):
        with SqliteStore(tmp_path / f"{name}.db") as store:
            store.alter([QuotaAlteration(QuotaEntity.of(user=user), (Op(PRODUCER, 10.0),))])
    return found


def ran(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(words)
    return (status, *capsys.readouterr())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_each_command_keeps_the_contract(
    row: Row, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [places.get(word, word) for word in row.words.split()]
    status, out, _ = ran([*words, "--json"], capsys)
    assert status == row.status
    told: dict[str, Any] = json.loads(out)
    jsonschema.validate(told, schema_of(words[0]))
    assert ("error" in told) == (status in (FAILED, USAGE))
    assert row.member in told or not row.member
    if words[0] not in ("apply", "undo", "store"):  # these have changed what they'd find again
        status, out, err = ran(words, capsys)
        assert status == row.status
        assert err or status in (DONE, FOUND)
        assert "\x1b" not in out + err


def test_every_command_has_a_schema() -> None:
    ours = COMMANDS.keys() - {"kafka-configs", "demo"}
    assert RESULTS.keys() == ours
    for name in ours:
        jsonschema.Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize(
    ("problem", "status", "error"),
    [
        (
            ApiError(KafkaError.INVALID_REQUEST, "no"),
            FAILED,
            {"code": 42, "name": "INVALID_REQUEST", "message": "no"},
        ),
        (StoreMovedOn("x"), FAILED, {"code": None, "name": "STORE_MOVED_ON", "message": "x"}),
        (
            FileNotFoundError(2, "No such file or directory", "f"),
            FAILED,
            {
                "code": None,
                "name": "ENOENT",
                "message": "f: No such file or directory",
                "where": "f",
            },
        ),
        (BadUsage("?"), USAGE, {"code": None, "name": "BAD_USAGE", "message": "?"}),
        (
            KeyboardInterrupt(),
            exit_codes.INTERRUPTED,
            {"code": None, "name": "KEYBOARD_INTERRUPT", "message": "stopped"},
        ),
    ],
)
def test_what_is_raised_is_an_object_and_a_status(
    problem: BaseException,
    status: int,
    error: dict[str, object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act() -> Result:
        print("for people")
        raise problem

    assert run("headgate x", ["--json"], act) == status
    assert json.loads(capsys.readouterr().out) == {"error": error}
    assert run("headgate x", [], act) == status
    printed = capsys.readouterr()
    assert printed.out == "for people\n"
    assert printed.err.endswith(f"{error['message']}\n")


def test_a_bug_prints_the_object_and_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def act() -> Result:
        raise ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError):
        run("headgate x", ["--json"], act)
    assert json.loads(capsys.readouterr().out)["error"]["name"] == "ZERO_DIVISION_ERROR"
    assert error_of(ZeroDivisionError("bug")).message == "bug"


def test_an_unknown_command_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(["sevre", "--json"], capsys)
    assert status == USAGE
    assert json.loads(out)["error"]["name"] == "BAD_USAGE"


def test_a_refusal_of_authorization_says_what_would_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = ApiError.generic(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    assert failed("headgate plan", [], problem) == 1
    told = capsys.readouterr().err
    assert "Cluster authorization failed." in told
    assert "--command-config" in told
    assert "headgate.admin.principals" in told
