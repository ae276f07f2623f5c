"""
Run work in forked processes, a few at once, each with a limit of time and memory.

A fork's exit code tells what became of its mutant.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOST_MEMORY = 3 << 30
"""Bytes a fork may map beyond what it began with: a mutant may allocate without an end."""
LEAST_S, PATIENCE = 3.0, 2.0
"""A fork's processor time: ``LEAST_S`` and ``PATIENCE`` times what its tests took before."""
WAITS = 8.0
"""By the clock it may take this many times its processor time: it may sleep or wait for others."""

KILLED, SURVIVED, TIMEOUT, SAME, INVALID, UNTOUCHED = (
    "killed",
    "survived",
    "timeout",
    "same",
    "invalid",
    "untouched",
)
CODES = {KILLED: 1, SURVIVED: 0, SAME: 90, INVALID: 91, UNTOUCHED: 92}
NEEDS_IMPORT = 93
BROKEN = 94
KILLER = "killer"
"""The file in a fork's folder that names the test that failed."""


def silent() -> None:
    """Send what a fork prints nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)


def bounded(limit_s: float) -> None:
    """Bound a fork's memory, and its processor time: a loop may not end."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if limit_s:
        most = int(limit_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def limit(took_s: float) -> float:
    """Return how much processor time a fork may take whose tests took so long before, seconds."""
    return LEAST_S + PATIENCE * took_s


def forked(work: Callable[[Path], int], place: Path, limit_s: float = 0.0) -> int:
    """Run work in a fork, in a session of its own; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.setsid()
        silent()
        bounded(limit_s)
        place.mkdir(parents=True, exist_ok=True)
        code = work(place)
    except BaseException:
        code = CODES[KILLED]
    finally:
        os._exit(code)


@dataclass
class Fork:
    """One forked process with its limit of time."""

    pid: int
    mutant: int
    ends: float
    place: Path


class Forks:
    """Runs mutants in forks, a few at once, and tells each one's fate."""

    def __init__(self, jobs: int, tell: Callable[[int, str], None]) -> None:
        self.jobs = jobs
        self.tell = tell
        self.killed: Callable[[int, str], None] = lambda mutant, test: None
        self.again: list[int] = []
        self._running: list[Fork] = []
        self._places = Path(tempfile.mkdtemp(prefix="mutants-"))

    def start(self, mutant: int, limit_s: float, work: Callable[[Path], int]) -> None:
        """Start a mutant's run as soon as there is room; ``limit_s`` is of processor time."""
        while len(self._running) >= self.jobs:
            self._reap()
        place = self._places / str(mutant)
        pid = forked(work, place, limit_s)
        self._running.append(Fork(pid, mutant, time.monotonic() + WAITS * limit_s, place))

    def finish(self) -> None:
        """Wait for all."""
        while self._running:
            self._reap()
        shutil.rmtree(self._places, ignore_errors=True)

    def _reap(self) -> None:
        for fork in list(self._running):
            pid, status = os.waitpid(fork.pid, os.WNOHANG)
            late = time.monotonic() > fork.ends
            if not pid and not late:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(fork.pid, signal.SIGKILL)  # the fork's own session: what it started too
            if not pid:
                os.waitpid(fork.pid, 0)
            self._running.remove(fork)
            with contextlib.suppress(FileNotFoundError):
                self.killed(fork.mutant, (fork.place / KILLER).read_text())
            shutil.rmtree(fork.place, ignore_errors=True)
            self._judge(fork, None if pid else TIMEOUT, status)
        time.sleep(0.002)

    def _judge(self, fork: Fork, fate: str | None, status: int) -> None:
        if fate is None:
            code = os.waitstatus_to_exitcode(status)
            if code == NEEDS_IMPORT:
                self.again.append(fork.mutant)
                return
            late = code in (-signal.SIGXCPU, -signal.SIGKILL)
            told = next((name for name, value in CODES.items() if value == code), KILLED)
            fate = TIMEOUT if late else told
        self.tell(fork.mutant, fate)
