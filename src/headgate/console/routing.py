"""
A page's row in the table of routes: path, roles, methods, name in the navigation; its checks.

A page can't be served without a row, and a row can't be written without its roles.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headgate.console.access.csrf import check_csrf
from headgate.console.access.next_page import HOME
from headgate.console.access.tokens import API
from headgate.console.access.viewer import Role, Scope, Viewer

Endpoint = Callable[[Request], Awaitable[Response]]
SAFE: Final = frozenset({"GET", "HEAD"})


class Page(NamedTuple):
    """
    One row of the table of routes.

    Args:
        path: such as ``/tenant``; names of quotas and principals are query parameters, never here.
        endpoint: makes the answer.
        roles: who may open it (``access.viewer``); None: anybody, signed in or not.
        methods: the HTTP methods; all but GET ask for a CSRF token, or for a token of the API.
        nav: its name in the navigation; "": it isn't there.
        reads: it changes nothing, though it isn't a GET.
    """

    path: str
    endpoint: Endpoint
    roles: frozenset[Role] | None
    methods: tuple[str, ...] = ("GET",)
    nav: str = ""
    reads: bool = False

    def route(self) -> Route:
        """Return the row as a route of Starlette, with its checks."""
        return Route(self.path, _guarded(self), methods=list(self.methods))


def missing() -> HTTPException:
    """Return the answer for an unknown name, and for a name that the viewer may not see."""
    return HTTPException(404)


def _guarded(page: Page) -> Endpoint:
    """
    Return the endpoint behind the check of roles and, unless it is a GET, of the CSRF token.

    No other site can make a browser send a token of the API, so there is no CSRF token beside it;
    its scope is checked instead.
    """

    async def guarded(request: Request) -> Response:
        viewer: Viewer | None = request.state.viewer
        if page.roles is not None:
            if viewer is None:
                return _to_sign_in(request)
            if viewer.role not in page.roles:
                if page.path == HOME:
                    return RedirectResponse("/tenant", 303)  # where a tenant is after signing in
                raise HTTPException(403)
            if viewer.scope is Scope.READ and not page.reads and request.method not in SAFE:
                raise HTTPException(403)
        if request.method in SAFE or (viewer is not None and viewer.scope is not None):
            return await page.endpoint(request)
        try:
            await check_csrf(request)
            return await page.endpoint(request)
        finally:
            await request.close()  # uploaded files

    return guarded


def _to_sign_in(request: Request) -> Response:
    if request.method not in SAFE or request.url.path.startswith(API):
        raise HTTPException(401)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", 303)
