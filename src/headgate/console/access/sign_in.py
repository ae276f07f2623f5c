"""
Find out who a request comes from: by a session's cookie, a proxy's header, or a token of the API.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.failures import Failures
from headgate.console.access.oidc import Oidc
from headgate.console.access.proxy import Proxies
from headgate.console.access.roles import Roles
from headgate.console.access.sessions import LOCAL, ConsoleSession, Sessions
from headgate.console.access.tenants import Tenants
from headgate.console.access.tokens import API, Tokens
from headgate.console.access.users import Users
from headgate.console.access.viewer import Role, Viewer

_PRE: Final = "headgate-visit"
_SESSION: Final = "headgate-session"
OIDC_COOKIE: Final = "headgate-oidc"


def cookie_name(name: str, *, secure: bool) -> str:
    """Return a cookie's name; with TLS one that browsers accept only from this host."""
    return f"__Host-{name}" if secure else name


@dataclass(slots=True)
class SignIn:
    """
    Finds out who a request comes from; begins and ends sessions.

    Args:
        origins: where our own pages come from.
        hosts: the host names that requests may have.
        secure: whether browsers use TLS.
        users: local ones.
        sessions: of users and of people who came by OIDC.
        tokens: of the API.
        proxies: they sign people in, or give the address that a request came from.
        roles: of people who come by OIDC or a proxy.
        tenants: the principals of each tenant.
        oidc: a provider, or None.
        failures: the failed sign-ins of the last while.
        verifying: how many passwords are verified now, or wait for it.
    """

    origins: frozenset[str]
    hosts: frozenset[str]
    secure: bool
    users: Users
    sessions: Sessions
    tokens: Tokens
    proxies: Proxies
    roles: Roles
    tenants: Tenants
    oidc: Oidc | None
    failures: Failures
    verifying: int = 0

    async def viewer_of(self, request: Request) -> tuple[Viewer | None, str]:
        """Return the viewer, and what CSRF tokens are bound to."""
        named, request.state.address = self.proxies.read(request.scope)
        if request.url.path.startswith(API):
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer":  # then nothing else says who it is
                return await run_in_threadpool(self._of_token, token.strip()), ""
        if named is not None:
            found = self.roles.of("proxy", named.user, named.groups)
            if found is not None:
                return self._viewer(f"proxy:{named.user}", *found), f"proxy:{named.user}"
        token = request.cookies.get(cookie_name(_SESSION, secure=self.secure), "")
        session = await run_in_threadpool(self.sessions.find, token) if token else None
        if session is not None and not self.lets_in(session.role, session.tenant):
            session = None
        if session is None:
            visit = request.cookies.get(cookie_name(_PRE, secure=self.secure), "")
            return None, f"visit:{visit}" if visit else ""
        viewer = self._viewer(_shown(session), session.role, session.tenant, signed_in=True)
        return viewer, f"session:{session.key}"

    def _of_token(self, token: str) -> Viewer | None:
        found = self.tokens.find(token)
        role = None if found is None else self.role_of(found.owner)
        if found is None or role is None or not self.lets_in(*role):
            return None
        return replace(self._viewer(found.owner, *role), scope=found.scope)

    def role_of(self, owner: str) -> tuple[Role, str] | None:
        """
        Return the role and tenant that somebody's tokens have at this moment; None: no tokens.

        Args:
            owner: as the history calls them. People who came by OIDC or a proxy need a row of their
                own in the file of roles: their groups are known only while they sign in.
        """
        source, is_foreign, name = owner.partition(":")
        return self.roles.of(source, name, ()) if is_foreign else self.users.role_of(owner)

    def lets_in(self, role: Role, tenant: str) -> bool:
        """Whether the file of tenants has the tenant of somebody with a role."""
        return role is not Role.TENANT or tenant in self.tenants

    def _viewer(self, name: str, role: Role, tenant: str, *, signed_in: bool = False) -> Viewer:
        own = self.tenants.get(tenant, frozenset()) if role is Role.TENANT else frozenset()
        return Viewer(name, role, tenant, own, signed_in)

    def visit(self, request: Request, response: Response) -> None:
        """Give a browser without a session the cookie that the sign-in form's token is bound to."""
        self._set(response, _PRE, request.state.csrf_key.removeprefix("visit:"))

    def prepare_visit(self, request: Request) -> None:
        """Bind the sign-in form's token to this browser."""
        if not request.state.csrf_key:
            request.state.csrf_key = f"visit:{secrets.token_urlsafe(24)}"

    async def start(
        self, request: Request, response: Response, source: str, name: str, role: Role, tenant: str
    ) -> None:
        """Begin a session; the browser's former one, if it has any, is over."""
        await self._end_current(request)
        token = await run_in_threadpool(self.sessions.start, source, name, role, tenant)
        self._set(response, _SESSION, token)
        self._delete(response, _PRE)

    async def end(self, request: Request, response: Response) -> None:
        """End the browser's session."""
        await self._end_current(request)
        self._delete(response, _SESSION)

    async def _end_current(self, request: Request) -> None:
        token = request.cookies.get(cookie_name(_SESSION, secure=self.secure))
        if token:
            await run_in_threadpool(self.sessions.end, token)

    def _set(self, response: Response, name: str, value: str) -> None:
        response.set_cookie(
            cookie_name(name, secure=self.secure), value, path="/", secure=self.secure,
            httponly=True, samesite="lax",
        )  # fmt: skip

    def _delete(self, response: Response, name: str) -> None:
        response.delete_cookie(
            cookie_name(name, secure=self.secure), path="/", secure=self.secure, httponly=True,
            samesite="lax",
        )  # fmt: skip


def _shown(session: ConsoleSession) -> str:
    """Return the name of a session's owner in the history; a subject differs from a local name."""
    return session.name if session.source == LOCAL else f"{session.source}:{session.name}"
