"""Faults planted in leases, stores, snapshots and journals: the simulator finds each."""

from __future__ import annotations

import pytest

from simulation.control.life import live, live_all
from simulation.control.planted import PLANTS

MOST = 1_000
# Of each kind of fault one whose life is short; the others' lives take some seconds each.
QUICK = (
    "a lease is renewed after another took it",
    "two standbys both take over",
    "a snapshot is saved before the store's identity is checked",
    "history stands in another order than values",
    "a supervisor keeps nothing back for a worker that doesn't answer",
    "a journal's numbers begin again after a restart",
    "a split of another quota stays as it was",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PLANTS],
)
def test_a_planted_fault_is_found(name: str) -> None:
    planted, seed, law = PLANTS[name]
    with planted():
        broken = live(seed).broken
    assert broken is not None
    assert law in broken


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found_within_a_thousand_seeds(name: str) -> None:
    planted, _, law = PLANTS[name]
    with planted():
        assert any(law in (verdict.broken or "") for verdict in live_all(range(MOST)))


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_the_same_seed_finds_nothing_without_the_fault(name: str) -> None:
    assert live(PLANTS[name][1]).broken is None
