"""What a client sends to log in, and to get a delegation token."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from headgate.wire.apis import CREATE_DELEGATION_TOKEN, SASL_AUTHENTICATE, SASL_HANDSHAKE
from headgate.wire.header import build_request, is_flexible, response_body_offset
from headgate.wire.messages import REQUESTS, sasl
from headgate.wire.messages.delegation import Principal
from headgate.wire.schema import Int16, Int32, Int64, message, struct, versions


def build_handshake(mechanism: str) -> bytes:
    """Return the body of a SaslHandshake request, version 0 or 1."""
    return REQUESTS[SASL_HANDSHAKE].encode(sasl.SaslHandshakeRequest(mechanism), 1, False)


def build_authenticate(token: bytes, version: int) -> bytes:
    """Return the body of a SaslAuthenticate request."""
    flexible = is_flexible(SASL_AUTHENTICATE, version)
    asked = sasl.SaslAuthenticateRequest(token)
    return REQUESTS[SASL_AUTHENTICATE].encode(asked, version, flexible)


@message("owner_type", "owner_name")
class CreateDelegationTokenRequest:
    """Ask for a token of one's own, or of ``owner``; -1 as lifetime is the broker's maximum."""

    renewers: tuple[Principal, ...] = ()
    max_lifetime_ms: Int64 = -1
    owner_type: str | None = versions(None, since=3)
    owner_name: str | None = versions(None, since=3)


@message("error_code", "owner_type", "owner_name", "requester_type", "requester_name")
class CreateDelegationTokenResponse:
    """A new token; ``hmac`` is its password once it is written as base64. repr leaves it out."""

    error_code: Int16
    owner_type: str
    owner_name: str
    issued_ms: Int64
    expires_ms: Int64
    ends_ms: Int64
    token_id: str
    hmac: bytes = field(repr=False)
    throttle_time_ms: Int32 = 0
    requester_type: str = versions("", since=3)
    requester_name: str = versions("", since=3)


_REQUEST: Final = struct(CreateDelegationTokenRequest)
_RESPONSE: Final = struct(CreateDelegationTokenResponse)


def token_request(version: int, wanted: CreateDelegationTokenRequest) -> bytes:
    """Return the frame of a CreateDelegationToken request."""
    key = CREATE_DELEGATION_TOKEN
    body = _REQUEST.encode(wanted, version, is_flexible(key, version))
    return build_request(key, version, 7, "raw", body)


def token_response(version: int, frame: bytes) -> CreateDelegationTokenResponse:
    """Read the frame of a CreateDelegationToken response."""
    key = CREATE_DELEGATION_TOKEN
    at = response_body_offset(key, version, frame)
    return _RESPONSE.decode(frame, version, is_flexible(key, version), at)
