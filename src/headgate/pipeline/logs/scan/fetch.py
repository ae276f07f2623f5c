"""
Read what a fetch was charged, and whether a replica sent it, straight from its JSON bytes.

Compiled; as ``scan.produce``, by the formulas of ``charged_bytes.fetch_bytes``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.charged_bytes import (
    UNSENT_BELOW,
    UNSUPPORTED_COMPRESSION,
    UNSUPPORTED_VERSION,
    fetch_tag_bytes,
)
from headgate.pipeline.logs.scan.json_text import (
    inlined,
    is_key,
    is_long_key,
    is_null,
    read_int,
    skip_value,
    word,
    word_at,
    words,
)
from headgate.pipeline.logs.scan.produce import is_size
from headgate.pipeline.logs.scan.walk import (
    count_elements,
    read_size,
    read_text,
    topic_frame,
    varint,
    walk_list,
    walk_object,
)

_REPLICA_ID: Final = words(b"replicaId")
_STATE: Final = words(b"replicaState")
_ABORTED: Final = words(b"abortedTransactions")
_DIVERGING: Final = words(b"divergingEpoch")
_LEADER: Final = words(b"currentLeader")
_SNAPSHOT: Final = words(b"snapshotId")
_ERROR: Final = words(b"errorCode")
# Kafka 2.8's names.
_SET_SIZE: Final = words(b"recordSetSizeInBytes")
_ANSWERS: Final = words(b"partitionResponses")
_RESPONSES: Final = words(b"responses")
_PARTITIONS: Final = words(b"partitions")
_TOPIC: Final = word(b'topic":\0')
_SEVEN: Final = word(b"\xff\xff\xff\xff\xff\xff\xff\0")
_TAG_DIVERGING: Final = fetch_tag_bytes(True, False, False) - 1
_TAG_LEADER: Final = fetch_tag_bytes(False, True, False) - 1
_TAG_SNAPSHOT: Final = fetch_tag_bytes(False, False, True) - 1


@inlined
def _replica_key(base, key, length, at, context, replica):
    bit = 0
    if length == 9 and is_key(base, key, 9, _REPLICA_ID):
        bit = 1
        at, replica = read_int(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, replica


@compiled
def _replica_state(base, at):
    """Return (position, replica id) of ``replicaState``."""
    at, _, replica = walk_object(base, at, _replica_key, 0, -1)
    return at, replica


@inlined
def _request_key(base, key, length, at, context, state):
    replica, inner = state
    bit = 0
    if length == 9 and is_key(base, key, 9, _REPLICA_ID):
        bit = 1
        at, replica = read_int(base, at)
    elif length == 12 and is_key(base, key, 12, _STATE):
        if is_null(base, at):
            bit = 2
            at += 4
        else:
            bit = 6
            at, inner = _replica_state(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, (replica, inner)


@compiled
def fetch_request(base, at):
    """Return (position, replica id) of a fetch request; -1 is a consumer's."""
    at, seen, state = walk_object(base, at, _request_key, 0, (-1, -1))
    return at, state[1] if seen & 4 else state[0]


@inlined
def _partition_key(base, key, length, at, version, state):
    size, aborted = state
    bit = 0
    if is_size(base, key, length) or (length == 20 and is_long_key(base, key, 20, _SET_SIZE)):
        bit = 1
        at, size = read_size(base, at)
    elif length == 19 and is_long_key(base, key, length, _ABORTED):
        bit = 2
        at, aborted = count_elements(base, at)
    elif length == 9 and is_key(base, key, length, _ERROR):
        bit = 32
        at, error = read_int(base, at)
        if version < UNSENT_BELOW:  # what was charged may not be what was sent
            if error == UNSUPPORTED_VERSION:
                at = -1
            if error == UNSUPPORTED_COMPRESSION:
                at = -1
    else:
        at = skip_value(base, at)
        if length == 14 and is_key(base, key, length, _DIVERGING):
            bit = 4
        elif length == 13 and is_key(base, key, length, _LEADER):
            bit = 8
        elif length == 10 and is_key(base, key, length, _SNAPSHOT):
            bit = 16
    return at, bit, (size, aborted)


@compiled
def _partition(base, at, version, total):
    """Add the bytes of one partition of an answer."""
    at, seen, state = walk_object(base, at, _partition_key, version, (0, -1))
    size, aborted = state
    if not seen & 1:
        return -1, total  # how large the records are isn't told
    if version <= 11:
        total += 18 + size
        if version >= 4:
            total += 12 + 16 * max(aborted, 0)
        if version >= 5:
            total += 8
        if version >= 11:
            total += 4
        return at, total
    total += 35 + varint(size + 1) + size
    total += 1 if aborted < 0 else varint(aborted + 1) + 17 * aborted
    if seen & 28:
        total += _TAG_DIVERGING if seen & 4 else 0
        total += _TAG_LEADER if seen & 8 else 0
        total += _TAG_SNAPSHOT if seen & 16 else 0
    return at, total


@inlined
def _topic_key(base, key, length, at, version, state):
    total, partitions, name = state
    bit = 0
    if length == 5 and word_at(base, key) & _SEVEN == _TOPIC:
        bit = 1
        at, name = read_text(base, at)
    elif (length == 10 and is_key(base, key, length, _PARTITIONS)) or (
        length == 18 and is_long_key(base, key, length, _ANSWERS)
    ):
        bit = 2
        at, partitions, total = walk_list(base, at, _partition, version, total)
    else:
        at = skip_value(base, at)
    return at, bit, (total, partitions, name)


@compiled
def _topic(base, at, version, total):
    """Add the bytes of one topic of an answer."""
    at, seen, state = walk_object(base, at, _topic_key, version, (total, 0, -1))
    if not seen & 2:
        return -1, total
    return at, state[0] + topic_frame(version > 11, version >= 13, state[2], state[1])


@inlined
def _answer_key(base, key, length, at, version, state):
    total, topics = state
    bit = 0
    if length == 9 and is_key(base, key, 9, _RESPONSES):
        bit = 1
        at, topics, total = walk_list(base, at, _topic, version, total)
    else:
        at = skip_value(base, at)
    return at, bit, (total, topics)


@compiled
def fetch_response(base, at, version):
    """Return (position, bytes charged, topics) of a fetch answer."""
    at, seen, state = walk_object(base, at, _answer_key, version, (0, 0))
    total, topics = state
    if not seen:
        return -1, 0, 0
    if version <= 11:
        return at, total + 8 + (4 if version >= 1 else 0) + (6 if version >= 7 else 0), topics
    return at, total + 15 + varint(topics + 1), topics
