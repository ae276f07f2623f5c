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
from headgate.pipeline.logs.scan.json_text import (
    byte_at,
    inlined,
    is_key,
    is_null,
    read_int,
    skip_scalar,
    skip_value,
    word,
    word_at,
    words,
)
from headgate.pipeline.logs.scan.walk import count_elements, walk_list, walk_object

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


@inlined
def _topic_key(base, key, length, at, context, state):
    partitions, assigned = state
    bit = 0
    if length == 13 and is_key(base, key, length, _PARTITIONS):
        bit = 1
        at, partitions = read_int(base, at)
    elif length == 11 and is_key(base, key, length, _ASSIGNMENTS):
        bit = 2
        at, assigned = count_elements(base, at)
    elif length == 5 and word_at(base, key) & _SEVEN == _COUNT:
        bit = 4
        at, _ = read_int(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, (partitions, assigned)


@compiled
def _topic(base, at, context, state):
    """Add a topic's partitions, and whether they're an estimate."""
    total, estimates = state
    at, seen, found = walk_object(base, at, _topic_key, 0, (1, 0))
    partitions, assigned = found
    if assigned > 0:
        return at, (total + assigned, estimates)
    if partitions <= 0:
        return -1, state
    return at, (total + partitions, estimates + (0 if seen & 1 else 1))


@inlined
def _request_key(base, key, length, at, context, state):
    total, topics, estimates = state
    bit = 0
    if length == 6 and word_at(base, key) == _TOPICS:
        bit = 1
        if is_null(base, at):
            at += 4
        else:
            at, count, found = walk_list(base, at, _topic, 0, (total, estimates))
            total, estimates = found
            topics += count
    elif length == 10 and is_key(base, key, length, _NAMES):
        bit = 2
        at, count = count_elements(base, at)
        count = max(count, 0)
        total += count
        topics += count
        estimates += count
    elif length == 12 and is_key(base, key, length, _VALIDATE):
        bit = 4
        at = skip_scalar(base, at) if byte_at(base, at) == _FALSE else -1
    else:
        at = skip_value(base, at)
    return at, bit, (total, topics, estimates)


@compiled
def mutation_request(base, at):
    """
    Return what a request to create, delete or enlarge topics is charged.

    Returns:
        The position behind it, partitions, topics, whether the partitions are an estimate.
    """
    at, _, state = walk_object(base, at, _request_key, 0, (0, 0, 0))
    return at, state[0], state[1], state[2] > 0


@inlined
def _answer_key(base, key, length, at, context, state):
    bit = 0
    if length == 9 and is_key(base, key, length, _ERROR):
        bit = 1
        at, error = read_int(base, at)
        if error != 0:
            at = -1
    elif length == 13 and is_key(base, key, length, _PARTITIONS):
        bit = 2
        at, _ = read_int(base, at)
    else:
        at = skip_value(base, at)
    return at, bit, state


@compiled
def _answer(base, at, context, state):
    """Go over one topic's answer; one with an error is refused."""
    at, seen, state = walk_object(base, at, _answer_key, 0, state)
    return (at if seen & 1 else -1), state


@inlined
def _is_answers(base, key, length):
    """Say whether a key is that of the topics in an answer: each API calls them otherwise."""
    return (
        (length == 6 and word_at(base, key) == _TOPICS)
        or (length == 7 and word_at(base, key) == _RESULTS)
        or (length == 9 and is_key(base, key, length, _RESPONSES))
    )


@inlined
def _response_key(base, key, length, at, context, state):
    told, topics = state
    bit = 0
    if length == 14 and is_key(base, key, length, _THROTTLE):
        bit = 1
        at, told = read_int(base, at)
    elif _is_answers(base, key, length):
        bit = 2
        at, topics, _ = walk_list(base, at, _answer, 0, 0)
    else:
        at = skip_value(base, at)
    return at, bit, (told, topics)


@compiled
def mutation_response(base, at):
    """Return (position, throttle time told, topics) of an answer without errors."""
    at, _, state = walk_object(base, at, _response_key, 0, (0, 0))
    return at, state[0], state[1]
