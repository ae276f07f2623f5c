"""A peer's own test suite passes through the gateway exactly as it does at the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from peers import suite

# What the suite itself leaves out by the version of the broker; all else must pass on both sides.
OLD = "test/integration/test_consumer_integration.py::test_kafka_consumer_offsets_for_time_old"
NEW = {
    f"test/integration/test_admin_integration.py::{name}"
    for name in (
        "test_describe_metadata_quorum",
        "test_describe_topic_partitions",
        "test_describe_topic_partitions_pagination",
        "test_list_config_resources",
    )
}


# It asks for a broker's advertised.listeners, which the gateway shows without a value, as a secret.
HIDDEN = (
    "test/integration/test_admin_integration.py::test_describe_configs_broker_resource_returns_configs",
    "passed",
    "failed",
)


def check(folder: Path, version: str, skipped: set[str]) -> None:
    direct, through = suite.both(folder, version)
    assert suite.differences(direct, through) == [HIDDEN]
    assert {name for name, outcome in direct.items() if outcome.result == "skipped"} == skipped
    assert {name: o.text for name, o in direct.items() if o.bad} == {}
    assert len(direct) >= 67


@pytest.mark.kafka4
@pytest.mark.slow
def test_kafka_pythons_own_tests_pass_as_they_do_at_a_4_3_broker(tmp_path: Path) -> None:
    check(tmp_path, "4.3.1", {OLD})


@pytest.mark.kafka3
@pytest.mark.slow
def test_kafka_pythons_own_tests_pass_as_they_do_at_a_3_9_broker(tmp_path: Path) -> None:
    check(tmp_path, "3.9.2", {OLD, *NEW})
