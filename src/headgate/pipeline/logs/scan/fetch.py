"""
Read what a fetch was charged, and whether a replica sent it, straight from its JSON bytes.

Compiled; as ``scan.produce``, by the formulas of ``sizes.fetch_bytes``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    CLOSE_LIST,
    COMMA,
    OPEN,
    OPEN_LIST,
    byte_at,
    is_key,
    is_long_key,
    is_null,
    read_int,
    skip_value,
    word,
    word_at,
    words,
)
from headgate.pipeline.logs.scan.produce import is_size, key_end, read_size, read_text, varint

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
_TAG_DIVERGING: Final = charged_bytes.fetch_tag_bytes(True, False, False) - 1
_TAG_LEADER: Final = charged_bytes.fetch_tag_bytes(False, True, False) - 1
_TAG_SNAPSHOT: Final = charged_bytes.fetch_tag_bytes(False, False, True) - 1


@compiled
def _is_replica_id(base, key, end):
    return end - key == 9 and is_key(base, key, 9, _REPLICA_ID)


@compiled
def _replica_state(base, at):
    """Return (position, replica id) of ``replicaState``."""
    replica, seen = -1, False
    if byte_at(base, at) != OPEN:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, -1
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        if _is_replica_id(base, at + 2, end):
            if seen:
                return -1, 0
            seen = True
            at, replica = read_int(base, end + 2)
        else:
            at = skip_value(base, end + 2)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, replica
        if c != COMMA:
            return -1, 0


@compiled
def fetch_request(base, at):
    """Return (position, replica id) of a fetch request; -1 is a consumer's."""
    replica, inner, seen = -1, -1, 0
    if byte_at(base, at) != OPEN:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, -1
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        if _is_replica_id(base, key, end):
            if seen & 1:
                return -1, 0
            seen |= 1
            at, replica = read_int(base, at)
        elif end - key == 12 and is_key(base, key, 12, _STATE):
            if seen & 2:
                return -1, 0
            if is_null(base, at):
                at += 4
                seen |= 2
            else:
                seen |= 6
                at, inner = _replica_state(base, at)
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, inner if seen & 4 else replica
        if c != COMMA:
            return -1, 0


@compiled
def count_elements(base, at):
    """Return (position, elements) of a list of whatever."""
    if byte_at(base, at) != OPEN_LIST:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE_LIST:
        return at + 2, 0
    count = 0
    while True:
        at = skip_value(base, at + 1)
        if at < 0:
            return -1, 0
        count += 1
        c = byte_at(base, at)
        if c == CLOSE_LIST:
            return at + 1, count
        if c != COMMA:
            return -1, 0


@compiled
def _fetch_partition(base, at, version):
    """Return (position, bytes) of one partition of an answer."""
    size, aborted, tags, seen = -1, -1, 1, 0
    if byte_at(base, at) != OPEN:
        return -1, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if is_size(base, key, end) or (length == 20 and is_long_key(base, key, 20, _SET_SIZE)):
            bit = 1
            at, size = read_size(base, at)
        elif length == 19 and is_long_key(base, key, length, _ABORTED):
            bit = 2
            if is_null(base, at):
                at += 4
            else:
                at, aborted = count_elements(base, at)
        elif length == 9 and is_key(base, key, length, _ERROR):
            bit = 32
            at, error = read_int(base, at)
            if version < charged_bytes.UNSENT_BELOW and (
                error == charged_bytes.UNSUPPORTED_VERSION
                or error == charged_bytes.UNSUPPORTED_COMPRESSION
            ):
                return -1, 0  # what was charged isn't what was sent
        else:
            at = skip_value(base, at)
            if length == 14 and is_key(base, key, length, _DIVERGING):
                bit = 4
                tags += _TAG_DIVERGING
            elif length == 13 and is_key(base, key, length, _LEADER):
                bit = 8
                tags += _TAG_LEADER
            elif length == 10 and is_key(base, key, length, _SNAPSHOT):
                bit = 16
                tags += _TAG_SNAPSHOT
        if at < 0 or seen & bit:
            return -1, 0
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            break
        if c != COMMA:
            return -1, 0
    if not seen & 1:
        return -1, 0  # how large the records are isn't told
    if version <= 11:
        total = 18 + size
        if version >= 4:
            total += 12 + 16 * max(aborted, 0)
        if version >= 5:
            total += 8
        if version >= 11:
            total += 4
    else:
        total = 34 + tags + (1 if aborted < 0 else varint(aborted + 1) + 17 * aborted)
        total += varint(size + 1) + size
    return at + 1, total


@compiled
def _fetch_topic(base, at, version):
    """Return (position, bytes) of one topic of an answer."""
    total, parts, name = 0, -1, -2
    if byte_at(base, at) != OPEN:
        return -1, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        if length == 5 and word_at(base, key) & _SEVEN == _TOPIC:
            if name != -2:
                return -1, 0
            at, name = read_text(base, at)
        elif (length == 10 and is_key(base, key, length, _PARTITIONS)) or (
            length == 18 and is_long_key(base, key, length, _ANSWERS)
        ):
            if parts >= 0 or byte_at(base, at) != OPEN_LIST:
                return -1, 0
            parts = 0
            if byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, size = _fetch_partition(base, at + 1, version)
                    if at < 0:
                        return -1, 0
                    parts += 1
                    total += size
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            break
        if c != COMMA:
            return -1, 0
    if parts < 0:
        return -1, 0
    if version <= 11:
        total += 6 + max(name, 0)
    else:
        total += 16 if name < 0 or version >= 13 else varint(name + 1) + name
        total += varint(parts + 1) + 1
    return at + 1, total


@compiled
def fetch_response(base, at, version):
    """Return (position, bytes charged, topics) of a fetch answer."""
    total, topics = 0, -1
    if byte_at(base, at) != OPEN:
        return -1, 0, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0, 0
        key = at + 2
        at = end + 2
        if end - key == 9 and is_key(base, key, 9, _RESPONSES):
            if topics >= 0 or byte_at(base, at) != OPEN_LIST:
                return -1, 0, 0
            topics = 0
            if byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, size = _fetch_topic(base, at + 1, version)
                    if at < 0:
                        return -1, 0, 0
                    topics += 1
                    total += size
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0, 0
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0, 0
        c = byte_at(base, at)
        if c == CLOSE:
            break
        if c != COMMA:
            return -1, 0, 0
    if topics < 0:
        return -1, 0, 0
    if version <= 11:
        total += 8 + (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
    else:
        total += 15 + varint(topics + 1)
    return at + 1, total, topics
