"""
Keep the usage journal's folder small: closed files become Parquet, the oldest go.
"""

from __future__ import annotations

from pathlib import Path

from headgate.gateway.log import get_logger
from headgate.usage.reader import compact

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
    compact(directory)
    if not retention_bytes:
        return 0
    closed = sorted(directory.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in closed)
    removed = 0
    for path in closed:
        if total <= retention_bytes:
            break
        total -= path.stat().st_size
        path.unlink()
        removed += 1
    if removed:
        log.info("oldest usage journal files removed", files=removed, within_bytes=retention_bytes)
    return removed
