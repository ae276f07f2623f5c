"""Whole messages, there and back, against kio and kafka-python."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.steps import finish
from headgate.wire.apis import API
from headgate.wire.header import parse_request_header, response_body_offset
from headgate.wire.messages import (
    REQUESTS,
    RESPONSES,
    decode_request,
    decode_request_steps,
    decode_response,
    decode_response_steps,
    encode_request,
    encode_request_steps,
    encode_response,
    encode_response_steps,
    quotas,
)
from headgate.wire.messages.live import LIVE
from kit.wire_oracles import (
    FEW,
    QUICK,
    kafka_python_decode,
    kafka_python_encode,
    kio_encode,
    kio_request,
    kio_response,
    kio_values,
    kio_versions,
)

# Headgate's own call is unknown to both (tests/unit/wire/test_messages.py has its bytes).
VERSIONS = [(key, version) for key in REQUESTS if key != LIVE for version in kio_versions(key)]
# Ours drop the features of ApiVersions; kafka-python hasn't the classes of delegation tokens.
SPLICED = {18}
UNKNOWN_TO_KAFKA_PYTHON = {41}
WHOLE = [(k, v) for k, v in VERSIONS if k not in SPLICED]
KAFKA_PYTHON = [(k, v) for k, v in WHOLE if k not in UNKNOWN_TO_KAFKA_PYTHON]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@FEW
@given(data=st.data())
def test_a_request_of_kios_is_read_and_written_back_byte_for_byte(
    key: int, version: int, data: st.DataObject
) -> None:
    frame = kio_request(data.draw(kio_values(key, version, response=False)))
    _, _, correlation_id, client_id, body = parse_request_header(frame)
    message = decode_request(key, version, frame, body)
    assert encode_request(key, version, correlation_id, client_id, message) == frame
    # Step by step nothing differs.
    assert repr(finish(decode_request_steps(key, version, frame, body))) == repr(message)
    steps = encode_request_steps(key, version, correlation_id, client_id, message)
    assert finish(steps) == frame


@pytest.mark.parametrize(("key", "version"), WHOLE)
@FEW
@given(data=st.data())
def test_a_response_of_kios_is_read_and_written_back_byte_for_byte(
    key: int, version: int, data: st.DataObject
) -> None:
    frame = kio_response(data.draw(kio_values(key, version, response=True)))
    message = decode_response(key, version, frame)
    assert encode_response(key, version, 7, message) == frame
    assert repr(finish(decode_response_steps(key, version, frame))) == repr(message)
    if not RESPONSES[key].tagged:
        assert finish(encode_response_steps(key, version, 7, message)) == frame


@pytest.mark.parametrize("version", [0, 1])
@QUICK
@given(data=st.data())
def test_quota_answers_mean_to_kafka_python_what_they_mean_to_us(
    version: int, data: st.DataObject
) -> None:
    """48 and 49, the responses: our bytes, read by kafka-python."""
    text = st.text(max_size=40)
    part = st.builds(quotas.EntityPart, text, st.none() | text)
    value = st.builds(quotas.QuotaValue, text, st.floats(allow_nan=False))
    entry = st.builds(
        quotas.DescribedEntry,
        st.lists(part, max_size=3).map(tuple),
        st.lists(value, max_size=3).map(tuple),
    )
    answer = data.draw(
        st.builds(
            quotas.DescribeClientQuotasResponse,
            st.none() | st.lists(entry, max_size=3).map(tuple),
            st.sampled_from((0, -1, 31, 35, 42)),
            st.none() | text,
            st.integers(0, 2**31 - 1),
        )
    )
    body = RESPONSES[48].encode(answer, version, version >= 1)
    read = kafka_python_decode("DescribeClientQuotasResponse", version, body)
    assert read.throttle_time_ms == answer.throttle_time_ms
    assert (read.error_code, read.error_message) == (answer.error_code, answer.error_message)
    got = (
        None
        if read.entries is None
        else [
            (
                [(p.entity_type, p.entity_name) for p in entry.entity],
                [(v.key, v.value) for v in entry.values],
            )
            for entry in read.entries
        ]
    )
    assert got == (
        None
        if answer.entries is None
        else [
            (
                [(p.entity_type, p.entity_name) for p in entry.entity],
                [(v.key, v.value) for v in entry.values],
            )
            for entry in answer.entries
        ]
    )


@pytest.mark.parametrize(("key", "version"), KAFKA_PYTHON)
@FEW
@given(data=st.data())
def test_kafka_python_writes_what_it_read_from_us_as_we_wrote_it(
    key: int, version: int, data: st.DataObject
) -> None:
    """Requests and responses: kio's value, our bytes, kafka-python there and back."""
    for response, structs in ((False, REQUESTS), (True, RESPONSES)):
        value = data.draw(kio_values(key, version, response))
        body = kio_encode(value)
        flexible = version >= API[key].flexible_since
        ours = structs[key].encode(structs[key].decode(body, version, flexible), version, flexible)
        name = API[key].name + ("Response" if response else "Request")
        theirs = kafka_python_decode(name, version, ours)
        assert kafka_python_encode(theirs, version) == ours == body


def test_infinities_pass_where_kio_refuses_them() -> None:
    for value in (math.inf, -math.inf):
        answer = quotas.DescribeClientQuotasResponse(
            (quotas.DescribedEntry((), (quotas.QuotaValue("producer_byte_rate", value),)),)
        )
        frame = encode_response(48, 1, 1, answer)
        assert decode_response(48, 1, frame) == answer
        body = frame[response_body_offset(48, 1, frame) :]
        read = kafka_python_decode("DescribeClientQuotasResponse", 1, body)
        assert read.entries[0].values[0].value == value
