"""
Metadata 3, versions 8 to 13: which brokers there are, and topics with how many partitions.

For the gateway's own questions; clients' answers are spliced as they pass (``addresses``). Read by
hand: a topic may have thousands of partitions, of which only the number is wanted, and the answer
is read on the event loop.

Source: Apache Kafka's ``MetadataRequest.json``, ``MetadataResponse.json``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.errors import RemoteProtocolError
from headgate.steps import FEW, Work, finish
from headgate.wire.apis import METADATA
from headgate.wire.fields import (
    Buffer,
    read_array_length,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    read_uuid,
    skip_string,
    skip_tags,
)
from headgate.wire.header import build_request, is_flexible, response_body_offset
from headgate.wire.schema import BOOL, NULLABLE_STRING, STRING, UUID, Array, Field, Struct

NO_ID: Final = uuid.UUID(int=0)
"""Where a topic has no id, or none is asked for."""
_PARTITION_HEAD: Final = 14
"""Error code, index, leader and its epoch."""
_NODE_LISTS: Final = 3
"""Replicas, in-sync replicas, offline replicas."""


@dataclass(frozen=True, slots=True)
class AskedTopic:
    """A topic, by its name or (from version 10 on) by its id."""

    name: str | None
    topic_id: uuid.UUID = NO_ID


class Node(NamedTuple):
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int


class TopicMetadata(NamedTuple):
    """A topic and how many partitions it has, or why there is none."""

    error_code: int
    name: str | None
    topic_id: uuid.UUID
    partitions: int


class Metadata(NamedTuple):
    """What a broker knows of the cluster; no controller is -1."""

    brokers: Sequence[Node]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[TopicMetadata]


@dataclass(frozen=True, slots=True)
class _Request:
    topics: tuple[AskedTopic, ...] | None
    no: bool = False


_ASKED: Final = Struct(
    AskedTopic,
    Field("topic_id", UUID, since=10),
    Field("name", STRING, until=9),
    Field("name", NULLABLE_STRING, since=10),
)
_REQUEST: Final = Struct(
    _Request,
    Field("topics", Array(_ASKED, nullable=True)),
    Field("no", BOOL),  # create topics
    Field("no", BOOL, until=10),  # include authorized operations: on the cluster
    Field("no", BOOL),  # and on topics
)


def build_metadata_request(
    version: int, correlation_id: int, client_id: str | None, asked: Sequence[AskedTopic] | None
) -> bytes:
    """
    Return a request frame.

    Args:
        version: 8 to 13.
        correlation_id: for its answer.
        client_id: who asks.
        asked: topics; empty: brokers only; None: every topic.
    """
    message = _Request(None if asked is None else tuple(asked))
    body = _REQUEST.encode(message, version, is_flexible(METADATA, version))
    return build_request(METADATA, version, correlation_id, client_id, body)


def read_metadata_response(version: int, frame: Buffer) -> Metadata:
    """
    Read an answer to ``build_metadata_request``.

    Args:
        version: of the request.
        frame: the answer with its length prefix.

    Raises:
        RemoteProtocolError: it doesn't parse.
    """
    return finish(read_metadata_steps(version, frame))


def read_metadata_steps(version: int, frame: Buffer) -> Work[Metadata]:
    """Do as ``read_metadata_response``, a few topics or partitions at a time."""
    flexible = is_flexible(METADATA, version)
    at = response_body_offset(METADATA, version, frame) + 4  # throttle time
    count, at = read_array_length(frame, at, flexible)
    brokers = []
    for _ in range(count):
        node_id, at = read_int32(frame, at)
        host, at = read_string(frame, at, flexible)
        port, at = read_int32(frame, at)
        at = skip_string(frame, at, flexible)
        if flexible:
            at = skip_tags(frame, at)
        brokers.append(Node(node_id, host, port))
    cluster_id, at = read_nullable_string(frame, at, flexible)
    controller_id, at = read_int32(frame, at)
    count, at = read_array_length(frame, at, flexible)
    topics = []
    room = FEW  # topics and partitions that are still to be looked at in this step
    for _ in range(count):
        code, at = read_int16(frame, at)
        name, at = read_nullable_string(frame, at, flexible)
        topic_id = NO_ID
        if version >= 10:
            topic_id, at = read_uuid(frame, at)
        partitions, at = read_array_length(frame, at + 1, flexible)  # behind is_internal
        left = max(partitions, 0)
        while left >= room:
            at = _skip_partitions(frame, at, room, flexible=flexible)
            left -= room
            room = FEW
            yield
        at = _skip_partitions(frame, at, left, flexible=flexible) + 4  # operations
        room -= left + 1
        if flexible:
            at = skip_tags(frame, at)
        if at > len(frame):
            raise RemoteProtocolError("the answer ends inside a topic")
        topics.append(TopicMetadata(code, name, topic_id, partitions))
    return Metadata(brokers, cluster_id, controller_id, topics)


def _skip_partitions(frame: Buffer, at: int, count: int, *, flexible: bool) -> int:
    """Return where the partitions end that begin at ``at``."""
    end = len(frame)
    for _ in range(count):
        at += _PARTITION_HEAD
        for _ in range(_NODE_LISTS):
            if at >= end:
                raise RemoteProtocolError("the answer ends inside a partition")
            size = frame[at] if flexible else 128
            if 0 < size < 128:
                at += 4 * size - 3  # the byte says one more than there are
            else:
                nodes, at = read_array_length(frame, at, flexible)
                at += 4 * max(nodes, 0)
        if flexible:
            at = skip_tags(frame, at)
    return at
