"""
Swap the addresses of brokers in answers: the only way a client learns where a broker is.

Every function takes ``at``, where the answer goes on behind its throttle time, or its body begins
if it has none; ``book``, broker id to (host, port); and ``hidden``, a list to which it appends the
ids that aren't in the book. Those brokers are left out of the answer: a client waits for a broker
that it isn't shown, and doesn't go past the gateway to it. Everything else is copied as it is; what
is before ``at`` stays where it was. The functions work in steps, because a client may ask for a
hundred thousand coordinators.

Source: ``Metadata``, ``FindCoordinator``, ``DescribeCluster``, ``DescribeQuorum``, ``Produce``,
``Fetch``, ``ShareFetch`` and ``ShareAcknowledge`` responses in Apache Kafka's message schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from headgate.errors import KafkaError, RemoteProtocolError
from headgate.steps import FEW, Work
from headgate.wire import apis
from headgate.wire.fields import (
    INT16,
    INT32,
    Buffer,
    read_array_length,
    read_int8,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    read_tags,
    skip_bytes,
    skip_string,
    skip_tagged,
    skip_tags,
    write_array_length,
    write_nullable_string,
    write_tags,
)
from headgate.wire.header import response_body_offset
from headgate.wire.layout import Skipper
from headgate.wire.messages.fetch import tail_offset
from headgate.wire.throttle import overwrite

Book: TypeAlias = Mapping[int, tuple[str, int]]

COPIED: Final = 262_144
"""Bytes of an answer that are copied in one step, in some tenths of a millisecond."""
_ENDPOINTS_TAG: Final = 0
_CONTROLLERS: Final = 2  # DescribeCluster's EndpointType
# What is stepped over, by Kafka's message schemas. Layouts of flexible versions only.
_REPLICA: Final = (44,)  # id, directory, end offset, two timestamps
_QUORUM_PARTITION: Final = (6, skip_string, 16, _REPLICA, _REPLICA)
"""Index and error; leader, its epoch and high watermark; voters, observers."""
_QUORUM_TOPIC: Final = (skip_string, _QUORUM_PARTITION)
_LISTENER: Final = (skip_string, skip_string, 2)  # name, host, port
_LEADER: Final = (8, skip_tagged)
_FETCHED_TOPIC: Final = (16, (6, skip_string, 2, skip_string, *_LEADER, skip_bytes, (18,)))
"""Of ShareFetch: id, and partitions with errors, leader, records and acquired ranges."""
_ACKNOWLEDGED_TOPIC: Final = (16, (6, skip_string, *_LEADER))


def _splice(frame: Buffer, begin: int, end: int, raw: bytes) -> Work[Buffer]:
    """
    Put ``raw`` in place of [begin, end) and set the length prefix.

    A long answer is copied in steps: in one piece a hundred megabytes take as many milliseconds.
    """
    if len(raw) == end - begin <= COPIED and raw == bytes(frame[begin:end]):
        return frame
    size = len(frame) - (end - begin) + len(raw)
    if size <= COPIED:
        return b"".join((INT32.pack(size - 4), frame[4:begin], raw, frame[end:]))
    answer = bytearray(size)
    view = memoryview(frame)
    to = 0
    for piece in (view[:begin], memoryview(raw), view[end:]):
        for at in range(0, len(piece), COPIED):
            some = piece[at : at + COPIED]
            answer[to : to + len(some)] = some
            to += len(some)
            yield
    answer[:4] = INT32.pack(size - 4)
    return answer


def _nodes(
    raw: Buffer,
    at: int,
    book: Book,
    hidden: list[int],
    *,
    flexible: bool,
    rack: bool = True,
    extra: int = 0,
) -> Work[tuple[bytes, int]]:
    """Return an array of nodes (id, host, port, rack, ...) with our addresses, and its end."""
    count, at = read_array_length(raw, at, flexible)
    kept: list[bytes] = []
    for number in range(1, count + 1):
        if not number % FEW:
            yield
        node_id, after = read_int32(raw, at)
        after = skip_string(raw, after, flexible)
        _, after = read_int32(raw, after)
        rest = after
        if rack:
            after = skip_string(raw, after, flexible)
        after += extra
        if flexible:
            after = skip_tags(raw, after)
        if after > len(raw):
            raise RemoteProtocolError("the answer ends inside a list of brokers")
        address = book.get(node_id)
        if address is None:
            hidden.append(node_id)
        else:
            host = write_nullable_string(address[0], flexible)
            kept.append(INT32.pack(node_id) + host + INT32.pack(address[1]) + raw[rest:after])
        at = after
    return write_array_length(len(kept), flexible) + b"".join(kept), at


def metadata(frame: Buffer, at: int, version: int, book: Book, hidden: list[int]) -> Work[Buffer]:
    """Rewrite a Metadata response, version 0 to 13; topics are copied, not read."""
    raw, end = yield from _nodes(frame, at, book, hidden, flexible=version >= 9, rack=version >= 1)
    return (yield from _splice(frame, at, end, raw))


def describe_cluster(
    frame: Buffer, at: int, version: int, book: Book, hidden: list[int]
) -> Work[Buffer]:
    """Rewrite a DescribeCluster response, version 0 to 2; controllers' addresses are left out."""
    at, names_brokers = _controller_id(frame, at, version)
    begin = at + 4
    extra = 1 if version >= 2 else 0
    book = book if names_brokers else {}
    raw, end = yield from _nodes(frame, begin, book, hidden, flexible=True, extra=extra)
    return (yield from _splice(frame, begin, end, raw))


def _controller_id(frame: Buffer, at: int, version: int) -> tuple[int, bool]:
    """Return where DescribeCluster has the controller's id, and whether its nodes are brokers."""
    at = skip_string(frame, at + 2, True)  # error
    kind = 0
    if version >= 1:
        kind, at = read_int8(frame, at)
    return skip_string(frame, at, True), kind != _CONTROLLERS  # behind the cluster id


def name_controller(api_key: int, version: int, frame: Buffer) -> Work[Buffer]:
    """
    In an answer, name the listed broker with the lowest id as the controller.

    Args:
        api_key: Metadata or DescribeCluster; other answers are returned as they are.
        version: of the request.
        frame: the answer; returned as it is if it names no controller or lists no broker.

    Raises:
        RemoteProtocolError: it doesn't parse.
    """
    listed: list[int] = []
    if api_key == apis.METADATA and version >= 1:
        at = response_body_offset(api_key, version, frame) + (4 if version >= 3 else 0)
        _, at = yield from _nodes(frame, at, {}, listed, flexible=version >= 9)
        if version >= 2:
            at = skip_string(frame, at, version >= 9)  # cluster id
    elif api_key == apis.DESCRIBE_CLUSTER:
        at = response_body_offset(api_key, version, frame) + 4
        at, names_brokers = _controller_id(frame, at, version)
        if not names_brokers:
            return frame
        extra = 1 if version >= 2 else 0
        yield from _nodes(frame, at + 4, {}, listed, flexible=True, extra=extra)
    if not listed:
        return frame
    read_int32(frame, at)  # an answer that ends before it doesn't parse
    return overwrite(frame, at, INT32.pack(min(listed)))


def describe_quorum(
    frame: Buffer, at: int, version: int, book: Book, hidden: list[int]
) -> Work[Buffer]:
    """
    Rewrite a DescribeQuorum response, version 2, which says where controllers listen.

    The nodes stay, since clients look voters up among them, but without their listeners.
    """
    at = skip_string(frame, at + 2, True)  # error
    skipper = Skipper(frame)
    begin = at = yield from skipper.array(at, _QUORUM_TOPIC)
    count, at = read_array_length(frame, at, True)
    # Differs: DescribeQuorum names controllers without their addresses.
    nodes = [write_array_length(count, True)]
    for _ in range(count):
        if not next(skipper.seen) % FEW:
            yield
        node_id, at = read_int32(frame, at)
        tags = at = yield from skipper.array(at, _LISTENER)
        at = skip_tags(frame, at)
        nodes += INT32.pack(node_id), write_array_length(0, True), bytes(frame[tags:at])
    return (yield from _splice(frame, begin, at, b"".join(nodes)))


def find_coordinator(
    frame: Buffer, at: int, version: int, book: Book, hidden: list[int]
) -> Work[Buffer]:
    """
    Rewrite a FindCoordinator response, version 0 to 6.

    A coordinator that isn't in the book is answered COORDINATOR_NOT_AVAILABLE, which clients
    try again.
    """
    flexible = version >= 3
    if version >= 4:
        begin = at
        count, at = read_array_length(frame, at, True)
        parts = [write_array_length(count, True)]
        out: list[bytes] = []
        for number in range(1, count + 1):
            if not number % FEW:
                parts.append(b"".join(out))
                out.clear()
                yield
            key, at = read_string(frame, at, True)
            node_id, at = read_int32(frame, at)
            host, at = read_nullable_string(frame, at, True)
            port, at = read_int32(frame, at)
            error, at = read_int16(frame, at)
            message, at = read_nullable_string(frame, at, True)
            tags = at
            at = skip_tags(frame, at)
            node_id, host, port, error = _coordinator(node_id, host, port, error, book, hidden)
            out += (
                write_nullable_string(key, True),
                INT32.pack(node_id),
                write_nullable_string(host, True),
                INT32.pack(port),
                INT16.pack(error),
                write_nullable_string(message, True),
                bytes(frame[tags:at]),
            )
        return (yield from _splice(frame, begin, at, b"".join((*parts, *out))))
    begin = at
    error, at = read_int16(frame, at)
    message_at = at
    if version >= 1:
        at = skip_string(frame, at, flexible)
    text = bytes(frame[message_at:at])
    node_id, at = read_int32(frame, at)
    host, at = read_nullable_string(frame, at, flexible)
    port, at = read_int32(frame, at)
    node_id, host, port, error = _coordinator(node_id, host, port, error, book, hidden)
    raw = INT16.pack(error) + text + INT32.pack(node_id)
    raw += write_nullable_string(host, flexible) + INT32.pack(port)
    return (yield from _splice(frame, begin, at, raw))


def _coordinator(
    node_id: int, host: str | None, port: int, error: int, book: Book, hidden: list[int]
) -> tuple[int, str, int, int]:
    address = book.get(node_id)
    if address is not None:
        # Also in an answer with an error, in case the broker names itself there.
        return (node_id, *address, error) if host else (node_id, "", port, error)
    if error == KafkaError.NONE:
        # Differs: a coordinator on a broker without an address here is COORDINATOR_NOT_AVAILABLE.
        hidden.append(node_id)
        return -1, "", -1, KafkaError.COORDINATOR_NOT_AVAILABLE
    return node_id, "", -1, error


def _endpoints_tag(frame: Buffer, at: int, book: Book, hidden: list[int]) -> Work[Buffer]:
    """Rewrite NodeEndpoints in the tagged fields that end a response."""
    if frame[at] == 0:
        return frame
    tags, end = read_tags(frame, at)
    raw = tags.get(_ENDPOINTS_TAG)
    if raw is None:
        return frame
    begin_hidden = len(hidden)
    nodes, _ = yield from _nodes(raw, 0, book, hidden, flexible=True)
    count, _ = read_array_length(raw, 0, True)
    if count <= len(hidden) - begin_hidden:  # none left, or null
        del tags[_ENDPOINTS_TAG]
    else:
        tags[_ENDPOINTS_TAG] = nodes
    return (yield from _splice(frame, at, end, write_tags(tags)))


def produce(frame: Buffer, at: int, version: int, book: Book, hidden: list[int]) -> Work[Buffer]:
    """Rewrite a Produce response, version 10 to 13; it names brokers when a leader moved."""
    if at >= len(frame):
        raise RemoteProtocolError("the Produce response ends before its tail")
    return (yield from _endpoints_tag(frame, at, book, hidden))


def fetch(frame: Buffer, at: int, version: int, book: Book, hidden: list[int]) -> Work[Buffer]:
    """Rewrite a Fetch response, version 16 to 18."""
    return (yield from _endpoints_tag(frame, tail_offset(frame, version), book, hidden))


def share_fetch(
    frame: Buffer, at: int, version: int, book: Book, hidden: list[int]
) -> Work[Buffer]:
    """Rewrite a ShareFetch response, version 1 or 2."""
    at = skip_string(frame, at + 2, True)  # error
    begin = yield from Skipper(frame).array(at + 4, _FETCHED_TOPIC)  # acquisition lock timeout
    raw, end = yield from _nodes(frame, begin, book, hidden, flexible=True)
    return (yield from _splice(frame, begin, end, raw))


def share_acknowledge(
    frame: Buffer, at: int, version: int, book: Book, hidden: list[int]
) -> Work[Buffer]:
    """Rewrite a ShareAcknowledge response, version 1 or 2."""
    at = skip_string(frame, at + 2, True)  # error
    at += 4 if version >= 2 else 0  # acquisition lock timeout
    begin = yield from Skipper(frame).array(at, _ACKNOWLEDGED_TOPIC)
    raw, end = yield from _nodes(frame, begin, book, hidden, flexible=True)
    return (yield from _splice(frame, begin, end, raw))


REWRITERS: Final = {
    apis.PRODUCE: (10, produce),
    apis.FETCH: (16, fetch),
    apis.METADATA: (0, metadata),
    apis.FIND_COORDINATOR: (0, find_coordinator),
    apis.DESCRIBE_QUORUM: (2, describe_quorum),
    apis.DESCRIBE_CLUSTER: (0, describe_cluster),
    apis.SHARE_FETCH: (0, share_fetch),
    apis.SHARE_ACKNOWLEDGE: (0, share_acknowledge),
}
"""Which function serves which API, from the first version on that names brokers."""
