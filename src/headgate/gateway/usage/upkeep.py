"""
Keep the usage journal's folder small: convert closed files to Parquet, remove the oldest, and set
damaged ones aside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from headgate.gateway.log import get_logger
from headgate.usage import files
from headgate.usage.retention import Removed, remove_oldest

log = get_logger("headgate.gateway")


class Tidied(NamedTuple):
    """
    What was done to the journal's folder.

    Attributes:
        removed: files that were removed, because all together were too large.
        damaged: files that were set aside.
        problem: what couldn't be done, or None.
    """

    removed: int
    damaged: int
    problem: str | None = None


def tidy(directory: Path, retention_bytes: int) -> Tidied:
    """
    Compact closed files and remove the oldest while all together are too large.

    Files are removed even if compacting fails: on a full disk it fails until there is room again.

    Args:
        directory: of ``headgate.usage=files:…``.
        retention_bytes: ``headgate.usage.retention.bytes``; 0 keeps everything.
    """
    damaged, problem, removed = 0, None, Removed()
    try:
        if any(directory.glob(f"*{files.CLOSED}")):
            damaged, problem = _compact_beside(directory)
        if retention_bytes:
            removed = remove_oldest(directory, retention_bytes)
    except OSError as error:
        problem = "; ".join(filter(None, (problem, str(error))))
    if removed.files:
        log.info("oldest usage journal files removed", files=removed.files,
                 damaged=removed.damaged, within_bytes=retention_bytes)  # fmt: skip
    return Tidied(removed.files, damaged, problem)


_COMPACT = """
import json, os, sys
os.nice(19)
import pyarrow
pyarrow.set_cpu_count(1)
from headgate.usage.reader import compact
compact(sys.argv[1], lambda damaged: print(json.dumps([str(part) for part in damaged]), flush=True))
"""


def _compact_beside(directory: Path) -> tuple[int, str | None]:
    """
    Compact in a process of its own, on one core at the lowest priority: traffic comes first.

    Parquet's buffers are freed with that process; in the gateway each thread that ever compacted
    kept some 20 MB. Returns how many files were damaged, and what went wrong.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _COMPACT, directory],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    damaged = done.stdout.splitlines()
    for line in damaged:
        path, why, events = json.loads(line)
        log.error("a usage journal file is damaged; it is set aside, and what can be read is kept",
                  file=path, why=why, events_read=int(events))  # fmt: skip
    if not done.returncode:
        return len(damaged), None
    said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return len(damaged), f"compacting failed: {said[-1]}"
