"""
Read how many partitions a change of topics was charged for, straight from its JSON bytes.

Compiled; as ``logline`` counts them: a new topic's partitions, one for a deleted or enlarged topic.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.scan.fetch import count_elements
from headgate.pipeline.scan.produce import key_end
from headgate.pipeline.scan.text import (
    CLOSE,
    CLOSE_LIST,
    COMMA,
    OPEN,
    OPEN_LIST,
    byte_at,
    is_key,
    is_null,
    read_int,
    skip_scalar,
    skip_value,
    word,
    word_at,
    words,
)

_TOPICS: Final = word(b'topics":')
_NAMES: Final = words(b"topicNames")
_VALIDATE: Final = words(b"validateOnly")
_PARTITIONS: Final = words(b"numPartitions")
_ASSIGNMENTS: Final = words(b"assignments")
_COUNT: Final = word(b'count":\0')
_SEVEN: Final = word(b"\xff\xff\xff\xff\xff\xff\xff\0")
_THROTTLE: Final = words(b"throttleTimeMs")
_TRUE: Final = 116
_FALSE: Final = 102


@compiled
def _topic(base, at):
    """Return (position, partitions) of one topic."""
    partitions, assigned, seen = 1, 0, 0
    if byte_at(base, at) != OPEN:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, 1
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if length == 13 and is_key(base, key, length, _PARTITIONS):
            bit = 1
            at, partitions = read_int(base, at)
        elif length == 11 and is_key(base, key, length, _ASSIGNMENTS):
            bit = 2
            if is_null(base, at):
                at += 4
            else:
                at, assigned = count_elements(base, at)
        elif length == 5 and word_at(base, key) & _SEVEN == _COUNT:
            bit = 4
            at, _ = read_int(base, at)
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return -1, 0
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, assigned if assigned else max(partitions, 1)
        if c != COMMA:
            return -1, 0


@compiled
def mutation_request(base, at):
    """Return (position, partitions charged) of a request to create, delete or enlarge topics."""
    total, only, seen = 0, False, 0
    if byte_at(base, at) != OPEN:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if length == 6 and word_at(base, key) == _TOPICS:
            bit = 1
            if is_null(base, at):
                at += 4
            elif byte_at(base, at) != OPEN_LIST:
                return -1, 0
            elif byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, partitions = _topic(base, at + 1)
                    if at < 0:
                        return -1, 0
                    total += partitions
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0
        elif length == 10 and is_key(base, key, length, _NAMES):
            bit = 2
            if is_null(base, at):
                at += 4
            else:
                at, names = count_elements(base, at)
                total += names
        elif length == 12 and is_key(base, key, length, _VALIDATE):
            bit = 4
            c = byte_at(base, at)
            if c != _TRUE and c != _FALSE:
                return -1, 0
            only = c == _TRUE
            at = skip_scalar(base, at)
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return -1, 0
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, 0 if only else total
        if c != COMMA:
            return -1, 0


@compiled
def mutation_response(base, at):
    """Return (position, throttle time told) of the answer."""
    told, seen = 0, False
    if byte_at(base, at) != OPEN:
        return -1, 0
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        if length == 14 and is_key(base, key, length, _THROTTLE):
            if seen:
                return -1, 0
            seen = True
            at, told = read_int(base, at)
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, told
        if c != COMMA:
            return -1, 0
