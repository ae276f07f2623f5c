"""
Write a file such that others, reading or writing it too, see it whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_OWN_MODE = 0o600
"""The permissions that ``mkstemp`` gives a file."""


def write_whole(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """
    Write a file whole or not at all; its folder is made when missing.

    Args:
        path: the file.
        content: what it holds.
        mode: its permissions.
        durable: it is on disk, with its name, before this returns.

    Raises:
        OSError: the place can't be written; nothing is left there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if mode != _OWN_MODE:
                fresh.chmod(mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.rename(path)
        if durable:
            sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def sync_directory(directory: Path) -> None:
    """Put a rename on disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
