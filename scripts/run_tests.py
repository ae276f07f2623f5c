"""
Run the tests in groups that suit two cores, and end with one closing line: `make test`.

Tests without a real server run on two processes side by side; those that need Kafka, ZooKeeper,
Spark or a browser run one group after another, so that only one such thing is up at a time. The
groups are cut by markers such that every test is in exactly one. A skipped test is a failure here.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

import chromium

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "test"
SERVERS = ("browser", "kafka3", "kafka4", "spark")
GROUPS = ("fast", "kafka4", "kafka3", "spark", "browser")
# Where tests with servers live (tests/conftest.py holds them to it): the rest needn't be read.
PLACES = {
    "kafka4": "tests/integration",
    "kafka3": "tests/integration",
    "spark": "tests/integration",
    "browser": "tests/browser",
}
NO_TESTS = 5  # pytest's exit code where nothing was selected
PROCESSES = "2"


class Result(NamedTuple):
    """What a group's run came to."""

    group: str
    passed: int
    failed: int
    errors: int
    skipped: int
    seconds: float
    exit_code: int


def expression(group: str, *, slow: bool) -> str:
    """Return the marker expression of a group; a test with several markers goes to the first."""
    if group == "fast":
        marks = f"not ({' or '.join(SERVERS)})"
    else:
        earlier = SERVERS[: SERVERS.index(group)]
        marks = " and ".join([group, *(f"not {mark}" for mark in earlier)])
    return marks if slow else f"{marks} and not slow"


def run(group: str, *, slow: bool, more: list[str]) -> Result:
    """Run a group and read its counts from pytest's report."""
    report = REPORTS / f"{group}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-m", expression(group, slow=slow)]
    command += [f"--junitxml={report}", "--durations=5", PLACES.get(group, "tests"), *more]
    if group == "fast":
        command += ["-n", PROCESSES, "--dist", "worksteal"]
    print(f"--- {group}: {expression(group, slow=slow)}", flush=True)
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    took = time.monotonic() - started
    if done.returncode == NO_TESTS:
        return Result(group, 0, 0, 0, 0, took, 0)
    if not report.is_file():
        return Result(group, 0, 0, 1, 0, took, done.returncode or 1)
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, failed, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    passed = total - failed - errors - skipped
    return Result(group, passed, failed, errors, skipped, took, done.returncode)


def closing_line(results: list[Result]) -> str:
    """Return one line for all groups, in pytest's own form."""
    sums = {
        name: sum(getattr(result, name) for result in results)
        for name in ("failed", "passed", "skipped", "errors")
    }
    counts = ", ".join(f"{count} {name}" for name, count in sums.items() if count) or "no tests ran"
    seconds = sum(result.seconds for result in results)
    text = f" {counts} in {seconds:.2f}s ({datetime.timedelta(seconds=int(seconds))}) "
    return text.center(80, "=")


def good(result: Result) -> bool:
    """Tell whether a group passed, with nothing left out."""
    return result.exit_code == 0 and not (result.failed or result.errors or result.skipped)


def record(results: list[Result]) -> None:
    """Write date and result of a full run to bench/test-all.md."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    lines = [
        "# The last run of `make test-all`",
        "",
        "Every test with its full count: kills, soaks, and Hypothesis' `nightly` profile.",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"- Commit: {commit or 'unknown'}",
        f"- Machine: {os.cpu_count()} cores, Python {platform.python_version()}",
        f"- Result: {'passed' if all(map(good, results)) else 'FAILED'}",
        "",
        "| group | passed | failed | errors | skipped | seconds |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.group} | {r.passed} | {r.failed} | {r.errors} | {r.skipped} | {r.seconds:.0f} |"
        for r in results
    ]
    (ROOT / "bench" / "test-all.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """Run the groups that were named, or all; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], metavar="GROUP")
    parser.add_argument("--all", action="store_true", help="slow tests too, and keep the result")
    options, more = parser.parse_known_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    groups = options.groups or GROUPS
    if "browser" in groups and chromium.main() == 0:
        # Where there is none that was said just now; the group's tests will fail, the others run.
        os.environ["HEADGATE_CHROMIUM"] = chromium.find() or ""
    results = [run(group, slow=options.all, more=more) for group in groups]
    if options.all and not options.groups:
        record(results)
    print()
    for result in results:
        state = "ok" if good(result) else "FAILED"
        print(f"{result.group:<8} {state:<7} {result.passed:>6} passed  {result.seconds:>6.1f} s")
    skipped = sum(result.skipped for result in results)
    if skipped:
        print(f"{skipped} skipped: a skipped test proves nothing, so this counts as a failure")
    print(closing_line(results), flush=True)
    return 0 if results and all(map(good, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
