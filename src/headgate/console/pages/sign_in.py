"""
Signing in and out: by a password, or at an OpenID Connect provider.
"""

from __future__ import annotations

import logging
from typing import Final

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headgate.console.access.next_page import next_page
from headgate.console.access.oidc import CALLBACK, Refused
from headgate.console.access.sessions import LOCAL, OIDC
from headgate.console.access.sign_in import SignIn
from headgate.console.access.viewer import EVERYBODY
from headgate.console.parts import parts
from headgate.console.rendering import render
from headgate.console.routing import Page, missing
from headgate.words import printable

log = logging.getLogger("headgate.console")

_VERIFYING: Final = CapacityLimiter(2)
"""Passwords verified at once, of 64 MiB each. Others wait without a thread: pages need them."""
MOST_WAITING: Final = 50
"""Passwords that are verified or wait, some seconds' work; the next one is refused."""
_WRONG: Final = "That user and password don't fit."
_NO_TENANT: Final = (
    "The console doesn't know your tenant: its name is misspelt in your account or in the file of "
    "tenants. Tell an operator."
)


async def show(request: Request) -> Response:
    """Return the form."""
    return _form(request, next_page(request.query_params.get("next", "/")))


async def check(request: Request) -> Response:
    """Take a user and a password."""
    access = _access(request)
    form = await request.form()
    name, password, wanted = (str(form.get(key, "")) for key in ("user", "password", "next"))
    wanted = next_page(wanted)
    address, now = request.state.address, parts(request).clock_ms()
    wait_ms = access.failures.wait_ms(name, address, now)
    if wait_ms:
        log.warning("sign-in refused for %d ms: user %r from %s", wait_ms, name[:100], address)
        seconds = -(-wait_ms // 1000)
        refused = _form(request, wanted, f"Too many tries. Try again in {seconds} s.", 429)
        refused.headers["retry-after"] = str(seconds)
        return refused
    if access.verifying >= MOST_WAITING:
        return _form(request, wanted, "Too many sign in at this moment. Try again.", 503)
    access.failures.tried(name, address, now)
    access.verifying += 1
    try:
        user = await to_thread.run_sync(access.users.verify, name, password, limiter=_VERIFYING)
    finally:
        access.verifying -= 1
    if user is None:
        log.warning("sign-in failed: user %r from %s", name[:100], address)
        return _form(request, wanted, _WRONG, 403)
    access.failures.succeeded(name, address)
    if not access.lets_in(user.role, user.tenant):
        log.warning("sign-in refused: user %s is of no tenant in the file of tenants", user.name)
        return _form(request, wanted, _NO_TENANT, 403)
    log.info("signed in: user %s from %s", user.name, address)
    response = RedirectResponse(wanted, 303)
    await access.start(request, response, LOCAL, user.name, user.role, user.tenant)
    return response


async def sign_out(request: Request) -> Response:
    """End the session."""
    response = RedirectResponse("/sign-in", 303)
    await _access(request).end(request, response)
    return response


async def to_provider(request: Request) -> Response:
    """Send the browser to the provider."""
    access = _access(request)
    if access.oidc is None:
        raise missing()
    wanted = next_page(request.query_params.get("next", "/"))
    try:
        return await access.oidc.begin(request, wanted, secure=access.secure)
    except Refused as error:
        log.warning("OIDC: %s", printable(str(error)))
        return _form(request, wanted, "The provider can't be used now. Try again later.", 502)


async def from_provider(request: Request) -> Response:
    """Take the browser back."""
    access = _access(request)
    if access.oidc is None:
        raise missing()
    try:
        identity = await access.oidc.end(request)
    except Refused as error:
        said = printable(str(error))  # the browser's words are in it
        log.warning("OIDC sign-in refused from %s: %s", request.state.address, said)
        return _form(request, "/", "That sign-in didn't work. Begin it again.", 403)
    found = access.roles.of(OIDC, identity.subject, identity.groups)
    if found is None:
        log.warning("OIDC sign-in refused: %r has no role", identity.subject)
        return _form(request, "/", f"You are {identity.subject} there, and have no role here.", 403)
    log.info("signed in: %r of %s", identity.subject, access.oidc.issuer)
    response = RedirectResponse(next_page(identity.next), 303)
    await access.start(request, response, OIDC, identity.subject, *found)
    response.delete_cookie(access.oidc.cookie, path="/", secure=access.secure, httponly=True)
    return response


def _form(request: Request, wanted: str, problem: str = "", status: int = 200) -> Response:
    access = _access(request)
    if request.state.viewer is None:
        access.prepare_visit(request)
    page = render(
        request, "sign_in.html.j2", status, next=wanted, problem=problem, oidc=access.oidc
    )
    if request.state.viewer is None:
        access.visit(request, page)
    return page


def _access(request: Request) -> SignIn:
    """Return the object that knows users; if nobody signs in, answer that there is no such page."""
    access = request.app.state.access
    if not isinstance(access, SignIn):
        raise missing()
    return access


ROUTES: Final = (
    Page("/sign-in", show, None),
    Page("/sign-in", check, None, ("POST",)),
    Page("/sign-out", sign_out, EVERYBODY, ("POST",)),
    Page("/sign-in/oidc", to_provider, None),
    Page(CALLBACK, from_provider, None),
)
