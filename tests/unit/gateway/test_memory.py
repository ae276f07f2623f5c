"""The garbage collector: bounded looks at what is young, rare ones at everything."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headgate.gateway.loop.memory import GROWN, YOUNG, Memory, resident_bytes


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
def test_while_quota_ids_come_the_collector_looks_at_few_objects_at_a_time() -> None:
    Memory().settle()
    looked: list[tuple[int, int]] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            young = sum(len(gc.get_objects(each)) for each in range(min(generation, 1) + 1))
            looked.append((generation, young))

    gc.callbacks.append(look)
    try:
        kept = [[number] for number in range(40 * YOUNG)]
    finally:
        gc.callbacks.remove(look)
    assert len(kept) == 40 * YOUNG
    assert {generation for generation, _ in looked} == {0, 1}
    assert max(young for _, young in looked) < 3.2 * YOUNG


@pytest.mark.usefixtures("collector")
def test_all_objects_are_looked_at_when_memory_has_grown_and_circles_go() -> None:
    sizes = iter((1_000, 1_000, 1_400, int(1_000 * GROWN), 2_000, 2_000, 2_200, 900, 1_400, 1_400))

    class Circle:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Circle.alive += 1

        def __del__(self) -> None:
            Circle.alive -= 1

    memory = Memory(lambda: next(sizes))
    memory.settle()
    for _ in range(10):
        Circle()
    for _ in range(3):  # they are old by now
        gc.collect(1)
        Circle()
    assert [memory.look() for _ in range(3)] == [False, False, True]
    assert [memory.look() for _ in range(4)] == [False, False, False, True]
    assert Circle.alive == 0


@pytest.mark.usefixtures("collector")
def test_where_memory_cannot_be_measured_looks_at_everything_go_by_count() -> None:
    memory = Memory(lambda: None)
    memory.settle()
    assert not memory.look()
    assert gc.get_threshold()[2] == 200


def test_memory_is_measured_here() -> None:
    assert (resident_bytes() or 0) > 1 << 20
