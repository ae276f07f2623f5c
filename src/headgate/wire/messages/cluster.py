"""
What a cluster has: ListGroups 16, DescribeCluster 60, ListConfigResources 74.

Source: Apache Kafka's ``ListGroups*.json``, ``DescribeCluster*.json``,
``ListConfigResources*.json``; KIP-700, KIP-919, KIP-1142.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headgate.wire.apis import DESCRIBE_CLUSTER, LIST_CONFIG_RESOURCES, LIST_GROUPS
from headgate.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Struct,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Which endpoints DescribeCluster is asked for."""
CLIENT_METRICS: Final = 16
"""The one type of resource that ListConfigResources 0 lists."""


@dataclass(frozen=True, slots=True)
class ListGroupsRequest:
    """Which states (version 4) and types (version 5) of groups are wanted; none: all."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group of the broker that was asked."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """The groups that a broker coordinates."""

    error_code: int
    groups: tuple[ListedGroup, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest:
    """Of controllers it can be asked since version 1."""

    authorized_operations: bool = False
    endpoint_type: int = BROKERS
    fenced_brokers: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker's address, or a controller's."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse:
    """Brokers, or controllers, whichever were asked for."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Endpoint, ...]
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = BROKERS
    authorized_operations: int = -(2**31)
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListConfigResourcesRequest:
    """Which types are wanted; version 0 knows client-metrics alone and doesn't say so."""

    resource_types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedResource:
    """One resource that has settings."""

    resource_name: str
    resource_type: int = CLIENT_METRICS


@dataclass(frozen=True, slots=True)
class ListConfigResourcesResponse:
    """The resources that have settings."""

    throttle_time_ms: int
    error_code: int
    config_resources: tuple[ListedResource, ...]


_GROUP: Final = Struct(
    ListedGroup,
    Field("group_id", STRING),
    Field("protocol_type", STRING),
    Field("state", STRING, since=4),
    Field("type", STRING, since=5),
)
_ENDPOINT: Final = Struct(
    Endpoint,
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", NULLABLE_STRING),
    Field("is_fenced", BOOL, since=2),
)
_RESOURCE: Final = Struct(
    ListedResource, Field("resource_name", STRING), Field("resource_type", INT8, since=1)
)
REQUESTS: Final[dict[int, Struct[Any]]] = {
    LIST_GROUPS: Struct(
        ListGroupsRequest,
        Field("states", Array(STRING), since=4),
        Field("types", Array(STRING), since=5),
    ),
    DESCRIBE_CLUSTER: Struct(
        DescribeClusterRequest,
        Field("authorized_operations", BOOL),
        Field("endpoint_type", INT8, since=1),
        Field("fenced_brokers", BOOL, since=2),
    ),
    LIST_CONFIG_RESOURCES: Struct(
        ListConfigResourcesRequest, Field("resource_types", Array(INT8), since=1)
    ),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    LIST_GROUPS: Struct(
        ListGroupsResponse,
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16),
        Field("groups", Array(_GROUP)),
    ),
    DESCRIBE_CLUSTER: Struct(
        DescribeClusterResponse,
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", NULLABLE_STRING),
        Field("endpoint_type", INT8, since=1),
        Field("cluster_id", STRING),
        Field("controller_id", INT32),
        Field("brokers", Array(_ENDPOINT)),
        Field("authorized_operations", INT32),
    ),
    LIST_CONFIG_RESOURCES: Struct(
        ListConfigResourcesResponse,
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("config_resources", Array(_RESOURCE)),
    ),
}
