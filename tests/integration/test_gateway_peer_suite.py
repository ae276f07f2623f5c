"""A peer's own test suite passes through the gateway exactly as it does at the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from peers import suite


@pytest.mark.kafka4
@pytest.mark.slow
def test_kafka_pythons_own_tests_pass_as_they_do_at_the_broker(tmp_path: Path) -> None:
    direct, through = suite.both(tmp_path)
    assert suite.differences(direct, through) == []
    # The one that asks for a broker older than 0.10.1 is skipped; what else there is must pass.
    assert {name: o.text for name, o in direct.items() if o.result != "passed"}.keys() == {
        "test/integration/test_consumer_integration.py::test_kafka_consumer_offsets_for_time_old"
    }
    assert len(direct) >= 67
