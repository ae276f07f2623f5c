"""
Make a run's tables appear all at once: written aside, then swapped in by one rename each.

A table at ``DIR/<name>`` is then a symbolic link into ``DIR/_stream``. Who opened the older version
may read it to its end: the one before the newest is kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_KEPT: Final = 2


def can_swap(out: str) -> bool:
    """Say whether tables under a directory can be swapped: it is a local path, not a URI."""
    return "://" not in out


def swap_in(out: str, made: str, names: Iterable[str]) -> None:
    """
    Put tables in place of those that are there.

    Args:
        out: the run's directory.
        made: where the tables were written, below ``out``; its siblings are older ones, and their
            names sort by age.
        names: of the tables.
    """
    root, versions = Path(out), Path(made).parent
    for name in names:
        target = Path(made) / name
        if not target.is_dir():
            continue
        place = root / name
        link = versions / f".{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, root))
        if place.is_dir() and not place.is_symlink():
            aside = versions / f".old-{name}"
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)  # a table of an ordinary run: the one time a reader may miss it
            link.replace(place)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            link.replace(place)
    older = sorted(p for p in versions.iterdir() if p.is_dir() and not p.name.startswith("."))
    for gone in older[:-_KEPT]:
        shutil.rmtree(gone, ignore_errors=True)
