"""
DescribeUserScramCredentials 50 and AlterUserScramCredentials 51.

Source: Apache Kafka's ``DescribeUserScramCredentials*.json``, ``AlterUserScramCredentials*.json``;
KIP-554.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headgate.wire.apis import ALTER_SCRAM, DESCRIBE_SCRAM
from headgate.wire.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Struct,
)


@dataclass(frozen=True, slots=True)
class UserName:
    """One user asked about."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeScramRequest:
    """Null or none means every user."""

    users: tuple[UserName, ...] | None


@dataclass(frozen=True, slots=True)
class CredentialInfo:
    """Mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int
    iterations: int


@dataclass(frozen=True, slots=True)
class DescribedUser:
    """One user's credentials, or why they can't be told."""

    user: str
    error_code: int
    error_message: str | None
    credential_infos: tuple[CredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class DescribeScramResponse:
    """Users' mechanisms and iterations."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: tuple[DescribedUser, ...]


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to remove."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsert:
    """A credential to set; the password goes over the wire salted. repr leaves it out."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsert(name={self.name!r}, mechanism={self.mechanism})"


@dataclass(frozen=True, slots=True)
class AlterScramRequest:
    """What to remove and what to set."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsert, ...]


@dataclass(frozen=True, slots=True)
class AlteredUser:
    """What became of one user's credentials."""

    user: str
    error_code: int
    error_message: str | None


@dataclass(frozen=True, slots=True)
class AlterScramResponse:
    """What became of each user's credentials."""

    throttle_time_ms: int
    results: tuple[AlteredUser, ...]


_ERROR: Final = (Field("error_code", INT16), Field("error_message", NULLABLE_STRING))
_INFO: Final = Struct(CredentialInfo, Field("mechanism", INT8), Field("iterations", INT32))
_DESCRIBED: Final = Struct(
    DescribedUser, Field("user", STRING), *_ERROR, Field("credential_infos", Array(_INFO))
)
_DELETION: Final = Struct(ScramDeletion, Field("name", STRING), Field("mechanism", INT8))
_UPSERT: Final = Struct(
    ScramUpsert,
    Field("name", STRING),
    Field("mechanism", INT8),
    Field("iterations", INT32),
    Field("salt", BYTES),
    Field("salted_password", BYTES),
)
REQUESTS: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_SCRAM: Struct(
        DescribeScramRequest,
        Field("users", Array(Struct(UserName, Field("name", STRING)), nullable=True)),
    ),
    ALTER_SCRAM: Struct(
        AlterScramRequest,
        Field("deletions", Array(_DELETION)),
        Field("upsertions", Array(_UPSERT)),
    ),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_SCRAM: Struct(
        DescribeScramResponse,
        Field("throttle_time_ms", INT32),
        *_ERROR,
        Field("results", Array(_DESCRIBED)),
    ),
    ALTER_SCRAM: Struct(
        AlterScramResponse,
        Field("throttle_time_ms", INT32),
        Field("results", Array(Struct(AlteredUser, Field("user", STRING), *_ERROR))),
    ),
}
