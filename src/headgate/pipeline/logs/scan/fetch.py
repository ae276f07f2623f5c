"""
Read what a fetch was charged, and whether a replica sent it, straight from its JSON bytes.

Compiled; as ``scan.produce``, by the formulas of ``charged_bytes.fetch_bytes``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.charged_bytes import (
    UNSENT_BELOW,
    UNSUPPORTED_COMPRESSION,
    UNSUPPORTED_VERSION,
    fetch_frame,
    fetch_partition,
    fetch_tag_bytes,
    topic_frame,
)
from headgate.pipeline.logs.scan.json_text import is_null, read_int
from headgate.pipeline.logs.scan.walk import (
    count_elements,
    into,
    keys,
    list_into,
    passed,
    read_size,
    read_text,
    walk_object,
)

_state_keys = keys((b"replicaId", into(1, read_int)))


@inlined
def _replica_state(base, at, context, state):
    if is_null(base, at):
        at += 4
    else:
        at, _, state = walk_object(base, at, _state_keys, 0, (state[0], -1, 1))
    return at, state


_request_keys = keys((b"replicaId", into(0, read_int)), (b"replicaState", _replica_state))


@compiled
def fetch_request(base, at):
    """Return (position, replica id) of a fetch request; -1 is a consumer's."""
    at, _, (replica, in_state, has_state) = walk_object(base, at, _request_keys, 0, (-1, -1, 0))
    return at, in_state if has_state else replica


@inlined
def _error(base, at, version, state):
    """Read a partition's error; refuse an answer whose charge may differ from the bytes sent."""
    at, error = read_int(base, at)
    if version < UNSENT_BELOW:
        if error == UNSUPPORTED_VERSION:
            at = -1
        if error == UNSUPPORTED_COMPRESSION:
            at = -1
    return at, state


# Kafka 2.8 has other names for the size of records and for partitions.
_partition_keys = keys(
    (b"recordsSizeInBytes", b"recordSetSizeInBytes", into(0, read_size)),
    (b"divergingEpoch", passed),
    (b"currentLeader", passed),
    (b"snapshotId", passed),
    (b"errorCode", _error),
    (b"abortedTransactions", into(1, count_elements)),
)


@compiled
def _partition(base, at, version, total):
    """Add the bytes of one partition of an answer; where its size isn't told, it's refused."""
    at, seen, (size, aborted) = walk_object(base, at, _partition_keys, version, (0, -1))
    tags = fetch_tag_bytes(seen & 2 != 0, seen & 4 != 0, seen & 8 != 0)
    return at if seen & 1 else -1, total + fetch_partition(version, size, aborted, tags)


_topic_keys = keys(
    (b"partitions", b"partitionResponses", list_into(0, _partition)), (b"topic", into(2, read_text))
)


@compiled
def _topic(base, at, version, total):
    """Add the bytes of one topic of an answer."""
    at, seen, (partitions, total, name) = walk_object(
        base, at, _topic_keys, version, (0, total, -1)
    )
    frame = topic_frame(version > 11, version >= 13, name, partitions)
    return at if seen & 1 else -1, total + frame


_answer_keys = keys((b"responses", list_into(0, _topic)))


@compiled
def fetch_response(base, at, version):
    """Return (position, bytes charged, topics) of a fetch answer."""
    at, seen, (topics, total) = walk_object(base, at, _answer_keys, version, (0, 0))
    return at if seen else -1, total + fetch_frame(version, topics), topics
