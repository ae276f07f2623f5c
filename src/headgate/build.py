"""
Which build this is: the version, and the commit that a wheel or sdist was built from.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from headgate import __version__

_MARK: Final = Path(__file__).with_name("build.json")  # written by scripts/build_hook.py
_SHOWN: Final = 12


class Build(NamedTuple):
    """
    What runs.

    Args:
        version: of the package.
        commit: that it was built from; empty for a checkout, or a build of changed files.
        date: of the commit, as 2026-11-22; empty likewise.
    """

    version: str
    commit: str
    date: str

    def __str__(self) -> str:
        where = f"commit {self.commit[:_SHOWN]}, {self.date}" if self.commit else "no commit known"
        return f"{self.version} ({where})"


@cache
def build() -> Build:
    """Return which build runs."""
    try:
        mark = json.loads(_MARK.read_text())
    except FileNotFoundError:
        mark = {"commit": "", "date": ""}
    return Build(__version__, mark["commit"], mark["date"])
