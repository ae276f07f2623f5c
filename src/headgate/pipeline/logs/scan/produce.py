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
from headgate.pipeline.logs.scan.json_text import (
    QUOTE,
    byte_at,
    find_brace,
    inlined,
    is_key,
    is_long_key,
    read_int,
    skip_value,
    word,
    word_at,
    words,
)
from headgate.pipeline.logs.scan.walk import (
    read_size,
    read_text,
    topic_frame,
    varint,
    walk_list,
    walk_object,
)

_TOPIC: Final = words(b"topicData")
_TID: Final = words(b"transactionalId")
_PART: Final = words(b"partitionData")
_SIZE: Final = words(b"recordsSizeInBytes")
_NAME: Final = word(b'name":\0\0')
_SIX: Final = word(b"\xff\xff\xff\xff\xff\xff\0\0")
_ERROR: Final = word(b"errorCod")


@inlined
def is_size(base, key, length):
    """Say whether a key is ``recordsSizeInBytes``."""
    return length == 18 and is_long_key(base, key, 18, _SIZE)


@inlined
def _partition_key(base, key, length, at, version, size):
    bit = 0
    if is_size(base, key, length):
        bit = 1
        at, size = read_size(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, size


@compiled
def _partition(base, at, version, total):
    """Add a partition's bytes; where its size is null, or isn't told, it's refused."""
    at, seen, size = walk_object(base, at, _partition_key, version, 0)
    if not seen:
        return -1, total
    return at, total + (8 + size if version <= 8 else 5 + varint(size + 1) + size)


@inlined
def _topic_key(base, key, length, at, version, state):
    total, partitions, name = state
    bit = 0
    if length == 4 and word_at(base, key) & _SIX == _NAME:
        bit = 1
        at, name = read_text(base, at)
    elif length == 13 and is_key(base, key, length, _PART):
        bit = 2
        at, partitions, total = walk_list(base, at, _partition, version, total)
    else:
        at = skip_value(base, at)
    return at, bit, (total, partitions, name)


@compiled
def _topic(base, at, version, total):
    """Add the bytes of a topic and its partitions."""
    at, seen, state = walk_object(base, at, _topic_key, version, (total, 0, -1))
    if not seen & 2:
        return -1, total
    return at, state[0] + topic_frame(version > 8, version >= 13, state[2], state[1])


@inlined
def _request_key(base, key, length, at, version, state):
    total, topics, tid = state
    bit = 0
    if length == 9 and is_key(base, key, length, _TOPIC):
        bit = 1
        at, topics, total = walk_list(base, at, _topic, version, total)
    elif length == 15 and is_key(base, key, length, _TID):
        bit = 2
        at, tid = read_text(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, (total, topics, tid)


@compiled
def produce_request(base, at, version):
    """Return (position, bytes of the body) of a produce request."""
    at, seen, state = walk_object(base, at, _request_key, version, (0, 0, -1))
    total, topics, tid = state
    if not seen & 1:
        return -1, 0
    if version <= 8:
        return at, total + 10 + (2 + max(tid, 0) if version >= 3 else 0)
    return at, total + 7 + varint(topics + 1) + (1 if tid < 0 else varint(tid + 1) + tid)


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
