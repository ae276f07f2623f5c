"""What happens to a request as it passes: planted faults, each found by its law alone."""

from __future__ import annotations

import pytest

from simulation import doors
from simulation import life as life_module
from simulation.laws_passing import LAWS_OF_PASSING
from simulation.plants_passing import NAMES, PLANTS, STORIES, Plant
from simulation.run import live
from simulation.story import Story


@pytest.mark.parametrize(("plant", "story", "laws"), PLANTS, ids=NAMES)
def test_a_fault_planted_where_requests_pass_is_found_by_its_law_alone(
    plant: Plant, story: Story, laws: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    others = tuple(law for law in life_module.LAWS if law.name not in laws)
    with doors.opened():
        assert live(story).broken[0] in laws
        monkeypatch.setattr(life_module, "LAWS", others)
        assert live(story).broken == ("", "")


def test_without_a_planted_fault_the_laws_hold() -> None:
    throttled = 0
    with doors.opened():
        for story in STORIES:
            outcome = live(story)
            assert outcome.broken == ("", "")
            throttled += outcome.counts["told a wait"]
    assert throttled > 10


def test_every_law_of_passing_finds_a_planted_fault() -> None:
    found = frozenset[str]().union(*(laws for _, _, laws in PLANTS))
    assert found >= {law.name for law in LAWS_OF_PASSING}
