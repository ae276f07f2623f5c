"""
The first lives one by one: mutants of what decides (`make mutants`) are tried on those that touch
them. Together they are ``test_lives.test_every_law_holds_in_the_first_lives``.
"""

from __future__ import annotations

import pytest

from simulation.run import live_all

LIVES = 24


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(LIVES))
def test_every_law_holds_in_a_life(seed: int) -> None:
    (outcome,) = live_all([seed])
    assert outcome.broken == ("", "")
