"""The simulated loop: asyncio's order, timers, clocks of hosts, crashes at any await."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from simulation import doors
from simulation.loop import START_NS, Host, Process, SimLoop
from simulation.network import Network
from simulation.seed import Seed


def make(number: int = 1) -> tuple[SimLoop, Process]:
    loop = SimLoop(Seed(number))
    Network(loop)
    return loop, Process(Host(loop, "one", "10.0.0.2"), "one")


def test_callbacks_run_in_the_order_of_call_soon() -> None:
    for number in range(20):
        loop, process = make(number)
        seen: list[int] = []
        for at in range(10):
            process.run(loop.call_soon, seen.append, at)
        loop.run(1)
        assert seen == list(range(10))


def test_timers_of_one_instant_come_in_any_order_and_never_much_too_early() -> None:
    orders = set()
    for number in range(30):
        loop, process = make(number)
        seen: list[tuple[int, float]] = []

        def due(at: int, seen: list[tuple[int, float]] = seen, loop: SimLoop = loop) -> None:
            seen.append((at, loop.now_ms))

        for at in range(3):
            process.run(loop.call_later, 0.050, due, at)
        loop.run(100)
        assert all(49 <= ms < 51.5 for _, ms in seen)
        orders.add(tuple(at for at, _ in seen))
    assert len(orders) > 2


def test_hosts_have_clocks_of_their_own() -> None:
    loop, process = make()
    late = Host(loop, "late", "10.0.0.3", offset_ms=-5_000)
    other = Process(late, "other")
    with doors.opened():
        from headgate.clock import now_ms

        loop.run(2_000)
        late.step(-1_000)
        assert process.run(now_ms) == START_NS // 1_000_000 + 2_000
        assert other.run(now_ms) == START_NS // 1_000_000 - 4_000


def test_a_process_can_crash_between_any_two_callbacks() -> None:
    async def work(steps: list[int]) -> None:
        try:
            for at in range(10):
                steps.append(at)
                await asyncio.sleep(0)
        finally:
            steps.append(-1)

    found = set()
    for fuse in range(1, 12):
        loop, process = make()
        steps: list[int] = []
        process.spawn(work(steps))
        process.fuse = fuse
        loop.run(10)
        found.add(tuple(steps))
        assert not process.alive or fuse > 10
        loop.close()
    assert len(found) == 11


def test_functions_of_executors_run_between_callbacks_and_fail_as_they_should() -> None:
    loop, process = make()
    told: list[Any] = []

    async def work() -> None:
        told.append(await asyncio.to_thread(sum, [1, 2]))
        with contextlib.suppress(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        async with asyncio.timeout(1):
            told.append(await asyncio.wait_for(asyncio.to_thread(lambda: 5), 1))

    process.spawn(work())
    loop.run(2_000)
    assert told == [3, 5]
    assert not process.failures


def test_a_frozen_process_goes_on_later() -> None:
    loop, process = make()
    seen: list[float] = []
    process.run(loop.call_later, 0.010, lambda: seen.append(loop.now_ms))
    process.freeze(500)
    loop.run(1_000)
    assert seen
    assert seen[0] >= 500
