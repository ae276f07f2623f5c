"""
Calls that change partitions: CreateTopics 19, DeleteTopics 20, CreatePartitions 37.

The gateway counts the partitions they change and, for versions whose clients know error 89, answers
in the broker's place for the topics that are over quota; the others go on to it.

Source: KIP-599; Apache Kafka's ``CreateTopics*.json``, ``DeleteTopics*.json``,
``CreatePartitions*.json``; ``ReplicationControlManager`` for what counts.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final, TypeAlias

from headgate.errors import KafkaError
from headgate.steps import FEW, Counted, Work
from headgate.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from headgate.wire.fields import Buffer, skip_tagged, write_array_length
from headgate.wire.header import (
    build_request,
    build_response,
    is_flexible,
    parse_request_header,
    response_body_offset,
)
from headgate.wire.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Struct,
    check_end,
    message,
    struct,
    versions,
)
from headgate.wire.throttle import clamp

# First versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
NO_ID: Final = uuid.UUID(int=0)
_REFUSED: Final = int(KafkaError.THROTTLING_QUOTA_EXCEEDED)

# A topic by name, or (DeleteTopics 6) by id.
TopicRef: TypeAlias = str | uuid.UUID
Current: TypeAlias = Callable[[TopicRef], int | None]


@message("partition_index")
class Assignment:
    """The replicas of one partition; the index is only in CreateTopics."""

    broker_ids: tuple[Int32, ...]
    partition_index: Int32 = -1


@message()
class TopicConfig:
    """A config of a topic to create."""

    name: str
    value: str | None


@message()
class CreatableTopic:
    """A topic to create; ``num_partitions`` -1 with no assignments means the broker's default."""

    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[TopicConfig, ...] = ()


@message()
class CreateTopicsRequest:
    """Topics to create."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: Int32 = 60_000
    validate_only: bool = versions(False, since=1)


@message()
class CreatedConfig:
    """A config a created topic has."""

    name: str
    value: str | None
    read_only: bool
    config_source: Int8
    is_sensitive: bool


@message()
class CreatedTopic:
    """How it went for one topic."""

    name: str
    topic_id: uuid.UUID = versions(NO_ID, since=7)
    error_code: Int16 = 0
    error_message: str | None = versions(None, since=1)
    topic_config_error_code: Int16 = versions(0, since=5, tag=0)
    num_partitions: Int32 = versions(-1, since=5)
    replication_factor: Int16 = versions(-1, since=5)
    configs: tuple[CreatedConfig, ...] | None = versions((), since=5)


@message("throttle_time_ms")
class CreateTopicsResponse:
    """How it went."""

    topics: tuple[CreatedTopic, ...]
    throttle_time_ms: Int32 = versions(0, since=2)


@message()
class DeletableTopic:
    """A topic to delete, by name or (version 6) by id."""

    name: str | None
    topic_id: uuid.UUID = NO_ID


@message()
class DeleteTopicsRequest:
    """Topics to delete: ``topics`` from version 6 on, ``topic_names`` before."""

    topics: tuple[DeletableTopic, ...] = versions((), since=6)
    topic_names: tuple[str, ...] = versions((), until=5)
    timeout_ms: Int32 = 60_000


@message()
class DeletedTopic:
    """How it went for one topic."""

    name: str | None
    topic_id: uuid.UUID = versions(NO_ID, since=6)
    error_code: Int16 = 0
    error_message: str | None = versions(None, since=5)


@message("throttle_time_ms")
class DeleteTopicsResponse:
    """How it went."""

    topics: tuple[DeletedTopic, ...]
    throttle_time_ms: Int32 = versions(0, since=1)


@message()
class GrowingTopic:
    """A topic and the number of partitions it shall have in all."""

    name: str
    count: Int32
    assignments: Annotated[tuple[Assignment, ...] | None, _WITHOUT_INDEX] = None


@message()
class CreatePartitionsRequest:
    """Topics that shall have more partitions."""

    topics: tuple[GrowingTopic, ...]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


@message()
class GrownTopic:
    """How it went for one topic."""

    name: str
    error_code: Int16 = 0
    error_message: str | None = None


@message("throttle_time_ms")
class CreatePartitionsResponse:
    """How it went."""

    topics: tuple[GrownTopic, ...]
    throttle_time_ms: Int32 = 0


_WITHOUT_INDEX: Final = Array(struct(Assignment, without="partition_index"), nullable=True)
REQUESTS: Final[dict[int, Struct[Any]]] = {
    CREATE_TOPICS: struct(CreateTopicsRequest),
    DELETE_TOPICS: struct(DeleteTopicsRequest),
    CREATE_PARTITIONS: struct(CreatePartitionsRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    CREATE_TOPICS: struct(CreateTopicsResponse),
    DELETE_TOPICS: struct(DeleteTopicsResponse),
    CREATE_PARTITIONS: struct(CreatePartitionsResponse),
}


@dataclass(frozen=True, slots=True)
class Mutations:
    """
    The partitions a request changes, topic by topic in its order.

    Attributes:
        topics: names, or ids where DeleteTopics 6 gives ids.
        partitions: for each the partitions created or deleted; None where only the cluster knows
            and ``current`` didn't.
        validate_only: nothing is to be changed.
        strict: the client knows error 89.
    """

    topics: tuple[TopicRef, ...]
    partitions: tuple[int | None, ...]
    validate_only: bool
    strict: bool


def _ref(topic: Any) -> TopicRef:
    """Return the name of a topic of any of these requests, or its id where it has none."""
    if isinstance(topic, str):
        return topic
    ref: TopicRef = topic.topic_id if topic.name is None else topic.name
    return ref


def _lists(request: Any) -> dict[str, Sequence[Any]]:
    """Return the lists of topics that a request has, by the names of their fields."""
    names = ("topics", "topic_names")
    return {name: getattr(request, name) for name in names if hasattr(request, name)}


def named(request: Any) -> Work[list[TopicRef]]:
    """Return the topics that a request names, by name or id, in its order; in steps."""
    refs: list[TopicRef] = []
    for topic in chain.from_iterable(_lists(request).values()):
        refs.append(_ref(topic))
        if not len(refs) % FEW:
            yield
    return refs


def mutations(
    api_key: int,
    version: int,
    request: Any,
    *,
    current: Current = lambda topic: None,
    default_partitions: int | None = None,
) -> Work[Mutations]:
    """
    Count what a request changes, step by step.

    Args:
        api_key: 19, 20 or 37.
        version: of the request.
        request: its body.
        current: partitions a topic has now, by name or id; None if unknown. Deletes count them all,
            CreatePartitions those above that number.
        default_partitions: the cluster's ``num.partitions``, for topics that leave it open.
    """
    strict = version >= STRICT_SINCE[api_key]
    refs = yield from named(request)
    counts: list[int | None] = []
    if api_key == DELETE_TOPICS:
        for ref in refs:
            counts.append(current(ref))
            yield
        return Mutations(tuple(refs), tuple(counts), False, strict)
    for topic in request.topics:
        if api_key == CREATE_PARTITIONS:
            now = current(topic.name)
            counts.append(None if now is None else max(topic.count - now, 0))
        elif topic.assignments:
            counts.append(len(topic.assignments))
        else:
            asked = topic.num_partitions
            counts.append(default_partitions if asked == -1 else max(asked, 0))
        yield
    return Mutations(tuple(refs), tuple(counts), request.validate_only, strict)


def keep(
    api_key: int, version: int, frame: Buffer, request: Any, refused: Collection[TopicRef]
) -> Work[bytes]:
    """
    Return the request without the refused topics, as it is sent to the broker. Runs in steps.

    Args:
        api_key: 19, 20 or 37.
        version: of the request.
        frame: the request; its header is kept.
        request: its body.
        refused: names or ids.
    """
    _, _, correlation_id, client_id, _ = parse_request_header(frame)
    gone: set[TopicRef] = set()
    for ref in refused:
        gone.add(ref)
        yield
    kept: dict[str, list[Any]] = {}
    for name, topics in _lists(request).items():
        kept[name] = []
        for topic in topics:
            if _ref(topic) not in gone:
                kept[name].append(topic)
            yield
    request = dataclasses.replace(request, **kept)
    body = yield from REQUESTS[api_key].encode_steps(
        request, version, is_flexible(api_key, version)
    )
    return build_request(api_key, version, correlation_id, client_id, body)


def _refusal(api_key: int, ref: TopicRef) -> Any:
    text = KafkaError.THROTTLING_QUOTA_EXCEEDED.generic_message
    if api_key == CREATE_TOPICS:
        return CreatedTopic(str(ref), error_code=_REFUSED, error_message=text)
    if api_key == CREATE_PARTITIONS:
        return GrownTopic(str(ref), error_code=_REFUSED, error_message=text)
    if isinstance(ref, uuid.UUID):
        return DeletedTopic(None, ref, _REFUSED, text)
    return DeletedTopic(ref, NO_ID, _REFUSED, text)


def refuse(
    api_key: int,
    version: int,
    correlation_id: int,
    refused: Collection[TopicRef],
    throttle_ms: int,
) -> Work[bytes]:
    """Return an answer that refuses these topics with THROTTLING_QUOTA_EXCEEDED (89)."""
    topics = Counted(len(refused), (_refusal(api_key, ref) for ref in refused))
    kind = RESPONSES[api_key]
    answer = kind.factory(topics=topics, throttle_time_ms=clamp(throttle_ms))
    body = yield from kind.encode_steps(answer, version, is_flexible(api_key, version))
    yield
    return build_response(api_key, version, correlation_id, body)


def merge(
    api_key: int,
    version: int,
    frame: bytes,
    refused: Collection[TopicRef],
    seen: Callable[[Any], None] = lambda topic: None,
) -> Work[bytes]:
    """
    Return the broker's answer with the refused topics added; the rest of it stays.

    Args:
        api_key: 19, 20 or 37.
        version: of the request.
        frame: the answer.
        refused: names or ids.
        seen: called with each topic of the broker's answer. None of them is kept.

    Raises:
        RemoteProtocolError: the answer doesn't parse.
    """
    flexible = is_flexible(api_key, version)
    at = response_body_offset(api_key, version, frame)
    topics: Any = None
    for name, kind, since, until, _, _ in RESPONSES[api_key].fields:
        if name == "topics":
            topics = kind
            break
        if since <= version <= until:
            _, at = kind.read(frame, at, version, flexible)
    counted_at = at
    count, first = topics.begin(frame, at, flexible)
    at = first
    for _ in range(count):
        topic, at = yield from topics.element.read_steps(frame, at, version, flexible)
        seen(topic)
        yield
    check_end(frame, skip_tagged(frame, at, flexible))
    if not refused:
        return frame
    out = bytearray(frame[:counted_at])
    out += write_array_length(count + len(refused), flexible)
    out += frame[first:at]
    for ref in refused:
        parts: list[bytes] = []
        topics.element.write(_refusal(api_key, ref), parts, version, flexible)
        out += b"".join(parts)
        yield
    out += frame[at:]
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    yield
    return bytes(out)
