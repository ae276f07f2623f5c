"""
Read how many partitions a change of topics was charged for, straight from its JSON bytes.

Compiled; as ``line_parser`` counts them: a new topic's partitions, one for a deleted or enlarged
topic. Only plain changes: what failed in part, is only validated, or has a default's partitions is
left to ``line_parser``, which looks at topics one by one.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.scan.json_text import byte_at, is_null, read_int, skip_scalar
from headgate.pipeline.logs.scan.walk import (
    count_elements,
    into,
    keys,
    list_into,
    walk_list,
    walk_object,
)

_FALSE = ord("f")

_topic_keys = keys(
    (b"numPartitions", into(0, read_int)),
    (b"assignments", into(1, count_elements)),
    (b"count", into(2, read_int)),
)


@compiled
def _topic(base, at, context, state):
    """Add a topic's partitions, and whether they're an estimate."""
    total, estimates = state
    at, seen, (partitions, assigned, _) = walk_object(base, at, _topic_keys, 0, (1, 0, 0))
    if assigned > 0:
        return at, (total + assigned, estimates)
    if partitions <= 0:
        return -1, state
    return at, (total + partitions, estimates + (0 if seen & 1 else 1))


@inlined
def _topics(base, at, context, state):
    """Add topics to create or enlarge."""
    topics, total, estimates = state
    if is_null(base, at):
        at += 4
    else:
        at, count, (total, estimates) = walk_list(base, at, _topic, 0, (total, estimates))
        topics += count
    return at, (topics, total, estimates)


@inlined
def _names(base, at, context, state):
    """Add topics to delete."""
    topics, total, estimates = state
    at, count = count_elements(base, at)
    count = max(count, 0)
    return at, (topics + count, total + count, estimates + count)


@inlined
def _not_only(base, at, context, state):
    """Refuse a request that is only validated."""
    return skip_scalar(base, at) if byte_at(base, at) == _FALSE else -1, state


_request_keys = keys((b"topics", _topics), (b"topicNames", _names), (b"validateOnly", _not_only))


@compiled
def mutation_request(base, at):
    """
    Return what a request to create, delete or enlarge topics is charged.

    Returns:
        The position behind it, partitions, topics, whether the partitions are an estimate.
    """
    at, _, (topics, total, estimates) = walk_object(base, at, _request_keys, 0, (0, 0, 0))
    return at, total, topics, estimates > 0


_answer_keys = keys((b"errorCode", into(0, read_int)), (b"numPartitions", into(1, read_int)))


@compiled
def _answer(base, at, context, state):
    """Go over one topic's answer; one with an error is refused."""
    at, seen, (error, _) = walk_object(base, at, _answer_keys, 0, (0, 0))
    return at if seen & 1 and error == 0 else -1, state


# Each API calls the topics in its answer by another name.
_response_keys = keys(
    (b"throttleTimeMs", into(0, read_int)),
    (b"topics", b"results", b"responses", list_into(1, _answer)),
)


@compiled
def mutation_response(base, at):
    """Return (position, throttle ms, topics) of an answer; refuse it for errors."""
    at, _, (told, topics, _) = walk_object(base, at, _response_keys, 0, (0, 0, 0))
    return at, told, topics
