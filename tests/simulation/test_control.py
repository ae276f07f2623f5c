"""Lives of the control plane: stories from seeds, among them every seed that ever failed."""

from __future__ import annotations

import pytest

from simulation.control.life import Verdict, live

FAILED = {
    2: "a snapshot that couldn't be written was not tried again",
    12: "a gateway that was started without its store never took leases",
    51: "a lease was kept beyond its end while another one's renewal hung",
}
"""Seeds that found a fault in the product, and which."""


def told(verdict: Verdict) -> str:
    """Return a life as a story, with the command that lives it again."""
    again = f"PYTHONPATH=tests .venv/bin/python -m simulation.control {verdict.seed}"
    return "\n".join([f"{again}: {verdict.broken}", *map(str, verdict.actions)])


@pytest.mark.parametrize("seed", [*FAILED, 100, 101, 212])
def test_no_law_is_broken(seed: int) -> None:
    verdict = live(seed)
    assert verdict.broken is None, told(verdict)


def test_a_life_is_the_same_each_time() -> None:
    first, second = live(7), live(7)
    assert first.digest == second.digest
    assert first.touched == second.touched


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_300, 20))
def test_no_law_is_broken_in_many_lives(first: int) -> None:
    for seed in range(first, first + 20):
        verdict = live(seed)
        assert verdict.broken is None, told(verdict)
