"""
One principal: use against quota, effective quotas, connections, history.
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
    return render(request, "tenant.html.j2")


ROUTES: Final = (Page("/tenant", show, EVERYBODY, nav="Tenant"),)
