"""
Run the tests in groups that suit two cores, and end with one closing line: `make test`.

Markers assign every test to exactly one group. Without a name the groups ``fast`` and ``short``
run: all tests without a server, and some of each kind with one. ``rest`` runs what they leave out.
Two groups run side by side, because tests with servers wait half of the time; with --all, three
where there are four cores. Each group has servers, ports and files of its own. Tests that need the
machine to themselves are marked ``alone`` and run last. A skipped test is a failure here, and so
is a run without a test. README.md beside this file says what runs where.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import chromium
import prometheus

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "test"
KINDS = ("alone", "browser", "kafka3", "kafka4", "spark", "simulated")
# In the order of their start: the longest first, so that no core is left without work at the end.
GROUPS = ("spark", "kafka4", "short", "fast", "kafka3", "browser", "simulated", "alone")
EVERYDAY = ("short", "fast")  # what `make test` runs; the others are its `rest`
LANES = 2
LANES_OF_ALL = 3
# What `make test-all` runs besides, when a lane is free: what people install, and what CI does.
PROGRAMS = {
    "package": ("scripts/package.py", "--all"),
    "bounds": ("scripts/bounds.py",),
    "bare-root": ("scripts/bare_root.py",),
    "lint": ("scripts/lint.py",),
    "site": ("scripts/doc_site.py",),
    "notebook": ("scripts/notebook.py",),
}
# Where tests of a kind are (conftest.py checks that); pytest needn't read other folders.
PLACES = {
    "alone": "tests/integration",
    "kafka4": "tests/integration",
    "kafka3": "tests/integration",
    "spark": "tests/integration",
    "browser": "tests/browser",
    "simulated": "lab/simulation",
}
# Failures are printed again at the end, because people often have only the end of the output.
LINES_OF_A_FAILURE = 25
MOST_FAILURES = 20
NO_TESTS = 5  # pytest's exit code where nothing was selected
# Processes of a group, and how its tests are divided among them. A process that waits for servers
# uses a third of a core. Tests of one file share a cluster, so they stay in one process.
SPREAD = {"fast": ("2", "worksteal"), "kafka4": ("2", "loadfile")}
# conftest.py limits the time of each test; these limits end a group that still hangs.
LONGEST_S = 45 * 60
NO_GIT = (
    "note: git isn't installed: tests of packages and releases, which commit and tag, fail without "
    "it; apt-get install git"
)
UNMOUNTED = (
    "note: 5 tests of log dirs are left out, because the root folder of this chroot is no mount "
    "point and Java needs one; `mount --bind ROOT ROOT` before chroot makes it one"
)
LONGEST_SLOW_S = 8 * 3600


class Result(NamedTuple):
    """What a group's run came to."""

    group: str
    passed: int
    failed: int
    errors: int
    skipped: int
    seconds: float
    cpu_seconds: float
    exit_code: int
    bad: tuple[str, ...] = ()
    """Tests that didn't pass, each with the end of what pytest said about it."""


def root_is_mounted() -> bool:
    """
    Tell whether the root folder is a mount point. In a chroot it usually isn't.

    Java finds no file store there, so brokers can't tell their log dirs. CI has to have one.
    """
    if os.environ.get("CI"):
        return True
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == "/" for line in mounts)


def notes() -> list[str]:
    """Return the notes about this machine that are printed before the tests and after them."""
    found = [] if root_is_mounted() else [UNMOUNTED]
    return found if shutil.which("git") else [*found, NO_GIT]


def expression(group: str, *, slow: bool, mounted: bool = True) -> str:
    """
    Return the marker expression of a group; a test with several markers goes to the first.

    Args:
        group: one of GROUPS.
        slow: whether slow tests belong to it.
        mounted: whether tests belong to it that need a root folder which is a mount point.
    """
    if group == "fast":
        marks = f"not ({' or '.join(KINDS)})"
    elif group == "short":
        marks = f"short and ({' or '.join(KINDS)})"
    else:
        earlier = KINDS[: KINDS.index(group)]
        marks = " and ".join([group, "not short", *(f"not {mark}" for mark in earlier)])
    marks = marks if mounted else f"{marks} and not mount"
    return marks if slow else f"{marks} and not slow"


def follow(
    name: str, command: list[str], most_s: float, env: dict[str, str] | None = None
) -> tuple[int, float, float, list[str]]:
    """Run a command, prefix its lines; return exit code, seconds, CPU seconds and last lines."""
    started = time.monotonic()
    last: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        limit = threading.Timer(most_s, process.kill)
        limit.daemon = True
        limit.start()
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{name:<7} | {line}", end="", flush=True)
            last = [*last, line.rstrip()][-LINES_OF_A_FAILURE:]
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        limit.cancel()
    cpu = used.ru_utime + used.ru_stime
    return process.returncode, time.monotonic() - started, cpu, last


def run(group: str, *, slow: bool, order: list[str], more: list[str]) -> Result:
    """Run a group, prefix its lines with its name, and read its counts from pytest's report."""
    report = REPORTS / f"{group}.xml"
    report.unlink(missing_ok=True)
    marks = expression(group, slow=slow, mounted=root_is_mounted())
    command = [sys.executable, "-m", "pytest", "-m", marks]
    command += [f"--junitxml={report}", "--durations=5", "-p", "no:cacheprovider"]
    folders = {PLACES[group]} if group in PLACES else set(PLACES.values())
    command += [*(("tests", "lab") if group == "fast" else sorted(folders)), *order, *more]
    if group in SPREAD:
        processes, dealt = SPREAD[group]
        command += ["-n", processes, "--dist", dealt]
    # If this is set, each of hundreds of processes compiles the same modules again.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    print(f"{group:<7} | begins: {marks}", flush=True)
    code, took, cpu, _ = follow(group, command, LONGEST_SLOW_S if slow else LONGEST_S, env)
    if code == NO_TESTS and more:
        return Result(group, 0, 0, 0, 0, took, cpu, 0)  # `more` chose tests of other groups
    if not report.is_file():
        print(f"{group:<7} | ended with {code} and without a report", flush=True)
        return Result(group, 0, 0, 1, 0, took, cpu, code or 1)
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, failed, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    passed = total - failed - errors - skipped
    bad = tuple(said for case in suite.iter("testcase") for said in _said(group, case))
    return Result(group, passed, failed, errors, skipped, took, cpu, code, bad)


def run_program(name: str) -> Result:
    """Run a program that passes or fails as a whole."""
    command = [sys.executable, *PROGRAMS[name]]
    code, took, cpu, last = follow(name, command, LONGEST_SLOW_S)
    bad = ("\n    ".join((f"FAILURE {name}", *(line[:200] for line in last))),) if code else ()
    return Result(name, int(not code), int(bool(code)), 0, 0, took, cpu, code, bad)


def _said(group: str, case: ET.Element) -> Iterator[str]:
    """Say which test did not pass, and the last lines of why."""
    for kind in ("failure", "error", "skipped"):
        for found in case.findall(kind):
            told = (found.text or found.get("message") or "").rstrip().splitlines()
            yield "\n".join(
                (
                    f"{kind.upper()} {group} {case.get('classname')}::{case.get('name')}",
                    *(f"    {line[:200]}" for line in told[-LINES_OF_A_FAILURE:]),
                )
            )


def run_all(
    groups: list[str], *, slow: bool, order: list[str], more: list[str], lanes: int = LANES
) -> list[Result]:
    """Run groups and programs, each lane taking the next when it has done one; then ``alone``."""

    def one(group: str) -> Result:
        if group in PROGRAMS:
            return run_program(group)
        return run(group, slow=slow, order=order, more=more)

    with ThreadPoolExecutor(lanes) as pool:
        done = list(pool.map(one, (group for group in groups if group != "alone")))
    return [*done, *map(one, (group for group in groups if group == "alone"))]


def closing_line(results: list[Result], seconds: float) -> str:
    """Return one line for all groups, in pytest's own form."""
    sums = {
        name: sum(getattr(result, name) for result in results)
        for name in ("failed", "passed", "skipped", "errors")
    }
    counts = ", ".join(f"{count} {name}" for name, count in sums.items() if count) or "no tests ran"
    text = f" {counts} in {seconds:.2f}s ({datetime.timedelta(seconds=int(seconds))}) "
    return text.center(80, "=")


def good(result: Result) -> bool:
    """Tell whether a group passed, with nothing left out."""
    return result.exit_code == 0 and not (result.failed or result.errors or result.skipped)


def all_good(results: list[Result]) -> bool:
    """Tell whether all groups passed, and there was a test at all."""
    return all(map(good, results)) and any(result.passed for result in results)


def commit_now() -> str:
    """Return the commit that is checked out; its name ends in -dirty if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    if shutil.which("git") is None:
        return "unknown"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def record(results: list[Result], seed: int, commit: str) -> None:
    """
    Write date and result of a full run to bench/test-all.md.

    Args:
        results: of all groups.
        seed: of the random order.
        commit: as it was when the run began, since the run itself writes bench/bounds.md.
    """
    lines = [
        "# The last run of `make test-all`",
        "",
        "Every test with its full count: kills, soaks, and Hypothesis' `nightly` profile.",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"- Commit: {commit}",
        f"- Machine: {os.cpu_count()} cores, Python {platform.python_version()}",
        f"- Order: random, seed {seed}",
        f"- Result: {'passed' if all_good(results) else 'FAILED'}",
        "",
        "| group | passed | failed | errors | skipped | seconds | CPU-seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.group} | {r.passed} | {r.failed} | {r.errors} | {r.skipped} | {r.seconds:.0f} | "
        f"{r.cpu_seconds:.0f} |"
        for r in results
    ]
    (ROOT / "bench" / "test-all.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    """Run the groups that were named, or all; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    choices = [[], *GROUPS, "rest", *PROGRAMS]
    parser.add_argument("groups", nargs="*", choices=choices, metavar="GROUP")
    parser.add_argument("--all", action="store_true", help="slow tests too, and keep the result")
    parser.add_argument("--seed", type=int, help="random order; with --all one is drawn")
    options, more = parser.parse_known_args()
    REPORTS.mkdir(parents=True, exist_ok=True)
    named = set(options.groups) or set(GROUPS if options.all else EVERYDAY)
    if "rest" in named:
        named |= set(GROUPS) - set(EVERYDAY)
    groups = [group for group in GROUPS if group in named]
    if {"browser", "short"} & set(groups) and chromium.main() == 0:
        # If there is none, main() has said so: the browser's tests fail, the other groups run.
        os.environ["HEADGATE_CHROMIUM"] = chromium.find() or ""
    if {"fast", "kafka4", "short"} & set(groups):
        prometheus.main()  # likewise
    seed = options.seed
    if seed is None and options.all:
        seed = random.randrange(2**32)
    order: list[str] = []
    if seed is not None:
        # For modules, the tests in each, and Hypothesis. `random` isn't reset: it draws free ports.
        order = ["-p", "randomly", f"--randomly-seed={seed}", "--randomly-dont-reset-seed"]
        order += [f"--hypothesis-seed={seed}"]
        print(f"order: random; again by --seed {seed}", flush=True)
    print("".join(f"{note}\n" for note in notes()), end="", flush=True)
    started = time.monotonic()
    commit = commit_now()
    lanes = LANES_OF_ALL if options.all and (os.cpu_count() or 1) >= 4 else LANES
    if options.all:
        groups += [name for name in options.groups or PROGRAMS if name in PROGRAMS]
    results = run_all(groups, slow=options.all, order=order, more=more, lanes=lanes)
    took = time.monotonic() - started
    if options.all and not options.groups:
        record(results, seed, commit)
    print()
    bad = [said for result in results for said in result.bad]
    print(*bad[:MOST_FAILURES], sep="\n", end="\n\n" if bad else "")
    for result in results:
        state = "ok" if good(result) else "FAILED"
        print(
            f"{result.group:<8} {state:<7} {result.passed:>6} passed  {result.seconds:>6.1f} s"
            f"  {result.cpu_seconds:>6.1f} CPU-s"
        )
    skipped = sum(result.skipped for result in results)
    if skipped:
        print(f"{skipped} skipped: a skipped test proves nothing, so this counts as a failure")
    print("".join(f"{note}\n" for note in notes()), end="")
    if not any(result.passed for result in results):
        print("no test ran: that proves nothing, so this counts as a failure")
    print(closing_line(results, took), flush=True)
    return 0 if all_good(results) else 1


if __name__ == "__main__":
    sys.exit(main())
