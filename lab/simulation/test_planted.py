"""
The simulator itself tried: faults planted in the product, each of which a law must find.

The quick test begins at a seed that found the fault once. The slow one begins at 0; a thousand
seeds are the most.
"""

from __future__ import annotations

import pytest

from simulation.plants import FOUND_AT, MOST_LIVES, PLANTS, Plant
from simulation.run import live_all

MOST = 1_000

IDS = [plant.__name__ for plant, _ in PLANTS]


def found_after(plant: Plant, laws: frozenset[str], seeds: range) -> int:
    """Return how many seeds it took until one of these laws was broken; 0: none was."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for lives, outcome in enumerate(live_all(seeds), 1):
            if outcome.broken[0]:
                assert outcome.broken[0] in laws, outcome.broken
                return lives
    return 0


@pytest.mark.parametrize(("plant", "laws"), PLANTS, ids=IDS)
def test_a_planted_fault_is_found(plant: Plant, laws: frozenset[str]) -> None:
    first = FOUND_AT.get(plant.__name__, 0)
    # Lives over TLS aren't the same on every Python: what isn't found there is looked for.
    quick, all_seeds = range(first, first + MOST_LIVES), range(MOST)
    assert found_after(plant, laws, quick) or found_after(plant, laws, all_seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "laws"), PLANTS, ids=IDS)
def test_a_planted_fault_is_found_within_a_thousand_seeds(
    plant: Plant, laws: frozenset[str]
) -> None:
    assert found_after(plant, laws, range(MOST))
