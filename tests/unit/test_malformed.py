"""What others may write where Headgate reads: it is passed over, or refused with its place."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from fuzzing.stores import FakeZooKeeper
from headgate.cli.quotas.flags import read_clients
from headgate.config import Settings
from headgate.console.access.roles import read_roles
from headgate.console.access.tenants import read_tenants
from headgate.errors import HeadgateError, InvalidQuota, StoreError
from headgate.gateway.fleet.worker_name import WorkerName
from headgate.gateway.store_link.guard import load_snapshot
from headgate.pipeline.answers.chargeback import load_prices
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import parse_quotas
from headgate.quota.key import PRODUCER
from headgate.store.base import json_bytes, read_audit
from headgate.store.kafka.state import Record, TopicState, turn_record
from headgate.store.leases import NOBODYS
from headgate.store.sqlite.store import SqliteStore
from headgate.store.zookeeper import identity, layout
from headgate.store.zookeeper.change import decode_history
from headgate.store.zookeeper.history import ZkHistory
from headgate.store.zookeeper.lease import ZkLeases
from headgate.store.zookeeper.scram import read_credentials
from headgate.usage.files import parse_name
from headgate.usage.splits import Split, decode, encode
from headgate.usage.topic import _batches_of

DEEP = b"[" * 100_000
SPLIT = Split("alice", "", "producer_byte_rate:bps", 1, 5.0, 7, 1000, 15000)


# --- quotas files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quotas: []\nnote: 2026-99-99\n", "q:2: the note can't be read: month must be in 1..12"),
        ("quotas: []\nnote: {[a]: b}\n", "q:2: the note can't be read: while constructing"),
        ("quotas: []\nnote: !!int x\n", "q:2: the note can't be read: invalid literal"),
        ("? [a]\n: b\nquotas: []\n", "q:1: a name must be text, not a list or a mapping"),
        ("quotas:\n- entity: {user: a}\n  ? [b]\n  : 1\n", "q:3: a name must be text"),
        ("quotas:\n- entity: {[a]: b}\n", "q:2: a name must be text"),
        ("static_defaults: {[a]: 1}\nquotas: []\n", "q:1: a name must be text"),
        ("history:\n- {[a]: x}\n", "q:2: a name must be text"),
        (
            "history:\n- {t_ms: inf, entity: {user: a}, key: producer_byte_rate, value: 1}\n",
            "q:2: t_ms must be a moment, epoch ms",
        ),
    ],
)
def test_a_quotas_file_says_where_it_makes_no_sense(text: str, said: str) -> None:
    with pytest.raises(InvalidQuota) as refused:
        parse_quotas(text, "q")
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    "read",
    [read_roles, read_tenants, lambda path: read_clients([], path), lambda p: load_prices(str(p))],
)
@pytest.mark.parametrize(
    "text", [b"- {", b"- " * 4000, b"\xff", b"- {user: [a]}", b"a: 2026-99-99"]
)
def test_a_listing_that_makes_no_sense_is_refused_by_its_name(
    tmp_path: Path, read: Callable[[Path], Any], text: bytes
) -> None:
    path = tmp_path / "listing.yaml"
    path.write_bytes(text)
    with pytest.raises(HeadgateError, match=r"listing\.yaml"):
        read(path)


def test_a_value_of_too_many_digits_is_refused_with_its_place() -> None:
    text = f"quotas:\n- entity: {{user: a}}\n  producer_byte_rate: {'7' * 400}MB/s\n"
    with pytest.raises(InvalidQuota, match=r"^q:3: "):
        parse_quotas(text, "q")


# --- splits


@pytest.mark.parametrize(
    "changed",
    [{"split": float("nan")}, {"split": -1}, {"epoch": float("inf")}, {"valid_ms": float("inf")}],
)
def test_a_split_that_is_no_number_counts_as_none(changed: dict[str, float]) -> None:
    key, value = encode(SPLIT)
    assert decode(key, value) == SPLIT
    assert decode(key, json.dumps({**json.loads(value), **changed}).encode()) is None
    assert decode(key, DEEP) is None


# --- the topic


def _state(**parts: Any) -> TopicState:
    state = TopicState()
    value = parts.pop("value")
    state.apply(Record(json.dumps(parts).encode(), json.dumps(value).encode()))
    return state


HISTORY = {"who": "a", "tool": "b", "t_ms": 1, "path": "users/alice"}


@pytest.mark.parametrize(
    "value",
    [
        {**HISTORY, "changes": [["producer_byte_rate", "x", 1]]},
        {**HISTORY, "changes": [["producer_byte_rate", 1]]},
        {**HISTORY, "changes": 5},
        {**HISTORY, "changes": [], "path": "nobody"},
        {**HISTORY, "changes": [], "t_ms": float("inf")},
        {"path": "users/alice", "changes": []},
        [],
    ],
)
def test_a_history_record_of_another_form_is_ignored(value: Any) -> None:
    state = _state(kind="history", id="h", value=value)
    assert state.entries(None, None) == []
    assert state.history == {}


@pytest.mark.parametrize("value", [{}, {"owner": "a"}, [1], {"owner": 1, "epoch": "x"}])
def test_a_lease_record_of_another_form_is_ignored(value: Any) -> None:
    leases = _state(kind="lease", name="l", value=value).leases
    assert leases == ({} if value else {"l": NOBODYS})


def test_other_records_of_another_form_are_ignored() -> None:
    path = {"path": "users/alice", "key": "producer_ids_rate"}
    assert _state(kind="quota", **path, value={"value": float("nan")}).quotas == {}
    assert _state(kind="quota", **path, value=[]).quotas == {}
    assert _state(kind="identity", value={"id": 1, "revision": float("inf")}).identity is None
    assert _state(kind="audit", id="a", value={"who": "x"}).audit == {}
    assert _state(kind="broker", broker="1", key="k", value=5).brokers == {"1": {"k": "5"}}
    state = TopicState()
    assert state.apply(Record(DEEP, None)) == state.apply(Record(b'{"kind":"turn"}', b"[]")) == {}


def test_half_of_a_surrogate_pair_is_written_as_json_escapes_it() -> None:
    value = {"message": "\udb27 caf\u00e9"}
    assert json_bytes(value) == b'{"message":"\\udb27 caf\xc3\xa9"}'
    assert json.loads(json_bytes(value)) == value
    state = TopicState()
    turn = {"id": "i", "t_ms": 5, "who": "a", "tool": "t", "change": "c", "message": "\udb27"}
    turn["ops"] = [["users/alice", "producer_byte_rate", None, 5.0]]
    state.apply(Record(b'{"kind":"turn"}', json.dumps(turn).encode()))
    assert state.turn is not None
    assert b'"\\udb27"' in (turn_record(state.turn).value or b"")


def test_an_audit_line_of_a_newer_headgate_is_read() -> None:
    told = {"who": "a", "tool": "b", "action": "c", "outcome": "done", "more": 1}
    event = read_audit(json.dumps(told).encode())
    assert event is not None
    assert event.action == "c"
    assert read_audit(b'{"who":"a"}') is read_audit(DEEP) is read_audit(b"[]") is None


# --- ZooKeeper


def test_history_and_audit_nodes_of_others_are_passed_over() -> None:
    entry = b'{"version":1,"t_ms":5,"who":"a","tool":"b","changes":[["producer_byte_rate",1,2]]}'
    client: Any = FakeZooKeeper(
        {
            "/headgate/history/users+alice/e_0000000001": entry,
            "/headgate/history/users+alice/x_other": entry,
            "/headgate/history/users+alice/x_7": entry.replace(b"1,2", b'"a",{}'),
            "/headgate/history/nobody/e_0000000001": entry,
            "/headgate/audit/a_0000000001": b"{",
            "/headgate/audit/a_0000000002": b'{"who":1}',
        }
    )
    home: Any = SimpleNamespace(client=client, check_open=lambda: None)
    history = ZkHistory(home)
    assert {e.entity for e in history.entries()} == {QuotaEntity.of(user="alice")}
    assert history.audit_log() == []
    assert decode_history(DEEP) is None


def test_configurations_and_notices_of_others_are_refused_or_passed_over() -> None:
    with pytest.raises(InvalidQuota, match="not of the form"):
        layout.decode_config(DEEP)
    assert layout.decode_notice(DEEP) is None
    assert layout.sequence("config_change_other") == -1
    users = {
        "/config/users/%zz": b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}',
        "/config/users/bob": b"{",
        "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-256":"y"}}',
    }
    store: Any = SimpleNamespace(home=SimpleNamespace(client=FakeZooKeeper(users)))
    assert read_credentials(store) == {"alice": {"SCRAM-SHA-256": "y"}}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"owner":"a"}', DEEP])
def test_a_lease_node_that_is_none_is_refused_by_its_path(data: bytes) -> None:
    client = FakeZooKeeper({"/headgate/leases/gateway": data})
    home: Any = SimpleNamespace(client=client, prepare=lambda: None, check_now=lambda: None)
    with pytest.raises(StoreError, match="/headgate/leases/gateway holds no lease"):
        ZkLeases(home).look("gateway")


def test_a_store_that_names_no_former_ones_has_none() -> None:
    client: Any = FakeZooKeeper(
        {"/headgate/identity/abc": b"", "/headgate/identity/abc/succeeds": b'["x"]'}
    )
    found = identity.read(client, None)
    assert found is not None
    assert (found.id, found.succeeds) == ("abc", ())


# --- files


def test_a_row_that_is_no_quota_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    store = SqliteStore(path)
    store.alter([QuotaAlteration(QuotaEntity.of(user="a"), (Op(PRODUCER, 1.0),))])
    store.close()
    for change in (
        "UPDATE quota SET path = 'nobody'",
        "UPDATE identity SET succeeds = '{'",
        "UPDATE identity SET succeeds = CAST(x'ff' AS TEXT)",
    ):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(change)
        with pytest.raises(StoreError, match=r"q\.db(: | is damaged)"), SqliteStore(path) as store:
            store.snapshot()


def test_a_snapshot_with_an_impossible_revision_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text("note: {store: s, revision: .inf, brokers: {}}\nquotas: []\n")
    given = {"headgate.upstream": "embedded", "headgate.store.snapshot": str(path)}
    with pytest.raises(StoreError, match=r"snapshot\.json can't be read"):
        load_snapshot(Settings.from_properties(given))


def test_a_worker_whose_name_was_spoilt_takes_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_bytes(b'{"owner":"\xff","pid":1,"boot":"b"}')
    instance = WorkerName(tmp_path, "w", "b")
    assert instance.owner.startswith("w/")
    instance.close()


def test_a_file_that_only_looks_like_a_journals_isnt_one() -> None:
    assert parse_name(Path("a%zz-0000000000000001.arrow")) is None


def test_a_message_that_cannot_be_unpacked_has_no_batches() -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("a", pa.string())])
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
        out.write_batch(pa.record_batch([["x" * 1000]], schema))
    whole = bytes(sink.getvalue())
    for at in range(0, len(whole), 7):
        torn = whole[:at] + b"\xff" * 8 + whole[at + 8 :]
        message = SimpleNamespace(
            value=lambda torn=torn: torn, topic=lambda: "t", offset=lambda: 1, partition=lambda: 0
        )
        _batches_of(message)
