"""
DescribeDelegationToken 41.

Source: Apache Kafka's ``DescribeDelegationToken*.json``; KIP-48, KIP-373.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from headgate.wire.apis import DESCRIBE_DELEGATION_TOKEN
from headgate.wire.schema import Int16, Int32, Int64, Struct, message, struct, versions

USER: Final = "User"
"""The only type of principal that Kafka's own authentication makes."""


@message()
class Principal:
    """A principal, by its type (``User``) and name."""

    type: str
    name: str


@message()
class DescribeDelegationTokenRequest:
    """Ask for the tokens of some owners; None: of all that one may see."""

    owners: tuple[Principal, ...] | None = None


@message("owner_type", "owner_name", "requester_type", "requester_name")
class DescribedToken:
    """
    A token, with its secret: repr leaves that out.

    Attributes:
        owner_type: of the principal that a client with this token has.
        owner_name: that principal's name.
        issued_ms: when it was made, epoch milliseconds.
        expires_ms: until when it is good, unless it is renewed.
        ends_ms: until when it may be renewed.
        token_id: the user name that it is used with.
        hmac: its secret.
        renewers: who may renew it.
        requester_type: of the principal that asked for it (KIP-373).
        requester_name: that principal's name.
    """

    owner_type: str
    owner_name: str
    issued_ms: Int64
    expires_ms: Int64
    ends_ms: Int64
    token_id: str
    hmac: bytes = field(repr=False)
    renewers: tuple[Principal, ...] = ()
    requester_type: str = versions("", since=3)
    requester_name: str = versions("", since=3)


@message()
class DescribeDelegationTokenResponse:
    """The tokens that one may see."""

    error_code: Int16
    tokens: tuple[DescribedToken, ...]
    throttle_time_ms: Int32 = 0


REQUESTS: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_DELEGATION_TOKEN: struct(DescribeDelegationTokenRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_DELEGATION_TOKEN: struct(DescribeDelegationTokenResponse),
}
