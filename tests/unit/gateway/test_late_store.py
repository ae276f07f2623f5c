"""A store that comes back: its leases are taken, and what couldn't be kept on disk is kept then."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.config import Settings
from headgate.errors import StoreError, StoreReplaced
from headgate.gateway.background import BackgroundWork, StallMeter, Tasks, Threads
from headgate.gateway.cluster.ports import Ports
from headgate.gateway.cluster.shared_listeners import SharedListeners
from headgate.gateway.store_link import guard
from headgate.gateway.store_link import link as kept_store
from headgate.gateway.store_link.guard import StoreGuard, accept_store
from headgate.gateway.store_link.in_force import InForceNow
from headgate.gateway.store_link.link import StoreLink
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.store import open_store
from headgate.store.identity import StoreIdentity, replaced

ALICE = QuotaEntity.of(user="alice")
ZOE = QuotaEntity.of(user="zoe")


class Fronted:
    """A broker that is fronted."""

    def __init__(self) -> None:
        self.accepts = True

    def stop_accepting(self) -> None:
        self.accepts = False

    async def drain(self, timeout_ms: int) -> None:
        """Nothing is in flight."""


class SomeLeases:
    """Leases of which another worker has the second; the store fails at first."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.asked: list[int] = []

    async def take(self, broker_id: int) -> bool:
        self.asked.append(broker_id)
        if len(self.asked) == 1:
            raise StoreError("locked", retriable=True)
        if broker_id == 2:
            return False
        self.epochs[broker_id] = 1
        return True

    async def wait_for(self, broker_id: int) -> None:
        await asyncio.Event().wait()

    def name_of(self, broker_id: int) -> str:
        return f"broker/{broker_id}"


def ports_of(brokers: dict[int, Any], work: BackgroundWork, closed: list[str]) -> Ports:
    """Ports of two brokers, without listeners."""
    anything: Any = SimpleNamespace(
        settings=SimpleNamespace(listener_list=()),
        exposed=lambda: [1, 2],
        close=lambda: closed.append("shared"),
    )
    return Ports(anything, brokers, anything, anything, anything, anything, work, None,
                 lambda: None, lambda: None)  # fmt: skip


async def test_a_worker_that_stops_stands_by_for_no_broker_whose_lease_it_loses_meanwhile() -> None:
    """While it drains its leases aren't renewed; it mustn't take them again, and front again."""
    brokers: dict[int, Any] = {1: Fronted(), 2: Fronted()}
    first, closed, work = brokers[1], list[str](), BackgroundWork()
    ports = ports_of(brokers, work, closed)
    leases: Any = SomeLeases()
    leases.epochs[1] = 1
    ports.leases = leases
    ports.end()
    ports.lost(1)
    assert not first.accepts
    assert set(brokers) == {2}
    assert closed == ["shared"]
    assert ports.standing_by == set()
    assert leases.asked == []
    work.tasks.cancel()


def test_listeners_that_lead_to_any_broker_are_closed_once() -> None:
    shared = SharedListeners(*(cast("Any", None) for _ in range(4)))
    closed: list[str] = []
    shared.bootstraps += [cast("Any", SimpleNamespace(close=lambda: closed.append("port")))]
    for _ in range(2):  # at a stop, and when the lease is lost during it
        shared.close()
    assert closed == ["port"]


async def test_with_the_store_back_a_broker_whose_lease_another_has_is_fronted_no_more() -> None:
    brokers: dict[int, Any] = {1: Fronted(), 2: Fronted()}
    second = brokers[2]
    work = BackgroundWork()
    ports = ports_of(brokers, work, [])
    leases: Any = SomeLeases()
    await ports.take_leases(leases)
    assert leases.asked == [1, 1, 2]
    assert set(brokers) == {1}
    assert not second.accepts
    assert ports.standing_by == {2}
    work.tasks.cancel()


class SomeStore:
    """
    A store; ``becomes`` puts another one in its place as soon as its quotas were read.

    Attributes:
        accepted: the one that it is used as.
    """

    def __init__(self) -> None:
        self.here = self.accepted = StoreIdentity("a" * 16, 7)
        self.tables = {"a" * 16: QuotaTable(), "b" * 16: QuotaTable.of({ALICE: {PRODUCER: 5.0}})}
        self.becomes: StoreIdentity | None = None
        self.url = "some:store"
        self.home = self.broker_settings = self
        self.availability = SimpleNamespace(silent=None, refuses=None, trouble=None)

    def snapshot(self) -> QuotaTable:
        table = self.tables[self.identify().id]
        if self.becomes is not None:
            self.here = self.becomes
        return table

    def now(self) -> dict[str, dict[str, str]]:
        return {}

    def identity(self) -> StoreIdentity:
        return self.here

    def identify(self) -> StoreIdentity:
        if self.here.id != self.accepted.id:
            raise replaced(self.url, self.accepted, self.here)
        return self.here

    def accept(self, identity: StoreIdentity) -> None:
        self.accepted = identity


def test_quotas_of_one_store_are_never_kept_as_those_of_another(tmp_path: Path) -> None:
    """Found by the simulator: the other one was accepted between two looks."""
    settings = Settings.from_properties(
        {"headgate.upstream": "embedded", "headgate.data.dir": str(tmp_path)}
    )
    kept, store = StoreGuard(settings), SomeStore()
    saving: Any = store
    kept.save(saving)
    store.becomes = other = StoreIdentity("b" * 16, 3)
    accept_store(settings, other)
    whole = store.now

    def meanwhile() -> dict[str, dict[str, str]]:
        accepting = threading.Thread(target=kept.reconsider, args=(saving,))
        accepting.start()
        accepting.join(0.1)  # it must wait, so this does as well
        waiting.append(accepting)
        return whole()

    waiting: list[threading.Thread] = []
    store.now = meanwhile  # type: ignore[method-assign]
    with pytest.raises(StoreReplaced):
        kept.save(saving)
    waiting[0].join(60)
    assert store.accepted == other
    assert kept.last().identity == StoreIdentity("a" * 16, 7)
    store.now = whole  # type: ignore[method-assign]
    kept.save(saving)
    assert kept.last().identity == other
    assert kept.last().table.get(ALICE, PRODUCER) == 5.0


_KILLED = """
import os, signal, sys
from headgate.config import Settings
from headgate.gateway.store_link.guard import StoreGuard
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
store = open_store(sys.argv[1])
store.alter([QuotaAlteration.of(QuotaEntity.of(user="zoe"), [Op(PRODUCER, float(sys.argv[3]))])])
settings = {"headgate.upstream": "embedded", "headgate.data.dir": sys.argv[2]}
StoreGuard(Settings.from_properties(settings)).admit(store)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_copy_put_beside_the_wal_of_a_killed_gateway_lifts_nothing(tmp_path: Path) -> None:
    """Found by an attack: the WAL holds the latest revision, the copy the quotas of before."""
    file, copy, url = tmp_path / "q.db", tmp_path / "copy.db", f"sqlite:{tmp_path}/q.db"
    users = [QuotaEntity.of(user=f"user-{number:04}") for number in range(400)]
    with open_store(url) as store:
        store.alter([QuotaAlteration.of(u, [Op(PRODUCER, 1e9)]) for u in (*users, ZOE)])
    shutil.copy(file, copy)
    with open_store(url) as store:
        store.alter([QuotaAlteration.of(users[0], [Op(PRODUCER, 1.0)])])
    subprocess.run([sys.executable, "-c", _KILLED, url, str(tmp_path), "2"], check=False)
    settings = Settings.from_properties(
        {"headgate.upstream": "embedded", "headgate.data.dir": str(tmp_path)}
    )
    with open_store(url) as store:  # what was killed comes back: its own file is let in
        StoreGuard(settings).admit(store)
    subprocess.run([sys.executable, "-c", _KILLED, url, str(tmp_path), "3"], check=False)
    shutil.copy(copy, file)
    with open_store(url) as store:
        kept = StoreGuard(settings)
        with pytest.raises(StoreReplaced, match="mixed with an older copy"):
            kept.admit(store)
        assert kept.last().table.get(users[0], PRODUCER) == 1.0


def test_what_changed_between_two_readings_is_of_a_later_revision(tmp_path: Path) -> None:
    settings = Settings.from_properties(
        {"headgate.upstream": "embedded", "headgate.data.dir": str(tmp_path)}
    )
    with open_store(f"sqlite:{tmp_path}/q.db") as store:
        kept, snapshot = StoreGuard(settings), store.snapshot

        def late() -> QuotaTable:
            table = snapshot()
            store.alter([QuotaAlteration.of(ALICE, [Op(PRODUCER, 1.0)])])
            return table

        kept.save(store)
        store.snapshot = late  # type: ignore[method-assign]
        kept.save(store)
        store.snapshot = snapshot  # type: ignore[method-assign]
        kept.admit(store)
        assert kept.last().table.get(ALICE, PRODUCER) == 1.0


def kept_in(folder: Path, store: Any, why: str | None = None) -> tuple[StoreLink, Tasks, Threads]:
    """What a gateway keeps of its store, without a gateway; ``why`` it can't be read now."""
    settings = Settings.from_properties(
        {"headgate.upstream": "embedded", "headgate.data.dir": str(folder)}
    )
    tasks, threads = Tasks(StallMeter()), Threads(1, "test")
    return (
        StoreLink(InForceNow(settings, QuotaTable(), store), tasks, threads, lambda: why),
        tasks,
        threads,
    )


async def test_quotas_that_could_not_be_kept_are_kept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_store, "_SAVE_AFTER_S", 0.0)
    monkeypatch.setattr(kept_store, "_AGAIN_S", 0.0)
    tried: list[QuotaTable] = []

    def full_twice(settings: Settings, snapshot: Any) -> None:
        tried.append(snapshot.table)
        if len(tried) <= 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(guard, "save_snapshot", full_twice)
    kept, tasks, threads = kept_in(tmp_path, SomeStore())
    kept.save_soon()
    await asyncio.gather(*tasks._tasks)
    assert len(tried) == 3
    threads.close()


async def test_a_store_that_was_accepted_is_kept_on_disk_though_its_quotas_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulator: control seed 10151, where an empty one took an empty one's place."""
    monkeypatch.setattr(kept_store, "_AGAIN_S", 0.0)
    store: Any = SomeStore()
    kept, _, threads = kept_in(tmp_path, store, "another store has taken its place")
    settings = kept._in_force.settings
    kept.guard.save(store)
    store.here = other = StoreIdentity("c" * 16, 0)
    store.tables[other.id] = QuotaTable()
    accept_store(settings, other)
    asked = asyncio.Event()
    monkeypatch.setattr(kept, "save_soon", asked.set)
    looks = asyncio.create_task(kept._look_after())
    async with asyncio.timeout(60):
        await asked.wait()
    looks.cancel()
    await threads.run(kept._save)
    assert kept.guard.last().identity == other
    threads.close()


async def test_what_the_store_said_is_kept_though_it_fails_before_that_is_in_force(
    tmp_path: Path,
) -> None:
    """A watch may be later than what another change of this gateway had saved."""
    store: Any = SomeStore()
    store.here = store.accepted = StoreIdentity("b" * 16, 7)  # it says 5; nothing is in force yet
    kept, _, threads = kept_in(tmp_path, store)
    await threads.run(kept._save)
    store.here = StoreIdentity("c" * 16, 0)
    for in_force, then in ((QuotaTable(), 5.0), (QuotaTable.of({ALICE: {PRODUCER: 7.0}}), 7.0)):
        if len(in_force):
            kept._in_force.coming = in_force
        with pytest.raises(StoreReplaced):
            await threads.run(kept._save)
        assert kept.guard.last().table.get(ALICE, PRODUCER) == then
    threads.close()


class Watched:
    """A store whose second watch fails once."""

    def __init__(self) -> None:
        self.watches: list[str] = []
        self.fails = True
        self.broker_settings = SimpleNamespace(watch=self.watch_brokers)

    def watch(self, _: Any) -> Any:
        self.watches.append("quotas")
        return SimpleNamespace(close=lambda: self.watches.remove("quotas"))

    def watch_brokers(self, _: Any) -> Any:
        if self.fails:
            self.fails = False
            raise StoreError("away")
        self.watches.append("brokers")
        return SimpleNamespace(close=lambda: self.watches.remove("brokers"))


async def test_a_store_that_fails_between_two_watches_is_watched_once_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_store, "_AGAIN_S", 0.0)
    kept, _, threads = kept_in(tmp_path, None)
    kept.guard = cast("Any", SimpleNamespace(admit=lambda _: None))
    let_in: list[Any] = []
    kept.let_in = let_in.append
    store: Any = Watched()
    opened = iter([RuntimeError("a mistake of a driver"), StoreError("not yet"), store])

    def reopen() -> Any:
        found = next(opened)
        if isinstance(found, Exception):
            raise found
        return found

    await kept._until_admitted(None, reopen)
    assert store.watches == ["quotas", "brokers"]
    assert let_in == [store]
    assert kept._why is None
    threads.close()
