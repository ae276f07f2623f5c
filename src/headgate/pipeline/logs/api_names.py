"""
Name APIs as a request log does (Kafka's ApiKeys), and say which of them only brokers use.
"""

from __future__ import annotations

import re
from typing import Final

from headgate.wire.apis import API

# By API key, from 0 on: ListOffsets -> LIST_OFFSETS.
API_NAMES: Final = tuple(
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", API[key].name).upper() for key in sorted(API)
)


def api_name(key: int | None) -> str | None:
    """Return the API's name; ``API_99`` for one we don't know, None for None."""
    if key is None:
        return None
    return API_NAMES[key] if 0 <= key < len(API_NAMES) else f"API_{key}"


# Requests between brokers and controllers: exempt from client quotas (KafkaApis, ControllerApis:
# CLUSTER_ACTION). ADD_PARTITIONS_TO_TXN from version 4 on is the brokers' own too (KIP-890).
# ALTER_ISR is ALTER_PARTITION's name before Kafka 3.2.
_OWN: Final = (
    "LEADER_AND_ISR STOP_REPLICA UPDATE_METADATA CONTROLLED_SHUTDOWN WRITE_TXN_MARKERS VOTE "
    "BEGIN_QUORUM_EPOCH END_QUORUM_EPOCH ALTER_PARTITION ALTER_ISR ENVELOPE FETCH_SNAPSHOT "
    "BROKER_REGISTRATION BROKER_HEARTBEAT ALLOCATE_PRODUCER_IDS CONTROLLER_REGISTRATION "
    "ASSIGN_REPLICAS_TO_DIRS UPDATE_RAFT_VOTER INITIALIZE_SHARE_GROUP_STATE "
    "READ_SHARE_GROUP_STATE WRITE_SHARE_GROUP_STATE DELETE_SHARE_GROUP_STATE "
    "READ_SHARE_GROUP_STATE_SUMMARY"
)
BROKERS_OWN: Final = frozenset(_OWN.split())


def is_brokers_own(api_name: str, version: int) -> bool:
    """Say whether only brokers and controllers send it, so that no client quota counts it."""
    return api_name in BROKERS_OWN or (api_name == "ADD_PARTITIONS_TO_TXN" and version >= 4)
