"""Long messages are read, changed and written a little at a time, and nothing of them is kept."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headgate.errors import RemoteProtocolError
from headgate.steps import FEW, finish
from headgate.wire.apis import CREATE_TOPICS, DELETE_TOPICS
from headgate.wire.messages import (
    decode_response,
    encode_response,
    encode_response_steps,
    mutation,
)
from headgate.wire.messages.metadata import read_metadata_response, read_metadata_steps
from kit.stepping import most_alive

MANY = 10 * FEW


def metadata(topics: int, partitions: int) -> bytes:
    """A Metadata v8 answer."""
    partition = struct.pack(">hiii", 0, 0, 1, 0) + struct.pack(">iiiii", 1, 1, 1, 1, 0)
    topic = struct.pack(">hh", 0, 1) + b"t" + b"\0" + struct.pack(">i", partitions)
    topic += partition * partitions + struct.pack(">i", 0)
    body = struct.pack(">iii", 1, 0, 0) + b"\xff\xff" + struct.pack(">ii", 1, topics)
    body += topic * topics + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [
        (1, FEW),
        (1, MANY),
        (1, MANY + 1),
        (3, MANY),
        (MANY, 1),
        (FEW, FEW),
        (20, FEW - 1),
        (MANY, 0),
    ],
)
def test_topics_and_partitions_are_read_a_few_at_a_time(topics: int, partitions: int) -> None:
    frame = metadata(topics, partitions)
    steps = len(list(read_metadata_steps(8, frame)))
    assert topics * (partitions + 1) // FEW - 1 <= steps <= topics * (partitions + 1) // FEW
    found = read_metadata_response(8, frame).topics
    assert [topic.partitions for topic in found] == [partitions] * topics


@pytest.mark.parametrize("refused", [(), ("a", "b")])
def test_an_answer_about_topics_is_looked_at_topic_by_topic(refused: tuple[str, ...]) -> None:
    topics = tuple(mutation.DeletedTopic(f"t{n}", error_code=3) for n in range(MANY))
    frame = encode_response(DELETE_TOPICS, 6, 7, mutation.DeleteTopicsResponse(topics, 5))
    names = [topic.name for topic in topics]
    del topics
    seen: list[str] = []
    work = mutation.merge(DELETE_TOPICS, 6, frame, refused, lambda topic: seen.append(topic.name))
    steps, most, told = most_alive(work, mutation.DeletedTopic)
    assert seen == names
    assert steps >= MANY
    assert most <= 2
    assert [t.name for t in decode_response(DELETE_TOPICS, 6, told).topics] == [*names, *refused]


@pytest.mark.parametrize("end", [-1, 1])
def test_an_answer_about_topics_that_is_too_long_or_short_is_refused(end: int) -> None:
    answer = mutation.DeleteTopicsResponse((mutation.DeletedTopic("t"),))
    frame = encode_response(DELETE_TOPICS, 6, 7, answer)
    with pytest.raises(RemoteProtocolError):
        finish(mutation.merge(DELETE_TOPICS, 6, frame[:end] if end < 0 else frame + b"\0", ()))


def test_refusals_are_made_one_by_one() -> None:
    names = [f"t{n}" for n in range(MANY)]
    work = mutation.refuse(CREATE_TOPICS, 6, 7, names, 5)
    steps, most, told = most_alive(work, mutation.CreatedTopic)
    assert steps >= MANY
    assert most <= 2
    assert [t.name for t in decode_response(CREATE_TOPICS, 6, told).topics] == names


def test_what_is_written_in_steps_never_is_many_small_parts() -> None:
    topics = tuple(mutation.DeletedTopic(f"t{n}", error_code=3) for n in range(MANY))
    message = mutation.DeleteTopicsResponse(topics, 5)
    work: Any = mutation.RESPONSES[DELETE_TOPICS].encode_steps(message, 6, True)
    assert max(len(work.gi_frame.f_locals["out"]) for _ in work if work.gi_frame) < 2 * FEW
    whole = finish(encode_response_steps(DELETE_TOPICS, 6, 7, message))
    assert whole == encode_response(DELETE_TOPICS, 6, 7, message)
