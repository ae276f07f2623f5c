"""The inputs that fuzzing kept: each reaches lines that few others do, or was a fault once."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from fuzzing.corpus import KEPT, kept, path_of
from fuzzing.mutation import mutated
from fuzzing.real_messages import CASES, case, one
from fuzzing.table import TABLE, load

MOST_BYTES = 1_500_000
SEEDS = 10


@pytest.fixture(autouse=True)
def _quiet() -> object:
    # Readers say what they pass over, thousands of times here.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TABLE)
def test_what_fuzzing_kept_is_read_or_refused(name: str) -> None:
    target = load(name)
    for data in kept(name):
        target.run(data)


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"messages", "conversation"}))
def test_a_target_takes_its_seeds_and_some_changed_ones(name: str) -> None:
    """A target whose seeds it can't take would look at nothing but refusals."""
    target, chance = load(name), random.Random(7)
    seeds = list(target.seeds())
    assert seeds
    for data in chance.sample(seeds, min(SEEDS, len(seeds))):
        target.run(data)
        target.run(mutated(seeds, target.words, chance))


def test_real_messages_of_some_apis_are_taken_whole_and_changed() -> None:
    """Some alone, since all messages that fuzzing begins with take ten seconds to make."""
    messages, chance = load("messages"), random.Random(7)
    for key, version in chance.sample(CASES, 40):
        for response in (False, True):
            body = one(key, version, 1, response=response)
            if body is not None:
                data = case(key, version) + (b"\x10" if response else b"\x01") + body
                messages.run(data)
                messages.run(mutated([data], (), chance))


def test_what_is_kept_is_of_targets_that_exist_and_stays_small() -> None:
    found = sorted(KEPT.iterdir())
    assert set(found) <= {path_of(name) for name in TABLE}
    assert sum(path.stat().st_size for path in found) < MOST_BYTES


def test_the_folder_of_a_fuzzer_is_left_as_it_was() -> None:
    before = Path.cwd()
    load("commands").run(b"\x02--store\0sqlite:q.db\0--out\0x.yaml")
    assert Path.cwd() == before
    assert not (before / "x.yaml").exists()
