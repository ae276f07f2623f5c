"""
Read how many partitions a change of topics was charged for, straight from its JSON bytes.

Compiled; as ``line_parser`` counts them: a new topic's partitions, one for a deleted or enlarged
topic. Only plain changes: what failed in part, is only validated, or has a default's partitions is
left to ``line_parser``, which looks at topics one by one.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.scan.fetch import count_elements
from headgate.pipeline.logs.scan.json_text import (
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
from headgate.pipeline.logs.scan.produce import key_end

_TOPICS: Final = word(b'topics":')
_NAMES: Final = words(b"topicNames")
_VALIDATE: Final = words(b"validateOnly")
_PARTITIONS: Final = words(b"numPartitions")
_ASSIGNMENTS: Final = words(b"assignments")
_COUNT: Final = word(b'count":\0')
_SEVEN: Final = word(b"\xff\xff\xff\xff\xff\xff\xff\0")
_THROTTLE: Final = words(b"throttleTimeMs")
_ERROR: Final = words(b"errorCode")
_RESPONSES: Final = words(b"responses")
_RESULTS: Final = word(b'results"')
_FALSE: Final = 102


@compiled
def _topic(base, at):
    """Return (position, partitions, whether that's an estimate) of one topic."""
    partitions, assigned, seen = 1, 0, 0
    if byte_at(base, at) != OPEN:
        return -1, 0, False
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, 1, True
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0, False
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
            return -1, 0, False
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            if assigned:
                return at + 1, assigned, False
            return (at + 1, partitions, not seen & 1) if partitions > 0 else (-1, 0, False)
        if c != COMMA:
            return -1, 0, False


@compiled
def mutation_request(base, at):
    """
    Return what a request to create, delete or enlarge topics is charged.

    Returns:
        The position behind it, partitions, topics, whether the partitions are an estimate.
    """
    total, topics, estimated, seen = 0, 0, False, 0
    if byte_at(base, at) != OPEN:
        return -1, 0, 0, False
    if byte_at(base, at + 1) == CLOSE:
        return at + 2, 0, 0, False
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0, 0, False
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if length == 6 and word_at(base, key) == _TOPICS:
            bit = 1
            if is_null(base, at):
                at += 4
            elif byte_at(base, at) != OPEN_LIST:
                return -1, 0, 0, False
            elif byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, partitions, unknown = _topic(base, at + 1)
                    if at < 0:
                        return -1, 0, 0, False
                    total += partitions
                    topics += 1
                    estimated = estimated or unknown
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0, 0, False
        elif length == 10 and is_key(base, key, length, _NAMES):
            bit = 2
            if is_null(base, at):
                at += 4
            else:
                at, names = count_elements(base, at)
                total += names
                topics += names
                estimated = estimated or names > 0
        elif length == 12 and is_key(base, key, length, _VALIDATE):
            bit = 4
            if byte_at(base, at) != _FALSE:
                return -1, 0, 0, False
            at = skip_scalar(base, at)
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return -1, 0, 0, False
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, total, topics, estimated
        if c != COMMA:
            return -1, 0, 0, False


@compiled
def _answer(base, at):
    """Return the position behind one topic's answer; -1 where it has an error."""
    seen = 0
    if byte_at(base, at) != OPEN or byte_at(base, at + 1) == CLOSE:
        return -1
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        value = 0
        if length == 9 and is_key(base, key, length, _ERROR):
            bit = 1
            at, value = read_int(base, at)
            if value != 0:
                return -1
        elif length == 13 and is_key(base, key, length, _PARTITIONS):
            bit = 2
            at, value = read_int(base, at)
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return -1
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1 if seen & 1 else -1
        if c != COMMA:
            return -1


@compiled
def _is_answers(base, key, length):
    """Say whether a key is that of the topics in an answer: each API calls them otherwise."""
    if length == 6:
        return word_at(base, key) == _TOPICS
    if length == 7:
        return word_at(base, key) == _RESULTS
    return length == 9 and is_key(base, key, length, _RESPONSES)


@compiled
def mutation_response(base, at):
    """Return (position, throttle time told, topics) of an answer without errors."""
    told, topics, seen = 0, 0, 0
    if byte_at(base, at) != OPEN or byte_at(base, at + 1) == CLOSE:
        return -1, 0, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0, 0
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if length == 14 and is_key(base, key, length, _THROTTLE):
            bit = 1
            at, told = read_int(base, at)
        elif _is_answers(base, key, length):
            bit = 2
            if byte_at(base, at) != OPEN_LIST or byte_at(base, at + 1) == CLOSE_LIST:
                return -1, 0, 0
            while True:
                at = _answer(base, at + 1)
                if at < 0:
                    return -1, 0, 0
                topics += 1
                c = byte_at(base, at)
                if c == CLOSE_LIST:
                    at += 1
                    break
                if c != COMMA:
                    return -1, 0, 0
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return -1, 0, 0
        seen |= bit
        c = byte_at(base, at)
        if c == CLOSE:
            return at + 1, told, topics
        if c != COMMA:
            return -1, 0, 0
