"""
Tokens of the HTTP API: each person makes and ends its own; operators see and end all.
"""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.console.access.sign_in import SignIn
from headgate.console.access.tokens import MOST_DAYS, MOST_LABEL
from headgate.console.access.viewer import EVERYBODY, OPERATORS, Role, Scope, Viewer
from headgate.console.parts import parts, viewer
from headgate.console.proposal import audit
from headgate.console.rendering import render
from headgate.console.routing import Page, missing
from headgate.errors import ConfigError
from headgate.store.base import AuditEvent

_NO_ROW: Final = (
    "Your role comes from a group, and groups are known only while you sign in. To have tokens you "
    "need a row of your own in the file of roles, or a local user."
)


async def show(request: Request) -> Response:
    """Return the form, and the tokens that the viewer may end."""
    return await _page(request)


async def _page(request: Request, problem: str = "", made: str = "", status: int = 200) -> Response:
    access, looks = request.app.state.access, viewer(request)
    listed = None
    if isinstance(access, SignIn):
        listed = await to_thread.run_sync(access.tokens.listed, _whose(looks))
    scopes = [Scope.READ] if looks.role is Role.VIEWER else [*Scope]
    return render(
        request, "tokens.html.j2", status, tokens=listed, problem=problem, made=made,
        scopes=scopes, most_days=MOST_DAYS, most_label=MOST_LABEL, all=looks.role in OPERATORS,
    )  # fmt: skip


def _whose(looks: Viewer) -> str | None:
    """Return whose tokens somebody sees and ends; None: everybody's."""
    return None if looks.role in OPERATORS else looks.name


def _access(request: Request) -> SignIn:
    access = request.app.state.access
    if not isinstance(access, SignIn):
        raise missing()
    return access


async def make(request: Request) -> Response:
    """Make a token of the viewer's, and show it this once."""
    access, who = _access(request), viewer(request).name
    form = await request.form()
    label, scope, days = (str(form.get(key, "")).strip() for key in ("label", "scope", "days"))
    if scope not in list(Scope) or not days.isdecimal() or len(days) > 4:
        return await _page(request, "Choose what it may, and after how many days it ends.", "", 422)
    if await to_thread.run_sync(access.role_of, who) is None:
        return await _page(request, _NO_ROW, "", 422)
    try:
        made = await to_thread.run_sync(access.tokens.make, who, label, Scope(scope), int(days))
    except ConfigError as error:
        return await _page(request, f"No token was made: {error}.", "", 422)
    await _audit(request, "token_made", label, f"{scope}, {days} days")
    return await _page(request, made=made)


async def end(request: Request) -> Response:
    """End a token; another person's, or one that has ended, is as an unknown one."""
    access, looks = _access(request), viewer(request)
    given = str((await request.form()).get("id", ""))
    if not await to_thread.run_sync(access.tokens.end, given, _whose(looks)):
        raise missing()
    await _audit(request, "token_ended", given, "")
    return RedirectResponse("/tokens", 303)


async def _audit(request: Request, action: str, subject: str, detail: str) -> None:
    who, now = viewer(request).name, parts(request).clock_ms()
    event = AuditEvent(who, "headgate console", action, "done", subject, detail, now)
    await audit(parts(request), event)


ROUTES: Final = (
    Page("/tokens", show, EVERYBODY),
    Page("/tokens", make, EVERYBODY, ("POST",)),
    Page("/tokens/end", end, EVERYBODY, ("POST",)),
)
