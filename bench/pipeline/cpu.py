"""CPU-seconds of this process and all its descendants (the JVM, its Python workers), from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu() -> float:
    """Return CPU-seconds used so far by this process's tree, ended children included."""
    stats: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used = sum(map(int, fields[11:15])) / _TICKS
        stats[int(path.parent.name)] = (int(fields[1]), used)
    total, wave = 0.0, {os.getpid()}
    while wave:
        total += sum(stats[p][1] for p in wave if p in stats)
        wave = {pid for pid, (parent, _) in stats.items() if parent in wave}
    return total
