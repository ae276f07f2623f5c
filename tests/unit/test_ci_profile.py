"""Under the ci profile property tests get the same examples, whatever else has been loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DRAW = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import conftest
from hypothesis import given, strategies as st
for module in sys.argv[2:]:
    importlib.import_module(module)
seen = []

@given(st.tuples(st.integers(), st.text(), st.floats(), st.binary()))
def draw(drawn):
    seen.append(repr(drawn))

draw()
print(json.dumps(seen))
"""


def drawn(profile: str, *modules: str, **environment: str) -> str:
    """Return the examples that a process draws which has loaded these modules."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRAW, str(TESTS), *modules],
        env=os.environ | {"HYPOTHESIS_PROFILE": profile} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_do_not_depend_on_the_modules_that_are_loaded() -> None:
    alone = drawn("ci")
    assert alone.count("(") > 50
    assert drawn("ci", "headgate.config.settings", "headgate.wire.apis") == alone


@pytest.mark.parametrize("profile", ["dev", pytest.param("nightly", marks=pytest.mark.slow)])
def test_other_profiles_look_further_each_time_also_on_a_ci_machine(profile: str) -> None:
    assert drawn(profile, CI="true") != drawn(profile, CI="true")
