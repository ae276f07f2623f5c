"""
Quotas as code. Tests name the faults of other tools that they rule out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import jsonschema
import pytest
import yaml

from headgate.cli.contract import BadUsage
from headgate.cli.main import load
from headgate.cli.quotas.elsewhere import schema_text
from headgate.cli.quotas.flags import read_clients
from headgate.config.security import ZooKeeperSecurity
from headgate.errors import ApiError, InvalidQuota, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.human import human
from headgate.quota.key import (
    CONSUMER,
    KEYS,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.quota.plan import known_clients
from headgate.quota.table import QuotaTable
from headgate.store.availability import Availability
from headgate.store.base import AuditEvent
from headgate.store.kafka.codec import two_homes
from headgate.store.sqlite.home import SqliteHome
from headgate.store.sqlite.store import SqliteStore

main_apply = load("apply")
main_doctor = load("doctor")
main_export = load("export")
main_history = load("history")
main_plan = load("plan")
main_store = load("store")

SCHEMA: dict[str, Any] = json.loads(schema_text())


def op(key: str, value: float | None) -> Op:
    return Op(QuotaKey.parse(key), value)


class Place:
    """A store's URL and a file to plan with."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "quotas.db"
        self.url = f"sqlite:{self.path}"
        self.file = folder / "quotas.yaml"

    def set(
        self,
        *,
        user: EntityName | None = None,
        client_id: EntityName | None = None,
        ip: EntityName | None = None,
        **values: float,
    ) -> None:
        entity = QuotaEntity.of(user=user, client_id=client_id, ip=ip)
        ops = tuple(op(key.replace("__", ":"), value) for key, value in values.items())
        with SqliteStore(self.path) as store:
            [result] = store.alter([QuotaAlteration(entity, ops)], who="setup", tool="test")
        assert result.error is None

    def table(self) -> QuotaTable:
        with SqliteStore(self.path) as store:
            return store.snapshot()

    def write(self, *quotas: dict[str, Any]) -> str:
        self.file.write_text(yaml.safe_dump({"quotas": list(quotas)}), encoding="utf-8")
        return str(self.file)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


ALICE = QuotaEntity.of(user="alice")


def test_a_plan_exits_3_names_what_changes_and_changes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=10_000_000)
    file = place.write(
        {"entity": {"user": "alice", "client-id": "etl"}, "producer_byte_rate": 4_000_000}
    )
    assert main_plan(["--store", place.url, file, "--client", "user=alice,client-id=etl"]) == 3
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"Changes to {place.url}:",
        "  users/alice/clients/etl",
        "    + producer_byte_rate:broker_bps: 4000000 (4 MB/s)",
        "For clients:",
        "  alice/etl: 10 MB/s → 4 MB/s, was users/alice, now users/alice/clients/etl "
        "(producer_byte_rate:broker_bps)",
        "1 to set, 0 to change, 0 to remove",
        "1 not in the file, left alone (--prune deletes them):",
        "    users/alice producer_byte_rate:broker_bps: 10000000 (10 MB/s)",
    ]
    assert set(place.table().entities) == {ALICE}


def test_a_changed_value_keeps_its_source_and_says_was_alone(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=10_000_000)
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": 4_000_000})
    assert main_plan(["--store", place.url, file, "--client", "user=alice,client-id=etl"]) == 3
    assert "  alice/etl: 10 MB/s → 4 MB/s, was users/alice (producer" in capsys.readouterr().out


def test_apply_then_plan_is_empty_and_exits_0(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place.write(
        {"entity": {"user": None, "client-id": "svc"}, "producer_byte_rate:bps": 5},
        {"entity": {"ip": None}, "connection_creation_rate": 3},
    )
    assert main_apply(["--store", place.url, file]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Applied: 2 entities changed."
    assert main_plan(["--store", place.url, file]) == 0
    assert capsys.readouterr().out == f"No changes: {place.url} agrees with the file.\n"


def test_what_the_file_does_not_mention_stays_unless_pruned(place: Place) -> None:
    place.set(user="bob", request_percentage=50, producer_byte_rate=7)
    file = place.write({"entity": {"user": "bob"}, "producer_byte_rate": 7})
    assert main_apply(["--store", place.url, file]) == 0
    assert place.table().get(QuotaEntity.of(user="bob"), REQUEST) == 50
    assert main_apply(["--store", place.url, file, "--prune"]) == 0
    assert place.table().get(QuotaEntity.of(user="bob"), REQUEST) is None
    assert place.table().get(QuotaEntity.of(user="bob"), PRODUCER) == 7


def test_a_null_value_removes_a_key_without_prune(place: Place) -> None:
    place.set(user="alice", producer_byte_rate=7)
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": None})
    assert main_apply(["--store", place.url, file]) == 0
    assert len(place.table()) == 0


def test_nothing_is_changed_when_anything_would_be_refused(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place.write(
        {"entity": {"user": "alice"}, "producer_byte_rate": 7},
        {"entity": {"ip": "no such host!"}, "connection_creation_rate": 3},
    )
    assert main_plan(["--store", place.url, file]) == 1
    capsys.readouterr()
    assert main_apply(["--store", place.url, file]) == 1
    printed = capsys.readouterr()
    assert "headgate apply: nothing was changed, because of:" in printed.err
    assert "no such host! is not a valid IP or resolvable host." in printed.err
    assert len(place.table()) == 0


def test_validate_only_stops_before_changing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": 7})
    assert main_apply(["--store", place.url, file, "--validate-only"]) == 0
    assert "Validated; nothing was changed." in capsys.readouterr().out
    assert len(place.table()) == 0


def test_a_files_mistakes_are_told_all_at_once_with_their_lines(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text(
        "quotas:\n"
        "- entity: {user: a}\n"
        "  producer_byte_rate: fast\n"
        "- entity: {user: b, ip: 1.2.3.4}\n"
        "  producer_byte_rate: 1\n",
        encoding="utf-8",
    )
    assert main_plan(["--store", place.url, str(place.file)]) == 1
    errors = capsys.readouterr().err
    assert f"{place.file}:3:" in errors
    assert f"{place.file}:4:" in errors


def test_peers_4_3_pairs_round_trip_any_user_with_a_client_id(place: Place) -> None:
    place.set(user=DEFAULT, client_id="etl", producer_byte_rate=5)
    place.set(user="alice", client_id=DEFAULT, producer_byte_rate=6)
    place.set(user="alice", client_id="etl", producer_byte_rate=7)
    place.set(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=8)
    before = place.table()
    file = str(place.file)
    assert main_export(["--store", place.url, "--out", file]) == 0
    assert main_plan(["--store", place.url, file, "--prune"]) == 0
    other = Place(place.file.parent)
    other.path = place.file.parent / "other.db"
    other.url = f"sqlite:{other.path}"
    assert main_apply(["--store", other.url, file]) == 0
    assert other.table() == before


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_peers_4_5_and_4_20_defaults_are_null_and_not_a_name(place: Place, form: str) -> None:
    place.set(user=DEFAULT, producer_byte_rate=5)
    place.set(client_id=DEFAULT, producer_byte_rate=6)
    place.set(ip=DEFAULT, connection_creation_rate=7)
    place.set(user="<default>", producer_byte_rate=8)
    place.set(user="null", producer_byte_rate=9)
    place.set(user="~", producer_byte_rate=10)
    place.set(user="0x10", request_percentage=12.75)
    place.set(user=" ", producer_byte_rate=11)
    before = place.table()
    file = str(place.file)
    assert main_export(["--store", place.url, "--out", file, "--format", form]) == 0
    rows = yaml.safe_load(place.file.read_text(encoding="utf-8"))["quotas"]
    assert {"entity": {"user": None}, "producer_byte_rate": 5} in rows
    assert {"entity": {"user": "<default>"}, "producer_byte_rate": 8} in rows
    assert main_plan(["--store", place.url, file, "--prune"]) == 0
    assert main_apply(["--store", place.url, file, "--prune"]) == 0
    assert place.table() == before


def test_peers_4_20_import_deletes_nothing_the_file_lacks(place: Place) -> None:
    place.set(user="alice", producer_byte_rate=5)
    place.set(user="bob", producer_byte_rate=6)
    file = place.write({"entity": {"user": "carol"}, "producer_byte_rate": 7})
    assert main_apply(["--store", place.url, file]) == 0
    assert len(place.table()) == 3


def test_the_export_goes_to_stdout_and_fits_the_schema(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=5, producer_byte_rate__bps=10, producer_ids_rate=2.5)
    assert main_export(["--store", place.url]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["quotas"][0]["producer_byte_rate:bps"] == 10


def test_export_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_export(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_the_schema_is_a_schema_and_knows_every_key() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    known = SCHEMA["$defs"]["values"]["properties"]
    assert set(known) == {name for key in KEYS for name in (key.name, str(key))}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"quotas": {}},
        {"quotas": [{"producer_byte_rate": 5}]},
        {"quotas": [{"entity": {}}]},
        {"quotas": [{"entity": {"user": "a", "ip": "1.2.3.4"}}]},
        {"quotas": [{"entity": {"group": "a"}}]},
        {"quotas": [{"entity": {"user": "a"}, "producer_byte_rat": 5}]},
        {"quotas": [{"entity": {"user": "a"}, "producer_byte_rate": 0}]},
        {"quotas": [{"entity": {"user": "a"}, "producer_byte_rate": "5"}]},
        {"quotas": [], "quota": []},
    ],
)
def test_the_schema_refuses_what_makes_no_sense(document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


def test_names_cannot_steer_the_terminal(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.set(user="bad\x1b[2J\u202ename", producer_byte_rate=5)
    file = place.write({"entity": {"user": "new\x07\n"}, "producer_byte_rate": 6})
    assert main_plan(["--store", place.url, file, "--prune"]) == 3
    assert main_history(["--store", place.url]) == 0
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_colour_is_for_terminals_or_for_asking(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": 6})
    main_plan(["--store", place.url, file])
    plain = capsys.readouterr().out
    main_plan(["--store", place.url, file, "--color", "always"])
    coloured = capsys.readouterr().out
    assert "\x1b[" not in plain
    assert "\x1b[32m    + producer_byte_rate" in coloured


def test_a_plan_as_json(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.set(user="alice", producer_byte_rate=10)
    place.set(user="bob", producer_byte_rate=11)
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": 4})
    words = ["--store", place.url, file, "--json", "--client", "user=alice"]
    assert main_plan(words) == 3
    assert json.loads(capsys.readouterr().out) == {
        "changes": [
            {
                "entity": {"user": "alice"},
                "key": "producer_byte_rate:broker_bps",
                "before": 10,
                "after": 4,
            }
        ],
        "unmentioned": [
            {
                "entity": {"user": "bob"},
                "key": "producer_byte_rate:broker_bps",
                "before": 11,
                "after": None,
            }
        ],
        "effective": [
            {
                "client": {"user": "alice", "client-id": None},
                "key": "producer_byte_rate:broker_bps",
                "before": {"value": 10, "source": {"user": "alice"}},
                "after": {"value": 4, "source": {"user": "alice"}},
            }
        ],
        "refused": [],
        "notes": [],
    }


def test_clients_come_from_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "clients.yaml"
    file.write_text("- {user: a, client-id: 007}\n- {client-id: c}\n", encoding="utf-8")
    assert read_clients([r"user=x\,y"], file) == [
        QuotaEntity.of(user="x,y", client_id=DEFAULT),
        QuotaEntity.of(user="a", client_id="007"),
        QuotaEntity.of(user=DEFAULT, client_id="c"),
    ]
    with pytest.raises(BadUsage, match="expected user=U,client-id=C"):
        read_clients(["host=x"], None)
    file.write_text("- {host: a}\n", encoding="utf-8")
    with pytest.raises(InvalidQuota, match="entry 1"):
        read_clients([], file)


def test_known_clients_stand_beside_any_other() -> None:
    table = QuotaTable(
        {
            QuotaEntity.of(user="a", client_id="c"): {PRODUCER: 1.0},
            QuotaEntity.of(client_id="d"): {PRODUCER: 1.0},
            QuotaEntity.of(ip="1.2.3.4"): {PRODUCER: 1.0},
        }
    )
    assert known_clients([table]) == [
        QuotaEntity.of(user="a", client_id="c"),
        QuotaEntity.of(user=DEFAULT, client_id="d"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (PRODUCER, 999.0, "999 B/s"),
        (PRODUCER, 10_485_760.0, "10.49 MB/s"),
        (PRODUCER_BPS, 5e9, "5 GB/s in all"),
        (PRODUCER, 2.0**63, "unlimited"),
        (REQUEST, 12.75, "12.75 %"),
        (PRODUCER_SHARES, 100.0, "100 shares"),
        (QuotaKey.parse("controller_mutation_rate"), 2.5, "2.5/s"),
    ],
)
def test_limits_as_people_say_them(key: QuotaKey, value: float, text: str) -> None:
    assert human(key, value) == text


class TwoHomes(SqliteStore):
    """Refuses what kafka:// refuses, and, when it is to be done, Kafka's half of alice's."""

    def alter(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False, **more: Any
    ) -> list[AlterResult]:
        refused = {}
        for entity, ops in alterations:
            if {PRODUCER, PRODUCER_BPS} <= {op.key for op in ops}:
                refused[entity] = two_homes(PRODUCER, PRODUCER_BPS)
            elif entity == ALICE and ops[0].key == PRODUCER and not validate_only:
                refused[entity] = ApiError(KafkaError.POLICY_VIOLATION, "not today")
        others = [a for a in alterations if a.entity not in refused]
        super().alter(others, validate_only=validate_only, **more)
        return [AlterResult(a.entity, refused.get(a.entity)) for a in alterations]


def test_where_the_first_half_of_a_split_entity_is_refused_the_second_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headgate.store.open_store", lambda *_, **__: TwoHomes(place.path))
    both = {PRODUCER.name: 5, str(PRODUCER_BPS): 9}
    file = place.write(*({"entity": {"user": user}, **both} for user in ("alice", "bob")))
    assert main_apply(["--store", place.url, file]) == 1
    printed = capsys.readouterr()
    assert "Applied: 1 entity changed." in printed.out
    assert "not today" in printed.err
    bob = QuotaEntity.of(user="bob")
    assert place.table().entities == {bob: {PRODUCER: 5, PRODUCER_BPS: 9}}


class SecondHomeFails(TwoHomes):
    """Takes what Kafka keeps itself; of alice refuses the rest, or is gone by then."""

    def __init__(self, path: Path, failure: ApiError | StoreError) -> None:
        super().__init__(path)
        self.failure = failure

    def alter(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False, **more: Any
    ) -> list[AlterResult]:
        second = [a for a in alterations if [op.key for op in a.ops] == [PRODUCER_BPS]]
        if not second or validate_only:
            return super().alter(alterations, validate_only=validate_only, **more)
        if isinstance(self.failure, StoreError):
            raise self.failure
        return [AlterResult(a.entity, self.failure) for a in second]


@pytest.mark.parametrize(
    "failure", [ApiError(KafkaError.POLICY_VIOLATION, "not today"), StoreError("not today")]
)
def test_where_the_second_half_of_a_split_entity_fails_it_is_said_what_was_done(
    failure: ApiError | StoreError,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "headgate.store.open_store",
        lambda *_, **__: SecondHomeFails(place.path, failure),
    )
    file = place.write({"entity": {"user": "bob"}, PRODUCER.name: 6, str(PRODUCER_BPS): 9})
    assert main_apply(["--store", place.url, file]) == 1
    printed = capsys.readouterr()
    assert "Applied: 0 entities changed." in printed.out
    assert printed.err == (
        "{user=bob}: producer_byte_rate:broker_bps was changed in Kafka itself and stays so; "
        "producer_byte_rate:bps was not changed: not today. Repair that and apply the quotas file "
        "again; `headgate plan` shows what is left to do\n"
    )
    bob = QuotaEntity.of(user="bob")
    assert place.table().entities == {bob: {PRODUCER: 6}}
    # What is left to do is done once the home takes it.
    monkeypatch.setattr("headgate.store.open_store", lambda *_, **__: TwoHomes(place.path))
    assert main_apply(["--store", place.url, file]) == 0
    assert place.table().entities == {bob: {PRODUCER: 6, PRODUCER_BPS: 9}}


# --- history


def test_history_tells_who_when_from_to_and_by_which_tool(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=5)
    file = place.write({"entity": {"user": "alice"}, "producer_byte_rate": 6})
    assert main_apply(["--store", place.url, file, "--message", "why"]) == 0
    with SqliteStore(place.path) as store:
        store.history.audit(
            AuditEvent("mallory", "admin listener", "alter_quotas", "refused", "users/bob")
        )
        first, second = store.history.entries()
    capsys.readouterr()
    assert main_history(["--store", place.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ", 1)[1].split("  ") == [
        "setup",
        "test",
        "users/alice",
        "producer_byte_rate:broker_bps: none → 5",
        first.change,
    ]
    assert lines[1].endswith(
        f"  headgate apply  users/alice  producer_byte_rate:broker_bps: 5 → 6  {second.change}  why"
    )
    assert lines[2].endswith("  mallory  admin listener  refused alter_quotas  users/bob")
    assert all(line[10] == "T" and line[23] == "Z" for line in lines)


def test_history_of_one_entity_as_json(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.set(user="alice", producer_byte_rate=5)
    place.set(user="bob", producer_byte_rate=6)
    words = ["--store", place.url, "--entity", "{user=bob}", "--format", "json"]
    assert main_history(words) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["entity"], row["before"], row["after"]) == (
        "change",
        {"user": "bob"},
        None,
        6,
    )


def test_history_as_a_quotas_file_starts_before_its_first_change(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=5)
    place.set(user="alice", producer_byte_rate=6)
    place.set(user="bob", request_percentage=50)
    assert main_history(["--store", place.url, "--limit", "2", "--format", "yaml"]) == 0
    text = capsys.readouterr().out
    jsonschema.validate(yaml.safe_load(text), SCHEMA)
    place.file.write_text(text, encoding="utf-8")
    from headgate.quota.file import read_quotas_file

    read = read_quotas_file(place.file)
    assert read.table.entities == {ALICE: {PRODUCER: 5.0}}
    assert [(event.entity, event.value) for event in read.history] == [
        (ALICE, 6.0),
        (QuotaEntity.of(user="bob"), 50.0),
    ]


# --- store copy


def test_a_store_without_an_identity_is_copied_and_not_taken_over_from(
    place: Place,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place.set(user="alice", producer_byte_rate=5)
    monkeypatch.setattr(SqliteHome, "identity", lambda _: None)
    target = f"sqlite:{tmp_path / 'new.db'}"
    assert main_store(["copy", "--from", place.url, "--to", target]) == 0
    assert capsys.readouterr().out == f"1 entities copied to {target}.\n"
    with SqliteStore(tmp_path / "new.db") as copied:
        assert copied.snapshot().entities == place.table().entities
        assert {entry.message for entry in copied.history.entries()} == {f"copied from {place.url}"}


@pytest.fixture
def two(place: Place, tmp_path: Path) -> tuple[str, str]:
    """Two stores that agree on a quota and a setting, and differ in one of each."""
    target = f"sqlite:{tmp_path / 'new.db'}"
    place.set(user="alice", producer_byte_rate=5, consumer_byte_rate=6)
    place.set(user="new", producer_byte_rate=1)
    with SqliteStore(place.path) as old:
        old.broker_settings.alter("", {"max.connections": "7", "max.connections.per.ip": "3"})
    with SqliteStore(tmp_path / "new.db") as new:
        values = (Op(PRODUCER, 5.0), Op(CONSUMER, 60.0))
        new.alter([QuotaAlteration(ALICE, values)])
        new.alter([QuotaAlteration(QuotaEntity.of(user="there"), (Op(PRODUCER, 2.0),))])
        new.broker_settings.alter("", {"max.connections": "7", "max.connections.per.ip": "4"})
        new.broker_settings.alter("1", {"max.connections": "9"})
    return place.url, target


def test_a_store_is_not_copied_over_other_quotas(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = two
    with SqliteStore(target.removeprefix("sqlite:")) as new:
        before = new.snapshot(), new.broker_settings.now(), new.home.identity()
    assert main_store(["copy", "--from", source, "--to", target]) == 1
    with SqliteStore(target.removeprefix("sqlite:")) as new:
        assert (new.snapshot(), new.broker_settings.now(), new.home.identity()) == before
    told = capsys.readouterr().err
    assert "consumer_byte_rate:broker_bps: 6 and 60 there" in told
    assert "producer_byte_rate:broker_bps: not set and 2 there" in told
    assert "max.connections.per.ip of all brokers: 3 and 4 there" in told
    assert "max.connections of broker 1: not set and 9 there" in told
    assert "--merge" in told


def test_a_store_is_merged_and_what_is_there_stays(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = two
    assert main_store(["copy", "--merge", "--from", source, "--to", target]) == 0
    assert "has otherwise stays: " in capsys.readouterr().err
    with SqliteStore(target.removeprefix("sqlite:")) as new, SqliteStore(source[7:]) as old:
        assert new.snapshot().entities == {
            ALICE: {PRODUCER: 5.0, CONSUMER: 60.0},
            QuotaEntity.of(user="there"): {PRODUCER: 2.0},
            QuotaEntity.of(user="new"): {PRODUCER: 1.0},
        }
        wanted = {"max.connections": "7", "max.connections.per.ip": "4"}
        assert new.broker_settings.now() == {"": wanted, "1": {"max.connections": "9"}}
        known, found = old.home.identity(), new.home.identity()
        assert known is not None
        assert found is not None
        assert found.succeeds[0] == (known.id, known.revision)
    # What was merged agrees in part: what the old store has is there. What is there besides isn't.
    assert main_store(["copy", "--from", source, "--to", target]) == 1


@pytest.mark.parametrize("merge", [False, True])
def test_a_migrated_cluster_keeps_its_own_quotas(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: bool
) -> None:
    place.set(user="alice", producer_byte_rate=5, producer_ids_rate=7)
    target = SqliteStore(tmp_path / "new.db")  # stands for the cluster
    refuses = property(lambda _: "a controller has taken over", lambda *_: None)
    monkeypatch.setattr(Availability, "refuses", refuses, raising=False)
    words = ["copy", "--from", place.url, "--to", f"sqlite:{tmp_path / 'new.db'}"]
    # The quota is gone in the cluster: it was removed there since.
    assert main_store([*words, "--merge"] if merge else words) == (0 if merge else 1)
    assert target.snapshot().entities == ({ALICE: {PRODUCER_IDS: 7.0}} if merge else {})
    target.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))])
    assert main_store(words) == 0
    assert target.snapshot().entities == {ALICE: {PRODUCER: 5.0, PRODUCER_IDS: 7.0}}
    target.close()


# --- doctor


def test_doctor_finds_what_does_not_do_what_it_seems_to(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user=DEFAULT, producer_byte_rate=2.0**63)
    place.set(client_id="c", producer_byte_rate=5)
    place.set(client_id=DEFAULT, producer_byte_rate=5)
    place.set(user="<default>", producer_byte_rate=5)
    place.set(user="s", producer_byte_rate__shares=5)
    assert main_doctor(["--store", place.url]) == 3
    told = capsys.readouterr().out
    assert "users/<default> producer_byte_rate:broker_bps is unlimited and hides 2" in told
    assert "literally called <default>" in told
    assert "headgate.capacity.producer_byte_rate" in told
    assert "clients/<default> (producer_byte_rate:broker_bps) doesn't reach" in told


def test_doctor_finds_one_address_twice(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.set(ip="::1", connection_creation_rate=5)
    place.set(ip="0:0:0:0:0:0:0:1", connection_creation_rate=6)
    assert main_doctor(["--store", place.url]) == 3
    assert "are one address (::1)" in capsys.readouterr().out


def test_doctor_is_content_with_plain_quotas(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(user="alice", producer_byte_rate=5)
    assert main_doctor(["--store", place.url]) == 0
    assert capsys.readouterr().out == "1 entity looked at; nothing found.\n"


class BrokenZooKeeper:
    """Opens as a ZooKeeper store with a broken znode; keeps how it was opened."""

    opened: ClassVar[list[ZooKeeperSecurity | None]] = []

    def __init__(self, place: str, *, create: bool, security: ZooKeeperSecurity | None) -> None:
        assert not create
        self.url = f"zookeeper://{place}"
        self.home = self
        self.availability = SimpleNamespace(refuses="a KRaft controller has taken over")
        self.opened.append(security)

    def snapshot(self) -> QuotaTable:
        return QuotaTable()

    def oddities(self) -> list[str]:
        return ["/config/users/alice is not of the form: '?'"]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("flag", ["--command-config", "--config"])
def test_doctor_opens_zookeeper_as_its_settings_say(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.store.zookeeper.store.ZooKeeperStore", BrokenZooKeeper)
    monkeypatch.setattr(BrokenZooKeeper, "opened", [])
    settings = tmp_path / "its.properties"
    lines = ["headgate.store.zookeeper.sasl.username=alice"]
    lines += ["headgate.store.zookeeper.sasl.password=secret"]
    words = ["--store", "zookeeper://zk:2181"]
    if flag == "--config":
        lines += ["listeners=PLAINTEXT://127.0.0.1:19092", "headgate.upstream=embedded"]
        lines += ["headgate.store=zookeeper://zk:2181"]
        words = []
    settings.write_text("\n".join(lines), encoding="utf-8")
    assert main_doctor([*words, flag, str(settings)]) == 3
    told = capsys.readouterr().out
    assert "a KRaft controller has taken over" in told
    assert "/config/users/alice is not of the form" in told
    assert [security and security.sasl_username for security in BrokenZooKeeper.opened] == ["alice"]


def test_a_plan_as_json_says_what_would_be_refused(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"entity": {"ip": "no such host"}, "connection_creation_rate": 5}
    good = {"entity": {"user": "alice"}, "producer_byte_rate": 4}
    words = ["--store", place.url, place.write(row, good), "--json"]
    for command in (main_plan, main_apply):
        assert command(words) == 1
        told = json.loads(capsys.readouterr().out)
        assert len(told["changes"]) == 2
        said = "no such host is not a valid IP or resolvable host."
        kafkas = {"code": 42, "name": "INVALID_REQUEST"}
        assert told["refused"] == [{"entity": {"ip": "no such host"}, "error": said, **kafkas}]
        assert told["error"].items() >= kafkas.items()
        assert told["error"]["message"].startswith("1 entity refused, ")


ODD_NAMES = [
    "\U0001f600",
    "tab\there",
    "a\u2028b",
    "del\x7f",
    "nel\x85x",
    "back\\ud83d\\ude00",
    "/é",
]


def test_json_is_read_back_whatever_is_in_names(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ODD_NAMES:
        place.set(user=name, producer_byte_rate=5)
    assert main_export(["--store", place.url, "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert "\\ud83d\\ude00" in text  # as most programs write it
    document = json.loads(text)
    files = {
        "as exported": text,
        "tabs": json.dumps(document, indent="\t"),
        "raw": json.dumps(document, ensure_ascii=False),
    }
    for told, content in files.items():
        file = place.file.with_suffix(".json")
        file.write_text(content, encoding="utf-8")
        assert main_plan(["--store", place.url, str(file), "--prune"]) == 0, told


def test_doctor_finds_an_address_that_is_mapped_into_ipv6(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(ip="127.0.0.1", connection_creation_rate=5)
    place.set(ip="::ffff:127.0.0.1", connection_creation_rate=6)
    assert main_doctor(["--store", place.url]) == 3
    assert "are one address (127.0.0.1)" in capsys.readouterr().out
