"""
What every test may use: Hypothesis profiles, free ports, names that nobody else uses.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from headgate.embedded.process import free_ports as _free_ports

# dev is quick; ci is what .ci/run uses, the same examples on every run; nightly is for `make
# test-all`. No deadline anywhere: the machine is shared, and time has no place in a test. Where
# CI is set in the environment, Hypothesis would derandomize every profile that does not say.
_SLOW_MACHINE = [HealthCheck.too_slow]
settings.register_profile(
    "dev",
    max_examples=50,
    deadline=None,
    suppress_health_check=_SLOW_MACHINE,
    derandomize=False,
)
settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    suppress_health_check=_SLOW_MACHINE,
    derandomize=True,
    database=None,
)
settings.register_profile(
    "nightly",
    max_examples=2_000,
    deadline=None,
    suppress_health_check=_SLOW_MACHINE,
    derandomize=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
if settings.get_current_profile_name() == "ci":
    # Hypothesis also draws constants that it finds in those modules of ours that happen to be
    # loaded: another module, or another order of tests, and every property test gets others.
    providers._get_local_constants = lambda: providers._local_constants  # none, as at its start

# A machine's settings for its terminal and its proxy: rich obeys the terminal's whatever its caller
# says, and urllib uses the proxy even for loopback. Child processes inherit what is set here.
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm"
for _name in ("no_proxy", "NO_PROXY"):
    _others = os.environ.get(_name)
    if _others != "*":
        os.environ[_name] = ",".join(filter(None, ("127.0.0.1,localhost,::1", _others)))

_numbers = itertools.count(1)
_PLACES = {
    "alone": "tests/integration",
    "kafka4": "tests/integration",
    "kafka3": "tests/integration",
    "spark": "tests/integration",
    "browser": "tests/browser",
    "simulated": "lab/simulation",
}
# Seconds after which a test is ended, what it waits for set up included: many times what it takes
# on a loaded machine. The first mark counts; a test's own `timeout` mark goes before all of them.
_LIMITS_S = {"slow": 7_200, "alone": 3_000, **dict.fromkeys(_PLACES, 600)}
_LIMIT_S = 3_600 if settings.get_current_profile_name() == "nightly" else 300


class _Told:
    """Names a test when it fails, not after its group: that may take an hour."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line of its own between the dots."""
        if report.failed:
            self._terminal.write_line(f"\nfailed just now: {report.nodeid}")


@pytest.hookimpl(trylast=True)  # after pytest has made its terminal
def pytest_configure(config: pytest.Config) -> None:
    """Tell failures at once where somebody reads: the workers of a group have no terminal."""
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(_Told(terminal))


def pytest_sessionstart() -> None:
    """Switch the garbage collector off: while tests are collected, nothing is garbage."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """
    Have the collector leave out what was collected.

    Ten thousand tests and their modules are half a million objects: a look at them takes a second,
    and many tests have it look at all there is.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let Python end as it does otherwise."""
    gc.enable()
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` doesn't name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Mark the simulator's tests; hold tests of a kind to their folders, and all to a limit of time.

    scripts/run_tests.py looks for tests of a kind only in these folders.
    """
    root = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(root / _PLACES["simulated"]):
            item.add_marker("simulated")
        if item.get_closest_marker("short") and not any(map(item.get_closest_marker, _PLACES)):
            raise pytest.UsageError(f"{item.nodeid} is marked short, but make test runs it anyway")
        if not item.get_closest_marker("timeout"):
            marks = (limit for mark, limit in _LIMITS_S.items() if item.get_closest_marker(mark))
            item.add_marker(pytest.mark.timeout(next(marks, _LIMIT_S)))
        for mark, place in _PLACES.items():
            if item.get_closest_marker(mark) and not item.path.is_relative_to(root / place):
                raise pytest.UsageError(f"{item.nodeid} is marked {mark}: move it to {place}")
            if mark in getattr(item, "fixturenames", ()) and not item.get_closest_marker(mark):
                raise pytest.UsageError(f"{item.nodeid} asks for {mark}: mark it so")


@pytest.fixture
def free_port() -> int:
    """A loopback port that nothing listens on."""
    return _free_ports(1)[0]


@pytest.fixture
def free_ports() -> Callable[..., list[int]]:
    """``free_ports(count, consecutive=False)``: loopback ports that nothing listens on."""
    return _free_ports


@pytest.fixture
def unique() -> Callable[[str], str]:
    """``unique("topic")``: a name that no other test of this run gets, for shared brokers."""
    return lambda prefix: f"{prefix}-{os.getpid()}-{next(_numbers)}"
