"""Long work on the loop is done in slices, and everybody else is served between two of them."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Generator

import pytest

from headgate.gateway.background import LOOKS_AT_ONCE, Looks, TimeSlices
from headgate.steps import look_at_young


def ticking() -> TimeSlices:
    """TimeSlices of ten steps: each look at the clock takes a tenth of a slice."""
    ticks = itertools.count()
    return TimeSlices(10, lambda: next(ticks))


def steps(count: int, seen: list[str], name: str = "") -> Generator[None, None, str]:
    for _ in range(count):
        seen.append(name)
        yield
    return name


async def test_what_the_work_returns_is_returned() -> None:
    slices = ticking()
    assert await slices.run(steps(3, [], "done")) == "done"
    assert slices.count == 1
    assert await slices.run(steps(0, [], "nothing to do")) == "nothing to do"


async def test_others_are_served_between_slices() -> None:
    seen: list[str] = []
    loop = asyncio.get_running_loop()

    def other() -> None:
        seen.append("other")
        if len(seen) < 95:
            loop.call_soon(other)

    loop.call_soon(other)
    await ticking().run(steps(90, seen, "work"))
    lengths = [len(list(run)) for who, run in itertools.groupby(seen) if who == "work"]
    assert max(lengths) <= 10
    assert len(lengths) >= 9


async def test_a_slice_takes_a_quarter_of_what_others_took_within_bounds() -> None:
    """Who is alone with long work waits a little for it; on a busy loop it ends all the same."""
    now, took = 0, 0
    slices = TimeSlices(250_000, lambda: now)
    loop = asyncio.get_running_loop()

    def other() -> None:
        nonlocal now
        now += took
        if took:
            loop.call_soon(other)

    def work() -> Generator[None, None, list[int]]:
        nonlocal now
        lengths, left = [0], slices.count
        for _ in range(4_000):
            now += 1_000
            if slices.count != left:
                lengths.append(0)
                left = slices.count
            lengths[-1] += 1
            yield
        return lengths

    for took, expected in ((5_000, 25), (400_000, 100), (5_000_000, 250)):
        loop.call_soon(other)
        lengths = await slices.run(work())
        assert set(lengths[1:-1]) == {expected}
        took = 0
        await asyncio.sleep(0)


async def test_of_several_works_one_slice_is_done_in_each_turn_of_the_loop() -> None:
    seen: list[str] = []
    slices = ticking()
    loop = asyncio.get_running_loop()

    def turn() -> None:
        seen.append("turn")
        if len(seen) < 400:
            loop.call_soon(turn)

    loop.call_soon(turn)
    await asyncio.gather(*(slices.run(steps(30, seen, f"work {n}")) for n in range(5)))
    between = [list(run) for who, run in itertools.groupby(seen, "turn".__eq__) if not who]
    assert max(map(len, between)) <= 10
    assert all(len(set(slice_)) == 1 for slice_ in between)
    assert {slice_[0] for slice_ in between[:5]} == {f"work {n}" for n in range(5)}


async def test_what_goes_wrong_is_raised_where_it_is_waited_for() -> None:
    def work() -> Generator[None, None, None]:
        yield
        raise ValueError("wrong")

    slices = ticking()
    with pytest.raises(ValueError, match="wrong"):
        await slices.run(work())
    assert await slices.run(steps(1, [], "the next")) == "the next"


async def test_what_nobody_waits_for_any_more_is_given_up() -> None:
    seen: list[str] = []
    slices = ticking()
    waiting = asyncio.ensure_future(slices.run(steps(1_000, seen)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen
    waiting.cancel()
    await asyncio.sleep(0)
    await slices.run(steps(1, []))
    done = len(seen)
    await slices.run(steps(100, []))
    assert len(seen) == done < 1_000


async def test_objects_that_replace_others_are_looked_at_a_few_at_a_time() -> None:
    """Python counts them as none, where as many are freed: in the end it looks at all of them."""
    kept: dict[int, list[int]] = {number: [number] for number in range(20_000)}
    seen: list[int] = []

    def look() -> None:
        seen.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))
        look_at_young()

    def work() -> Generator[None, None, None]:
        nonlocal now
        for number in kept:
            kept[number] = [number]
            now += 1_000
            yield

    now = 0
    slices = TimeSlices(250_000, lambda: now, look=look)
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(100_000)
    try:
        await slices.run(work())
    finally:
        gc.set_threshold(*before)
    assert len(seen) == 20
    assert 1_000 < max(seen) < 2_000


async def test_who_is_called_looks_again_a_few_in_each_turn_of_the_loop() -> None:
    """Else a change that concerns a thousand connections held all others up while they looked."""
    looks, done = Looks(), []
    turns: list[int] = []
    loop = asyncio.get_running_loop()

    def other() -> None:
        turns.append(len(done))
        if len(done) < 2 * LOOKS_AT_ONCE + 2:
            loop.call_soon(other)

    def look(number: int) -> None:
        done.append(number)
        if number == 0:
            looks.add(lambda: look(-1))  # it calls another

    for number in range(2 * LOOKS_AT_ONCE + 1):
        looks.add(lambda number=number: look(number))
    loop.call_soon(other)
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == [*range(2 * LOOKS_AT_ONCE + 1), -1]
    assert turns[:2] == [LOOKS_AT_ONCE, 2 * LOOKS_AT_ONCE]


async def test_a_look_that_fails_keeps_no_other_from_looking() -> None:
    looks, done = Looks(), []
    failed: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    looks.add(lambda: [][0])
    looks.add(lambda: done.append("the other"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["the other"]
    assert isinstance(failed[0], IndexError)
    looks.add(lambda: done.append("a later one"))
    await asyncio.sleep(0)
    assert done == ["the other", "a later one"]
