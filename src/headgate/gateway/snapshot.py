"""
The last known quotas on disk, so that a gateway can start, and go on, without its store.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError
from headgate.quota.file import dump_quotas, load_quotas

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.quota.table import QuotaTable


def load_snapshot(settings: Settings) -> QuotaTable | None:
    """Return the quotas kept at ``headgate.store.snapshot``, or None if there are none."""
    path = Path(settings.store_snapshot)
    if not path.exists():
        return None
    try:
        return load_quotas(path)
    except (HeadgateError, OSError):
        return None


def save_snapshot(settings: Settings, table: QuotaTable) -> None:
    """
    Keep a table, whole or not at all.

    Raises:
        OSError: the place can't be written.
    """
    path = Path(settings.store_snapshot)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".snapshot-")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(dump_quotas(table))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
