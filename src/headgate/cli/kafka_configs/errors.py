"""
kafka-configs: errors as Java prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.errors import ApiError, ConfigError, HeadgateError

_TABLE = """
-1:UnknownServer 1:OffsetOutOfRange 2:CorruptRecord 3:UnknownTopicOrPartition 4:InvalidFetchSize
5:LeaderNotAvailable 6:NotLeaderOrFollower 7:Timeout 8:BrokerNotAvailable 9:ReplicaNotAvailable
10:RecordTooLarge 11:ControllerMoved 12:OffsetMetadataTooLarge 13:Network
14:CoordinatorLoadInProgress 15:CoordinatorNotAvailable 16:NotCoordinator 17:InvalidTopic
18:RecordBatchTooLarge 19:NotEnoughReplicas 20:NotEnoughReplicasAfterAppend 21:InvalidRequiredAcks
22:IllegalGeneration 23:InconsistentGroupProtocol 24:InvalidGroupId 25:UnknownMemberId
26:InvalidSessionTimeout 27:RebalanceInProgress 28:InvalidCommitOffsetSize 29:TopicAuthorization
30:GroupAuthorization 31:ClusterAuthorization 32:InvalidTimestamp 33:UnsupportedSaslMechanism
34:IllegalSaslState 35:UnsupportedVersion 36:TopicExists 37:InvalidPartitions
38:InvalidReplicationFactor 39:InvalidReplicaAssignment 40:InvalidConfiguration 41:NotController
42:InvalidRequest 43:UnsupportedForMessageFormat 44:PolicyViolation 45:OutOfOrderSequence
46:DuplicateSequence 47:InvalidProducerEpoch 48:InvalidTxnState 49:InvalidPidMapping
50:InvalidTxnTimeout 51:ConcurrentTransactions 52:TransactionCoordinatorFenced
53:TransactionalIdAuthorization 54:SecurityDisabled 55:OperationNotAttempted 56:KafkaStorage
57:LogDirNotFound 58:SaslAuthentication 59:UnknownProducerId 60:ReassignmentInProgress
61:DelegationTokenDisabled 62:DelegationTokenNotFound 63:DelegationTokenOwnerMismatch
64:UnsupportedByAuthentication 65:DelegationTokenAuthorization 66:DelegationTokenExpired
67:InvalidPrincipalType 68:GroupNotEmpty 69:GroupIdNotFound 70:FetchSessionIdNotFound
71:InvalidFetchSessionEpoch 72:ListenerNotFound 73:TopicDeletionDisabled 74:FencedLeaderEpoch
75:UnknownLeaderEpoch 76:UnsupportedCompressionType 77:StaleBrokerEpoch 78:OffsetNotAvailable
79:MemberIdRequired 80:PreferredLeaderNotAvailable 81:GroupMaxSizeReached 82:FencedInstanceId
83:EligibleLeadersNotAvailable 84:ElectionNotNeeded 85:NoReassignmentInProgress
86:GroupSubscribedToTopic 87:InvalidRecord 88:UnstableOffsetCommit 89:ThrottlingQuotaExceeded
90:ProducerFenced 91:ResourceNotFound 92:DuplicateResource 93:UnacceptableCredential
94:InconsistentVoterSet 95:InvalidUpdateVersion 96:FeatureUpdateFailed 97:PrincipalDeserialization
98:SnapshotNotFound 99:PositionOutOfRange 100:UnknownTopicId 101:DuplicateBrokerRegistration
102:BrokerIdNotRegistered 103:InconsistentTopicId 104:InconsistentClusterId
105:TransactionalIdNotFound 106:FetchSessionTopicId 107:IneligibleReplica 108:NewLeaderElected
109:OffsetMovedToTieredStorage 110:FencedMemberEpoch 111:UnreleasedInstanceId
112:UnsupportedAssignor 113:StaleMemberEpoch 114:MismatchedEndpointType
115:UnsupportedEndpointType 116:UnknownControllerId 117:UnknownSubscriptionId
118:TelemetryTooLarge 119:InvalidRegistration 120:TransactionAbortable 121:InvalidRecordState
122:ShareSessionNotFound 123:InvalidShareSessionEpoch 124:FencedStateEpoch 125:InvalidVoterKey
126:DuplicateVoter 127:VoterNotFound 128:InvalidRegularExpression 129:RebootstrapRequired
130:StreamsInvalidTopology 131:StreamsInvalidTopologyEpoch 132:StreamsTopologyFenced
133:ShareSessionLimitReached
"""
_PAIRS = (word.split(":") for word in _TABLE.split())
_EXCEPTIONS: Final[Mapping[int, str]] = {int(code): f"{name}Exception" for code, name in _PAIRS}
"""Which exception Java makes of a code (Errors in Apache Kafka 4.3.1)."""


def java_exception(error: ApiError) -> str:
    """Return an error as Java prints it, class and text."""
    name = _EXCEPTIONS.get(int(error.code), "ApiException")
    return f"org.apache.kafka.common.errors.{name}: {error}"


def java_text(error: BaseException) -> str:
    """Return what stands below "Error while executing config command", without the stack."""
    if isinstance(error, ApiError):
        return f"java.util.concurrent.ExecutionException: {java_exception(error)}"
    if isinstance(error, FileNotFoundError):
        return f"java.nio.file.NoSuchFileException: {error.filename}"
    if isinstance(error, ConfigError):
        return "\n".join(
            f"org.apache.kafka.common.config.ConfigException: {p}" for p in error.problems
        )
    if isinstance(error, HeadgateError):
        return str(error)
    return f"{type(error).__name__}: {error}"
