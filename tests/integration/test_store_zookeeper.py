"""The ZooKeeper store: layout, older layouts, lost sessions, restarts, access control."""

import json
import logging
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kazoo.client import KazooClient

from contract.suite import Seen, alteration, errors, set_key
from headgate.config import Settings, load_settings
from headgate.embedded import EmbeddedZooKeeper, free_ports
from headgate.embedded.process import accepts
from headgate.errors import StoreError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity, entity_from_path
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_IDS, PRODUCER_SHARES, REQUEST, QuotaKey
from headgate.quota.precedence import resolve
from headgate.quota.table import QuotaTable
from headgate.store import open_store
from headgate.store.zookeeper.history import ForeignChange
from headgate.store.zookeeper.layout import KAFKA_HOME, decode_config, decode_values
from headgate.store.zookeeper.store import ZooKeeperStore

pytestmark = pytest.mark.kafka3

SESSION_S = 60.0
"""Longer than a machine stands still: a lost connection would fail what is asked meanwhile."""
ALICE = QuotaEntity.of(user="alice")
ANYBODY = QuotaEntity.of(user=DEFAULT)
CAPTURE = json.loads(
    (Path(__file__).parents[1] / "data/store/zk-config-3.9.2.json").read_text(encoding="utf-8")
)


class Home:
    """One chroot: a store on it, and a bare client beside it that plays Kafka."""

    def __init__(self, zookeeper: EmbeddedZooKeeper) -> None:
        self.hosts = f"{zookeeper.address}/home/{uuid.uuid4().hex}"
        self.store = self.another()
        self.bare = KazooClient(self.hosts, timeout=SESSION_S)
        self.bare.start(timeout=60)

    def another(self) -> ZooKeeperStore:
        store = open_store(f"zookeeper://{self.hosts}")
        assert isinstance(store, ZooKeeperStore)
        return store

    def tree(self, path: str) -> dict[str, str | None]:
        data, _stat = self.bare.get(path)
        found = {path: None if data is None else data.decode()}
        for name in sorted(self.bare.get_children(path)):
            found.update(self.tree(f"{path}/{name}"))
        return found

    def put(self, path: str, config: dict[str, str], notice: Any = None) -> None:
        """Write an entity as Kafka does: the znode, then a notification in another transaction."""
        data = json.dumps({"version": 1, "config": config}).encode()
        self.bare.ensure_path(path)
        self.bare.set(path, data)
        if notice is not None:
            self.notify(notice)

    def notify(self, notice: Any) -> None:
        self.bare.create(
            "/config/changes/config_change_", json.dumps(notice).encode(), sequence=True
        )

    def close(self) -> None:
        self.store.close()
        self.bare.stop()
        self.bare.close()


@pytest.fixture
def home(zookeeper: EmbeddedZooKeeper) -> Iterator[Home]:
    home = Home(zookeeper)
    yield home
    home.close()


def v2(path: str) -> dict[str, object]:
    return {"version": 2, "entity_path": path}


# --- the layout


def test_55_5_55_21_the_tree_is_byte_for_byte_what_kafka_and_its_tool_left(home: Home) -> None:
    nodes = {n["path"]: n["data"] for n in CAPTURE}
    entities = {p: d for p, d in nodes.items() if d and "/changes/" not in p}
    # What no quota command can make: SCRAM credentials, and a 0 that only 3.9's tool stores.
    for user in ("alice", "zkuser", "erin"):
        config = decode_config(entities[f"/config/users/{user}"].encode())
        kept = {k: v for k, v in config.items() if k.startswith("SCRAM") or user == "erin"}
        home.put(f"/config/users/{user}", kept)
    wanted_notices = []
    for path, data in entities.items():
        values = decode_values(KAFKA_HOME, decode_config(data.encode()))[0]
        entity = entity_from_path(path.removeprefix("/config/"))
        if values and "erin" not in path:
            ops = tuple(Op(key, value) for key, value in reversed(values.items()))
            assert errors(home.store.alter([QuotaAlteration(entity, ops)])) == [None]
            wanted_notices.append(f'{{"version":2,"entity_path":"{entity.path}"}}')
    tree = home.tree("/config")
    notices = {p: d for p, d in tree.items() if p.startswith("/config/changes/")}
    assert notices == {
        f"/config/changes/config_change_{n:010}": text for n, text in enumerate(wanted_notices)
    }
    ours = {p: d for p, d in tree.items() if p not in notices}
    theirs = {p: d for p, d in nodes.items() if "/changes/" not in p and p != "/config/topics"}
    # erin and zkuser are the test's own writing, with Python's blanks in their JSON.
    for path in ("/config/users/erin", "/config/users/zkuser"):
        assert json.loads(ours.pop(path) or "") == json.loads(theirs.pop(path))
    assert ours == theirs


def test_znodes_go_with_their_last_key_and_so_do_emptied_parents(home: Home) -> None:
    before = home.tree("/config")
    pair = QuotaEntity.of(user="alice", client_id="app 1")
    home.store.alter([set_key(pair, PRODUCER, 1.0)])
    assert home.bare.exists("/config/users/alice/clients/app%201")
    home.store.alter([set_key(ALICE, PRODUCER, 2.0)])
    home.store.alter([set_key(ALICE, PRODUCER, None)])
    # A pair below keeps the user's znode, with nothing in it, as Kafka leaves it.
    assert home.bare.get("/config/users/alice")[0] == b'{"version":1,"config":{}}'
    home.store.alter([set_key(pair, PRODUCER, None)])
    after = {p: d for p, d in home.tree("/config").items() if "/changes/" not in p}
    assert after == before
    assert len(home.bare.get_children("/config/changes")) == 4


def test_parents_that_still_hold_something_stay(home: Home) -> None:
    one, two = (QuotaEntity.of(user="alice", client_id=c) for c in ("one", "two"))
    home.put("/config/users/alice", {"SCRAM-SHA-256": "salt=x"})
    home.store.alter([set_key(one, PRODUCER, 1.0), set_key(two, PRODUCER, 2.0)])
    home.store.alter([set_key(one, PRODUCER, None)])
    assert home.bare.get_children("/config/users/alice/clients") == ["two"]
    home.store.alter([set_key(two, PRODUCER, None)])
    assert home.bare.get_children("/config/users/alice") == []
    assert decode_config(home.bare.get("/config/users/alice")[0]) == {"SCRAM-SHA-256": "salt=x"}


def test_scram_credentials_survive_every_alteration(home: Home) -> None:
    credentials = {"SCRAM-SHA-256": "salt=a,stored_key=b,server_key=c,iterations=8192"}
    home.put("/config/users/alice", credentials)
    home.store.alter([alteration(ALICE, producer_byte_rate=1.0, request_percentage=2.0)])
    home.store.alter([alteration(ALICE, producer_byte_rate=None)])
    config = decode_config(home.bare.get("/config/users/alice")[0])
    assert config == {**credentials, "request_percentage": "2.0"}
    home.store.alter([alteration(ALICE, request_percentage=None)])
    assert decode_config(home.bare.get("/config/users/alice")[0]) == credentials
    scram = QuotaKey.parse("SCRAM-SHA-256")
    home.store.alter([set_key(ALICE, scram, None)])
    assert decode_config(home.bare.get("/config/users/alice")[0]) == credentials
    assert len(home.store.snapshot()) == 0


def test_936_10_keys_kafka_lacks_have_znodes_and_notifications_of_their_own(home: Home) -> None:
    home.store.alter(
        [alteration(ALICE, producer_ids_rate=50.0, producer_byte_rate=1.0)], who="ops", tool="t"
    )
    home.store.alter([set_key(ALICE, PRODUCER_SHARES, 3.0)])
    assert home.bare.get("/config/users/alice")[0] == (
        b'{"version":1,"config":{"producer_byte_rate":"1"}}'
    )
    assert decode_config(home.bare.get("/headgate/quotas/users/alice")[0]) == {
        "producer_ids_rate": "50.0",
        "producer_byte_rate:shares": "3",
    }
    notices = home.tree("/headgate/changes")
    assert notices["/headgate/changes/config_change_0000000001"] == (
        '{"version":2,"entity_path":"users/alice"}'
    )
    assert len(home.bare.get_children("/config/changes")) == 1
    home.store.alter([alteration(ALICE, producer_ids_rate=None)])
    home.store.alter([set_key(ALICE, PRODUCER_SHARES, None)])
    assert home.bare.get_children("/headgate/quotas/users") == []
    assert home.store.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})


def test_names_that_would_climb_the_tree_are_refused(home: Home) -> None:
    before = home.tree("/")
    asked = [
        set_key(QuotaEntity.of(user=".."), PRODUCER, 1.0),
        set_key(QuotaEntity.of(user="a", client_id="."), PRODUCER, 1.0),
    ]
    assert errors(home.store.alter(asked)) == [
        ".. can't be a user quota in ZooKeeper, where it is no node name",
        ". can't be a client-id quota in ZooKeeper, where it is no node name",
    ]
    assert home.tree("/") == before


def test_a_znode_that_is_no_configuration_is_passed_over_and_never_overwritten(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    home.bare.create("/config/users/alice", b"by hand")
    home.bare.create("/config/users/a b", b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    home.put("/config/users/bob", {"producer_byte_rate": "lots", "consumer_byte_rate": "2"})
    with caplog.at_level(logging.WARNING, "headgate.store"), home.another() as other:
        table = other.snapshot()
    assert table == QuotaTable.of({QuotaEntity.of(user="bob"): {CONSUMER: 2.0}})
    assert "/config/users/alice is passed over: it is not of the form" in caplog.text
    assert "/config/users/a b is passed over: Kafka spells it users/a%20b" in caplog.text
    assert "in /config/users/bob producer_byte_rate is 'lots'" in caplog.text
    with pytest.raises(StoreError, match="fix it first"):
        home.store.alter([set_key(ALICE, PRODUCER, 1.0)])
    assert home.bare.get("/config/users/alice")[0] == b"by hand"


# --- notifications


def test_changes_of_others_are_seen_by_their_notifications(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    home.put("/config/users/alice", {"producer_byte_rate": "7"}, v2("users/alice"))
    seen.until(lambda: seen.table.get(ALICE, PRODUCER) == 7.0)
    home.bare.delete("/config/users/alice")
    home.notify(v2("users/alice"))
    seen.until(lambda: len(seen.table) == 0)
    assert len(seen.events) == 3


def test_55_25_client_id_quotas_that_were_there_before_go_on_working(home: Home) -> None:
    home.put("/config/clients/etl", {"producer_byte_rate": "1048576"}, v2("clients/etl"))
    assert resolve(home.store.snapshot(), "anybody", "etl", PRODUCER).value == 1048576.0


def test_55d_3_the_default_user_quota_changes_while_watched(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    for value in (7.0, 9.0):
        home.put(
            "/config/users/<default>",
            {"producer_byte_rate": str(int(value))},
            v2("users/<default>"),
        )
        seen.until(
            lambda value=value: seen.table.get(QuotaEntity.of(user=DEFAULT), PRODUCER) == value
        )  # type: ignore[misc]


def test_55_23_version_1_notifications_are_obeyed(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    notice = {"version": 1, "entity_type": "clients", "entity_name": "x"}
    home.put("/config/clients/x", {"producer_byte_rate": "7"}, notice)
    seen.until(lambda: seen.table.get(QuotaEntity.of(client_id="x"), PRODUCER) == 7.0)


def test_notifications_about_other_things_do_no_harm(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    for notice in (v2("topics/t"), v2("groups/g"), {"version": 9}, v2("users/%zz"), []):
        home.notify(notice)
    home.put("/config/users/alice", {"producer_byte_rate": "7"}, v2("users/alice"))
    seen.until(lambda: seen.table.get(ALICE, PRODUCER) == 7.0)


def test_purged_notifications_are_made_up_for_by_reading_everything(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    home.store.alter([set_key(ALICE, PRODUCER, 1.0)])
    # Two changes whose notifications are gone before anybody could list them: one transaction.
    purge = home.bare.transaction()
    data = b'{"version":1,"config":{"producer_byte_rate":"9"}}'
    purge.set_data("/config/users/alice", data)
    purge.create("/config/changes/config_change_", b"{}", sequence=True)
    purge.delete("/config/changes/config_change_0000000001")
    purge.create("/config/changes/config_change_", b"{}", sequence=True)
    assert not any(isinstance(r, Exception) for r in purge.commit())
    seen.until(lambda: seen.table.get(ALICE, PRODUCER) == 9.0)


def test_changes_made_past_headgate_enter_the_history_once_as_unknown(home: Home) -> None:
    seen, seen_too = Seen(), Seen()
    home.store.watch(seen)
    with home.another() as other, home.another() as third:
        other.watch(seen_too)
        third.alter([set_key(ALICE, PRODUCER, 1.0)], who="ops", tool="console")
        home.put("/config/users/alice", {"producer_byte_rate": "7"}, v2("users/alice"))
        for watching in (seen, seen_too):
            watching.until(lambda watching=watching: watching.table.get(ALICE, PRODUCER) == 7.0)
        third.alter([set_key(ALICE, PRODUCER, None)], who="ops", tool="console")
        home.put("/config/users/alice", {"consumer_byte_rate": "8"}, v2("users/alice"))
        for watching in (seen, seen_too):
            watching.until(lambda watching=watching: watching.table.get(ALICE, CONSUMER) == 8.0)
        home.bare.delete("/config/users/alice")
        home.notify(v2("users/alice"))
        for watching in (seen, seen_too):
            watching.until(lambda watching=watching: len(watching.table) == 0)
    home.store.close()  # both have written what they had to
    with home.another() as reader:
        assert [(h.who, h.tool, h.key, h.before, h.after) for h in reader.history.entries()] == [
            ("ops", "console", PRODUCER, None, 1.0),
            ("unknown", "unknown", PRODUCER, 1.0, 7.0),
            ("ops", "console", PRODUCER, 7.0, None),
            ("unknown", "unknown", CONSUMER, None, 8.0),
            ("unknown", "unknown", CONSUMER, 8.0, None),
        ]


def test_a_deletion_that_one_sees_early_and_one_late_enters_the_history_once(home: Home) -> None:
    """Nobody watches here: each looks and writes when it is told to."""
    third = home.store
    with home.another() as early, home.another() as late:
        third.alter([set_key(ALICE, PRODUCER, 1.0)], who="ops", tool="console")
        assert early.snapshot().get(ALICE, PRODUCER) == late.snapshot().get(ALICE, PRODUCER) == 1.0
        third.alter([set_key(ALICE, PRODUCER, None)], who="ops", tool="console")
        assert late.snapshot().get(ALICE, PRODUCER) is None
        # Kafka writes first and announces after: what is read for the announcement before may
        # be newer than it.
        home.put("/config/users/alice", {"consumer_byte_rate": "8"})
        assert early.snapshot().get(ALICE, CONSUMER) == 8.0  # by the announcement before
        home.notify(v2("users/alice"))
        assert late.snapshot().get(ALICE, CONSUMER) == 8.0  # by its own
        home.bare.delete("/config/users/alice")
        assert early.snapshot().get(ALICE, CONSUMER) is None  # by the announcement of the 8
        early._after_delivery()
        home.notify(v2("users/alice"))
        assert late.snapshot().get(ALICE, CONSUMER) is None  # by its own
        late._after_delivery()
        assert [(h.who, h.key, h.before, h.after) for h in late.history.entries()] == [
            ("ops", PRODUCER, None, 1.0),
            ("ops", PRODUCER, 1.0, None),
            ("unknown", CONSUMER, None, 8.0),
            ("unknown", CONSUMER, 8.0, None),
        ]


def test_of_two_who_find_a_change_unwritten_at_the_same_time_one_writes_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.bare.ensure_path("/headgate/history/users+alice")
    change = ForeignChange("users/alice", 7, 0, 200, [(PRODUCER, 1.0, 2.0)])
    with home.another() as other:
        first, second = home.store.history, other.history
        commit = first._client.commit

        def overtaken(transactions: Any) -> Any:
            monkeypatch.setattr(first._client, "commit", commit)
            second.record_foreign([change._replace(t_ms=8, zxid=201)])
            return commit(transactions)

        monkeypatch.setattr(first._client, "commit", overtaken)
        first.record_foreign([change])
        found = [(h.t_ms, h.before, h.after) for h in other.history.entries(entity=ALICE)]
        assert found == [(8, 1.0, 2.0)]


def test_a_change_made_past_headgate_is_recorded_though_others_come_between(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = home.store.history
    asked: list[str] = []
    look = history._folder

    def folder(path: str) -> Any:
        # The entity's folder is made by somebody just after it was found missing.
        asked.append(path)
        found = look(path)
        home.bare.ensure_path(path)
        return found

    monkeypatch.setattr(history, "_folder", folder)
    change = ForeignChange("users/alice", 7, 0, 12345, [(PRODUCER, 1.0, 2.0)])
    history.record_foreign([change])
    history.record_foreign([change])
    # Twice to write it, once to find it written.
    assert asked == ["/headgate/history/users+alice"] * 3
    entries = [(h.t_ms, h.who, h.before, h.after) for h in home.store.history.entries(entity=ALICE)]
    assert entries == [(7, "unknown", 1.0, 2.0)]


SeenPiece = tuple[int, int, list[tuple[QuotaKey, float | None, float | None]]]


@pytest.mark.parametrize(
    ("changes", "entries"),
    [
        # One watcher sees two changes one by one, another both at once: in either order.
        (
            [
                (10, 20, [(PRODUCER, None, 1.0)]),
                (20, 30, [(CONSUMER, None, 2.0)]),
                (10, 30, [(PRODUCER, None, 1.0), (CONSUMER, None, 2.0)]),
            ],
            [(PRODUCER, None, 1.0), (CONSUMER, None, 2.0)],
        ),
        (
            [
                (10, 30, [(PRODUCER, None, 1.0), (CONSUMER, None, 2.0)]),
                (10, 20, [(PRODUCER, None, 1.0)]),
                (20, 30, [(CONSUMER, None, 2.0)]),
            ],
            [(PRODUCER, None, 1.0), (CONSUMER, None, 2.0)],
        ),
        # There and back again: each is a change, though its values were seen before.
        (
            [
                (10, 20, [(PRODUCER, 1.0, 2.0)]),
                (20, 30, [(PRODUCER, 2.0, 1.0)]),
                (30, 40, [(PRODUCER, 1.0, 2.0)]),
            ],
            [(PRODUCER, 1.0, 2.0), (PRODUCER, 2.0, 1.0), (PRODUCER, 1.0, 2.0)],
        ),
    ],
)
def test_what_several_saw_in_different_pieces_is_written_down_once(
    home: Home, changes: list[SeenPiece], entries: list[tuple[QuotaKey, float | None, float]]
) -> None:
    for since, zxid, changed in changes:
        change = ForeignChange("users/alice", 7, since, zxid, changed)
        home.store.history.record_foreign([change])
    assert [(h.key, h.before, h.after) for h in home.store.history.entries(entity=ALICE)] == entries


def test_what_was_seen_together_with_a_change_of_ours_is_all_that_is_written_down(
    home: Home,
) -> None:
    home.store.alter([set_key(ALICE, PRODUCER, 1.0)], who="ops", tool="console")
    folder = "/headgate/history/users+alice"
    (entry,) = home.bare.get_children(folder)
    ours = home.bare.exists(f"{folder}/{entry}").czxid
    pieces = [(PRODUCER, None, 1.0), (CONSUMER, None, 2.0)]
    for since in (0, ours - 1):
        change = ForeignChange("users/alice", 7, since, ours + 5, pieces)
        home.store.history.record_foreign([change])
    found = [(h.who, h.key, h.before, h.after) for h in home.store.history.entries(entity=ALICE)]
    assert found == [("ops", PRODUCER, None, 1.0), ("unknown", CONSUMER, None, 2.0)]


# --- the older layout of defaults


def test_55d_1_the_older_layout_is_read_the_newer_wins_and_clearing_clears_both(
    home: Home,
) -> None:
    older = {
        "/config/users": QuotaEntity.of(user=DEFAULT),
        "/config/clients": QuotaEntity.of(client_id=DEFAULT),
        "/config/users/<default>/clients": QuotaEntity.of(user=DEFAULT, client_id=DEFAULT),
    }
    for n, path in enumerate(older):
        home.put(path, {"producer_byte_rate": f"{n + 1}", "consumer_byte_rate": f"{n + 10}"})
    home.put("/config/users/<default>", {"producer_byte_rate": "99"})
    with home.another() as store:
        assert store.snapshot() == QuotaTable.of(
            {
                older["/config/users"]: {PRODUCER: 99.0, CONSUMER: 10.0},
                older["/config/clients"]: {PRODUCER: 2.0, CONSUMER: 11.0},
                older["/config/users/<default>/clients"]: {PRODUCER: 3.0, CONSUMER: 12.0},
            }
        )
        # Written to the <default> node alone.
        store.alter([set_key(older["/config/clients"], PRODUCER, 500.0)])
        assert decode_config(home.bare.get("/config/clients")[0])["producer_byte_rate"] == "2"
        assert home.bare.get("/config/clients/<default>")[0] == (
            b'{"version":1,"config":{"producer_byte_rate":"500"}}'
        )
        assert store.snapshot().get(older["/config/clients"], PRODUCER) == 500.0
        # Cleared in both.
        for entity in older.values():
            assert errors(store.alter([set_key(entity, PRODUCER, None)])) == [None]
        assert not home.bare.exists("/config/clients/<default>")
        for n, path in enumerate(older):
            assert decode_config(home.bare.get(path)[0]) == {"consumer_byte_rate": f"{n + 10}"}
        assert {e: dict(v) for e, v in store.snapshot().entities.items()} == {
            e: {CONSUMER: n + 10.0} for n, e in enumerate(older.values())
        }
        last = store.history.entries(entity=older["/config/clients"])[-1]
        assert (last.before, last.after) == (500.0, None)


def test_55d_1_the_older_layout_is_watched(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    for n, path in enumerate(
        ("/config/users", "/config/clients", "/config/users/<default>/clients")
    ):
        home.put(path, {"producer_byte_rate": f"{n + 1}"})  # no notification at all
        seen.until(lambda n=n: len(seen.table) == n + 1)
    home.put("/config/users", {"producer_byte_rate": "77"})
    seen.until(lambda: seen.table.get(ANYBODY, PRODUCER) == 77.0)


# --- sessions and restarts


def expire(store: ZooKeeperStore, hosts: str) -> None:
    """End a store's session from outside, as a server does that hasn't heard of it for long."""
    thief = KazooClient(hosts, client_id=store.home.client._kazoo.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()


def test_an_expired_session_loses_nothing(home: Home) -> None:
    seen = Seen()
    home.store.watch(seen)
    with home.another() as other:
        for value in range(1, 4):
            expire(home.store, home.hosts)
            other.alter([set_key(ALICE, PRODUCER, value)])
            home.put("/config/clients/x", {"producer_byte_rate": f"{value}"})  # and no notification
            assert errors(home.store.alter([set_key(ALICE, CONSUMER, value)])) == [None]
            wanted = QuotaTable.of(
                {
                    ALICE: {PRODUCER: value, CONSUMER: value},
                    QuotaEntity.of(client_id="x"): {PRODUCER: value},
                }
            )
            seen.until(lambda wanted=wanted: seen.table == wanted)
    assert home.store.snapshot() == seen.table


def test_a_killed_and_restarted_zookeeper_loses_nothing(
    make_zookeeper: Callable[..., EmbeddedZooKeeper],
) -> None:
    zookeeper = make_zookeeper()
    home = Home(zookeeper)
    seen = Seen()
    home.store.watch(seen)
    entities = [QuotaEntity.of(user=f"u{n}") for n in range(5)]
    for n, entity in enumerate(entities):
        assert errors(home.store.alter([set_key(entity, PRODUCER, n + 1.0)])) == [None]
    zookeeper.kill()
    zookeeper.start()
    # The first alteration after it meets the lost connection, and is done all the same.
    assert errors(home.store.alter([set_key(ALICE, REQUEST, 12.75)])) == [None]
    wanted = {e: {PRODUCER: n + 1.0} for n, e in enumerate(entities)}
    wanted[ALICE] = {REQUEST: 12.75}
    assert home.store.snapshot() == QuotaTable.of(wanted)
    seen.until(lambda: seen.table == QuotaTable.of(wanted))
    with home.another() as other:
        other.alter([set_key(ALICE, REQUEST, 13.0)])
        seen.until(lambda: seen.table.get(ALICE, REQUEST) == 13.0)
        assert [h.after for h in other.history.entries(entity=ALICE)] == [12.75, 13.0]
    home.close()


def test_a_zookeeper_that_is_not_there_is_a_retriable_error() -> None:
    url = "zookeeper://127.0.0.1:1"
    settings = Settings.from_properties(
        {"headgate.store": url, "zookeeper.session.timeout.ms": "500"}
    )
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1 can't be reached") as raised:
        open_store(url, settings)
    assert raised.value.retriable


def test_a_store_that_lost_its_zookeeper_says_so_and_comes_back(
    make_zookeeper: Callable[..., EmbeddedZooKeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper = make_zookeeper()
    store = open_store(f"zookeeper://{zookeeper.address}/lost")
    store.alter([set_key(ALICE, PRODUCER, 1.0)])
    monkeypatch.setattr("headgate.store.zookeeper.client.CALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr("headgate.store.zookeeper.alter.PATIENCE_S", 0.5)
    zookeeper.kill()
    with pytest.raises(StoreError) as raised:
        store.alter([set_key(ALICE, PRODUCER, 2.0)])
    assert raised.value.retriable
    monkeypatch.undo()
    zookeeper.start()
    assert errors(store.alter([set_key(ALICE, PRODUCER, 3.0)])) == [None]
    assert store.snapshot().get(ALICE, PRODUCER) == 3.0
    store.close()


# --- access


def settings(tmp_path: Path, **lines: str) -> Any:
    file = tmp_path / f"{uuid.uuid4().hex}.properties"
    needed = {"listeners": "PLAINTEXT://127.0.0.1:19092", "headgate.upstream": "embedded"}
    text = {**needed, **{k.replace("__", "."): v for k, v in lines.items()}}
    file.write_text("".join(f"{k}={v}\n" for k, v in text.items()))
    return load_settings(file)


def test_sasl_and_acls_keep_others_out(
    make_zookeeper: Callable[..., EmbeddedZooKeeper], tmp_path: Path
) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        'user_headgate="headgate-secret"; };\n'
    )
    zookeeper = make_zookeeper(
        java_options=(f"-Djava.security.auth.login.config={jaas}",),
        extra_properties={
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        },
    )
    ours = settings(
        tmp_path,
        headgate__store__zookeeper__sasl__username="headgate",
        headgate__store__zookeeper__sasl__password="headgate-secret",
        zookeeper__set__acl="true",
    )
    url = f"zookeeper://{zookeeper.address}/secure"
    with open_store(url, ours) as store:  # type: ignore[attr-defined]
        store.alter([alteration(ALICE, producer_byte_rate=1.0, producer_ids_rate=2.0)])
        assert dict(store.snapshot().entities[ALICE]) == {PRODUCER: 1.0, PRODUCER_IDS: 2.0}
        kazoo = store.home.client._kazoo
        acls = {
            path: kazoo.get_acls(path)[0] for path in ("/config/users/alice", "/config/changes")
        }
        # Users hold SCRAM credentials: nobody else may even read them (ZkData.defaultAcls).
        assert [(a.id.scheme, a.id.id, a.perms) for a in acls["/config/users/alice"]] == [
            ("sasl", "headgate", 31)
        ]
        assert {(a.id.scheme, a.perms) for a in acls["/config/changes"]} == {
            ("sasl", 31),
            ("world", 1),
        }
    with pytest.raises(StoreError, match=r"refuses this \(NoAuth\); check the znodes' ACLs"):
        open_store(url).snapshot()


def test_tls(make_zookeeper: Callable[..., EmbeddedZooKeeper], tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("server", "client"):
        cert = authority.issue_cert("127.0.0.1", common_name=name)
        # ZooKeeper takes PKCS 8 keys only.
        key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
        (tmp_path / f"{name}.pem").write_bytes(key + chain)
    port = free_ports(1)[0]
    make_zookeeper(
        extra_properties={
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(tmp_path / "server.pem"),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(tmp_path / "ca.pem"),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }
    )
    for _ in range(1_200):  # the fixture waits for the plain port alone
        if accepts(port):
            break
        time.sleep(0.1)
    url = f"zookeeper://127.0.0.1:{port}/tls"
    with_tls = {
        "zookeeper__ssl__client__enable": "true",
        "zookeeper__ssl__keystore__location": str(tmp_path / "client.pem"),
        "zookeeper__ssl__truststore__location": str(tmp_path / "ca.pem"),
    }
    with open_store(url, settings(tmp_path, **with_tls)) as store:  # type: ignore[attr-defined]
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        assert store.snapshot().get(ALICE, PRODUCER) == 1.0
        assert isinstance(store.home.client._kazoo._connection._socket, ssl.SSLSocket)
    missing = {**with_tls, "zookeeper__ssl__truststore__location": str(tmp_path / "none.pem")}
    with pytest.raises(StoreError, match=r"there is no file .*none\.pem"):
        open_store(url, settings(tmp_path, **missing))
