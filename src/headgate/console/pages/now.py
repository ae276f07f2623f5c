"""
Who is throttled at this moment, by which quota, how hard and for how long; everybody's headroom.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.viewer import SEEING_ALL
from headgate.console.rendering import render
from headgate.console.routing import Page


async def show(request: Request) -> Response:
    """Return the page."""
    return render(request, "now.html.j2")


ROUTES: Final = (Page("/", show, SEEING_ALL, nav="Now"),)
