"""Lives of the control plane: stories from seeds, among them every seed that ever failed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from simulation.control.life import Verdict, live, live_all
from simulation.control.run import replay_command

FAILED = Path(__file__).parent / "control" / "failed_seeds.txt"


def failed_seeds() -> list[int]:
    """Seeds that found a fault once; the file says which."""
    lines = FAILED.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def told(verdict: Verdict) -> str:
    """Return a life as a story, with the command that lives it again."""
    again = replay_command(verdict.seed)
    return "\n".join([f"{again}: {verdict.broken}", *map(str, verdict.actions)])


def all_hold(seeds: Iterable[int]) -> None:
    for verdict in live_all(seeds):
        assert verdict.broken is None, told(verdict)


def test_no_law_is_broken_in_lives_that_broke_one_before() -> None:
    all_hold(failed_seeds())


def test_a_life_is_the_same_each_time() -> None:
    first, second = live(7), live(7)
    assert first.digest == second.digest
    assert first.touched == second.touched


def test_splits_of_a_stream_are_looked_at() -> None:
    verdict = live(0)
    assert verdict.broken is None, told(verdict)
    assert verdict.touched["streamed splits"] > 1_000
    assert verdict.touched["streamed rounds"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_200, 20))
def test_no_law_is_broken_in_many_lives(first: int) -> None:
    all_hold(range(first, first + 20))
