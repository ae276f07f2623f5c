"""The SQLite store while the processes that write to it are killed and paused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from faults import workload
from faults.trial import Trial
from faults.workload import Plan
from headgate.store import open_store

GROUPS = [
    ("consumer_byte_rate", "producer_byte_rate"),
    ("producer_ids_rate", "request_percentage"),
]


@pytest.mark.parametrize(
    ("calls", "rounds"), [(300, 3), pytest.param(6_000, 30, marks=pytest.mark.slow)]
)
def test_eight_writers_are_killed_and_paused(tmp_path: Path, calls: int, rounds: int) -> None:
    opener = partial(open_store, f"sqlite:{tmp_path / 'q.db'}")
    plan = Plan(workload.entities(3, "sqlite"), GROUPS, tmp_path / "stop")
    trial = Trial(tmp_path, [opener], opener, plan, seed=calls)
    done = trial.run(calls, [trial.kill, lambda: trial.pause(0.3)] * rounds)
    assert done.wrong == []
    assert done.faults == {"kill": rounds, "pause": rounds}
    assert done.outcomes["alter ok"] > calls / 4
    assert done.outcomes["alter refused"] > 0
