"""A worker that hangs is told from one that is busy, starting, or slept like everybody else."""

from __future__ import annotations

import asyncio
import queue

from prometheus_client.parser import text_string_to_metric_families

from headgate.gateway.fleet import pipe as questions
from headgate.gateway.fleet.fleet import (
    EXITING,
    HUNG,
    STEPS,
    ExitGuard,
    Fleet,
    until_hung,
    until_stuck,
)
from headgate.gateway.fleet.pipe import Pipe, socket_pair
from headgate.metrics.expose import page


class Clock:
    """A clock that runs ahead of real time, each time it is asked, by what a test says."""

    def __init__(self, by: float = 0.0) -> None:
        self.now = 0.0
        self.by = by

    def __call__(self) -> float:
        self.now += self.by
        return self.now


class Worker:
    """A worker's end: answers each beat after so many more have come."""

    def __init__(self, late: int | None = 0) -> None:
        self.late = late
        self.beats = 0
        self._next = asyncio.Condition()
        self.pipe = Pipe(self.answer)

    async def answer(self, question: str, body: bytes) -> bytes:
        assert question == questions.BEAT
        self.beats += 1
        mine = self.beats
        async with self._next:
            self._next.notify_all()
            await self._next.wait_for(
                lambda: self.late is not None and self.beats >= mine + self.late
            )
        return questions.NOTHING

    async def heard(self, beats: int) -> None:
        async with self._next:
            await self._next.wait_for(lambda: self.beats >= beats)


async def line(one: Worker) -> Pipe:
    ours, theirs = socket_pair()
    pipe = Pipe(one.answer)
    await pipe.open(ours)
    await one.pipe.open(theirs)
    return pipe


async def test_silence_is_a_hang_after_as_many_beats_as_there_are_steps() -> None:
    one = Worker()
    pipe = await line(one)
    watch = asyncio.ensure_future(until_hung(pipe, 0.2, starting_s=0))
    await one.heard(1)
    one.late = None
    assert await watch
    assert one.beats > STEPS
    pipe.close()
    one.pipe.close()


async def test_answers_that_come_late_are_life() -> None:
    one = Worker(late=3)  # each comes when its asker has long given up
    pipe = await line(one)
    watch = asyncio.ensure_future(until_hung(pipe, 0.2, starting_s=0))
    await one.heard(4 * STEPS)
    assert not watch.done()
    one.pipe.close()
    assert not await watch


async def test_a_worker_may_take_longer_until_its_first_word() -> None:
    one = Worker(late=None)
    pipe = await line(one)
    watch = asyncio.ensure_future(until_hung(pipe, 0.05, starting_s=60))
    await one.heard(3 * STEPS)
    assert not watch.done()
    pipe.close()
    assert not await watch
    one.pipe.close()


async def test_time_that_the_supervisor_slept_is_held_against_nobody() -> None:
    one = Worker(late=None)
    pipe = await line(one)
    # An hour passes in each step: still only as long as the step should have lasted is counted.
    # After some of them it answers again, with steps to spare: this machine may be late, too.
    watch = asyncio.ensure_future(until_hung(pipe, 2.0, starting_s=0, clock=Clock(by=3600)))
    async with asyncio.timeout(60):
        await one.heard(3)
        assert not watch.done()
        one.late = 0
        await one.heard(4 * STEPS)
    assert not watch.done()
    pipe.close()
    assert not await watch
    one.pipe.close()


async def test_a_fleet_counts_what_it_lost_and_why() -> None:
    fleet = Fleet([1])
    one = Worker()
    ours, theirs = socket_pair()
    await fleet.start(1, ours)
    await one.pipe.open(theirs)
    watch = asyncio.ensure_future(until_hung(fleet._pipes[1], 0.1))
    await one.heard(2)
    one.late = None
    assert await watch
    fleet.left(1, "killed")
    fleet.lost(1, "hung")
    fleet.lost(1, "hung")
    fleet.lost(1, "ended")
    lost = {
        s.labels["reason"]: s.value
        for family in text_string_to_metric_families(page(await fleet.metrics()).decode())
        for s in family.samples
        if s.name == "headgate_worker_restarts_total"
    }
    assert lost == {"ended": 1.0, "hung": 2.0}
    one.pipe.close()


async def never() -> bool:
    await asyncio.Event().wait()
    return False


async def test_nobody_is_killed_for_ending_before_it_was_told_to_or_its_line_ended() -> None:
    stopping = asyncio.Event()
    watch = asyncio.ensure_future(until_stuck(never(), stopping, exit_s=0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not watch.done()
    stopping.set()
    assert await watch == EXITING


async def test_a_worker_whose_line_ends_has_to_end_too() -> None:
    async def ended() -> bool:
        return False

    assert await until_stuck(ended(), asyncio.Event(), exit_s=0) == EXITING
    late = asyncio.ensure_future(until_stuck(ended(), asyncio.Event(), exit_s=3600))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not late.done()  # its process may still end: who sees that cancels
    late.cancel()


async def test_a_silent_worker_hangs_also_while_it_should_end() -> None:
    silent = asyncio.Event()

    async def hung() -> bool:
        return await silent.wait()

    stopping = asyncio.Event()
    watch = asyncio.ensure_future(until_stuck(hung(), stopping, exit_s=3600))
    stopping.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not watch.done()
    silent.set()
    assert await watch == HUNG


def test_a_process_that_was_told_to_end_is_ended_once_and_late() -> None:
    ended: queue.SimpleQueue[float] = queue.SimpleQueue()
    guard = ExitGuard(ended.put)
    guard.arm(0)  # as long as it likes
    guard.arm(0.001)
    guard.arm(0.002)
    assert ended.get(timeout=60) == 0.001
    assert ended.empty()
