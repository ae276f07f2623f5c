"""One worker per broker: leases are renewed, lost, waited for, and fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.errors import StoreError
from headgate.gateway.fleet import leases
from headgate.gateway.fleet.leases import Leases
from headgate.gateway.fleet.worker_name import WorkerName


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

    def take(self, name: str, owner: str, ttl_ms: int) -> FakeLease | None:
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
    instance = WorkerName(None, name)
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
    assert one.trouble is not None
    store.down = False
    await one.renew()
    assert one.trouble is None
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
    assert store.clock.now_s < gone_at


async def test_a_worker_that_hung_beyond_its_lease_lets_go_before_it_asks() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    assert await one.take(1)
    await two._stand_by()
    await one.renew()
    store.clock.now_s += 11  # stopped, and goes on
    assert await two.take(1)

    def lost_by_now() -> None:
        assert lost == [1], "it asked first, and served meanwhile"

    store.reach = lost_by_now  # type: ignore[method-assign]
    await one.renew()
    assert lost == [1]


async def test_a_worker_that_hung_alone_keeps_its_lease() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one = worker(store, "one", lost)
    assert await one.take(1)
    await one.renew()
    store.clock.now_s += 11
    await one.renew()
    assert lost == []


@dataclass
class Stuck:
    """Runs what a worker asks of its store, unless it hangs: then for ever."""

    hangs: bool = False

    async def __call__(self, function: Callable[[], Any]) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        return function()


def hanging(store: FakeStore, lost: list[int], ttl_ms: int) -> tuple[Leases, Stuck]:
    stuck, instance = Stuck(), WorkerName(None, "one")
    leases = Leases(store, "gateway/c", instance, ttl_ms, stuck, lost.append, store.clock)  # type: ignore[arg-type]
    return leases, stuck


async def test_a_store_that_never_answers_isnt_waited_for_beyond_the_lease() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, stuck = hanging(store, lost, 100)
    two = worker(store, "two", [])
    assert await one.take(1)
    await two._stand_by()
    await one.renew()
    stuck.hangs = True
    store.clock.now_s += 0.08  # of 0.1: what is left is a hundredth, in real time
    async with asyncio.timeout(60):
        while not lost:
            store.clock.now_s += 0.005
            await one.renew()
    assert lost == [1]
    assert store.clock.now_s < 1_000.1


async def test_alone_a_worker_goes_on_before_a_store_that_never_answers() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, stuck = hanging(store, lost, 100)
    assert await one.take(1)
    await one.renew()
    stuck.hangs = True
    async with asyncio.timeout(60):
        for _ in range(5):
            store.clock.now_s += 0.2
            await one.renew()
        assert one.trouble is not None
        await one.close()  # it isn't waited for either
    assert lost == []


@pytest.mark.parametrize("answers", [False, True])
async def test_a_worker_that_stood_still_for_longer_than_its_lease_has_to_be_told(
    answers: bool,
) -> None:
    """Found by the simulator: control seed 40106. Nobody can tell it who came meanwhile."""
    store, gone = FakeStore(Clock()), asyncio.Event()
    one, stuck = hanging(store, [], 100)
    one._on_lost = lambda broker: gone.set()
    assert await one.take(1)
    await one.renew()
    stuck.hangs = not answers
    store.clock.now_s += 0.3
    if answers:
        one._stop_in_time(1, one._held[1], 0.0)
        await one.renew()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gone.wait(), 0.2)
    else:
        await asyncio.wait_for(gone.wait(), 60)
    assert bool(one.epochs) is answers


async def test_what_no_store_should_raise_ends_neither_renewals_nor_a_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    assert await one.take(1)
    await two._stand_by()
    await one.renew()

    def reach() -> None:
        raise RuntimeError("a bug of its own")

    monkeypatch.setattr(store, "reach", reach)
    while not lost:
        store.clock.now_s += 3
        await one.renew()
    assert store.clock.now_s < 1_009

    async def soon(_: float) -> None:
        monkeypatch.undo()
        store.clock.now_s += 10

    monkeypatch.setattr(leases.asyncio, "sleep", soon)
    await two.wait_for(1)
    assert set(two.epochs) == {1}


async def test_a_lease_that_comes_too_late_isnt_trusted() -> None:
    store = FakeStore(Clock())

    async def slowly(function: Callable[[], Any]) -> Any:
        answer = function()
        store.clock.now_s += 9  # such as in a machine that sleeps
        return answer

    instance = WorkerName(None, "one")
    one = Leases(store, "gateway/c", instance, 9_000, slowly, [].append, store.clock)  # type: ignore[arg-type]
    assert not await one.take(1)
    assert one.epochs == {}


@pytest.mark.parametrize("slow", ["take", "renew"])
async def test_a_lease_counts_from_when_it_was_asked_for_not_from_its_answer(slow: str) -> None:
    """In the store it does: who counted from the answer would serve beside a standby."""
    store = FakeStore(Clock())
    answer_s = 0.0

    async def answered(function: Callable[[], Any]) -> Any:
        answer = function()
        store.clock.now_s += answer_s
        return answer

    lost: list[int] = []
    instance = WorkerName(None, "one")
    one = Leases(store, "gateway/c", instance, 9_000, answered, lost.append, store.clock)  # type: ignore[arg-type]
    two = worker(store, "two", [])
    await two._stand_by()  # somebody waits
    answer_s = 4.0 if slow == "take" else 0.0
    assert await one.take(1)
    if slow == "renew":
        store.clock.now_s += 3
        await two._stand_by()
        answer_s = 2.0  # twice: who waits is asked for as well
        await one.renew()
        assert lost == []
    answer_s = 0.0
    end_s = store.rows["gateway/c/broker/1"][2]
    assert not await two.take(1)
    store.clock.now_s = end_s
    await one.renew()
    assert lost == [1], "it was renewed, though it may be somebody else's by now"
    assert await two.take(1)


async def test_a_worker_knows_who_waits_as_soon_as_it_has_a_lease() -> None:
    """Found by the simulator: seed 1284, where the store was locked just after a restart."""
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    await two._stand_by()
    assert await one.take(1)
    store.down = True
    while not lost:
        store.clock.now_s += 3
        await one.renew()
    assert store.clock.now_s < 1_009


async def test_an_answer_that_a_standby_waits_counts_though_it_comes_late() -> None:
    """Found by the simulator: seed 1234, where each answer took long."""
    store = FakeStore(Clock())
    lost: list[int] = []
    late = asyncio.Event()

    async def slowly(function: Callable[[], Any]) -> Any:
        if "_look" not in function.__qualname__:
            return function()
        answer = asyncio.ensure_future(later(function))
        return await asyncio.shield(answer)

    async def later(function: Callable[[], Any]) -> Any:
        await late.wait()
        return function()

    instance = WorkerName(None, "one")
    one = Leases(store, "gateway/c", instance, 100, slowly, lost.append, store.clock)  # type: ignore[arg-type]
    two = worker(store, "two", [])
    assert await one.take(1)
    await two._stand_by()
    store.clock.now_s += 0.08
    await one.renew()
    assert one.trouble is not None
    assert not one._others
    late.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert one._others
    one._looked_at = store.clock.now_s + 1  # another one was quicker
    one._others = False
    one._look()
    assert not one._others


async def test_who_waits_is_found_out_before_leases_are_renewed() -> None:
    """Found by the simulator: control seed 1000, where the store was gone just after a renewal."""
    store = FakeStore(Clock())
    lost: list[int] = []
    one, two = worker(store, "one", lost), worker(store, "two", [])
    assert await one.take(1)
    await one.renew()
    await two._stand_by()

    class Gone(FakeLease):
        def renew(self) -> bool:
            kept = super().renew()
            self.store.down = True
            return kept

    held: Any = one._held[1]
    one._held[1] = Gone(store, held.name, held.owner, held.epoch, held.ttl_ms)  # type: ignore[assignment]
    store.clock.now_s += 3
    for _ in range(3):
        await one.renew()
        store.clock.now_s += 3
    assert lost == [1]


async def test_a_standby_shows_that_it_waits_though_one_that_died_did_before() -> None:
    """Found by the simulator: control seed 40164, after a power cut."""
    store = FakeStore(Clock())
    one, dead, new = (worker(store, name, []) for name in ("one", "dead", "new"))
    assert await one.take(1)
    await dead._stand_by()
    store.clock.now_s += 10
    await new._stand_by()
    store.clock.now_s += 9  # what the dead one showed is over
    one._look()
    assert one._others


async def test_word_that_a_lease_is_lost_counts_though_it_comes_late() -> None:
    """Found by the simulator: control seed 10106, where a process stood still in a renewal."""
    store = FakeStore(Clock())
    lost: list[int] = []
    late, gone = asyncio.Event(), asyncio.Event()

    def lose(broker: int) -> None:
        lost.append(broker)
        gone.set()

    async def slowly(function: Callable[[], Any]) -> Any:
        if lost == [] and one.epochs:
            await late.wait()
        return function()

    instance = WorkerName(None, "one")
    one = Leases(store, "gateway/c", instance, 100, slowly, lose, store.clock)  # type: ignore[arg-type]
    two = worker(store, "two", [])
    assert await one.take(1)  # nobody waits: it goes on without its store
    assert not await two.take(1)
    store.clock.now_s += 0.2
    await one.renew()
    assert one.trouble is not None
    assert await two.take(1)
    assert set(one.epochs) == {1}
    late.set()
    async with asyncio.timeout(60):
        await gone.wait()
    assert (lost, one.epochs) == ([1], {})


async def test_a_lease_isnt_kept_beyond_its_end_while_another_ones_renewal_hangs() -> None:
    store = FakeStore(Clock())
    lost: list[int] = []
    hangs = asyncio.Event()

    async def slowly(function: Callable[[], Any]) -> Any:
        if store.down:
            store.clock.now_s += 5.2  # an answer that comes late, and says that nothing was done
            if len(asked) > 0:
                await hangs.wait()
            asked.append(1)
        return function()

    asked: list[int] = []
    instance = WorkerName(None, "one")
    one = Leases(store, "gateway/c", instance, 9_000, slowly, lost.append, store.clock)  # type: ignore[arg-type]
    two = worker(store, "two", [])
    assert await one.take(1)
    assert await one.take(2)
    await two._stand_by()
    await one.renew()
    store.down = True
    store.clock.now_s += 2.7
    renewing = asyncio.create_task(one.renew())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert lost == []  # the first might be renewed next time; the second one is asked for, in vain
    store.clock.now_s += 0.3
    one._stop_in_time(1, one._held[1])
    assert lost == [1]
    renewing.cancel()
