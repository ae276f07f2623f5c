"""The throttle field, found in every response that has one, whatever else is in it."""

import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from headgate.errors import KafkaError
from headgate.wire.apis import API_VERSIONS, has_throttle
from headgate.wire.header import response_body_offset
from headgate.wire.throttle import patch_throttle, read_throttle, throttle_offset
from kit.wire_oracles import FEW, kio_decode, kio_response, kio_values, kio_versions

UNSUPPORTED_VERSION = KafkaError.UNSUPPORTED_VERSION
MS = st.integers(min_value=0, max_value=2**31 - 1)
WITH = [(k, v) for k in api_key_map for v in kio_versions(k) if has_throttle(k, v)]
WITHOUT = [(k, v) for k in api_key_map for v in kio_versions(k) if not has_throttle(k, v)]


@pytest.mark.parametrize(("key", "version"), WITH)
@FEW
@given(data=st.data(), told=MS)
def test_the_patched_response_is_the_same_but_for_the_throttle(
    key: int, version: int, data: st.DataObject, told: int
) -> None:
    value = data.draw(kio_values(key, version, response=True))
    frame = kio_response(value)
    at = throttle_offset(key, version, frame)
    if key == API_VERSIONS and value.error_code == UNSUPPORTED_VERSION:
        assert at is None  # such an answer has the form of version 0
        return
    assert read_throttle(frame, at) == round(value.throttle_time / MILLISECOND)
    patched = patch_throttle(frame, at, told)
    body = bytes(patched)[response_body_offset(key, version, patched) :]
    assert patched[:8] == frame[:8]
    assert kio_decode(key, version, True, body) == dataclasses.replace(
        value, throttle_time=told * MILLISECOND
    )
    in_place = bytearray(frame)
    assert patch_throttle(in_place, at, told) is in_place
    assert in_place == patched


MILLISECOND = datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(("key", "version"), WITHOUT)
@FEW
@given(data=st.data())
def test_a_response_without_the_field_is_left_alone(
    key: int, version: int, data: st.DataObject
) -> None:
    frame = kio_response(data.draw(kio_values(key, version, response=True)))
    assert throttle_offset(key, version, frame) is None
    assert read_throttle(frame, None) == 0
    assert patch_throttle(frame, None, 99) is frame
