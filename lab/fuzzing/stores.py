"""
What stores hold, as anybody may have written it: znodes, records, splits, files.

An input is a list of pairs: ``\\xfe`` parts a name from its data, ``\\xff`` a pair from the next.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzzing.quotas import ROOT, folder
from fuzzing.target import Target, outcome
from headgate.config import Settings
from headgate.gateway.fleet.worker_name import WorkerName
from headgate.gateway.store_link.guard import (
    Snapshot,
    StoreGuard,
    acceptance_path,
    load_snapshot,
    save_snapshot,
)
from headgate.live.picture import decode as decode_picture
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent, ChangeOrigin, KeyChange
from headgate.store.identity import StoreIdentity
from headgate.store.kafka import state as topic
from headgate.store.leases import LeaseRecord
from headgate.store.sqlite.store import SqliteStore
from headgate.store.zookeeper import brokers, change, identity, layout
from headgate.store.zookeeper.client import ZkClient
from headgate.store.zookeeper.history import ForeignChange, ZkHistory
from headgate.store.zookeeper.lease import ZkLeases
from headgate.store.zookeeper.read import read_tree, values_of
from headgate.store.zookeeper.znodes import TransactionStep, Znode
from headgate.usage import splits

ALICE = QuotaEntity.of(user="alice")
_ORIGIN = ChangeOrigin("User:admin", "kafka-configs", "c1", "why")


def pairs(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Cut an input into names and data; None: a pair without data."""
    for pair in data.split(b"\xff")[:64]:
        name, part, rest = pair.partition(b"\xfe")
        yield name, rest if part else None


def joined(listed: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """Make an input of pairs."""
    return b"\xff".join(k if v is None else k + b"\xfe" + v for k, v in listed)


class FakeZooKeeper:
    """Nodes by path, as a client of ZooKeeper shows them; changes go nowhere."""

    def __init__(self, data: Mapping[str, bytes | None]) -> None:
        self._data = dict(data)
        for path in list(data):
            while path.count("/") > 1:
                path = path.rpartition("/")[0]
                self._data.setdefault(path, None)

    def nodes(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        return {path: self._node(path) for path in paths}

    def _node(self, path: str) -> Znode | None:
        if path not in self._data:
            return None
        return Znode(self._data[path], 1, len(self.children([path])[path]), 5, 6, 7, 1_000)

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        return {
            path: sorted(p[len(path) + 1 :] for p in self._data if p.rpartition("/")[0] == path)
            for path in paths
        }

    def sync(self) -> None:
        """Nothing."""

    def touch(self, path: str) -> int:
        return 2_000

    def commit(self, groups: Iterable[list[TransactionStep]]) -> list[Any]:
        return [None for _ in groups]


def zookeeper(data: bytes) -> None:
    """Any nodes: quotas, history, audit, leases, settings; what is broken is passed over."""
    tree = {
        "/" + name.decode("utf-8", "replace").strip("/"): rest
        for name, rest in pairs(data)
        # ZooKeeper has no other nodes.
        if all(part not in (b"", b".", b"..") for part in name.strip(b"/").split(b"/"))
    }
    client: Any = FakeZooKeeper(tree)
    assert isinstance(ZkClient, type)
    entities, nodes = read_tree(client)
    for entity in entities:
        for value in values_of(entity, nodes).values():
            assert not math.isnan(value)
    home: Any = SimpleNamespace(client=client)
    home.check_open = home.prepare = home.check_now = lambda: None
    history = ZkHistory(home)
    for about in (None, ALICE):
        for entry in history.entries(entity=about):
            assert isinstance(entry.t_ms, int)
    changed: list[tuple[QuotaKey, float | None, float | None]] = [(PRODUCER, 1.0, 2.0)]
    history.record_foreign([ForeignChange("users/alice", 1, 2, 3, changed)])
    history.audit_log()
    for settings in brokers.read(client).values():
        assert all(isinstance(value, str) for value in settings.values())
    identity.read(client, None)
    _, record = outcome(lambda: ZkLeases(home).look("gateway"), "/headgate/leases/gateway")
    if record is not None:
        assert isinstance(record.owner, str)
        assert isinstance(record.epoch, int)
        assert isinstance(record.mark, int)
        assert isinstance(record.ttl_ms, int)
    for node in nodes.values():
        path = layout.decode_notice(node.data if node else None)
        if path is not None:
            layout.noticed_entity(path)
    alteration = QuotaAlteration(
        ALICE, (Op(PRODUCER, 5.0), Op(CONSUMER, None), Op(PRODUCER_IDS, 1))
    )
    read = client.nodes(change.reads_of(alteration))
    outcome(lambda: change.decide(alteration, read, t_ms=1, origin=_ORIGIN))


def records(data: bytes) -> None:
    """Any records of the topic: a state that can be asked everything."""
    state = topic.TopicState()
    for key, value in pairs(data):
        state.apply(topic.Record(key, value))
    for values in state.quotas.values():
        assert not any(math.isnan(value) for value in values.values())
    for settings in state.brokers.values():
        assert all(isinstance(value, str) for value in settings.values())
    for lease in state.leases.values():
        assert [type(held) for held in lease] == [str, int, int, int]
    QuotaTable.of(state.quotas)
    state.entries(None, None)
    state.entries(ALICE, 3)
    state.audit_log(None)
    state.trimmed(30_000, 30_000)
    if state.turn is not None:
        topic.turn_record(state.turn)


def split_messages(data: bytes) -> None:
    """Any messages of the topic of splits: one that counts, written back alike, or nothing."""
    for key, value in pairs(data):
        found = splits.decode(key, value)
        if isinstance(found, splits.Split):
            assert found.split >= 0, "a limit that is no number"
            assert splits.decode(*splits.encode(found)) == found
        elif found is not None:
            assert splits.decode(*splits.encode_heartbeat(found)) == found
        if found is not None:
            assert isinstance(found.valid_until_ms, int)


@functools.cache
def _settings() -> Settings:
    return Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.store.snapshot": str(folder() / "snapshot.json"),
        }
    )


class _Store:
    """A store of which only its identity is asked, and its home."""

    url = "fake:"

    @property
    def home(self) -> _Store:
        return self

    def identity(self) -> StoreIdentity:
        return StoreIdentity("s", 3)

    def accept(self, found: StoreIdentity) -> None:
        """Nothing."""


def kept_files(data: bytes) -> None:
    """Any bytes as the snapshot, the acceptance of a store, a worker's name, a picture."""
    if not data:
        return
    settings = _settings()
    path = Path(settings.store_snapshot)
    kind, rest = data[0] % 4, data[1:]
    if kind == 0:
        path.write_bytes(rest)
        how, snapshot = outcome(lambda: load_snapshot(settings), str(path))
        if how == "read" and snapshot is not None and snapshot.identity is not None:
            save_snapshot(settings, snapshot)
            assert load_snapshot(settings) == snapshot
    elif kind == 1:
        acceptance_path(settings).write_bytes(rest)
        StoreGuard(settings).reconsider(_Store())  # type: ignore[arg-type]
    elif kind == 2:
        names = folder() / "names"
        names.mkdir(exist_ok=True)
        (names / "0.json").write_bytes(rest)
        instance = WorkerName(names, "w", "boot")
        assert instance.owner
        instance.close()
    else:
        with contextlib.suppress(ValueError):
            decode_picture(rest)


def sqlite_file(data: bytes) -> None:
    """A store's file with bytes changed: what it says is read, or it is refused."""
    original = _sqlite_bytes()
    torn = bytearray(original)
    for at in range(0, min(len(data), 60) - 3, 4):
        place = int.from_bytes(data[at : at + 3], "big") % len(torn)
        torn[place] = data[at + 3]
    if len(data) % 4 == 1:
        del torn[int.from_bytes(data[-3:], "big") % len(torn) :]
    path = folder() / "torn.db"
    for each in folder().glob("torn.db*"):
        each.unlink()
    path.write_bytes(torn)

    def read() -> None:
        store = SqliteStore(path, create=False)
        try:
            store.snapshot()
            store.broker_settings.now()
            store.history.entries()
            store.history.audit_log()
        finally:
            store.close()

    outcome(read, str(path))


@functools.cache
def _sqlite_bytes() -> bytes:
    path = folder() / "whole.db"
    store = SqliteStore(path)
    store.alter([QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))], who="a", tool="b")
    store.history.audit(AuditEvent("a", "b", "c", "refused"))
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
    return path.read_bytes()


def _trees() -> list[bytes]:
    value = layout.encode_config({"producer_byte_rate": "1024"})
    entry = change.encode_history(5, _ORIGIN, [KeyChange(PRODUCER, None, 2.0)])
    event = json.dumps({"who": "a", "tool": "b", "action": "c", "outcome": "done"}).encode()
    nodes: list[tuple[str, bytes | None]] = [
        ("/config/users/alice", value),
        ("/config/users/alice/clients/etl%20x", value),
        ("/config/users/<default>", value),
        ("/config/users", value),
        ("/config/clients/<default>", layout.encode_notice("users/alice")),
        ("/config/ips/1.2.3.4", layout.encode_config({"connection_creation_rate": "5"})),
        ("/config/brokers/1", layout.encode_config({"max.connections": "5"})),
        ("/headgate/quotas/users/alice", layout.encode_config({"producer_ids_rate": "1"})),
        ("/headgate/history/users+alice/e_0000000001", entry),
        ("/headgate/history/users+alice/x_77", entry),
        ("/headgate/audit/a_0000000001", event),
        ("/headgate/identity/abc", b""),
        ("/headgate/identity/abc/succeeds", b'[["x",3]]'),
        ("/headgate/leases/gateway", b'{"owner":"w","epoch":3,"ttl_ms":1000}'),
    ]
    one_each = [joined([(path.encode(), held)]) for path, held in nodes]
    return [*one_each, joined((path.encode(), held) for path, held in nodes)]


def _records() -> list[bytes]:
    origin = (5, _ORIGIN)
    alterations = [QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))]
    made = [
        topic.quota_record(ALICE, PRODUCER_IDS, 2.0),
        topic.broker_record("1", "max.connections", "5"),
        topic.lease_record("gateway", LeaseRecord("w", 3, 99, 10)),
        topic.identity_record(StoreIdentity("s", 3, (("t", 1),))),
        topic.turn_record(topic.PendingChange.of("i", 5, _ORIGIN, alterations, QuotaTable.of({}))),
        topic.history_record("h", origin, ALICE, [(PRODUCER, None, 3.0)]),
        topic.audit_record("a", AuditEvent("a", "b", "c", "refused")),
        topic.turn_record(None),
    ]
    return [*(joined([record]) for record in made), joined(made)]


def _splits() -> list[bytes]:
    split = splits.Split("alice", "etl", "producer_byte_rate:bps", 1, 5.5, 7, 1000, 15000)
    made = [
        splits.encode(split),
        splits.encode(split._replace(split=math.inf, user="")),
        splits.encode(split._replace(quota=22.0)),
        splits.encode_heartbeat(splits.Heartbeat(7, 1000, 15000)),
    ]
    return [joined([pair]) for pair in made]


def _kept() -> list[bytes]:
    settings = _settings()
    table = QuotaTable.of({ALICE: {PRODUCER: 5.0}})
    held = {"1": {"max.connections": "5"}}
    save_snapshot(settings, Snapshot(table, held, StoreIdentity("s", 3)))
    before = ROOT / "tests" / "data" / "before"
    return [
        b"\0" + Path(settings.store_snapshot).read_bytes(),
        b"\0" + (before / "snapshot-earlier.json").read_bytes(),
        b'\1{"store":"s","until_ms":99999999999999}',
        b'\1{"store":"s","until_ms":null}',
        b'\2{"owner":"w/1","pid":3,"boot":"boot"}',
        b'\3{"at_ms":1,"brokers":[{"broker_id":1,"worker":"w"}]}',
    ]


_JSON = (
    b"\xff",
    b"\xfe",
    b"{",
    b"[",
    b"null",
    b"Infinity",
    b"NaN",
    b"1e999",
    b'"',
    b'{"a":',
    b"-1",
)
TARGETS = {
    "zookeeper nodes": Target(
        zookeeper,
        _trees,
        (*_JSON, b"/config/users/", b"/headgate/history/", b"/headgate/audit/", b"/clients/"),
    ),
    "topic records": Target(records, _records, _JSON),
    "splits": Target(split_messages, _splits, _JSON),
    "kept files": Target(
        kept_files,
        _kept,
        (*_JSON[2:], b"note: ", b"\n"),
    ),
    "sqlite files": Target(sqlite_file, lambda: [bytes(8), b"\0\0\x10\x01" * 3]),
}
