"""Processes that stand for machines: each has a folder of its own, and can be killed whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Variables that would let a machine see what is installed here, or lend it this one's secrets.
_OURS = ("PYTHON", "AWS_", "PYSPARK_", "SPARK_", "HEADGATE_")


class Machine:
    """
    A process, with a folder of its own for all that it writes.

    Args:
        home: its folder.
        argv: what it runs.
        environment: what it adds to this process's, of which it has nothing that concerns Python,
            Spark, object stores and Headgate.
    """

    def __init__(
        self,
        home: Path,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self.home = home
        (home / "tmp").mkdir(parents=True)
        own = {
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "XDG_CACHE_HOME": str(home / "xdg"),
            "HEADGATE_CACHE": str(home / "cache"),
            "NUMBA_CACHE_DIR": str(home / "numba"),
            # Of a JVM's own files, of Spark's, and of what Hadoop buffers for an object store.
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={home / 'tmp'}",
            "SPARK_LOCAL_DIRS": str(home / "tmp"),
            "LOCAL_DIRS": str(home / "tmp"),
        }
        rest = {n: v for n, v in os.environ.items() if not n.startswith(_OURS)}
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                argv, env=rest | own | environment, stdout=log, stderr=log, cwd=home
            )

    @property
    def said(self) -> str:
        """What it wrote."""
        return (self.home / "log").read_text(errors="replace")

    def stop(self) -> None:
        """End it, and wait till it has."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def pids(self) -> list[int]:
        """Return its process and all below, parents first."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found, wave = [], [self.process.pid]
        while wave:
            found += wave
            wave = [pid for pid, parent in parents.items() if parent in wave]
        return found

    def freeze(self) -> None:
        """Let nothing of it run on, nor start."""
        stopped: set[int] = set()
        while more := set(self.pids()) - stopped:
            self._signal(sorted(more), signal.SIGSTOP)
            stopped |= more

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(self.pids(), signal.SIGCONT)

    def kill(self) -> None:
        """End all of it at once, as a loss of power does."""
        if self.process.poll() is not None:
            return
        self.freeze()
        self._signal(self.pids(), signal.SIGKILL)
        self.process.wait()

    @staticmethod
    def _signal(pids: Sequence[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
