"""
Every Kafka API as data: names, versions, where the throttle is, what the gateway must read.

Rows are one line each, so that a new Kafka release is a diff of a few lines. Columns: api key,
name, oldest version ever, newest known, flexible since (KIP-482), ``throttle_time_ms`` since,
clients pause unmuted since (KIP-219), newest version that may pass through the gateway where
it must understand the API (None: any passes), flags.

Source: Apache Kafka's message schemas and ``ApiKeys`` of 3.9 (with the old versions that 4.0
dropped) and 4.3; ApiVersions 5, TxnOffsetCommit 6 and DeleteGroups 3 are 4.4's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NEVER: Final = 32767  # above every version

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
CONTROLLED_SHUTDOWN: Final = 7
FIND_COORDINATOR: Final = 10
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
INIT_PRODUCER_ID: Final = 22
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
INCREMENTAL_ALTER_CONFIGS: Final = 44
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_SCRAM: Final = 50
ALTER_SCRAM: Final = 51
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
LIST_CONFIG_RESOURCES: Final = 74
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79


class Api(NamedTuple):
    """
    The facts about one API.

    Attributes:
        key: the api key on the wire.
        name: Kafka's name, as in its request log (``Produce``).
        min_version: the oldest version any release since 0.10 spoke.
        max_version: the newest version known.
        flexible_since: first version with compact and tagged fields; ``NEVER`` if none.
        throttle_since: first version whose response has ``throttle_time_ms``; None if none.
        client_throttles_since: first version from which clients pause without being muted; None:
            never.
        passes_until: newest version the gateway lets through, because it reads this API; None
            where any version passes untouched.
        cluster_action: an inter-broker call.
        forwardable: brokers forward it to the controller.
        has_addresses: some version's response names brokers' addresses.
        charged: counted against more than the request quota.
        proxied: False for what only controllers answer; it is never advertised.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int
    throttle_since: int | None
    client_throttles_since: int | None
    passes_until: int | None
    cluster_action: bool
    forwardable: bool
    has_addresses: bool
    charged: bool
    proxied: bool


_Row = tuple[int, str, int, int, int, int | None, int | None, int | None, str]

# Flags: a answers with broker addresses, $ charged (bytes, mutations or producer ids), c cluster
# action, f forwardable, x for controllers only. Produce must not be held below 12 while
# transaction.version 2 is advertised: the Java producer then leaves out AddPartitionsToTxn.
_ROWS: Final[tuple[_Row, ...]] = (
    (0, "Produce", 0, 13, 9, 1, 6, 13, "a$"),
    (1, "Fetch", 0, 18, 12, 1, 8, 18, "a$"),
    (2, "ListOffsets", 0, 11, 6, 2, 3, None, ""),
    (3, "Metadata", 0, 13, 9, 3, 6, 13, "a"),
    (4, "LeaderAndIsr", 0, 7, 4, None, None, None, "c"),
    (5, "StopReplica", 0, 4, 2, None, None, None, "c"),
    (6, "UpdateMetadata", 0, 8, 6, None, None, None, "c"),
    (7, "ControlledShutdown", 0, 3, 3, None, None, None, "c"),
    (8, "OffsetCommit", 0, 10, 8, 3, 4, None, ""),
    (9, "OffsetFetch", 0, 10, 6, 3, 4, None, ""),
    (10, "FindCoordinator", 0, 6, 3, 1, 2, 6, "a"),
    (11, "JoinGroup", 0, 9, 6, 2, 3, None, ""),
    (12, "Heartbeat", 0, 4, 4, 1, 2, None, ""),
    (13, "LeaveGroup", 0, 5, 4, 1, 2, None, ""),
    (14, "SyncGroup", 0, 5, 4, 1, 2, None, ""),
    (15, "DescribeGroups", 0, 6, 5, 1, 2, None, ""),
    (16, "ListGroups", 0, 5, 3, 1, 2, None, ""),
    (17, "SaslHandshake", 0, 1, NEVER, None, None, 1, ""),
    (18, "ApiVersions", 0, 5, 3, 1, 2, 5, ""),
    (19, "CreateTopics", 0, 7, 5, 2, 3, 7, "f$"),
    (20, "DeleteTopics", 0, 6, 4, 1, 2, 6, "f$"),
    (21, "DeleteRecords", 0, 2, 2, 0, 1, None, ""),
    (22, "InitProducerId", 0, 6, 2, 0, 1, 6, "$"),
    (23, "OffsetForLeaderEpoch", 0, 4, 4, 2, None, None, ""),
    (24, "AddPartitionsToTxn", 0, 5, 3, 0, 1, None, ""),
    (25, "AddOffsetsToTxn", 0, 4, 3, 0, 1, None, ""),
    (26, "EndTxn", 0, 5, 3, 0, 1, None, ""),
    (27, "WriteTxnMarkers", 0, 2, 1, None, None, None, "c"),
    (28, "TxnOffsetCommit", 0, 6, 3, 0, 1, None, ""),
    (29, "DescribeAcls", 0, 3, 2, 0, 1, None, ""),
    (30, "CreateAcls", 0, 3, 2, 0, 1, None, "f"),
    (31, "DeleteAcls", 0, 3, 2, 0, 1, None, "f"),
    (32, "DescribeConfigs", 0, 4, 4, 0, 2, 4, ""),
    (33, "AlterConfigs", 0, 2, 2, 0, 1, 2, "f"),
    (34, "AlterReplicaLogDirs", 0, 2, 2, 0, 1, None, ""),
    (35, "DescribeLogDirs", 0, 5, 2, 0, 1, None, ""),
    (36, "SaslAuthenticate", 0, 2, 2, None, None, 2, ""),
    (37, "CreatePartitions", 0, 3, 2, 0, 1, 3, "f$"),
    (38, "CreateDelegationToken", 0, 3, 2, 0, 1, None, "f"),
    (39, "RenewDelegationToken", 0, 2, 2, 0, 1, None, "f"),
    (40, "ExpireDelegationToken", 0, 2, 2, 0, 1, None, "f"),
    (41, "DescribeDelegationToken", 0, 3, 2, 0, 1, None, ""),
    (42, "DeleteGroups", 0, 3, 2, 0, 1, None, ""),
    (43, "ElectLeaders", 0, 2, 2, 0, 0, None, "f"),
    (44, "IncrementalAlterConfigs", 0, 1, 1, 0, 0, 1, "f"),
    (45, "AlterPartitionReassignments", 0, 1, 0, 0, 0, None, "f"),
    (46, "ListPartitionReassignments", 0, 0, 0, 0, 0, None, "f"),
    (47, "OffsetDelete", 0, 0, NEVER, 0, 0, None, ""),
    (48, "DescribeClientQuotas", 0, 1, 1, 0, None, 1, ""),
    (49, "AlterClientQuotas", 0, 1, 1, 0, None, 1, "f"),
    (50, "DescribeUserScramCredentials", 0, 0, 0, 0, 0, None, ""),
    (51, "AlterUserScramCredentials", 0, 0, 0, 0, 0, None, "f"),
    (52, "Vote", 0, 2, 0, None, None, None, "cx"),
    (53, "BeginQuorumEpoch", 0, 1, 1, None, None, None, "cx"),
    (54, "EndQuorumEpoch", 0, 1, 1, None, None, None, "cx"),
    (55, "DescribeQuorum", 0, 2, 0, None, None, 2, "cfa"),
    (56, "AlterPartition", 0, 3, 0, 0, None, None, "cx"),
    (57, "UpdateFeatures", 0, 2, 0, 0, None, None, "cf"),
    (58, "Envelope", 0, 0, 0, None, None, None, "cx"),
    (59, "FetchSnapshot", 0, 1, 0, 0, None, None, "x"),
    (60, "DescribeCluster", 0, 2, 0, 0, None, 2, "a"),
    (61, "DescribeProducers", 0, 0, 0, 0, None, None, ""),
    (62, "BrokerRegistration", 0, 4, 0, 0, 0, None, "cx"),
    (63, "BrokerHeartbeat", 0, 2, 0, 0, 0, None, "cx"),
    (64, "UnregisterBroker", 0, 0, 0, 0, 0, None, "f"),
    (65, "DescribeTransactions", 0, 0, 0, 0, None, None, ""),
    (66, "ListTransactions", 0, 2, 0, 0, None, None, ""),
    (67, "AllocateProducerIds", 0, 0, 0, 0, None, None, "cfx"),
    (68, "ConsumerGroupHeartbeat", 0, 1, 0, 0, None, None, ""),
    (69, "ConsumerGroupDescribe", 0, 1, 0, 0, None, None, ""),
    (70, "ControllerRegistration", 0, 0, 0, 0, None, None, "x"),
    (71, "GetTelemetrySubscriptions", 0, 0, 0, 0, None, None, ""),
    (72, "PushTelemetry", 0, 0, 0, 0, None, None, ""),
    (73, "AssignReplicasToDirs", 0, 0, 0, 0, None, None, "x"),
    (74, "ListConfigResources", 0, 1, 0, 0, None, None, ""),
    (75, "DescribeTopicPartitions", 0, 0, 0, 0, 0, None, ""),
    (76, "ShareGroupHeartbeat", 1, 1, 0, 0, None, None, ""),
    (77, "ShareGroupDescribe", 1, 1, 0, 0, None, None, ""),
    (78, "ShareFetch", 1, 2, 0, 0, None, 2, "a$"),
    (79, "ShareAcknowledge", 1, 2, 0, 0, None, 2, "a"),
    (80, "AddRaftVoter", 0, 1, 0, 0, None, None, "f"),
    (81, "RemoveRaftVoter", 0, 0, 0, 0, None, None, "f"),
    (82, "UpdateRaftVoter", 0, 0, 0, 0, None, None, "x"),
    (83, "InitializeShareGroupState", 0, 0, 0, None, None, None, "c"),
    (84, "ReadShareGroupState", 0, 0, 0, None, None, None, "c"),
    (85, "WriteShareGroupState", 0, 1, 0, None, None, None, "c"),
    (86, "DeleteShareGroupState", 0, 0, 0, None, None, None, "c"),
    (87, "ReadShareGroupStateSummary", 0, 1, 0, None, None, None, "c"),
    (88, "StreamsGroupHeartbeat", 0, 0, 0, 0, None, None, ""),
    (89, "StreamsGroupDescribe", 0, 0, 0, 0, None, None, ""),
    (90, "DescribeShareGroupOffsets", 0, 1, 0, 0, None, None, ""),
    (91, "AlterShareGroupOffsets", 0, 0, 0, 0, None, None, ""),
    (92, "DeleteShareGroupOffsets", 0, 0, 0, 0, None, None, ""),
)


def _api(row: _Row) -> Api:
    flags = row[8]
    return Api(*row[:8], "c" in flags, "f" in flags, "a" in flags, "$" in flags, "x" not in flags)


API: Final[Mapping[int, Api]] = MappingProxyType({row[0]: _api(row) for row in _ROWS})
# Plain dicts for the hot path: one lookup, no attribute.
FLEXIBLE_SINCE: Final[dict[int, int]] = {api.key: api.flexible_since for api in API.values()}
THROTTLE_SINCE: Final[dict[int, int]] = {
    api.key: api.throttle_since for api in API.values() if api.throttle_since is not None
}


def has_throttle(api_key: int, version: int) -> bool:
    """Whether the response of this version has ``throttle_time_ms``; False for unknown keys."""
    return version >= THROTTLE_SINCE.get(api_key, NEVER)


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, ``UNKNOWN(n)`` for one not known."""
    api = API.get(api_key)
    return f"UNKNOWN({api_key})" if api is None else api.name
