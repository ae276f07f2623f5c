"""
What happens to a request as it passes: planted faults, and the laws' final form.

``prototype`` is a core that keeps the final form, so that the laws are tried before the product's
core keeps it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from simulation import doors, forms
from simulation import life as life_module
from simulation.laws_passing import LAWS_OF_PASSING
from simulation.plants_passing import NAMES, PLANTS, STORIES, Plant
from simulation.prototype import final_form
from simulation.run import live, live_all
from simulation.story import Story

LIVES = (1, 5)
"""Seeds whose lives have what the stories don't: mishaps, changes of quotas, many kinds at once."""


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


def test_without_a_planted_fault_the_laws_hold_and_the_final_form_is_broken_where_it_is_said() -> (
    None
):
    found: Counter[str] = Counter()
    with doors.opened():
        for story in STORIES:
            outcome = live(story)
            assert outcome.broken == ("", "")
            found += outcome.counts
    broken = {kind for kind in forms.KINDS if found[f"beyond '{kind}'"]}
    # A change that makes the core keep a form adds the form to FINAL.
    assert broken == forms.KINDS.keys() - forms.FINAL


def test_a_core_with_one_moment_keeps_the_final_form(monkeypatch: pytest.MonkeyPatch) -> None:
    final_form(monkeypatch)
    with doors.opened():
        for story in STORIES:
            assert live(story).broken == ("", "")
    throttled = 0
    for outcome in live_all(LIVES):
        assert outcome.broken == ("", "")
        throttled += outcome.counts["told a wait"]
    assert throttled > 10


def test_every_law_of_passing_finds_a_planted_fault() -> None:
    found = frozenset[str]().union(*(laws for _, _, laws in PLANTS))
    assert found >= {law.name for law in LAWS_OF_PASSING}
