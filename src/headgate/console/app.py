"""
The application: checks before every page, errors, and the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.console.access.csrf import MOST_BODY_BYTES, MOST_FORM_BYTES
from headgate.console.access.tenants import Tenants
from headgate.console.access.tokens import API
from headgate.console.access.viewer import OPERATORS, Viewer
from headgate.console.api import RESOURCES
from headgate.console.api.problems import problem_answer
from headgate.console.pages import PAGES
from headgate.console.parts import ConsoleParts
from headgate.console.rendering import STATIC, render
from headgate.errors import HeadgateError, InvalidQuota, StoreMovedOn
from headgate.words import printable

log = logging.getLogger("headgate.console")

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With no-referrer, browsers send `Origin: null` with a form, and `check_csrf` refuses that.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_TLS_ALONE: Final = (b"strict-transport-security", b"max-age=31536000")
"""Sent only where browsers use TLS: they then use it for every port of this host."""
_CACHED: Final = b"public, max-age=31536000, immutable"
ROWS: Final = (*PAGES, *(resource.page for resource in RESOURCES))
"""All that is served, beside static files."""
HEALTH: Final = "/healthz"
MOST_OF_ONE: Final = 64
"""Answers that are made for one person at a time; others don't wait behind hundreds of them."""
BODY_S: Final = 60.0
"""A body that hasn't arrived whole after this long is refused."""


class Access(Protocol):
    """Tells which viewer sent a request, and which host names and origins are the console's."""

    origins: frozenset[str]
    """Where our own pages come from: ``https://console.example``."""
    hosts: frozenset[str]
    """The values of the ``Host`` header that are accepted; the port is part of them."""
    secure: bool
    """Whether browsers use TLS, to the console or to a proxy in front of it."""
    tenants: Tenants
    """The principals of each tenant."""

    def viewer_of(self, request: Request) -> Awaitable[tuple[Viewer | None, str]]:
        """Return who asks (None: nobody who signed in), and what its CSRF tokens are bound to."""


class _Gate:
    """
    The checks before every page: the host name, the viewer, the length of the body, headers.

    Args:
        app: what comes next.
        access: knows viewers and host names.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._headers = (*_HEADERS, *((_TLS_ALONE,) if access.secure else ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        path = scope["path"]
        state: dict[str, Any] = scope.setdefault("state", {})
        state.update(viewer=None, csrf_key="", origins=self._access.origins)
        guarded = _with_headers(send, self._headers, cached=path.startswith(f"{STATIC}/"))
        if path == HEALTH:
            await PlainTextResponse("ok\n")(scope, receive, guarded)
            return
        if request.headers.get("host", "").lower() not in self._access.hosts:
            # DNS rebinding: another site's name may resolve to this address, and must read nothing.
            answer = PlainTextResponse("this console isn't called that; see --url\n", 421)
            await answer(scope, receive, guarded)
            return
        if not path.startswith(f"{STATIC}/"):
            state["viewer"], state["csrf_key"] = await self._access.viewer_of(request)
        viewer: Viewer | None = state["viewer"]
        uploads = viewer is not None and viewer.role in OPERATORS
        most = MOST_BODY_BYTES if uploads else MOST_FORM_BYTES
        receive = _bounded(receive, most)
        if viewer is None:
            await self._app(scope, receive, guarded)
        else:
            await self._in_turn(viewer, scope, receive, guarded)

    async def _in_turn(self, viewer: Viewer, scope: Scope, receive: Receive, send: Send) -> None:
        """Make ``MOST_OF_ONE`` answers of one person at a time; a slow reader holds no turn."""
        turns = self._turns.get(viewer.name)
        if turns is None:
            turns = self._turns[viewer.name] = asyncio.Semaphore(MOST_OF_ONE)
        async with contextlib.AsyncExitStack() as turn:
            await turn.enter_async_context(turns)

            async def sending(message: Message) -> None:
                await turn.aclose()  # it is made
                await send(message)

            await self._app(scope, receive, sending)


def _with_headers(send: Send, more: tuple[tuple[bytes, bytes], ...], *, cached: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            caching = _CACHED if cached and message["status"] == 200 else b"no-store"
            headers = [pair for pair in message.get("headers", []) if pair[0] != b"cache-control"]
            message["headers"] = [*headers, *more, (b"cache-control", caching)]
        await send(message)

    return sending


def _bounded(receive: Receive, most: int) -> Receive:
    """
    Refuse a body that is too long or too slow, while it is read; its stated length isn't trusted.
    """
    taken = 0
    ends = asyncio.get_running_loop().time() + BODY_S
    more = True

    async def receiving() -> Message:
        nonlocal taken, more
        try:
            async with asyncio.timeout_at(ends if more else None):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408) from None
        more = message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413)
        return message

    return receiving


def make_app(parts: ConsoleParts, access: Access) -> ASGIApp:
    """
    Return the application.

    Args:
        parts: what pages are given.
        access: knows viewers and host names.
    """
    files = StaticFiles(directory=Path(__file__).parent / "static")
    app = Starlette(
        routes=[Mount(STATIC, files), *(row.route() for row in ROWS)],
        exception_handlers={
            HTTPException: _refused,
            ClientDisconnect: _gone,
            HeadgateError: _failed,
            Exception: _broken,
        },
    )
    app.state.parts = parts
    app.state.access = access
    app.state.nav = [page for page in PAGES if page.nav]
    return _Gate(app, access)


_SAID: Final = {
    401: "Sign in first.",
    403: "You may not do that. If it was a form, it may have been open too long: open it again.",
    404: "There is nothing here, or nothing that you may see.",
    408: "The form came too slowly. Send it again.",
    413: "That is too much for one form.",
}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:  # of all rows of the path
        methods = {m for row in ROWS if row.path == request.url.path for m in row.methods}
        error.headers = {"allow": ", ".join(sorted(methods))}
    said = _SAID.get(error.status_code) or HTTPStatus(error.status_code).phrase
    return _error_page(request, error.status_code, said, error)


async def _failed(request: Request, error: Exception) -> Response:
    """Say why a store, a server or a change failed; tenants aren't told names or addresses."""
    if isinstance(error, InvalidQuota):  # a form that none of our pages sends
        return _error_page(request, 422, str(error), error)
    status = 409 if isinstance(error, StoreMovedOn) else 502
    viewer: Viewer | None = request.state.viewer
    if viewer is not None and viewer.sees_all:
        return _error_page(request, status, str(error), error)
    log.warning("%s: %s", printable(request.url.path), printable(str(error)))
    return _error_page(request, status, "That couldn't be read or changed now. Try again later.")


async def _gone(request: Request, error: Exception) -> Response:
    """Answer nobody: a browser that goes while it sends a form is no fault of ours."""
    return Response(status_code=400)


async def _broken(request: Request, error: Exception) -> Response:
    return _error_page(request, 500, "Something went wrong here; the console's log has it.")


def _error_page(
    request: Request, status: int, said: str, error: Exception | None = None
) -> Response:
    if request.url.path.startswith(API):
        return problem_answer(request, status, error)
    response = render(request, "error.html.j2", status, title=HTTPStatus(status).phrase, said=said)
    if isinstance(error, HTTPException):
        response.headers.update(error.headers or {})
    return response
