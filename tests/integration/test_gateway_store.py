"""A gateway whose store is gone, another one, older or locked: its quotas stay in force."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import load
from headgate.cli.serve.serve import open_own_store
from headgate.config import Settings
from headgate.errors import ApiError, KafkaError, StoreError
from headgate.gateway import Gateway, GatewayThread
from headgate.gateway.store_link.guard import load_snapshot
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore, open_store
from headgate.store.identity import StoreIdentity

from .gateway_kit import wait_for
from .scripted_upstream import SLOW, Upstream, connect, produce, read_answer
from .scripted_upstream import upstream as upstream

store_command = load("store")

BEFORE = Path(__file__).parents[1] / "data" / "before"
BOB = QuotaEntity.of(user="bob")


def set_slow(store: QuotaStore, rate: float | None = 1_000.0) -> None:
    (entity,) = SLOW
    assert store.alter([QuotaAlteration(entity, (Op(PRODUCER, rate),))])[0].error is None


def set_bob(store: QuotaStore, rate: float | None = 7.0) -> None:
    assert store.alter([QuotaAlteration(BOB, (Op(PRODUCER, rate),))])[0].error is None


class Host:
    """A gateway's folder, on which gateways are started one after the other."""

    def __init__(self, folder: Path, upstream: Upstream, url: str = "") -> None:
        self.folder = folder
        self.db = folder / "quotas.db"
        self.url = url or f"sqlite:{self.db}"
        self.properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.upstream": f"127.0.0.1:{upstream.port}",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(folder),
            "headgate.store": self.url,
            "headgate.usage": "none",
            "headgate.lease.ttl.ms": "10000" if url.startswith("kafka") else "1000",
        }
        self.config = folder / "headgate.properties"
        self.config.write_text("".join(f"{k}={v}\n" for k, v in self.properties.items()))
        self.settings = Settings.from_properties(self.properties)

    @contextlib.contextmanager
    def gateway(self) -> Iterator[GatewayThread]:
        """Start a gateway as `headgate serve` does."""
        store: QuotaStore | None = None
        with contextlib.suppress(StoreError):
            store = open_own_store(self.settings)
        thread = GatewayThread(
            lambda: Gateway(self.settings, store, reopen=lambda: open_own_store(self.settings))
        )
        with thread as gateway:
            yield gateway
        for each in (store, gateway.gateway.store):
            if each is not None:
                each.close()

    def store(self) -> Any:
        return contextlib.closing(open_store(self.url))

    def remove(self) -> None:
        for path in self.folder.glob("quotas.db*"):
            path.unlink()

    def copy(self) -> Path:
        """Take a backup."""
        with contextlib.closing(sqlite3.connect(self.db)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(shutil.copy(self.db, self.folder / "backup.db"))

    def bring_back(self, copy: Path) -> None:
        self.remove()
        shutil.copy(copy, self.db)

    def kept(self) -> QuotaTable:
        found = load_snapshot(self.settings)
        assert found is not None
        return found.table


@pytest.fixture
def host(tmp_path: Path, upstream: Upstream) -> Host:
    return Host(tmp_path, upstream)


def not_ready(gateway: GatewayThread) -> str:
    return str(gateway.call(gateway.gateway.not_ready))


def until_ready(gateway: GatewayThread) -> None:
    wait_for(lambda: gateway.call(gateway.gateway.not_ready) is None, "ready")


def told_ms(gateway: GatewayThread) -> int:
    """Produce 13,000 bytes and return the throttle time that is told: 3 s at 1,000 B/s."""
    with connect(gateway) as client:
        client.sendall(produce(13_000))
        return int.from_bytes(read_answer(client)[-4:], "big")


def refusal(gateway: GatewayThread) -> str:
    """Alter through the gateway and return how that is refused."""
    return str(refused(gateway))


def refused(gateway: GatewayThread) -> ApiError:
    """Alter through the gateway and return the error."""
    work = gateway.gateway.answers.support.alter(
        [QuotaAlteration(BOB, (Op(PRODUCER, 5.0),))], validate_only=False, who="ops", tool="test"
    )
    loop = gateway._loop
    assert loop is not None
    (result,) = asyncio.run_coroutine_threadsafe(work, loop).result(60)
    assert result.error is not None
    return result.error


def another_is_named(host: Host, gateway: GatewayThread) -> StoreIdentity:
    """Make another store; see that it is named and not let in. Return which it is."""
    with host.store() as other:
        set_bob(other)
        identity: StoreIdentity = other.home.identify()
    wait_for(lambda: identity.id in not_ready(gateway), "/readyz names the other store")
    assert identity.id in refusal(gateway)
    assert told_ms(gateway) > 2_000
    return identity


def test_a_store_that_is_gone_at_the_start_lifts_no_quota(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        set_slow(store)
        wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        until_ready(gateway)
    copy = host.copy()
    host.remove()
    with host.gateway() as gateway:
        assert told_ms(gateway) > 2_000
        assert "there is no such file" in not_ready(gateway) or "can't be opened" in not_ready(
            gateway
        )
        told = refused(gateway)
        assert told.code == KafkaError.REQUEST_TIMED_OUT
        assert "the last known quotas are in force" in str(told)
        assert f"sqlite:{host.db}" in str(told)
        # A command that changes quotas was refused just now: it isn't said to make a store.
        wait_for(lambda: "there is no such file" in refusal(gateway), "the reason")
        assert "a command that changes quotas makes one" not in refusal(gateway)
        assert "headgate.store" in refusal(gateway)
        assert f"--store sqlite:{host.db}" in refusal(gateway)
        assert "headgate store accept" in refusal(gateway)
        assert not host.db.exists()
        assert host.kept() == QuotaTable.of(SLOW)
        host.bring_back(copy)
        until_ready(gateway)
        with host.store() as store:
            set_bob(store)
        wait_for(lambda: BOB in gateway.gateway.table.entities, "a change")
    assert set(host.kept().entities) == {*SLOW, BOB}


def test_another_store_in_its_place_is_let_in_once_it_is_accepted_by_name(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    with host.gateway() as gateway, host.store() as store:
        set_slow(store)
        wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
    host.remove()
    with host.store() as other:
        set_bob(other)
        identity = other.home.identify()
    with host.gateway() as gateway:
        assert told_ms(gateway) > 2_000
        assert identity.id in not_ready(gateway)
        assert refused(gateway).code == KafkaError.REQUEST_TIMED_OUT
        assert "the last known quotas are in force" in refusal(gateway)
        assert "headgate store accept" in refusal(gateway)
        assert host.kept() == QuotaTable.of(SLOW)
        assert store_command(["accept", "0123456789abcdef", "--config", str(host.config)]) == 1
        assert identity.id in capsys.readouterr().err
        assert store_command(["accept", identity.id, "--config", str(host.config)]) == 0
        until_ready(gateway)
        wait_for(
            lambda: set(gateway.gateway.table.entities) == {BOB},
            "the other store's quotas",
        )
        assert told_ms(gateway) == 0
    assert set(host.kept().entities) == {BOB}
    # Used up: the same again isn't let in.
    with host.gateway() as gateway:
        until_ready(gateway)
    host.remove()
    with host.store() as third:
        set_slow(third)
    with host.gateway() as gateway:
        assert identity.id in not_ready(gateway)


def test_a_store_deleted_while_it_is_used_takes_no_changes(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        set_slow(store)
        wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        copy = host.copy()
        host.remove()
        assert "removed" in refusal(gateway) or "none there" in refusal(gateway)
        wait_for(lambda: "none there" in not_ready(gateway), "not ready")
        assert told_ms(gateway) > 2_000
        identity = another_is_named(host, gateway)
        assert store_command(["accept", identity.id, "--config", str(host.config)]) == 0
        until_ready(gateway)
        wait_for(
            lambda: set(gateway.gateway.table.entities) == {BOB},
            "the other store's quotas",
        )
        host.bring_back(copy)
        wait_for(lambda: store.home.identity() is not None, "the copy")
        wait_for(lambda: gateway.call(gateway.gateway.not_ready) is not None, "not ready")


def test_what_was_in_force_when_the_store_went_is_in_force_at_the_next_start(host: Host) -> None:
    with host.gateway() as gateway:
        with host.store() as store:
            set_slow(store)
            wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        host.remove()  # before the snapshot was written
    assert host.kept() == QuotaTable.of(SLOW)
    with host.gateway() as gateway:
        assert told_ms(gateway) > 2_000


def test_an_older_copy_of_the_store_is_not_let_in(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        set_bob(store)
        wait_for(lambda: len(gateway.gateway.table) == 1, "the quota")
        copy = host.copy()
        set_slow(store)
        wait_for(lambda: len(gateway.gateway.table) == 2, "the later quota")
    host.bring_back(copy)
    with host.gateway() as gateway:
        assert "as an older copy of it would be" in not_ready(gateway)
        assert told_ms(gateway) > 2_000


def test_emptying_by_the_tools_and_moving_to_another_store_pass(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        set_slow(store)
        set_bob(store)
        wait_for(lambda: len(gateway.gateway.table) == 2, "the quotas")
        set_slow(store, None)
        wait_for(lambda: set(gateway.gateway.table.entities) == {BOB}, "one gone")
        until_ready(gateway)
    with host.store() as store:
        set_bob(store, None)
    with host.gateway() as gateway:
        until_ready(gateway)
        assert len(gateway.gateway.table) == 0
    with host.store() as store:
        set_slow(store)
        store.broker_settings.alter("1", {"max.connections": "77"})
    new = host.folder / "new.db"
    with host.gateway() as gateway:
        until_ready(gateway)
        wait_for(lambda: "1" in gateway.gateway.broker_configs, "settings of the broker")
    assert store_command(["copy", "--from", f"sqlite:{host.db}", "--to", f"sqlite:{new}"]) == 0
    host.remove()
    new.rename(host.db)
    with host.gateway() as gateway:
        until_ready(gateway)
        assert told_ms(gateway) > 2_000
        assert gateway.gateway.broker_configs["1"] == {"max.connections": "77"}


def test_a_store_that_is_not_required_is_not_waited_for_but_another_one_is_not_taken(
    host: Host,
) -> None:
    host.properties["headgate.store.required"] = "false"
    host.settings = Settings.from_properties(host.properties)
    host.db.mkdir()  # can't be opened
    with host.gateway() as gateway:
        assert gateway.call(gateway.gateway.not_ready) is None
        assert "can't be opened" in refusal(gateway)
        host.db.rmdir()
        with host.store() as store:
            set_slow(store)
        wait_for(lambda: set(gateway.gateway.table.entities) == set(SLOW), "the store")
    host.remove()
    with host.store() as other:
        set_bob(other)
    with host.gateway() as gateway:
        assert "now it is store" in not_ready(gateway)


def test_settings_of_brokers_stay_in_force_without_the_store(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        store.broker_settings.alter("1", {"max.connections": "77"})
        wait_for(lambda: "1" in gateway.gateway.broker_configs, "settings of the broker")
    host.remove()
    with host.gateway() as gateway:
        assert gateway.gateway.broker_configs == {"1": {"max.connections": "77"}}


def test_what_was_acknowledged_is_in_the_snapshot_of_a_gateway_that_ends(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        until_ready(gateway)
        for number in range(50):
            entity = QuotaEntity.of(user=f"user-{number}")
            store.alter([QuotaAlteration(entity, (Op(PRODUCER, 1.0),))])
    assert len(host.kept()) == 50


def test_a_locked_store_makes_a_gateway_unready(host: Host) -> None:
    with host.gateway() as gateway, host.store() as store:
        until_ready(gateway)
        with contextlib.closing(sqlite3.connect(host.db, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            wait_for(lambda: gateway.call(gateway.gateway.not_ready) is not None, "not ready")
            other.execute("ROLLBACK")
        until_ready(gateway)
        set_bob(store)


@pytest.mark.parametrize("damage", ["garbage", "half"])
def test_a_damaged_store_makes_a_gateway_unready(
    host: Host, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.store.sqlite.home.CHECK_S", 0.0)
    with host.gateway() as gateway, host.store() as store:
        set_slow(store)
        for number in range(300):
            entity = QuotaEntity.of(user=f"user-{number}")
            store.alter([QuotaAlteration(entity, (Op(PRODUCER, 1.0),))])
        wait_for(lambda: len(gateway.gateway.table) == 301, "the quotas")
        until_ready(gateway)
        with contextlib.closing(sqlite3.connect(host.db)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = host.db.stat().st_size
        with host.db.open("r+b") as file:
            if damage == "garbage":
                file.seek(4096)
                file.write(b"\xa5" * (size - 4096))
            else:
                file.truncate(size // 2)
        wait_for(lambda: gateway.call(gateway.gateway.not_ready) is not None, "not ready")
        assert told_ms(gateway) > 2_000


# --- what the version before wrote


@pytest.fixture
def upgraded(host: Host) -> Callable[[str], Host]:
    def upgrade(snapshot: str) -> Host:
        shutil.copy(BEFORE / "quotas.db", host.db)
        shutil.copy(BEFORE / snapshot, host.folder / "snapshot.json")
        return host

    return upgrade


@pytest.mark.parametrize("snapshot", ["snapshot.json", "snapshot-earlier.json"])
def test_an_upgrade_goes_on_with_the_store_that_led_from_its_snapshot(
    upgraded: Callable[[str], Host], snapshot: str
) -> None:
    host = upgraded(snapshot)
    with host.gateway() as gateway:
        until_ready(gateway)
        assert len(gateway.gateway.table) == 3
        assert gateway.gateway.broker_configs == {"1": {"max.connections": "5"}}
    known = load_snapshot(host.settings)
    assert known is not None
    assert known.identity is not None
    with host.store() as store:
        assert store.home.identity() == known.identity


def test_an_upgrade_with_another_store_keeps_what_was_in_force(
    upgraded: Callable[[str], Host],
) -> None:
    host = upgraded("snapshot.json")
    host.remove()
    with host.store() as store:
        set_bob(store)
    with host.gateway() as gateway:
        assert "doesn't hold what was in force last" in not_ready(gateway)
        assert len(gateway.gateway.table) == 3
    assert len(host.kept()) == 3


def test_a_snapshot_that_can_not_be_read_lets_in_a_store_with_quotas_only(host: Host) -> None:
    with host.store() as store:
        set_slow(store)
    (host.folder / "snapshot.json").write_text("quotas: [{")
    with host.gateway() as gateway:
        until_ready(gateway)
        assert told_ms(gateway) > 2_000
    host.remove()
    with host.store():
        pass
    (host.folder / "snapshot.json").write_text("quotas: [{")
    with host.gateway() as gateway:
        assert "can't be read" in not_ready(gateway)
