"""
Lives of whole gateways under all laws: the first of the seeds.

More of them, every seed that found a fault, and those of a commit are lived by a stage of
``.ci/run``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.quota.table import table_delta
from simulation import doors
from simulation.hashes import told_with_two_hash_seeds
from simulation.life import Life, Outcome
from simulation.run import KNOWN_FIRST, known_seeds, live_all, replay_command, shortest
from simulation.story import LEAST_MS, Action, draw

ROOT = Path(__file__).parents[2]
FIRST = 12


@functools.cache
def first_lives() -> tuple[Outcome, ...]:
    return tuple(live_all(range(FIRST)))


def test_every_law_holds_in_the_first_lives() -> None:
    for outcome in first_lives():
        law, what = outcome.broken
        if law:
            with doors.opened():
                story, _ = shortest(outcome.story, law, 60)
            told = "\n".join(story.lines())
            again = replay_command(outcome.story.seed)
            pytest.fail(f"'{law}' doesn't hold: {what}\nagain: {again}\n{told}", pytrace=False)


def test_the_seeds_that_found_a_fault_are_lived_by_the_stage_of_lives() -> None:
    known = known_seeds()
    assert set(range(FIRST)) | {19, 3020, 36631193109} <= set(known)
    assert len(known) == len(set(known)) > KNOWN_FIRST
    assert "--known" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_a_life_is_long_enough_and_has_enough_connections() -> None:
    outcomes = first_lives()
    assert all(outcome.story.length_ms >= LEAST_MS for outcome in outcomes)
    assert all(outcome.counts["connections"] >= 5 for outcome in outcomes)
    assert sum(outcome.counts["decisions that throttle"] for outcome in outcomes) > 50
    assert sum(outcome.counts["acknowledged"] for outcome in outcomes) > 500


def test_a_seed_is_the_same_life_whatever_hashes_are() -> None:
    program = (
        "from simulation.run import live_all\n"
        "print([outcome.digest for outcome in live_all([5, 23])])"
    )
    told = told_with_two_hash_seeds(program)
    assert told[0] == told[1] != ""
    assert str([outcome.digest for outcome in live_all([5, 23])]) == told[0].strip()


@pytest.mark.parametrize("ms", [0, 1, 2, 3])
def test_a_gateway_that_starts_hears_of_a_quota_that_is_set_meanwhile(ms: int) -> None:
    with doors.opened():
        life = Life(replace(draw(3), actions=()))
        started: list[bool] = []

        def change() -> None:
            started.append(life.gateway.started)
            life.change_quota(("alice", None), "producer_byte_rate", 12_345.0)

        life.loop.after(ms, change)
        life.loop.run(5_000)
        product = life.gateway.gateway
        assert (*started, life.gateway.started) == (False, True)
        assert not table_delta(product.table, life.table()).changes
        life.loop.close()


def test_taking_an_action_away_leaves_the_others_what_they_draw() -> None:
    """Garbage is drawn by the action itself; so stories can be shortened."""
    story = draw(3)
    one = Action(2_000, story.people[0].name, "garbage", ("noise",))
    other = Action(1_500, story.people[1].name, "garbage", ("noise",))
    heard = []
    for actions in ((other, one), (one,)):
        with doors.opened():
            life = Life(replace(story, actions=actions))
            said = life.clients[one.who]
            noise: list[bytes] = []
            said.say_garbage = lambda what, data, noise=noise: noise.append(data)  # type: ignore[method-assign]
            life.live()
            heard.append(noise)
    assert heard[0] == heard[1] != []
