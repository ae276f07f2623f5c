"""
Which quota holds a client, which other clients share it, and what would free it.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import EVERYBODY
from headgate.console.rendering import render
from headgate.console.routing import Page


async def show(request: Request) -> Response:
    """Return the page."""
    return render(request, "why.html.j2")


ROUTES: Final = (Page("/why", show, EVERYBODY, nav="Why"),)
