"""
DescribeUserScramCredentials 50 and AlterUserScramCredentials 51.

Source: Apache Kafka's ``DescribeUserScramCredentials*.json``, ``AlterUserScramCredentials*.json``;
KIP-554.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from headgate.wire.apis import ALTER_SCRAM, DESCRIBE_SCRAM
from headgate.wire.schema import Int8, Int16, Int32, Struct, message, struct


@message()
class UserName:
    """One user asked about."""

    name: str


@message()
class DescribeScramRequest:
    """Null or none means every user."""

    users: tuple[UserName, ...] | None


@message()
class CredentialInfo:
    """Mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: Int8
    iterations: Int32


@message()
class DescribedUser:
    """One user's credentials, or why they can't be told."""

    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: tuple[CredentialInfo, ...]


@message()
class DescribeScramResponse:
    """Users' mechanisms and iterations."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: tuple[DescribedUser, ...]


@message()
class ScramDeletion:
    """A credential to remove."""

    name: str
    mechanism: Int8


@message()
class ScramUpsert:
    """A credential to set; the password goes over the wire salted. repr leaves it out."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@message()
class AlterScramRequest:
    """What to remove and what to set."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsert, ...]


@message()
class AlteredUser:
    """What became of one user's credentials."""

    user: str
    error_code: Int16
    error_message: str | None


@message()
class AlterScramResponse:
    """What became of each user's credentials."""

    throttle_time_ms: Int32
    results: tuple[AlteredUser, ...]


REQUESTS: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_SCRAM: struct(DescribeScramRequest),
    ALTER_SCRAM: struct(AlterScramRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    DESCRIBE_SCRAM: struct(DescribeScramResponse),
    ALTER_SCRAM: struct(AlterScramResponse),
}
