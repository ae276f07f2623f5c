"""
The messages the admin client speaks that :mod:`headgate.wire.messages` has no use for.

Source: ``clients/src/main/resources/common/message`` in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.wire import messages
from headgate.wire.apis import DESCRIBE_CLUSTER, METADATA
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

LIST_GROUPS: Final = 16
DESCRIBE_SCRAM: Final = 50
ALTER_SCRAM: Final = 51
LIST_CONFIG_RESOURCES: Final = 74
CONTROLLERS: Final = 2
"""Which endpoints DescribeCluster is asked for."""


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


_BROKER: Final = Struct(
    Broker,
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", NULLABLE_STRING),
)
_METADATA_REQUEST: Final = Struct(MetadataRequest, Field("topics", Array(STRING, True)))
_METADATA_RESPONSE: Final = Struct(
    MetadataResponse,
    Field("brokers", Array(_BROKER)),
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


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest:
    """Version 1, the first that tells of controllers."""

    include_cluster_authorized_operations: bool
    endpoint_type: int


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse:
    """Brokers, or controllers, whichever were asked for."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]
    cluster_authorized_operations: int


_DESCRIBE_CLUSTER_REQUEST: Final = Struct(
    DescribeClusterRequest,
    Field("include_cluster_authorized_operations", BOOL),
    Field("endpoint_type", INT8),
)
_DESCRIBE_CLUSTER_RESPONSE: Final = Struct(
    DescribeClusterResponse,
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("error_message", NULLABLE_STRING),
    Field("endpoint_type", INT8),
    Field("cluster_id", STRING),
    Field("controller_id", INT32),
    Field("brokers", Array(_BROKER)),
    Field("cluster_authorized_operations", INT32),
)


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """Version 0: nothing to say."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of the broker that was asked."""

    group_id: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """Version 0: the groups that a broker coordinates."""

    error_code: int
    groups: tuple[ListedGroup, ...]


_LIST_GROUPS_REQUEST: Final = Struct(ListGroupsRequest)
_LIST_GROUPS_RESPONSE: Final = Struct(
    ListGroupsResponse,
    Field("error_code", INT16),
    Field(
        "groups",
        Array(Struct(ListedGroup, Field("group_id", STRING), Field("protocol_type", STRING))),
    ),
)


@dataclass(frozen=True, slots=True)
class ListConfigResourcesRequest:
    """Which types are wanted; version 0 knows client-metrics alone and doesn't say so."""

    resource_types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListedResource:
    """One resource that has settings."""

    resource_name: str
    resource_type: int = 16


@dataclass(frozen=True, slots=True)
class ListConfigResourcesResponse:
    """Versions 0 and 1."""

    throttle_time_ms: int
    error_code: int
    config_resources: tuple[ListedResource, ...]


_LIST_CONFIG_RESOURCES_REQUEST: Final = Struct(
    ListConfigResourcesRequest, Field("resource_types", Array(INT8), 1)
)
_LIST_CONFIG_RESOURCES_RESPONSE: Final = Struct(
    ListConfigResourcesResponse,
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field(
        "config_resources",
        Array(
            Struct(ListedResource, Field("resource_name", STRING), Field("resource_type", INT8, 1))
        ),
    ),
)

_HERE_REQUESTS: Final[Mapping[int, Struct[Any]]] = {
    METADATA: _METADATA_REQUEST,
    LIST_GROUPS: _LIST_GROUPS_REQUEST,
    DESCRIBE_CLUSTER: _DESCRIBE_CLUSTER_REQUEST,
    LIST_CONFIG_RESOURCES: _LIST_CONFIG_RESOURCES_REQUEST,
    DESCRIBE_SCRAM: _DESCRIBE_SCRAM_REQUEST,
    ALTER_SCRAM: _ALTER_SCRAM_REQUEST,
}
_HERE_RESPONSES: Final[Mapping[int, Struct[Any]]] = {
    METADATA: _METADATA_RESPONSE,
    LIST_GROUPS: _LIST_GROUPS_RESPONSE,
    DESCRIBE_CLUSTER: _DESCRIBE_CLUSTER_RESPONSE,
    LIST_CONFIG_RESOURCES: _LIST_CONFIG_RESOURCES_RESPONSE,
    DESCRIBE_SCRAM: _DESCRIBE_SCRAM_RESPONSE,
    ALTER_SCRAM: _ALTER_SCRAM_RESPONSE,
}
REQUESTS: Final[Mapping[int, Struct[Any]]] = {**messages.REQUESTS, **_HERE_REQUESTS}
RESPONSES: Final[Mapping[int, Struct[Any]]] = {**messages.RESPONSES, **_HERE_RESPONSES}
