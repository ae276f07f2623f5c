"""
The objects that pages use: ``parts(request)`` and ``viewer(request)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from starlette.requests import Request

from headgate.console.access.viewer import Viewer
from headgate.console.database import Database
from headgate.console.home import Home


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """
    What the console is made of.

    Args:
        home: quotas, their history, and what goes on now.
        database: the console's own state; None where nobody signs in.
        clock_ms: the wall clock, epoch ms.
        journal: a gateway's directory of usage journals; None: there is none to read.
    """

    home: Home
    database: Database | None
    clock_ms: Callable[[], int]
    journal: Path | None = None


def parts(request: Request) -> ConsoleParts:
    """Return what the console is made of."""
    return cast("ConsoleParts", request.app.state.parts)


def viewer(request: Request) -> Viewer:
    """Return who looks; only for pages that somebody must be signed in for."""
    found = getattr(request.state, "viewer", None)
    assert isinstance(found, Viewer), "a page without roles asked who looks"
    return found
