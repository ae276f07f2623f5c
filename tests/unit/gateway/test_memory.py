"""The garbage collector: bounded looks at what is young, and never one at everything."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headgate.gateway.background import MOST_OLD, YOUNG, GarbageBounds


@pytest.fixture
def noted() -> Iterator[list[int]]:
    """How long each look took, ns, while a collector like a gateway's is at work."""
    before = gc.get_threshold()
    took: list[int] = []
    memory = GarbageBounds(took.append)
    memory.settle()
    yield took
    memory.end()
    gc.set_threshold(*before)


def _looks(make: int) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Make so many objects that stay; return them, and each look: generation, objects in it."""
    looked: list[tuple[int, int]] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            seen = sum(len(gc.get_objects(each)) for each in range(generation + 1))
            looked.append((generation, seen))

    gc.callbacks.append(look)
    try:
        kept = [[number] for number in range(make)]
    finally:
        gc.callbacks.remove(look)
    return kept, looked


@pytest.mark.usefixtures("noted")
def test_while_quota_ids_come_the_collector_looks_at_few_objects_at_a_time() -> None:
    kept, looked = _looks(20 * MOST_OLD)
    assert len(kept) == 20 * MOST_OLD
    assert {generation for generation, _ in looked} == {0, 1, 2}
    assert max(seen for generation, seen in looked if generation < 2) < 3.2 * YOUNG
    # The old ones that a look left may have grown by a quarter before the next.
    assert max(seen for _, seen in looked) < 1.25 * MOST_OLD + 8_000
    assert sum(seen > MOST_OLD for _, seen in looked) > 5, "it looks at old ones all the time"


class Circle:
    """What only the collector frees."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Circle.alive += 1

    def __del__(self) -> None:
        Circle.alive -= 1


@pytest.mark.usefixtures("noted")
def test_circles_go_also_those_that_have_become_old() -> None:
    Circle.alive = 0
    held = [Circle() for _ in range(10)]
    kept, _ = _looks(8 * YOUNG)  # they are old by now, and in use
    del held
    assert Circle.alive == 10
    more, looked = _looks(80 * YOUNG)
    assert Circle.alive == 0
    assert max(generation for generation, _ in looked) == 2
    assert len(kept) + len(more) == 88 * YOUNG


def test_each_look_counts_as_work_on_the_loop(noted: list[int]) -> None:
    before = len(noted)
    _, looked = _looks(40 * YOUNG)
    assert len(noted) - before == len(looked)
    assert min(noted) >= 0
