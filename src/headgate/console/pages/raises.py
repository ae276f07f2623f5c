"""
Tenants ask for more; operators approve, change or refuse.
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
    return render(request, "raises.html.j2")


ROUTES: Final = (Page("/raises", show, EVERYBODY, nav="Raises"),)
