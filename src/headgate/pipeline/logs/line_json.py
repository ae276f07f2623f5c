"""
What is decoded of a request line's JSON, by API: only the fields that the pipeline needs.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec

from headgate.pipeline.logs.bad_lines import BadLine, why

_NULL: Final = msgspec.Raw(b"null")

# What a broker can have written: int16 and int32 as on the wire, and times of less than four months
# (1e10 ms). What is beyond was garbled, and would garble the sums. The scan knows them too.
Short = Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Millis = Annotated[float, msgspec.Meta(ge=0.0, lt=1e10)]


class Header(msgspec.Struct, gc=False):
    """Which API, and whose client."""

    requestApiKey: int
    requestApiVersion: Short
    requestApiKeyName: str
    clientId: str | None = ""


class Line(msgspec.Struct, gc=False):
    """What every API's line has; request and response are skipped."""

    requestHeader: Header
    connection: str
    principal: str
    listener: str
    throttleTimeMs: Int
    localTimeMs: Millis
    responseQueueTimeMs: Millis
    sendTimeMs: Millis
    isForwarded: bool = False
    messageConversionsTime: float = 0.0


class ProducePartition(msgspec.Struct, gc=False):
    """Records of one partition: their size, or ``records`` null."""

    recordsSizeInBytes: Size | None = None
    records: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_sized(self) -> bool:
        """Whether the line tells how large the records are."""
        return self.recordsSizeInBytes is not None or self.records == _NULL


class ProduceTopic(msgspec.Struct, gc=False):
    """A topic produced to."""

    partitionData: list[ProducePartition]
    name: str | None = None


class ProduceRequest(msgspec.Struct, gc=False):
    """Body of a produce request."""

    topicData: list[ProduceTopic]
    transactionalId: str | None = None


class PartitionAnswer(msgspec.Struct, gc=False):
    """What became of one partition's records."""

    errorCode: int = 0


class TopicAnswer(msgspec.Struct, gc=False):
    """What became of one topic's records."""

    partitionResponses: list[PartitionAnswer] = []


class ProduceResponse(msgspec.Struct, gc=False):
    """Body of a produce answer."""

    responses: list[TopicAnswer] = []


class ProduceLine(Line, gc=False, kw_only=True):
    """A produce request; its answer is decoded only where it may hold a refusal."""

    request: ProduceRequest
    response: msgspec.Raw = msgspec.Raw(b"")


class ReplicaState(msgspec.Struct, gc=False):
    """The id of the replica that fetches (version 15 and newer)."""

    replicaId: int = -1


class FetchRequest(msgspec.Struct, gc=False):
    """The id of the replica that fetches: before version 15, and since."""

    replicaId: int = -1
    replicaState: ReplicaState | None = None


class FetchPartition(msgspec.Struct, gc=False):
    """Records of one partition, and what else makes up its size."""

    recordsSizeInBytes: Size | None = None
    records: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    recordSetSizeInBytes: Size | None = None  # Kafka 2.8's names
    recordSet: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    errorCode: int = 0
    abortedTransactions: list[msgspec.Raw] | None = None
    divergingEpoch: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    currentLeader: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    snapshotId: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def size(self) -> int | None:
        """Bytes of the records, None where they're null, or not told."""
        if self.recordsSizeInBytes is None:
            return self.recordSetSizeInBytes
        return self.recordsSizeInBytes

    @property
    def is_sized(self) -> bool:
        """Whether the line tells how large the records are."""
        return self.size is not None or _NULL in (self.records, self.recordSet)


class FetchTopic(msgspec.Struct, gc=False):
    """A topic fetched from; Kafka 2.8 calls its partitions ``partitionResponses``."""

    partitions: list[FetchPartition] | None = None
    partitionResponses: list[FetchPartition] | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        """Keep the partitions in one place, whatever they are called."""
        if self.partitions is None:
            if self.partitionResponses is None:
                msg = "Object missing required field `partitions`"
                raise ValueError(msg)
            self.partitions = self.partitionResponses


class FetchResponse(msgspec.Struct, gc=False):
    """Body of a fetch answer."""

    responses: list[FetchTopic]


class FetchLine(Line, gc=False, kw_only=True):
    """A fetch; its answer is "" where there was none."""

    request: FetchRequest
    response: FetchResponse | str


class SharePartition(msgspec.Struct, gc=False):
    """Records of one partition."""

    recordsSizeInBytes: Size | None = None
    errorCode: int = 0
    acquiredRecords: list[msgspec.Raw] | None = None


class ShareTopic(msgspec.Struct, gc=False):
    """A topic fetched from."""

    partitions: list[SharePartition]


class ShareResponse(msgspec.Struct, gc=False):
    """Body of a share fetch's answer."""

    responses: list[ShareTopic]
    errorCode: int = 0


class ShareLine(Line, gc=False, kw_only=True):
    """A share fetch; its request is skipped."""

    response: ShareResponse | str


class NewTopic(msgspec.Struct, gc=False):
    """A topic to create, delete or enlarge; only one to create has ``numPartitions``."""

    name: msgspec.Raw = _NULL
    topicId: msgspec.Raw = _NULL
    numPartitions: int | None = None
    assignments: list[msgspec.Raw] | None = None
    count: int = 1


class TopicsRequest(msgspec.Struct, gc=False):
    """Body of a request to change topics."""

    topics: list[NewTopic] | None = None
    topicNames: list[msgspec.Raw] | None = None
    validateOnly: bool = False


class ChangedTopic(msgspec.Struct, gc=False):
    """What became of one topic."""

    name: msgspec.Raw = _NULL
    topicId: msgspec.Raw = _NULL
    errorCode: int = 0
    numPartitions: int = -1


class TopicsResponse(msgspec.Struct, gc=False):
    """Body of the answer to a change of topics; each API calls the topics by another name."""

    throttleTimeMs: Int = 0
    topics: list[ChangedTopic] | None = None
    responses: list[ChangedTopic] | None = None
    results: list[ChangedTopic] | None = None


class MutationLine(Line, gc=False, kw_only=True):
    """A change of topics."""

    request: TopicsRequest
    response: TopicsResponse | str


PLAIN: Final = msgspec.json.Decoder(Line)
PRODUCE_LINE: Final = msgspec.json.Decoder(ProduceLine)
PRODUCE_RESPONSE: Final = msgspec.json.Decoder(ProduceResponse)
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
# RequestConvertToJson writes the keys in this order (requestHeader's first is the API key).
_KEY: Final = b'"requestApiKey":'
_KEY_LEN: Final = len(_KEY)
_JSON: Final = json.JSONDecoder()


def decoded(body: bytes) -> tuple[Any, Any]:
    """
    Return a line's JSON, as much of it as its API needs, and the decoder that read it.

    Raises:
        BadLine: it isn't the JSON of a request.
    """
    key = body.find(_KEY, 0, 160) + _KEY_LEN
    decoder = DECODERS.get(body[key : body.find(b",", key) + 1], PLAIN)
    end = body.rfind(b"}") + 1
    try:
        try:
            line = decoder.decode(body[:end])
        except msgspec.DecodeError as exc:
            if isinstance(exc, msgspec.ValidationError):
                raise
            whole = _before_more(body[:end])
            end = len(whole)
            line = decoder.decode(whole)
        if decoder is PLAIN:  # a layout with spaces, or keys in another order
            decoder = DECODERS.get(b"%d," % line.requestHeader.requestApiKey, PLAIN)
            if decoder is not PLAIN:
                line = decoder.decode(body[:end])
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise BadLine(why(body, exc)) from exc
    return line, decoder


def _before_more(body: bytes) -> bytes:
    """Return the JSON without what a layout prints behind it, such as {} for ``%X``."""
    try:
        text = body.decode()
        _, end = _JSON.raw_decode(text)
    except ValueError:  # something else is wrong
        return body
    return body if '"requestHeader"' in text[end:] else text[:end].encode()
