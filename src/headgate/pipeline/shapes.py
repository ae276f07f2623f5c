"""
What is decoded of a request line's JSON, by API: only the fields that the pipeline needs.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Header(msgspec.Struct, gc=False):
    """Which API, and whose client."""

    requestApiKey: int
    requestApiVersion: int
    requestApiKeyName: str
    clientId: str | None = ""


class Line(msgspec.Struct, gc=False):
    """What every API's line has; request and response are skipped."""

    requestHeader: Header
    connection: str
    principal: str
    listener: str
    throttleTimeMs: int
    localTimeMs: float
    responseQueueTimeMs: float
    sendTimeMs: float
    isForwarded: bool = False
    messageConversionsTime: float = 0.0


class ProducePartition(msgspec.Struct, gc=False):
    """Records of one partition."""

    recordsSizeInBytes: int | None = None


class ProduceTopic(msgspec.Struct, gc=False):
    """A topic produced to."""

    partitionData: list[ProducePartition]
    name: str | None = None


class ProduceRequest(msgspec.Struct, gc=False):
    """Body of a produce request."""

    topicData: list[ProduceTopic]
    transactionalId: str | None = None


class ProduceLine(Line, gc=False, kw_only=True):
    """A produce request; its answer is skipped."""

    request: ProduceRequest


class ReplicaState(msgspec.Struct, gc=False):
    """Who fetches (15+)."""

    replicaId: int = -1


class FetchRequest(msgspec.Struct, gc=False):
    """Who fetches, before 15 and since."""

    replicaId: int = -1
    replicaState: ReplicaState | None = None


class FetchPartition(msgspec.Struct, gc=False):
    """Records of one partition, and what else makes up its size."""

    recordsSizeInBytes: int | None = None
    abortedTransactions: list[msgspec.Raw] | None = None
    divergingEpoch: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    currentLeader: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    snapshotId: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class FetchTopic(msgspec.Struct, gc=False):
    """A topic fetched from."""

    partitions: list[FetchPartition]
    topic: str | None = None


class FetchResponse(msgspec.Struct, gc=False):
    """Body of a fetch answer."""

    responses: list[FetchTopic]


class FetchLine(Line, gc=False, kw_only=True):
    """A fetch; its answer is "" where there was none."""

    request: FetchRequest
    response: FetchResponse | str


class SharePartition(msgspec.Struct, gc=False):
    """Records of one partition."""

    recordsSizeInBytes: int | None = None
    acquiredRecords: list[msgspec.Raw] | None = None


class ShareTopic(msgspec.Struct, gc=False):
    """A topic fetched from."""

    partitions: list[SharePartition]


class ShareResponse(msgspec.Struct, gc=False):
    """Body of a share fetch's answer."""

    responses: list[ShareTopic]


class ShareLine(Line, gc=False, kw_only=True):
    """A share fetch; its request is skipped."""

    response: ShareResponse | str


class NewTopic(msgspec.Struct, gc=False):
    """A topic to create, delete or enlarge."""

    numPartitions: int = 1
    assignments: list[msgspec.Raw] | None = None
    count: int = 1


class TopicsRequest(msgspec.Struct, gc=False):
    """Body of a request to change topics."""

    topics: list[NewTopic] | None = None
    topicNames: list[msgspec.Raw] | None = None
    validateOnly: bool = False


class Answer(msgspec.Struct, gc=False):
    """What every answer may tell."""

    throttleTimeMs: int = 0


class MutationLine(Line, gc=False, kw_only=True):
    """A change of topics."""

    request: TopicsRequest
    response: Answer | str


PLAIN: Final = msgspec.json.Decoder(Line)
PRODUCE_LINE: Final = msgspec.json.Decoder(ProduceLine)
FETCH_LINE: Final = msgspec.json.Decoder(FetchLine)
SHARE: Final = msgspec.json.Decoder(ShareLine)
MUTATION_LINE: Final = msgspec.json.Decoder(MutationLine)
# By API key, as the digits stand in the line.
DECODERS: Final[dict[bytes, Any]] = {
    b"0,": PRODUCE_LINE,
    b"1,": FETCH_LINE,
    b"78,": SHARE,  # SHARE_FETCH
    b"19,": MUTATION_LINE,  # CREATE_TOPICS
    b"20,": MUTATION_LINE,  # DELETE_TOPICS
    b"37,": MUTATION_LINE,  # CREATE_PARTITIONS
}
