"""
Edit a quota, after a preview of who is affected; undo.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import OPERATORS
from headgate.console.rendering import render
from headgate.console.routing import Page


async def show(request: Request) -> Response:
    """Return the page."""
    return render(request, "change.html.j2")


ROUTES: Final = (Page("/change", show, OPERATORS, nav="Change"),)
