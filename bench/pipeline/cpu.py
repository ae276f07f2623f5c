"""CPU-seconds and memory of this process's tree (driver, JVM, Python workers), from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


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


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0]) / 1024 if lines else 0.0
