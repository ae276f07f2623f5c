"""The gateway's own Metadata questions and what it reads of the answers, against kio."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from headgate.errors import RemoteProtocolError
from headgate.wire.header import parse_request_header
from headgate.wire.messages.metadata import (
    AskedTopic,
    Node,
    TopicMetadata,
    build_metadata_request,
    read_metadata_response,
)
from kit.wire_oracles import FEW, kio_response, kio_schema, kio_values, random_kio

VERSIONS = range(8, 14)
NO_ID = uuid.UUID(int=0)


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_what_is_read_of_an_answer_is_what_kio_wrote(version: int, data: st.DataObject) -> None:
    value: Any = data.draw(kio_values(3, version, response=True))
    read = read_metadata_response(version, kio_response(value))
    assert read.cluster_id == value.cluster_id
    assert read.controller_id == value.controller_id
    assert list(read.brokers) == [Node(b.node_id, b.host, b.port) for b in value.brokers]
    assert list(read.topics) == [
        TopicMetadata(
            int(topic.error_code),
            topic.name,
            (topic.topic_id or NO_ID) if version >= 10 else NO_ID,
            len(topic.partitions),
        )
        for topic in value.topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_an_answer_that_was_cut_short_is_refused(version: int, data: st.DataObject) -> None:
    frame = kio_response(data.draw(kio_values(3, version, response=True)))
    cut = data.draw(st.integers(8, len(frame) - 1))
    try:
        read_metadata_response(version, frame[:cut])
    except RemoteProtocolError:
        return
    assert cut >= len(frame) - 5  # nothing is read of the last fields


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("asked", [None, (), (AskedTopic("a"), AskedTopic("ä"))])
def test_a_request_is_read_by_kio(version: int, asked: tuple[AskedTopic, ...] | None) -> None:
    frame = build_metadata_request(version, 7, "headgate", asked)
    body = parse_request_header(frame)[4]
    read, end = entity_reader(kio_schema(3, version, response=False))(frame, body)
    assert end == len(frame) - body or end == len(frame)
    names = None if read.topics is None else [topic.name for topic in read.topics]
    assert names == (None if asked is None else [topic.name for topic in asked])
    assert not read.allow_auto_topic_creation
    assert not read.include_topic_authorized_operations


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_ends_inside_its_last_topic_is_refused(version: int) -> None:
    frame = kio_response(random_kio(3, version, True, 4890))
    for cut in range(8, len(frame) - 5):
        with pytest.raises(RemoteProtocolError):
            read_metadata_response(version, frame[:cut])
