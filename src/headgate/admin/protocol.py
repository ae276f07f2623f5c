"""
The messages the admin client speaks that :mod:`headgate.wire.messages` has no use for.

Source: ``clients/src/main/resources/common/message`` in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.wire import messages
from headgate.wire.apis import METADATA
from headgate.wire.schema import (
    BOOL,
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

DESCRIBE_SCRAM: Final = 50
ALTER_SCRAM: Final = 51


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Version 1: null topics means all, none means none."""

    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker's address."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Read past; only topic names are wanted."""

    error_code: int
    partition_index: int
    leader_id: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic."""

    error_code: int
    name: str
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """Brokers, who is controller, topics."""

    brokers: tuple[Broker, ...]
    controller_id: int
    topics: tuple[TopicMetadata, ...]


_METADATA_REQUEST: Final = Struct(MetadataRequest, Field("topics", Array(STRING, True)))
_METADATA_RESPONSE: Final = Struct(
    MetadataResponse,
    Field(
        "brokers",
        Array(
            Struct(
                Broker,
                Field("node_id", INT32),
                Field("host", STRING),
                Field("port", INT32),
                Field("rack", NULLABLE_STRING),
            )
        ),
    ),
    Field("controller_id", INT32),
    Field(
        "topics",
        Array(
            Struct(
                TopicMetadata,
                Field("error_code", INT16),
                Field("name", STRING),
                Field("is_internal", BOOL),
                Field(
                    "partitions",
                    Array(
                        Struct(
                            PartitionMetadata,
                            Field("error_code", INT16),
                            Field("partition_index", INT32),
                            Field("leader_id", INT32),
                            Field("replica_nodes", Array(INT32)),
                            Field("isr_nodes", Array(INT32)),
                        )
                    ),
                ),
            )
        ),
    ),
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
    """Version 0."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: tuple[DescribedUser, ...]


_DESCRIBE_SCRAM_REQUEST: Final = Struct(
    DescribeScramRequest,
    Field("users", Array(Struct(UserName, Field("name", STRING)), True)),
)
_DESCRIBE_SCRAM_RESPONSE: Final = Struct(
    DescribeScramResponse,
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("error_message", NULLABLE_STRING),
    Field(
        "results",
        Array(
            Struct(
                DescribedUser,
                Field("user", STRING),
                Field("error_code", INT16),
                Field("error_message", NULLABLE_STRING),
                Field(
                    "credential_infos",
                    Array(
                        Struct(
                            CredentialInfo,
                            Field("mechanism", INT8),
                            Field("iterations", INT32),
                        )
                    ),
                ),
            )
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to remove."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsert:
    """A credential to set; the password goes over the wire salted."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@dataclass(frozen=True, slots=True)
class AlterScramRequest:
    """Version 0."""

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
    """Version 0."""

    throttle_time_ms: int
    results: tuple[AlteredUser, ...]


_ALTER_SCRAM_REQUEST: Final = Struct(
    AlterScramRequest,
    Field(
        "deletions",
        Array(Struct(ScramDeletion, Field("name", STRING), Field("mechanism", INT8))),
    ),
    Field(
        "upsertions",
        Array(
            Struct(
                ScramUpsert,
                Field("name", STRING),
                Field("mechanism", INT8),
                Field("iterations", INT32),
                Field("salt", BYTES),
                Field("salted_password", BYTES),
            )
        ),
    ),
)
_ALTER_SCRAM_RESPONSE: Final = Struct(
    AlterScramResponse,
    Field("throttle_time_ms", INT32),
    Field(
        "results",
        Array(
            Struct(
                AlteredUser,
                Field("user", STRING),
                Field("error_code", INT16),
                Field("error_message", NULLABLE_STRING),
            )
        ),
    ),
)

_HERE_REQUESTS: Final[Mapping[int, Struct[Any]]] = {
    METADATA: _METADATA_REQUEST,
    DESCRIBE_SCRAM: _DESCRIBE_SCRAM_REQUEST,
    ALTER_SCRAM: _ALTER_SCRAM_REQUEST,
}
_HERE_RESPONSES: Final[Mapping[int, Struct[Any]]] = {
    METADATA: _METADATA_RESPONSE,
    DESCRIBE_SCRAM: _DESCRIBE_SCRAM_RESPONSE,
    ALTER_SCRAM: _ALTER_SCRAM_RESPONSE,
}
REQUESTS: Final[Mapping[int, Struct[Any]]] = {**messages.REQUESTS, **_HERE_REQUESTS}
RESPONSES: Final[Mapping[int, Struct[Any]]] = {**messages.RESPONSES, **_HERE_RESPONSES}
