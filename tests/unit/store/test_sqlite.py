import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from contract.suite import Seen, alteration, set_key
from headgate.config import Settings
from headgate.errors import ConfigError, StoreError
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable, alterations_of
from headgate.store import open_store
from headgate.store.sqlite import file as sqlite_file
from headgate.store.sqlite import store as sqlite
from headgate.store.sqlite.migrations import MIGRATIONS, migrate, pending
from headgate.store.sqlite.place import (
    NETWORK_FILE_SYSTEMS,
    file_system,
    refuse_network_file_system,
)
from headgate.store.sqlite.store import SqliteStore

ALICE = QuotaEntity.of(user="alice")
BEFORE = Path(__file__).parents[2] / "data" / "before"
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /home rw - nfs4 files:/home rw
31 30 8:2 / /home/me/my\\040disk rw - xfs /dev/sdb rw
40 22 0:40 / /mnt/a rw - ext4 /dev/sdc rw
41 22 0:41 / /mnt/a rw - cifs //host/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/q.db", "ext4"),
        ("/home/me/q.db", "nfs4"),
        ("/home2/q.db", "ext4"),
        ("/home/me/my disk/q.db", "xfs"),
        ("/mnt/a/q.db", "cifs"),
    ],
)
def test_the_mount_nearest_above_a_path_says_its_file_system(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_refused_with_the_way_out() -> None:
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*use a local disk"):
        refuse_network_file_system(Path("/home/me/q.db"), MOUNTS)
    refuse_network_file_system(Path("/var/q.db"), MOUNTS)
    assert "ext4" not in NETWORK_FILE_SYSTEMS


def test_a_store_asks_where_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:1 / / rw - fuse.sshfs host: rw\n")
    monkeypatch.setattr("headgate.store.sqlite.place._MOUNTS", mounts)
    with pytest.raises(StoreError, match="network file system"):
        SqliteStore(tmp_path / "q.db")
    assert not (tmp_path / "q.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://ops:hunter2@zk:2181/q",
        "zookeeper:ops:hunter2@zk:2181",
        "kafka://ops:hunter2@broker:9092",
        "mysql://ops:hunter2@db/q",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError) as told:
        open_store(url)
    with pytest.raises(ConfigError) as read:
        Settings.from_properties({"headgate.store": url, "headgate.upstream": "embedded"})
    assert "hunter2" not in str(read.value)
    assert "hunter2" not in str(told.value)
    assert "ops" not in str(told.value)
    assert "sasl.username" in str(told.value)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "q.db") as store:
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("q.db", "q.db-shm", "q.db-wal"), 0o600)


def test_what_the_version_before_wrote_is_read_as_it_is_and_upgraded_by_a_change(
    tmp_path: Path,
) -> None:
    file = tmp_path / "q.db"
    shutil.copy(BEFORE / "quotas.db", file)
    with SqliteStore(file, create=False) as reader:
        assert len(reader.snapshot()) == 3
        assert reader.home.identity() is None
        assert [h.change for h in reader.history.entries()] == [""] * 7
        assert dict(reader.broker_settings.now()) == {"1": {"max.connections": "5"}}
        assert len(reader.history.audit_log()) == 2
        with contextlib.closing(sqlite3.connect(file)) as db:
            assert pending(db) == ["m003_identity_messages"]
        before = reader.snapshot()
        reader.alter([set_key(ALICE, PRODUCER, 9.0)], message="first")
        found = reader.home.identity()
        assert found is not None
        assert found.revision == 8
        assert reader.history.entries()[-1].message == "first"
    with SqliteStore(file) as store:
        assert store.home.identity() == found
        assert set(store.snapshot().entities) == set(before.entities)


@pytest.mark.parametrize("url", ["", "sqlite:", "mysql://x", "q.db", "zookeeper:", "kafka://"])
def test_a_url_that_names_no_store_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"names no store.*; use sqlite:PATH"):
        open_store(url)


def test_a_missing_folder_and_a_file_that_is_no_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no folder .*nowhere"):
        open_store(f"sqlite:{tmp_path}/nowhere/q.db")
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be read as one")
    with pytest.raises(StoreError, match=r"text\.db: file is not a database"):
        open_store(f"sqlite:{tmp_path}/text.db")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_store(f"sqlite:{tmp_path}/q.db").close()
    with sqlite3.connect(tmp_path / "q.db") as db:
        db.execute("INSERT INTO migration VALUES ('m999_from_the_future', 0)")
    db.close()
    with pytest.raises(StoreError, match=r"newer Headgate \(m999_from_the_future\)"):
        open_store(f"sqlite:{tmp_path}/q.db")


def test_migrations_run_once_and_one_by_one(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "q.db", isolation_level=None)
    names = list(MIGRATIONS)
    assert names == sorted(names)
    assert pending(db) == names
    migrate(db, now_ms=5)
    migrate(db, now_ms=6)
    assert pending(db) == []
    assert db.execute("SELECT name, applied_ms FROM migration ORDER BY name").fetchall() == [
        (name, 5) for name in names
    ]
    db.close()


def test_a_failed_migration_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def m003_bad(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half (x)")
        db.execute("no sql at all")

    monkeypatch.setattr(
        "headgate.store.sqlite.migrations.MIGRATIONS", {**MIGRATIONS, "m003": m003_bad}
    )
    with pytest.raises(StoreError, match="syntax error"):
        SqliteStore(tmp_path / "q.db")
    db = sqlite3.connect(tmp_path / "q.db")
    assert db.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []
    assert pending(db) == ["m003"]
    db.close()


def test_a_commit_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "q.db") as store:
        assert store.home._writer.db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store.home._writer.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_watch_past_a_pruned_log_takes_a_whole_snapshot(tmp_path: Path) -> None:
    # Polled once an hour: the other store's changes are read together, after the log was shortened.
    with SqliteStore(tmp_path / "q.db", poll_ms=3_600_000) as watching:
        seen = Seen()
        watching.watch(seen)
        with SqliteStore(tmp_path / "q.db") as other:
            for value in (1.0, 2.0, 3.0):
                other.alter([set_key(ALICE, PRODUCER, value)])
            other.alter([alteration(QuotaEntity.of(user="bob"), producer_byte_rate=9.0)])
            assert other.history.prune(1) == 3
            assert [h.after for h in other.history.entries()] == [9.0]
            assert other.history.prune(1) == 0
        watching.home.poke.set()
        seen.until(lambda: len(seen.events) == 2)
        table, delta = seen.events[-1]
        assert delta.to_version == table.version == 4
        assert QuotaTable().apply(alterations_of(delta.changes))[0] == table == watching.snapshot()


def test_a_long_log_is_read_as_a_whole_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_LOG_ROWS", 3)
    with SqliteStore(tmp_path / "q.db", poll_ms=3_600_000) as watching:
        seen = Seen()
        watching.watch(seen)
        with SqliteStore(tmp_path / "q.db") as other:
            for value in range(1, 6):
                other.alter([set_key(ALICE, PRODUCER, value)])
            other.alter([set_key(QuotaEntity.of(user="gone"), PRODUCER, 1.0)])
            other.alter([set_key(QuotaEntity.of(user="gone"), PRODUCER, None)])
        watching.home.poke.set()
        seen.until(lambda: len(seen.events) == 2)
        assert [(c.entity, c.new) for c in seen.events[-1][1].changes] == [(ALICE, 5.0)]
        assert seen.table == QuotaTable.of({ALICE: {PRODUCER: 5.0}})


def test_ten_thousand_entities_in_one_request(tmp_path: Path) -> None:
    asked = [set_key(QuotaEntity.of(user=f"u{i}"), PRODUCER, i + 1.0) for i in range(10_000)]
    asked[4_999] = set_key(asked[4_999].entity, PRODUCER, 0.0)
    with SqliteStore(tmp_path / "q.db") as store:
        results = store.alter(asked)
        assert [i for i, r in enumerate(results) if r.error is not None] == [4_999]
        assert len(store.snapshot()) == 9_999


def test_a_store_is_not_used_across_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore(tmp_path / "q.db") as store:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreError, match="opened before a fork"):
            store.snapshot()
        monkeypatch.undo()
        assert len(store.snapshot()) == 0


def test_a_locked_file_is_a_retriable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 1)
    with SqliteStore(tmp_path / "q.db") as store:
        blocker = sqlite3.connect(tmp_path / "q.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as raised:
            store.alter([set_key(ALICE, PRODUCER, 1.0)])
        assert raised.value.retriable
        blocker.execute("ROLLBACK")
        blocker.close()
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        assert store.snapshot().get(ALICE, PRODUCER) == 1.0
