"""What one client can leave to be done in one piece: charges, ends, gates, each a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging import gates as gates_module
from headgate.gateway.charging import lanes
from headgate.gateway.charging.gates import GateKey, Gates
from headgate.gateway.charging.lanes import FORGOTTEN_AT_ONCE, Lane, LaneBook, lane_key
from headgate.quota.entity import QuotaEntity

from .conftest import Setup

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


# -- ends of mutes


def key(name: str) -> Any:
    return lane_key("p", name, "", "")


def test_ends_that_are_over_are_forgotten_a_few_at_a_time() -> None:
    book = LaneBook()
    for n in range(1_000):
        book.leave(key(f"u{n}"), Lane(1_000 + n, 0, 1.0), 0)
    sizes = [len(book)]
    for n in range(20):
        book.leave(key(f"v{n}"), Lane(90_000 + n, 0, 1.0), 50_000)
        sizes.append(len(book))
    fewer = [a - b for a, b in itertools.pairwise(sizes)]
    assert max(fewer) == FORGOTTEN_AT_ONCE - 1  # one came
    assert sizes[-1] == 20
    assert all(book.take(key(f"v{n}"), 50_000) is not None for n in range(20))


def test_ends_that_were_taken_are_passed_over_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MOST_LANES", 800)
    pops = 0
    pop = lanes.heappop

    def counted(heap: list[Any]) -> Any:
        nonlocal pops
        pops += 1
        return pop(heap)

    book = LaneBook()
    for n in range(799):
        book.leave(key(f"u{n}"), Lane(90_000 + n, 0, 1.0), 0)
    for n in range(1_600):  # left and taken: their ends are gone, and first
        book.leave(key("x"), Lane(1_000 + n, 0, 1.0), 0)
        assert book.take(key("x"), 0) is not None
    monkeypatch.setattr(lanes, "heappop", counted)
    sizes = []
    for n in range(100):
        before = pops
        book.leave(key(f"v{n}"), Lane(200_000 + n, 0, 1.0), 0)
        assert pops - before <= 2 * FORGOTTEN_AT_ONCE
        sizes.append(len(book))
    assert max(sizes) <= 800 + 1_600 // FORGOTTEN_AT_ONCE + 1
    assert sizes[-1] == 800  # the earliest were dropped
    assert [book.take(key(f"u{n}"), 0) is None for n in (0, 98, 99)] == [True, True, False]


def test_the_heap_of_ends_is_made_again_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes = 0
    push = lanes.heappush

    def counted(heap: list[Any], item: Any) -> None:
        nonlocal pushes
        pushes += 1
        push(heap, item)

    monkeypatch.setattr(lanes, "heappush", counted)
    monkeypatch.setattr(lanes, "heapify", lambda _: pytest.fail("all at once"))
    book = LaneBook()
    for n in range(1_000):
        book.leave(key(f"u{n}"), Lane(90_000 + n, 0, 1.0), 0)
    most = 0
    for n in range(6_000):
        before = pushes
        book.leave(key(f"x{n}"), Lane(1_000 + n, 0, 1.0), 0)
        most = max(most, pushes - before)
        if n < 5_990:
            assert book.take(key(f"x{n}"), 0) is not None
        assert len(book._ends) <= 2 * 1_000 + 1_024 + 30
    assert most <= FORGOTTEN_AT_ONCE + 3
    assert len(book) == 1_010
    # Every end that is left is still known: all are forgotten when they are over.
    for n in range(20):
        book.leave(key(f"y{n}"), Lane(900_000, 0, 1.0), 500_000)
    for n in range(60):
        book.leave(key(f"z{n}"), Lane(900_000, 0, 1.0), 500_000)
    assert len(book) == 80


def test_a_newcomer_passes_over_thousands_of_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pops = 0
    pop = lanes.heappop

    def counted(heap: list[Any]) -> Any:
        nonlocal pops
        pops += 1
        return pop(heap)

    book = LaneBook()
    for n in range(3_000):
        book.leave(key("u"), Lane(1_000 + n, 0, 1.0), 0)
    for end_ms in (90_002, 90_001, 90_003):
        book.leave(key("u"), Lane(end_ms, 0, 1.0), 0)
    monkeypatch.setattr(lanes, "heappop", counted)
    assert book.take(key("u"), 50_000) == Lane(90_001, 0, 1.0)
    assert pops == FORGOTTEN_AT_ONCE + 1
    assert len(book) == 2
    assert [book.take(key("u"), 50_000).end_ms for _ in "ab"] == [90_002, 90_003]  # type: ignore[union-attr]
    for n in range(FORGOTTEN_AT_ONCE):
        book.leave(key("u"), Lane(91_000 + n, 0, 1.0), 50_000)
    assert book.take(key("u"), 99_000) is None
    assert (len(book), book._named) == (0, 0)
    for n in range(FORGOTTEN_AT_ONCE + 9):
        book.leave(key("u"), Lane(91_000 + n, 0, 1.0), 50_000)
    assert book.take(key("u"), 99_000) is None
    assert (len(book), book._named) == (0, 0)


# -- gates


def test_gates_make_room_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates_module, "MOST_GATES", 1_000)
    gates = Gates(lambda _key: None)
    gates._most = 1_000
    sizes = []
    for n in range(1_012):
        now_ms = n if n < 1_000 else 100_000
        gates.charged(GateKey("q", f"u{n}", ""), 50, 100.0, now_ms)
        sizes.append(len(gates))
    assert max(sizes) == 1_000
    fewer = [a - b for a, b in itertools.pairwise(sizes)]
    assert max(fewer) == 127  # 128 are looked at, and one came
    assert len(gates) == 12  # those that came since, and are closed
    gates.charged(GateKey("q", "u9999", ""), 0, 100.0, 100_000)
    assert len(gates) == 12
