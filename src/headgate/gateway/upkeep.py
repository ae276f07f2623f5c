"""
Keep the usage journal's folder small: closed files become Parquet, the oldest go.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headgate.gateway.log import get_logger
from headgate.usage import files

log = get_logger("headgate.gateway")


def tidy(directory: Path, retention_bytes: int) -> int:
    """
    Compact closed files and remove the oldest while all together are too large.

    Args:
        directory: of ``headgate.usage=files:…``.
        retention_bytes: ``headgate.usage.retention.bytes``; 0 keeps everything.

    Returns:
        Files removed.

    Raises:
        OSError: the folder can't be read or written.
    """
    if any(directory.glob(f"*{files.CLOSED}")):
        _compact_beside(directory)
    if not retention_bytes:
        return 0
    closed = sorted(directory.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in closed)
    removed = 0
    for path in closed:
        if total <= retention_bytes:
            break
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
        removed += 1
    if removed:
        log.info("oldest usage journal files removed", files=removed, within_bytes=retention_bytes)
    return removed


_COMPACT = """
import os, sys
os.nice(10)
from headgate.usage.reader import compact
compact(sys.argv[1])
"""


def _compact_beside(directory: Path) -> None:
    """
    Compact in a process of its own: Parquet's buffers go with it, and traffic has the right of way.

    In the gateway each thread that ever compacted kept some 20 MB.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _COMPACT, directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise OSError(f"compacting failed: {said[-1]}")
