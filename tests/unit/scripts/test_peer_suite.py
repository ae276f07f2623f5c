"""What the comparison of a peer's test suite reads, tells apart and shows."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from peers import suite
from peers.suite import Outcome

REPORT = """<testsuites><testsuite>
<testcase classname="test.integration.test_a" file="test/integration/test_a.py" name="test_x[1]"/>
<testcase classname="test.integration.test_a.TestB" file="test/integration/test_a.py" name="test_y">
<failure message="m">because</failure></testcase>
<testcase classname="test.integration.test_a" file="test/integration/test_a.py" name="test_z">
<skipped message="too old"/></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_read_by_the_ids_that_pytest_takes(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert dict(suite._read(tmp_path / "report.xml")) == {
        "test/integration/test_a.py::test_x[1]": Outcome("passed"),
        "test/integration/test_a.py::TestB::test_y": Outcome("failed", text="because"),
        "test/integration/test_a.py::test_z": Outcome("skipped", text="too old"),
    }


def test_what_differs_or_was_not_run_is_told() -> None:
    direct = {"a": Outcome("passed"), "b": Outcome("failed"), "c": Outcome("passed", 2)}
    through = {"a": Outcome("failed"), "b": Outcome("failed"), "d": Outcome("skipped")}
    assert suite.differences(direct, through) == [
        ("a", "passed", "failed"),
        ("c", "passed", "not run"),
        ("d", "not run", "skipped"),
    ]
    assert suite.differences(direct, direct) == []
    assert suite.table(direct, through).splitlines()[2:] == [
        "| at the broker | 2 | 1 | 0 | 1 |",
        "| through the gateway | 0 | 2 | 1 | 0 |",
    ]


def test_the_suite_is_of_the_version_that_is_installed_and_held_to_a_hash() -> None:
    pinned, pin = suite.pinned()
    assert pinned == version(suite.PACKAGE)
    assert "--hash=sha256:" in pin
