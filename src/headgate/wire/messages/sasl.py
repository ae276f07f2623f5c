"""
SaslHandshake 17 and SaslAuthenticate 36.

Source: Apache Kafka's ``SaslHandshake*.json``, ``SaslAuthenticate*.json``; KIP-152, KIP-368.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from headgate.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from headgate.wire.fields import Buffer
from headgate.wire.header import is_flexible, response_body_offset
from headgate.wire.schema import Int16, Int64, Struct, message, struct, versions


@message()
class SaslHandshakeRequest:
    """The mechanism a client chose."""

    mechanism: str


@message()
class SaslHandshakeResponse:
    """The mechanisms a broker has."""

    error_code: Int16
    mechanisms: tuple[str, ...]


@message()
class SaslAuthenticateRequest:
    """A token of the mechanism. It may be a password: repr leaves it out."""

    auth_bytes: bytes = field(repr=False)


@message()
class SaslAuthenticateResponse:
    """A token back, or why not; ``session_lifetime_ms`` 0 means no re-authentication is due."""

    error_code: Int16
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime_ms: Int64 = versions(0, since=1)


_HANDSHAKE: Final = struct(SaslHandshakeRequest)
_MECHANISMS: Final = struct(SaslHandshakeResponse)
_AUTHENTICATE: Final = struct(SaslAuthenticateRequest)
_AUTHENTICATED: Final = struct(SaslAuthenticateResponse)
REQUESTS: Final[dict[int, Struct[Any]]] = {
    SASL_HANDSHAKE: _HANDSHAKE,
    SASL_AUTHENTICATE: _AUTHENTICATE,
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    SASL_HANDSHAKE: _MECHANISMS,
    SASL_AUTHENTICATE: _AUTHENTICATED,
}


def parse_handshake(frame: Buffer, body_offset: int) -> str:
    """Return the mechanism of a SaslHandshake request, any version."""
    return _HANDSHAKE.decode(frame, 1, False, body_offset).mechanism


def handshake_response(frame: Buffer) -> tuple[int, tuple[str, ...]]:
    """Return (error code, mechanisms) of a SaslHandshake response."""
    value = _MECHANISMS.decode(frame, 1, False, 8)
    return value.error_code, value.mechanisms


def parse_authenticate(frame: Buffer, version: int, body_offset: int) -> bytes:
    """Return the token of a SaslAuthenticate request."""
    flexible = is_flexible(SASL_AUTHENTICATE, version)
    return _AUTHENTICATE.decode(frame, version, flexible, body_offset).auth_bytes


def authenticate_response(frame: Buffer, version: int) -> tuple[int, str | None, bytes, int]:
    """Return (error code, message, token, session lifetime in ms) of an answer."""
    at = response_body_offset(SASL_AUTHENTICATE, version, frame)
    flexible = is_flexible(SASL_AUTHENTICATE, version)
    value = _AUTHENTICATED.decode(frame, version, flexible, at)
    return value.error_code, value.error_message, value.auth_bytes, value.session_lifetime_ms


def build_handshake_response(error_code: int, mechanisms: tuple[str, ...]) -> bytes:
    """Return the body of a SaslHandshake response, version 0 or 1."""
    return _MECHANISMS.encode(SaslHandshakeResponse(error_code, mechanisms), 1, False)


def build_authenticate_response(
    version: int, *, error_code: int, error_message: str | None = None
) -> bytes:
    """Return the body of a SaslAuthenticate response that refuses."""
    value = SaslAuthenticateResponse(error_code, error_message, b"", 0)
    return _AUTHENTICATED.encode(value, version, is_flexible(SASL_AUTHENTICATE, version))
