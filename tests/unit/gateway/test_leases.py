"""One worker per broker: leases are renewed, lost, waited for, and fenced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.errors import StoreError
from headgate.gateway.instance import Instance
from headgate.gateway.leases import Leases


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeLease:
    store: FakeStore
    name: str
    owner: str
    epoch: int
    ttl_ms: int

    def renew(self) -> bool:
        self.store.reach()
        row = self.store.rows.get(self.name)
        if row is None or row[:2] != (self.owner, self.epoch):
            return False
        self.store.rows[self.name] = (self.owner, self.epoch, self.store.end(self.ttl_ms))
        return True

    def held(self) -> bool:
        return self.store.rows[self.name][:2] == (self.owner, self.epoch)

    def release(self) -> None:
        self.store.reach()
        if self.held():
            self.store.rows[self.name] = ("", self.epoch, 0.0)


@dataclass
class FakeStore:
    clock: Clock
    rows: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    down: bool = False

    def reach(self) -> None:
        if self.down:
            raise StoreError("down", retriable=True)

    def end(self, ttl_ms: int) -> float:
        return self.clock.now_s + ttl_ms / 1000

    def lease(self, name: str, owner: str, ttl_ms: int) -> FakeLease | None:
        self.reach()
        row = self.rows.get(name)
        if row is not None and row[0] != owner and row[2] > self.clock.now_s:
            return None
        epoch = 1 if row is None else row[1] + 1
        self.rows[name] = (owner, epoch, self.end(ttl_ms))
        return FakeLease(self, name, owner, epoch, ttl_ms)


async def at_once(function: Callable[[], Any]) -> Any:
    return function()


def worker(store: FakeStore, name: str, lost: list[int]) -> Leases:
    instance = Instance(None, name)
    return Leases(store, "gateway/c", instance, 9_000, at_once, lost.append, store.clock)  # type: ignore[arg-type]


async def test_only_one_worker_has_a_brokers_lease() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", lost)
    assert await one.take(1)
    assert not await two.take(1)
    assert await two.take(2)
    assert one.epochs == {1: 1}


async def test_a_standby_takes_over_when_the_lease_runs_out_and_fences_the_old_one() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    assert await one.take(1)
    store.clock.now_s += 9.5
    assert await two.take(1)
    assert two.epochs[1] > 1
    await one.renew()
    assert lost == [1]
    assert one.epochs == {}


async def test_a_released_lease_can_be_had_at_once() -> None:
    store = FakeStore(Clock())
    one, two = worker(store, "one", []), worker(store, "two", [])
    assert await one.take(1)
    await one.give_up(1)
    assert await two.take(1)


async def test_alone_a_worker_outlives_its_store() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one = worker(store, "one", lost)
    assert await one.take(1)
    await one.renew()
    store.down = True
    for _ in range(10):
        store.clock.now_s += 3
        await one.renew()
    assert lost == []
    assert not one.reachable
    store.down = False
    await one.renew()
    assert one.reachable
    assert one.epochs == {1: 1}


async def test_with_a_standby_about_a_worker_stops_before_its_lease_runs_out() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    assert await one.take(1)
    await two._stand_by()
    await one.renew()
    store.down = True
    gone_at = store.clock.now_s + 9
    while not lost:
        store.clock.now_s += 3
        await one.renew()
    assert lost == [1]
    assert store.clock.now_s <= gone_at
