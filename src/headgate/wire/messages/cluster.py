"""
What a cluster has: ListGroups 16, DescribeCluster 60, ListConfigResources 74.

Source: Apache Kafka's ``ListGroups*.json``, ``DescribeCluster*.json``,
``ListConfigResources*.json``; KIP-700, KIP-919, KIP-1142.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.wire.apis import DESCRIBE_CLUSTER, LIST_CONFIG_RESOURCES, LIST_GROUPS
from headgate.wire.schema import Int8, Int16, Int32, Struct, message, struct, versions

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Which endpoints DescribeCluster is asked for."""
CLIENT_METRICS: Final = 16
"""The one type of resource that ListConfigResources 0 lists."""


@message()
class ListGroupsRequest:
    """Which states (version 4) and types (version 5) of groups are wanted; none: all."""

    states: tuple[str, ...] = versions((), since=4)
    types: tuple[str, ...] = versions((), since=5)


@message()
class ListedGroup:
    """One group of the broker that was asked."""

    group_id: str
    protocol_type: str
    state: str = versions("", since=4)
    type: str = versions("", since=5)


@message("throttle_time_ms")
class ListGroupsResponse:
    """The groups that a broker coordinates."""

    error_code: Int16
    groups: tuple[ListedGroup, ...]
    throttle_time_ms: Int32 = versions(0, since=1)


@message()
class DescribeClusterRequest:
    """A question for the cluster's brokers, or since version 1 for its controllers."""

    authorized_operations: bool = False
    endpoint_type: Int8 = versions(BROKERS, since=1)
    fenced_brokers: bool = versions(False, since=2)


@message()
class BrokerEndpoint:
    """A broker's address, or a controller's."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: bool = versions(False, since=2)


@message("throttle_time_ms", "error_code", "error_message", "endpoint_type")
class DescribeClusterResponse:
    """Brokers, or controllers, whichever were asked for."""

    cluster_id: str
    controller_id: Int32
    brokers: tuple[BrokerEndpoint, ...]
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Int8 = versions(BROKERS, since=1)
    authorized_operations: Int32 = -(2**31)
    throttle_time_ms: Int32 = 0


@message()
class ListConfigResourcesRequest:
    """Which types are wanted; version 0 knows client-metrics alone and doesn't say so."""

    resource_types: tuple[Int8, ...] = versions((), since=1)


@message()
class ListedResource:
    """One resource that has settings."""

    resource_name: str
    resource_type: Int8 = versions(CLIENT_METRICS, since=1)


@message()
class ListConfigResourcesResponse:
    """The resources that have settings."""

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: tuple[ListedResource, ...]


REQUESTS: Final[dict[int, Struct[Any]]] = {
    LIST_GROUPS: struct(ListGroupsRequest),
    DESCRIBE_CLUSTER: struct(DescribeClusterRequest),
    LIST_CONFIG_RESOURCES: struct(ListConfigResourcesRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    LIST_GROUPS: struct(ListGroupsResponse),
    DESCRIBE_CLUSTER: struct(DescribeClusterResponse),
    LIST_CONFIG_RESOURCES: struct(ListConfigResourcesResponse),
}
