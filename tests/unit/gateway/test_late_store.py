"""A store that comes back: its leases are taken, and what couldn't be kept on disk is kept then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.errors import StoreError
from headgate.gateway.cluster.ports import Ports
from headgate.gateway.kept import guard
from headgate.gateway.kept import store as kept_store
from headgate.gateway.kept.current import Current
from headgate.gateway.kept.store import KeptStore
from headgate.gateway.loop.tasks import OwnWork, Tasks, Threads
from headgate.gateway.loop.watcher import Watcher
from headgate.quota.table import QuotaTable


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


async def test_with_the_store_back_a_broker_whose_lease_another_has_is_fronted_no_more() -> None:
    brokers: dict[int, Any] = {1: Fronted(), 2: Fronted()}
    second = brokers[2]
    anything: Any = SimpleNamespace(
        settings=SimpleNamespace(listener_list=()), exposed=lambda: [1, 2]
    )
    work = OwnWork()
    ports = Ports(anything, brokers, anything, anything, anything, anything, work, None,
                  lambda: None, lambda: None)  # fmt: skip
    leases: Any = SomeLeases()
    await ports.take_leases(leases)
    assert leases.asked == [1, 1, 2]
    assert set(brokers) == {1}
    assert not second.accepts
    assert ports.standing_by == {2}
    work.tasks.cancel()


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
    settings = Settings.from_properties(
        {"headgate.upstream": "embedded", "headgate.data.dir": str(tmp_path)}
    )
    in_force = Current(settings, QuotaTable(), None)
    tasks, threads = Tasks(Watcher()), Threads(1, "test")
    kept = KeptStore(in_force, tasks, threads, lambda: None)
    kept.save_soon()
    await asyncio.gather(*tasks._tasks)
    assert len(tried) == 3
    threads.close()
