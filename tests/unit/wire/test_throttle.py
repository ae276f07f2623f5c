"""The throttle field at its edges."""

import struct

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire import throttle
from headgate.wire.fields import Buffer
from headgate.wire.header import build_response


def read(key: int, version: int, frame: bytes) -> int:
    return throttle.read_throttle(frame, throttle.throttle_offset(key, version, frame))


def patch(key: int, version: int, frame: Buffer, ms: int) -> Buffer:
    return throttle.patch_throttle(frame, throttle.throttle_offset(key, version, frame), ms)


def test_a_throttle_beyond_int32_is_clamped_not_wrapped() -> None:
    assert throttle.pack_throttle(2**31) == b"\x7f\xff\xff\xff"
    assert throttle.pack_throttle(2**60) == b"\x7f\xff\xff\xff"
    assert throttle.pack_throttle(-5) == b"\x00\x00\x00\x00"


@pytest.mark.parametrize("version", range(1, 9))
def test_old_produce_has_it_in_the_last_four_bytes(version: int) -> None:
    frame = build_response(0, version, 1, b"\x00\x00\x00\x00" + struct.pack(">i", 5))
    assert read(0, version, frame) == 5
    assert patch(0, version, frame, 9)[-4:] == struct.pack(">i", 9)


def test_produce_version_0_and_fetch_version_0_have_none() -> None:
    assert throttle.throttle_offset(0, 0, build_response(0, 0, 1, b"\x00" * 4)) is None
    assert throttle.throttle_offset(1, 0, build_response(1, 0, 1, b"\x00" * 4)) is None


def test_produce_with_node_endpoints_is_walked() -> None:
    endpoints = b"\x02" + struct.pack(">i", 1) + b"\x02h" + struct.pack(">i", 9092) + b"\x00\x00"
    body = b"\x01" + struct.pack(">i", 3) + b"\x01\x00" + bytes([len(endpoints)]) + endpoints
    frame = build_response(0, 11, 1, body)
    assert read(0, 11, frame) == 3
    patched = patch(0, 11, frame, 1000)
    assert patched == frame.replace(b"\x01\x00\x00\x00\x03", b"\x01\x00\x00\x03\xe8")


def test_the_head_of_a_long_response_is_enough() -> None:
    head = build_response(1, 12, 1, struct.pack(">i", 0) + b"x" * 100)[:20]
    assert throttle.throttle_offset(1, 12, head) == 9
    assert patch(1, 12, head, 7)[9:13] == struct.pack(">i", 7)


def test_a_read_only_view_is_copied_a_writable_one_is_not() -> None:
    frame = build_response(12, 1, 1, struct.pack(">ih", 0, 0))
    patched = patch(12, 1, memoryview(frame), 8)
    assert bytes(patched) == build_response(12, 1, 1, struct.pack(">ih", 8, 0))
    writable = memoryview(bytearray(frame))
    assert patch(12, 1, writable, 8) is writable


def test_a_newer_version_of_a_known_api_has_it_where_it_always_was() -> None:
    frame = build_response(12, 99, 1, struct.pack(">i", 4))
    assert read(12, 99, frame) == 4


def test_a_response_that_ends_before_it_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        read(12, 1, build_response(12, 1, 1, b"\x00\x00"))
    with pytest.raises(RemoteProtocolError):
        read(0, 9, build_response(0, 9, 1, b"\x05\x01\x01"))
