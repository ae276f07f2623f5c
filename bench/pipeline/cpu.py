"""CPU-seconds and memory of a tree of processes (driver, JVM, Python workers), from /proc."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: a JVM whose parent ended is still counted
_LOOK_S = 0.1


class Used(NamedTuple):
    """What some processes have used."""

    cpu_s: float  # children that ended are counted with their parent
    peak_mb: float  # the largest peak of resident memory among them


def tree_used() -> dict[str, Used]:
    """Return what this process's tree has used so far: driver (this one), jvm, workers."""
    stats: dict[int, tuple[int, str, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        cpu = sum(map(int, fields[11:15])) / _TICKS
        stats[int(path.parent.name)] = (int(fields[1]), head.partition("(")[2], cpu)
    total: dict[str, Used] = {}
    wave = {os.getpid()}
    while wave:
        for pid in wave:
            if pid not in stats:
                continue
            kind = "driver" if pid == os.getpid() else "workers"
            kind = "jvm" if stats[pid][1] == "java" else kind
            cpu, peak = total.get(kind, Used(0.0, 0.0))
            total[kind] = Used(cpu + stats[pid][2], max(peak, _peak_mb(pid)))
        wave = {pid for pid, (parent, _, _) in stats.items() if parent in wave}
    return total


def tree_cpu() -> float:
    """Return CPU-seconds used so far by this process's tree, ended children included."""
    return sum(used.cpu_s for used in tree_used().values())


class Took(NamedTuple):
    """What a run cost."""

    cpu_s: float
    wall_s: float
    peak_mb: dict[str, float]  # the largest peak among its processes, by kind
    by_kind: dict[str, float]  # CPU-seconds of its processes


class _Process(NamedTuple):
    cpu_s: float  # its own, without its children
    kind: str
    peak_mb: float


def run_whole(argv: list[str], env: dict[str, str] | None = None) -> Took:
    """
    Run a command, and all its children, to their end; count them all.

    Spark's Python daemon lets its workers end uncounted by the system, so each process's own count
    is looked up while it lives. What else this process has started is counted from now on.

    Args:
        argv: the command.
        env: its environment; None: this one's.
    """
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    there = _below()
    before, began = _of_children(), time.perf_counter()
    seen: dict[int, _Process] = {}
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(argv, stdout=said, stderr=said, env=env)
        while running.poll() is None:
            for pid, process in _below(running.pid).items():
                if not process.peak_mb and pid in seen:  # it has ended: only its CPU is told
                    process = seen[pid]._replace(cpu_s=process.cpu_s)
                seen[pid] = process
            time.sleep(_LOOK_S)
        wall = time.perf_counter() - began
        if running.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(argv)} failed:\n{said.read()}")
    while not there:
        try:
            os.wait()
        except ChildProcessError:
            break
    peaks: dict[str, float] = {}
    by_kind: dict[str, float] = {}
    for n, process in seen.items():
        kind = process.kind
        earlier = there[n].cpu_s if n in there else 0.0
        peaks[kind] = max(peaks.get(kind, 0.0), process.peak_mb)
        by_kind[kind] = by_kind.get(kind, 0.0) + process.cpu_s - earlier
    cpu = max(sum(by_kind.values()), 0.0 if there else _of_children() - before)
    return Took(cpu, wall, peaks, by_kind)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _below(root: int = 0) -> dict[int, _Process]:
    """Return each process below this one, by pid; ``root`` is the driver's."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        cpu = sum(map(int, fields[11:13])) / _TICKS
        stats[int(path.parent.name)] = int(fields[1]), cpu, head.partition("(")[2]
    found: dict[int, _Process] = {}
    wave = {os.getpid()}
    while wave:
        wave = {pid for pid, (parent, _, _) in stats.items() if parent in wave}
        for pid in wave:
            kind = "driver" if pid == root else _kind(pid, stats[pid][2])
            found[pid] = _Process(stats[pid][1], kind, _peak_mb(pid))
    return found


def _kind(pid: int, name: str) -> str:
    """Return what a process is of: a JVM, an executor's, a cluster's daemon, a Python worker."""
    if name != "java":
        return "workers"
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "jvm"
    if b"CoarseGrainedExecutorBackend" in line:
        return "executors"
    return "daemons" if b"org.apache.spark.deploy." in line and b".Spark" not in line else "jvm"


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0]) / 1024 if lines else 0.0
