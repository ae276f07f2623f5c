"""
Sign-in at an OpenID Connect provider: authorization code with PKCE, state and nonce (Authlib).

What has to be remembered until the provider sends the browser back is in an encrypted cookie of ten
minutes, so that nobody can fill memory by beginning sign-ins.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from authlib.integrations.starlette_client import OAuth
from cryptography.fernet import Fernet, InvalidToken
from httpx2 import HTTPError
from starlette.requests import Request
from starlette.responses import Response

from headgate.console.access.names import is_loopback
from headgate.errors import ConfigError, HeadgateError

CALLBACK: Final = "/sign-in/oidc/callback"
_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures that only the provider can make: never ``none``, never one by the client's secret."""
_COOKIE_S: Final = 600
_TIMEOUT_S: Final = 10.0


def _is_local(issuer: str) -> bool:
    """Whether an issuer without TLS is on this machine."""
    try:
        where = urlsplit(issuer)
    except ValueError:
        return False
    return where.scheme == "http" and is_loopback(where.hostname or "")


class Refused(HeadgateError):
    """The provider can't be used, or its answer can't."""


class ProviderIdentity(NamedTuple):
    """The person that the provider named: the subject, unique at this issuer, and groups."""

    subject: str
    groups: frozenset[str]
    next: str


class Oidc:
    """
    A provider, and this console as its client.

    Args:
        issuer: the provider's, as it stands in its tokens.
        client_id: the console's.
        client_secret: its secret.
        scope: what is asked for; ``openid`` is in it.
        redirect_uri: where the provider sends browsers back to.
        cookie: the name of the cookie.

    Raises:
        ConfigError: the issuer isn't a URL, or ``openid`` is missing.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str | None,
        scope: str,
        redirect_uri: str,
        cookie: str,
    ) -> None:
        if not issuer.startswith("https://") and not _is_local(issuer):
            raise ConfigError(f"headgate.console.oidc.issuer: {issuer} isn't https://…")
        if "openid" not in scope.split():
            raise ConfigError("headgate.console.oidc.scope has to have openid in it")
        self.issuer = issuer
        self.cookie = cookie
        self._redirect_uri = redirect_uri
        self._fernet = Fernet(Fernet.generate_key())
        self._client_id = client_id
        self._provider = OAuth().register(
            "oidc",
            client_id=client_id,
            client_secret=client_secret,
            server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": scope,
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
            },
        )

    async def begin(self, request: Request, next_: str, *, secure: bool) -> Response:
        """
        Send a browser to the provider.

        Raises:
            Refused: the provider can't be used now.
        """
        await self._check_provider()
        request.scope["session"] = {"next": next_}
        redirect: Response = await self._provider.authorize_redirect(request, self._redirect_uri)
        value = self._fernet.encrypt(json.dumps(request.session).encode()).decode()
        redirect.set_cookie(
            self.cookie, value, max_age=_COOKIE_S, path="/", httponly=True, secure=secure,
            samesite="lax",
        )  # fmt: skip
        return redirect

    async def end(self, request: Request) -> ProviderIdentity:
        """
        Take a browser back.

        Returns:
            The person that the provider named.

        Raises:
            Refused: it named nobody, or its answer isn't valid.
        """
        try:
            kept = self._fernet.decrypt(request.cookies.get(self.cookie, ""), ttl=_COOKIE_S)
        except InvalidToken:
            raise Refused("this sign-in was begun elsewhere, or too long ago") from None
        request.scope["session"] = json.loads(kept)
        next_ = request.session["next"]
        await self._check_provider()
        try:
            token = await self._provider.authorize_access_token(
                request,
                claims_options={
                    "iss": {"essential": True, "values": [self.issuer]},
                    "aud": {"essential": True, "value": self._client_id},
                },
            )
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        claims: dict[str, Any] = token.get("userinfo") or {}
        subject, groups = claims.get("sub"), claims.get("groups", [])
        if not isinstance(subject, str) or not subject:
            raise Refused("the provider sent no ID token")
        named = groups if isinstance(groups, list) else []
        return ProviderIdentity(subject, frozenset(g for g in named if isinstance(g, str)), next_)

    async def _check_provider(self) -> None:
        """Check that the provider is the one that was configured, and signs asymmetrically."""
        try:
            metadata = await self._provider.load_server_metadata()
        except (HTTPError, ValueError, OSError) as error:
            raise Refused(f"{self.issuer} doesn't answer: {error}") from error
        if metadata.get("issuer") != self.issuer:
            raise Refused(f"{self.issuer} names another issuer: {metadata.get('issuer')!r}")
        offered = set(metadata.get("id_token_signing_alg_values_supported") or ["RS256"])
        usable = sorted(offered & _ALGORITHMS)
        if not usable:
            raise Refused(f"{self.issuer} signs by {sorted(offered)}, none of which is enough")
        metadata["id_token_signing_alg_values_supported"] = usable
