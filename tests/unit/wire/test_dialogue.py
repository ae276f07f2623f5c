"""A client's side of a conversation, frame by frame, without any connection."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import ApiError, KafkaError, RemoteProtocolError
from headgate.wire.apis import DESCRIBE_CLIENT_QUOTAS
from headgate.wire.dialogue import Dialogue, Question
from headgate.wire.header import parse_request_header
from headgate.wire.messages import decode_request, encode_response
from headgate.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headgate.wire.messages.quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from headgate.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from headgate.wire.sasl_client import plain


def converse(question: Question[Any], *answers: Any) -> tuple[list[Any], Any]:
    """Answer each request in turn; return the requests and what was found out."""
    asked = []
    frame = next(question)
    for answer in answers:
        key, version, correlation_id, client_id, at = parse_request_header(frame)
        assert client_id == "me"
        asked.append(decode_request(key, version, frame, at))
        try:
            frame = question.send(encode_response(key, version, correlation_id, answer))
        except StopIteration as end:
            return asked, end.value
    raise AssertionError("it asks more than it is answered")


def test_a_question_is_numbered_and_its_answer_read() -> None:
    dialogue = Dialogue("kafka:9092", "me")
    request = DescribeClientQuotasRequest((), False)
    answer = DescribeClientQuotasResponse(())
    for number in (1, 2):
        frame = next(dialogue.ask(DESCRIBE_CLIENT_QUOTAS, 1, request))
        assert parse_request_header(frame)[2] == number
    asked, told = converse(dialogue.ask(DESCRIBE_CLIENT_QUOTAS, 1, request), answer)
    assert (asked, told) == ([request], answer)


def test_an_answer_to_another_request_is_none() -> None:
    dialogue = Dialogue("kafka:9092", "me")
    question = dialogue.ask(DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest((), False))
    next(question)
    frame = encode_response(DESCRIBE_CLIENT_QUOTAS, 1, 7, DescribeClientQuotasResponse(()))
    with pytest.raises(RemoteProtocolError, match="kafka:9092 answered request 7, not 1"):
        question.send(frame)


@pytest.mark.parametrize("prefix", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\3"])
def test_a_length_that_no_answer_has_is_refused(prefix: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="kafka:9092 sent a frame of"):
        Dialogue("kafka:9092", "me").size(prefix)


def test_the_newest_version_that_both_speak_is_taken() -> None:
    dialogue = Dialogue("kafka:9092", "me")
    versions = ApiVersionsResponse((ApiVersion(48, 1, 3), ApiVersion(49, 0, 0)))
    converse(dialogue.greet(), versions)
    assert dialogue.version(48, 1) == 1
    assert dialogue.version(48, 9) == 3
    for api_key, newest, oldest in ((48, 0, 0), (49, 5, 1), (50, 5, 0)):
        with pytest.raises(ApiError, match=f"doesn't offer API {api_key}") as raised:
            dialogue.version(api_key, newest, oldest)
        assert raised.value.code == KafkaError.UNSUPPORTED_VERSION


def test_a_login_sends_what_the_mechanism_says() -> None:
    dialogue = Dialogue("kafka:9092", "me")
    asked, _ = converse(
        dialogue.login("PLAIN", plain("alice", "pw"), "it takes no SASL"),
        SaslHandshakeResponse(0, ("PLAIN",)),
        SaslAuthenticateResponse(0, None, b""),
    )
    assert asked[0].mechanism == "PLAIN"
    assert asked[1].auth_bytes == b"\0alice\0pw"


@pytest.mark.parametrize(
    ("answers", "code", "told"),
    [
        ([SaslHandshakeResponse(34, ())], 34, "kafka:9092: it takes no SASL"),
        ([SaslHandshakeResponse(33, ("GSSAPI",))], 33, "doesn't take SASL PLAIN; it offers GSSAPI"),
        (
            [SaslHandshakeResponse(0, ("PLAIN",)), SaslAuthenticateResponse(58, "No.", b"")],
            58,
            "^No.$",
        ),
    ],
)
def test_a_login_that_fails_says_why(answers: list[Any], code: int, told: str) -> None:
    question = Dialogue("kafka:9092", "me").login("PLAIN", plain("a", "b"), "it takes no SASL")
    with pytest.raises(ApiError, match=told) as raised:
        converse(question, *answers)
    assert raised.value.code == code


def test_a_port_that_speaks_http_is_named_as_such() -> None:
    with pytest.raises(RemoteProtocolError, match="gateway:8080 answers in HTTP: give the port"):
        Dialogue("gateway:8080", "me").size(b"HTTP")


def test_a_kafka_without_the_calls_for_quotas_is_told_by_the_way_of_its_time() -> None:
    with pytest.raises(ApiError, match=r"since 2\.6.*kafka-configs --zookeeper"):
        Dialogue("kafka:9092", "me").version(DESCRIBE_CLIENT_QUOTAS, 1)
    with pytest.raises(ApiError) as other:
        Dialogue("kafka:9092", "me").version(3, 1)
    assert "zookeeper" not in str(other.value)
