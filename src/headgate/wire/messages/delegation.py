"""
CreateDelegationToken 38 and DescribeDelegationToken 41.

Source: Apache Kafka's ``CreateDelegationToken*.json``, ``DescribeDelegationToken*.json``; KIP-48,
KIP-373.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headgate.wire.apis import CREATE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN
from headgate.wire.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Struct,
)

USER: Final = "User"
"""The only type of principal that Kafka's own authentication makes."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal, by its type (``User``) and name."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenRequest:
    """Ask for a token of one's own, or of ``owner``; -1 as lifetime is the broker's maximum."""

    renewers: tuple[Principal, ...] = ()
    max_lifetime_ms: int = -1
    owner_type: str | None = None
    owner_name: str | None = None


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenResponse:
    """A new token; ``hmac`` is its password once it is written as base64. repr leaves it out."""

    error_code: int
    owner_type: str
    owner_name: str
    issued_ms: int
    expires_ms: int
    ends_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int = 0
    requester_type: str = ""
    requester_name: str = ""

    def __repr__(self) -> str:
        return (
            f"CreateDelegationTokenResponse(error_code={self.error_code}, "
            f"token_id={self.token_id!r}, owner_name={self.owner_name!r})"
        )


@dataclass(frozen=True, slots=True)
class DescribeDelegationTokenRequest:
    """Ask for the tokens of some owners; None: of all that one may see."""

    owners: tuple[Principal, ...] | None = None


@dataclass(frozen=True, slots=True)
class DescribedToken:
    """
    A token, with its secret: repr leaves that out.

    Attributes:
        owner_type: of whoever comes in with it.
        owner_name: the same.
        issued_ms: when it was made, epoch milliseconds.
        expires_ms: until when it is good, unless it is renewed.
        ends_ms: until when it may be renewed.
        token_id: the user name that it is used with.
        hmac: its secret.
        renewers: who may renew it.
        requester_type: who asked for it (KIP-373).
        requester_name: the same.
    """

    owner_type: str
    owner_name: str
    issued_ms: int
    expires_ms: int
    ends_ms: int
    token_id: str
    hmac: bytes
    renewers: tuple[Principal, ...] = ()
    requester_type: str = ""
    requester_name: str = ""

    def __repr__(self) -> str:
        return f"DescribedToken(token_id={self.token_id!r}, owner_name={self.owner_name!r})"


@dataclass(frozen=True, slots=True)
class DescribeDelegationTokenResponse:
    """The tokens that one may see."""

    error_code: int
    tokens: tuple[DescribedToken, ...]
    throttle_time_ms: int = 0


_PRINCIPAL: Final = Struct(Principal, Field("type", STRING), Field("name", STRING))
_REQUESTER: Final = (
    Field("requester_type", STRING, since=3),
    Field("requester_name", STRING, since=3),
)
_TIMES: Final = (Field("issued_ms", INT64), Field("expires_ms", INT64), Field("ends_ms", INT64))
_OWNER: Final = (Field("owner_type", STRING), Field("owner_name", STRING))
_SECRET: Final = (Field("token_id", STRING), Field("hmac", BYTES))
_TOKEN: Final = Struct(
    DescribedToken, *_OWNER, *_REQUESTER, *_TIMES, *_SECRET, Field("renewers", Array(_PRINCIPAL))
)
REQUESTS: Final[dict[int, Struct[Any]]] = {
    CREATE_DELEGATION_TOKEN: Struct(
        CreateDelegationTokenRequest,
        Field("owner_type", NULLABLE_STRING, since=3),
        Field("owner_name", NULLABLE_STRING, since=3),
        Field("renewers", Array(_PRINCIPAL)),
        Field("max_lifetime_ms", INT64),
    ),
    DESCRIBE_DELEGATION_TOKEN: Struct(
        DescribeDelegationTokenRequest, Field("owners", Array(_PRINCIPAL, nullable=True))
    ),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    CREATE_DELEGATION_TOKEN: Struct(
        CreateDelegationTokenResponse,
        Field("error_code", INT16),
        *_OWNER,
        *_REQUESTER,
        *_TIMES,
        *_SECRET,
        Field("throttle_time_ms", INT32),
    ),
    DESCRIBE_DELEGATION_TOKEN: Struct(
        DescribeDelegationTokenResponse,
        Field("error_code", INT16),
        Field("tokens", Array(_TOKEN)),
        Field("throttle_time_ms", INT32),
    ),
}
