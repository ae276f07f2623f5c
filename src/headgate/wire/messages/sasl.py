"""
SaslHandshake 17 and SaslAuthenticate 36.

Source: Apache Kafka's ``SaslHandshake*.json``, ``SaslAuthenticate*.json``; KIP-152, KIP-368.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from headgate.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
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


REQUESTS: Final[dict[int, Struct[Any]]] = {
    SASL_HANDSHAKE: struct(SaslHandshakeRequest),
    SASL_AUTHENTICATE: struct(SaslAuthenticateRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    SASL_HANDSHAKE: struct(SaslHandshakeResponse),
    SASL_AUTHENTICATE: struct(SaslAuthenticateResponse),
}
