"""
Lives of the control plane: stories from seeds, among them some that found a fault.

All of those are lived by a stage of ``.ci/run``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

from simulation.control.life import Verdict, live, live_all
from simulation.control.run import known_seeds, replay_command

ROOT = Path(__file__).parents[2]
SOME_FAILED = (2, 17)
"""A snapshot that couldn't be written, and a split that was above the quota."""


def told(verdict: Verdict) -> str:
    """Return a life as a story, with the command that lives it again."""
    again = replay_command(verdict.seed)
    return "\n".join([f"{again}: {verdict.broken}", *map(str, verdict.actions)])


def all_hold(seeds: Iterable[int]) -> None:
    for verdict in live_all(seeds):
        assert verdict.broken is None, told(verdict)


def test_no_law_is_broken_in_lives_that_broke_one_before() -> None:
    all_hold(SOME_FAILED)


def test_the_seeds_that_found_a_fault_are_lived_by_the_stage_of_lives() -> None:
    known = known_seeds()
    assert {*SOME_FAILED, 1282, 40164} <= set(known)
    assert len(known) == len(set(known))
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert any("CONTROL=1" in line and "--known" in line for line in ci.splitlines())


@functools.cache
def with_a_stream() -> Verdict:
    return live(0)


def test_a_life_is_the_same_each_time() -> None:
    first, second = with_a_stream(), live(0)
    assert first.digest == second.digest
    assert first.touched == second.touched


def test_splits_of_a_stream_are_looked_at() -> None:
    verdict = with_a_stream()
    assert verdict.broken is None, told(verdict)
    assert verdict.touched["streamed splits"] > 1_000
    assert verdict.touched["streamed rounds"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_200, 20))
def test_no_law_is_broken_in_many_lives(first: int) -> None:
    all_hold(range(first, first + 20))
