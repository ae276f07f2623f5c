"""
Read what a produce request was charged, straight from its JSON bytes.

Compiled; the same formulas as ``charged_bytes``, over bodies that ``walk`` accepts. Each
reader takes the position of the body's opening brace and gives the one behind its closing brace,
-1 where it refuses: another type than the schema's, a key twice, a required key missing.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.charged_bytes import produce_frame, produce_partition, topic_frame
from headgate.pipeline.logs.scan.json_text import (
    QUOTE,
    byte_at,
    find_brace,
    read_int,
    word,
    word_at,
)
from headgate.pipeline.logs.scan.walk import (
    into,
    keys,
    list_into,
    read_size,
    read_text,
    walk_object,
)

_ERROR: Final = word(b"errorCod")

_partition_keys = keys((b"recordsSizeInBytes", into(0, read_size)))


@compiled
def _partition(base, at, version, total):
    """Add a partition's bytes; where its size is null, or isn't told, it's refused."""
    at, seen, (size,) = walk_object(base, at, _partition_keys, version, (0,))
    return at if seen else -1, total + produce_partition(version, size)


_topic_keys = keys((b"partitionData", list_into(0, _partition)), (b"name", into(2, read_text)))


@compiled
def _topic(base, at, version, total):
    """Add the bytes of a topic and its partitions."""
    at, seen, (partitions, total, name) = walk_object(
        base, at, _topic_keys, version, (0, total, -1)
    )
    frame = topic_frame(version > 8, version >= 13, name, partitions)
    return at if seen & 1 else -1, total + frame


_request_keys = keys((b"topicData", list_into(0, _topic)), (b"transactionalId", into(2, read_text)))


@compiled
def produce_request(base, at, version):
    """Return (position, bytes of the body) of a produce request."""
    at, seen, (topics, total, transactional_id) = walk_object(
        base, at, _request_keys, version, (0, 0, -1)
    )
    frame = produce_frame(version, transactional_id, topics)
    return at if seen & 1 else -1, total + frame


@compiled
def is_refused(base, at, end):
    """Say whether the first partition of an answer has an error that refuses whole requests."""
    for _ in range(2):  # the answer's brace, its first topic's, that one's first partition's
        at = find_brace(base, at + 1)
    while at < end and word_at(base, at) != _ERROR:
        at += 1
    if at >= end or byte_at(base, at + 9) != QUOTE:
        return False
    _, code = read_int(base, at + 11)
    return code == 31 or code == 53
