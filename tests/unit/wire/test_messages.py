"""Mutations, SASL, ApiVersions and KIP-546's draft calls, as the gateway uses them."""

import struct
import uuid
from typing import Any

import pytest

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.steps import FEW, finish
from headgate.wire import apis
from headgate.wire.header import build_request, parse_request_header
from headgate.wire.messages import (
    api_versions,
    configs,
    decode_request,
    decode_response,
    draft,
    encode_request,
    encode_response,
    live,
    mutation,
    quotas,
    sasl,
    scram,
)
from kit.logins import build_authenticate, build_handshake

TOPIC_ID = uuid.UUID(int=77)


def create(version: int = 7, validate_only: bool = False) -> bytes:
    topics = (
        mutation.CreatableTopic("a", 3, 1),
        mutation.CreatableTopic("b", -1, -1),
        mutation.CreatableTopic(
            "c", -1, -1, (mutation.Assignment((1,), 0), mutation.Assignment((1,), 1))
        ),
    )
    request = mutation.CreateTopicsRequest(topics, 1000, validate_only)
    return encode_request(19, version, 5, "app", request)


def count(key: int, version: int, frame: bytes, **kwargs: object) -> mutation.Mutations:
    request = decode_request(key, version, frame, parse_request_header(frame)[4])
    return finish(mutation.mutations(key, version, request, **kwargs))  # type: ignore[arg-type]


def keep(key: int, version: int, frame: bytes, refused: set[mutation.TopicRef]) -> bytes:
    request = decode_request(key, version, frame, parse_request_header(frame)[4])
    return finish(mutation.keep(key, version, frame, request, refused))


@pytest.mark.parametrize(("version", "strict"), [(0, False), (5, False), (6, True), (7, True)])
def test_topics_to_create_count_their_partitions(version: int, strict: bool) -> None:
    seen = count(19, version, create(version), default_partitions=4)
    assert seen == mutation.Mutations(("a", "b", "c"), (3, 4, 2), False, strict)


def test_a_default_that_is_not_known_is_said_so() -> None:
    assert count(19, 7, create(validate_only=True)).partitions == (3, None, 2)
    assert count(19, 7, create(validate_only=True)).validate_only


def test_topics_to_delete_count_all_they_have() -> None:
    have = {"a": 3, TOPIC_ID: 5}
    by_name = encode_request(20, 5, 5, "app", mutation.DeleteTopicsRequest(topic_names=("a", "x")))
    assert count(20, 5, by_name, current=have.get).partitions == (3, None)
    request = mutation.DeleteTopicsRequest(
        (mutation.DeletableTopic("a"), mutation.DeletableTopic(None, TOPIC_ID))
    )
    seen = count(20, 6, encode_request(20, 6, 5, "app", request), current=have.get)
    assert seen == mutation.Mutations(("a", TOPIC_ID), (3, 5), False, True)


def test_partitions_to_add_count_what_is_new() -> None:
    request = mutation.CreatePartitionsRequest(
        (
            mutation.GrowingTopic("a", 10),
            mutation.GrowingTopic("b", 2),
            mutation.GrowingTopic("x", 5),
        )
    )
    frame = encode_request(37, 3, 5, "app", request)
    seen = count(37, 3, frame, current={"a": 3, "b": 4}.get)
    assert seen == mutation.Mutations(("a", "b", "x"), (7, 0, None), False, True)


def test_topics_are_named_in_the_requests_order_a_few_at_a_time() -> None:
    by_name = mutation.DeleteTopicsRequest(topic_names=("a", "x", "a"))
    by_id = mutation.DeleteTopicsRequest(
        (mutation.DeletableTopic("a"), mutation.DeletableTopic(None, TOPIC_ID))
    )
    grown = mutation.CreatePartitionsRequest((mutation.GrowingTopic("a", 10),))
    for request, names in (
        (by_name, ["a", "x", "a"]),
        (by_id, ["a", TOPIC_ID]),
        (grown, ["a"]),
    ):
        assert finish(mutation.named(request)) == names
    many = mutation.DeleteTopicsRequest(topic_names=("t",) * (10 * FEW))
    assert len(list(mutation.named(many))) == 10
    grown = mutation.CreatePartitionsRequest(grown.topics * (10 * FEW))
    assert len(list(mutation.named(grown))) == 10


@pytest.mark.parametrize("version", [6, 7])
def test_refused_topics_are_taken_out_and_put_into_the_answer(version: int) -> None:
    frame = keep(19, version, create(version), {"a", "c"})
    kept = decode_request(19, version, frame, parse_request_header(frame)[4])
    assert [topic.name for topic in kept.topics] == ["b"]
    assert parse_request_header(frame)[:4] == (19, version, 5, "app")
    answer = encode_response(
        19, version, 5, mutation.CreateTopicsResponse((mutation.CreatedTopic("b"),))
    )
    seen: list[Any] = []
    frame = finish(mutation.merge(19, version, answer, ("a", "c"), seen.append))
    assert seen == list(decode_response(19, version, answer).topics)
    merged = decode_response(19, version, frame)
    assert [(t.name, t.error_code) for t in merged.topics] == [("b", 0), ("a", 89), ("c", 89)]


@pytest.mark.parametrize(("key", "version"), [(19, 7), (20, 5), (20, 6), (37, 3)])
def test_all_refused_is_answered_without_the_broker(key: int, version: int) -> None:
    answer = decode_response(key, version, finish(mutation.refuse(key, version, 9, ("t",), 2**40)))
    assert answer.throttle_time_ms == 2**31 - 1
    assert [(t.name, t.error_code, t.error_message) for t in answer.topics] == [
        ("t", 89, "The throttling quota has been exceeded.")
    ]


def test_topics_refused_by_id_stay_ids() -> None:
    request = mutation.DeleteTopicsRequest(
        (mutation.DeletableTopic(None, TOPIC_ID), mutation.DeletableTopic("a"))
    )
    frame = keep(20, 6, encode_request(20, 6, 1, "c", request), {TOPIC_ID})
    assert decode_request(20, 6, frame, parse_request_header(frame)[4]).topics == (
        mutation.DeletableTopic("a"),
    )
    answer = decode_response(20, 6, finish(mutation.refuse(20, 6, 9, (TOPIC_ID,), 1)))
    assert answer.topics[0].topic_id == TOPIC_ID
    assert answer.topics[0].name is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_sasl_tokens_pass_there_and_back_and_are_never_shown(version: int) -> None:
    body = build_authenticate(b"\0alice\0secret", version)
    frame = build_request(36, version, 1, "c", body)
    offset = parse_request_header(frame)[4]
    asked = decode_request(36, version, frame, offset)
    assert asked.auth_bytes == b"\0alice\0secret"
    assert "secret" not in repr(asked)
    said = sasl.SaslAuthenticateResponse(58, "no", b"tok", 9 if version else 0)
    answer = encode_response(36, version, 1, said)
    assert decode_response(36, version, answer) == said
    assert "tok" not in repr(said)


def test_a_salted_password_is_never_shown() -> None:
    shown = repr(scram.ScramUpsert("alice", 1, 4_096, b"some salt", b"salted secret"))
    assert "alice" in shown
    assert "salt" not in shown
    assert "secret" not in shown


def test_sasl_handshakes() -> None:
    frame = build_request(17, 1, 1, "c", build_handshake("PLAIN"))
    assert decode_request(17, 1, frame, parse_request_header(frame)[4]).mechanism == "PLAIN"
    said = sasl.SaslHandshakeResponse(33, ("PLAIN",))
    assert decode_response(17, 1, encode_response(17, 1, 1, said)) == said


def test_unknown_and_controllers_apis_are_hidden() -> None:
    offered = {0: (0, 99), 3: (0, 13), 52: (0, 2), 55: (0, 2), 58: (0, 0), 4000: (0, 1), 78: (3, 4)}
    assert api_versions.narrow(offered) == {0: (0, 13), 3: (0, 13), 55: (0, 2)}
    assert api_versions.narrow(offered, pass_unknown=True)[4000] == (0, 1)
    # Of what it reads nothing older either: ShareFetch 0 is a preview of Kafka 4.0's alone.
    assert api_versions.narrow({78: (0, 0), 79: (0, 1)}) == {79: (1, 1)}


def test_an_api_of_our_own_is_advertised_whatever_the_upstream_has() -> None:
    body = struct.pack(">hi", 0, 1) + struct.pack(">hhh", 3, 0, 9)
    frame = b"\x00\x00\x00\x10\x00\x00\x00\x07" + body
    out = api_versions.narrow_response(frame, 0, own={48: (0, 1)})
    assert api_versions.parse_response(out, 0).ranges == {3: (0, 9), 48: (0, 1)}


def test_an_unknown_version_is_answered_in_version_0() -> None:
    frame = api_versions.unsupported_response(4)
    answer = api_versions.parse_response(frame, 9)
    assert (answer.error, answer.version) == (35, 0)
    assert answer.ranges == {18: (0, 5)}
    assert api_versions.narrow_response(frame, 9) == frame


@pytest.mark.parametrize("version", range(5))
def test_546_35_the_admin_listener_advertises_the_draft_and_no_metadata(version: int) -> None:
    frame = api_versions.admin_response(4, version, (17, 18, 36, 48, 49, 50))
    ranges = api_versions.parse_response(frame, version).ranges
    assert apis.METADATA not in ranges
    assert ranges == {17: (0, 1), 18: (0, 5), 36: (0, 2), 48: (0, 0), 49: (0, 0), 50: (0, 0)}


ENTITY = (
    draft.DraftEntityPart("user", "user-one"),
    draft.DraftEntityPart("client-id", "<default>"),
)
DRAFT_REQUESTS = {
    48: draft.DescribeQuotasRequest((draft.Filter("user", "PREFIX", "user-"),)),
    49: draft.DescribeEffectiveQuotasRequest(ENTITY, True),
    50: draft.AlterQuotasRequest(
        (
            draft.DraftAlterEntry(
                ENTITY,
                (
                    draft.DraftAlterOp("producer_byte_rate", "bps", 2**62, False),
                    draft.DraftAlterOp("consumer_byte_rate", "shares", 0, True),
                ),
            ),
        ),
        True,
    ),
}
DRAFT_RESPONSES = {
    48: draft.DescribeQuotasResponse(
        (
            draft.DescribedQuota(ENTITY, "producer_byte_rate", "bps", 10_000_000),
            draft.DescribedQuota((), "", "", 0, 42, "no"),
        ),
        7,
    ),
    49: draft.DescribeEffectiveQuotasResponse(
        (
            draft.EffectiveEntry(
                ENTITY,
                (
                    draft.EffectiveValue(
                        "producer_byte_rate", "broker_bps", (draft.ValueEntry(ENTITY, 5),)
                    ),
                ),
            ),
        ),
        7,
    ),
    50: draft.AlterQuotasResponse((draft.DraftAlteredEntry(ENTITY, 42, "why"),), 7),
}


@pytest.mark.parametrize("key", [48, 49, 50])
def test_546_28_29_30_draft_messages_pass_both_ways(key: int) -> None:
    frame = draft.encode_request(key, 3, "tool", DRAFT_REQUESTS[key])
    header = parse_request_header(frame)
    # The released header reader takes 50 for a flexible call; the draft's never is.
    assert header[:4] == (key, 0, 3, "tool")
    assert draft.decode_request(key, frame, draft.body_offset(frame)) == DRAFT_REQUESTS[key]
    answer = draft.encode_response(key, 3, DRAFT_RESPONSES[key])
    assert draft.decode_response(key, answer) == DRAFT_RESPONSES[key]
    assert answer[4:8] == b"\x00\x00\x00\x03"


def test_546_28_the_bytes_are_the_schemas() -> None:
    """DescribeQuotas v0, written out by hand from the KIP's schema."""
    frame = draft.encode_request(48, 1, "c", DRAFT_REQUESTS[48])
    assert frame[4:] == (
        b"\x00\x30\x00\x00\x00\x00\x00\x01\x00\x01c"
        b"\x00\x00\x00\x01\x00\x04user\x00\x06PREFIX\x00\x05user-"
    )
    answer = draft.encode_response(
        48,
        1,
        draft.DescribeQuotasResponse((draft.DescribedQuota(ENTITY[:1], "t", "u", 2, 3),), 4),
    )
    assert answer[8:] == (
        b"\x00\x00\x00\x04\x00\x00\x00\x01\x00\x03\xff\xff"
        b"\x00\x00\x00\x01\x00\x04user\x00\x08user-one\x00\x01t\x00\x01u" + struct.pack(">q", 2)
    )


def test_a_message_with_something_left_over_is_refused() -> None:
    frame = encode_request(49, 0, 1, "c", quotas.AlterClientQuotasRequest((), False))
    with pytest.raises(RemoteProtocolError, match="left over"):
        decode_request(49, 0, frame + b"x", parse_request_header(frame)[4])


def test_what_is_not_described_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        decode_response(3, 12, b"\x00" * 20)
    with pytest.raises(LocalProtocolError, match="key"):
        bad = quotas.AlterOp(None, 1.0, False)  # type: ignore[arg-type]
        encode_request(
            49, 0, 1, "c", quotas.AlterClientQuotasRequest((quotas.AlterEntry((), (bad,)),), False)
        )


def test_config_answers_of_version_0_have_is_default_instead_of_a_source() -> None:
    answer = configs.DescribeConfigsResponse(
        (
            configs.DescribeResult(
                4, "1", (configs.ConfigValue("max.connections", "9", is_default=True),)
            ),
        )
    )
    got = decode_response(32, 0, encode_response(32, 0, 1, answer))
    assert got.results[0].configs[0].is_default
    got = decode_response(32, 4, encode_response(32, 4, 1, answer))
    assert not got.results[0].configs[0].is_default


@pytest.mark.parametrize(
    ("client_id", "request_", "recorded"),
    [
        (
            "app",
            live.LiveRequest("alice", None, 100),
            "0000001a6dc500000000000700036170700005616c696365ffff00000064",
        ),
        (
            None,
            live.LiveRequest(None, "app", 500),
            "000000156dc5000000000007ffffffff0003617070000001f4",
        ),
    ],
)
def test_our_own_request_is_written_as_ever(
    client_id: str | None, request_: live.LiveRequest, recorded: str
) -> None:
    frame = encode_request(live.LIVE, 0, 7, client_id, request_)
    assert frame.hex() == recorded
    assert decode_request(live.LIVE, 0, frame, parse_request_header(frame)[4]) == request_


@pytest.mark.parametrize(
    ("answer", "recorded"),
    [
        (
            live.LiveResponse(0, None, b'{"brokers":[]}'),
            "0000001e00000007000000000000ffff0000000e7b2262726f6b657273223a5b5d7d",
        ),
        (
            live.LiveResponse(31, "Cluster authorization failed.", None),
            "0000002d0000000700000000001f001d"
            "436c757374657220617574686f72697a6174696f6e206661696c65642effffffff",
        ),
    ],
)
def test_our_own_answer_is_written_as_ever(answer: live.LiveResponse, recorded: str) -> None:
    frame = encode_response(live.LIVE, 0, 7, answer)
    assert frame.hex() == recorded
    assert decode_response(live.LIVE, 0, frame) == answer
