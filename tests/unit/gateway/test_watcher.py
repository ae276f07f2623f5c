"""What our own work takes of the loop's thread is measured piece by piece, and shown."""

from __future__ import annotations

import asyncio

import pytest

from headgate.gateway.background import SLOW_NS, WINDOW_S, StallMeter, TimeSlices


class Cpu:
    """CPU time that is spent by saying so."""

    def __init__(self) -> None:
        self.ns = 0
        self.s = 1_000.0

    def watcher(self) -> StallMeter:
        return StallMeter(lambda: self.ns, lambda: self.s)


async def test_each_step_of_a_task_counts_for_itself_and_waiting_doesnt() -> None:
    cpu = Cpu()
    watcher = cpu.watcher()

    async def work() -> str:
        for ms in (4, 7, 9):
            cpu.ns += ms * 1_000_000
            await asyncio.sleep(0)
        return "done"

    task = asyncio.get_running_loop().create_task(watcher.watched(work()))
    other = 0
    while not task.done():
        cpu.ns += 50_000_000  # what others do meanwhile
        other += 1
        await asyncio.sleep(0)
    assert task.result() == "done"
    assert other >= 3
    assert watcher.longest_ms == 9.0
    assert watcher.slow == 0


async def test_what_takes_too_long_is_counted_whether_it_ends_well_or_not() -> None:
    cpu = Cpu()
    watcher = cpu.watcher()

    async def fails() -> None:
        cpu.ns += SLOW_NS + 1
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await asyncio.get_running_loop().create_task(watcher.watched(fails()))
    assert watcher.slow == 1
    with watcher.watching():
        cpu.ns += SLOW_NS
    assert watcher.slow == 1


def test_the_longest_is_forgotten_after_two_minutes_at_most() -> None:
    cpu = Cpu()
    watcher = cpu.watcher()

    def spend(ms: int) -> None:
        with watcher.watching():
            cpu.ns += ms * 1_000_000

    spend(9)
    cpu.s += WINDOW_S
    assert watcher.longest_ms == 9.0
    spend(3)
    cpu.s += WINDOW_S
    assert watcher.longest_ms == 3.0
    cpu.s += 2 * WINDOW_S
    assert watcher.longest_ms == 0.0


async def test_a_cancelled_task_ends_as_it_would_otherwise() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    task = asyncio.get_running_loop().create_task(StallMeter().watched(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_slices_are_watched() -> None:
    cpu = Cpu()
    watcher = cpu.watcher()

    def steps():  # type: ignore[no-untyped-def]
        for _ in range(10):
            cpu.ns += 400_000
            yield

    slices = TimeSlices(1_000_000, lambda: cpu.ns, watcher)
    await slices.run(steps())
    assert slices.count == 11
    assert watcher.longest_ms == pytest.approx(0.4)
