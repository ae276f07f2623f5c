"""Request and response headers of every version."""

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire import apis, header


@pytest.mark.parametrize("client_id", [None, "", "app", "ünï", "x" * 300])
@pytest.mark.parametrize(("key", "version"), [(0, 8), (0, 9), (18, 3), (17, 1), (999, 4)])
def test_a_request_header_reads_as_written(key: int, version: int, client_id: str | None) -> None:
    frame = header.build_request(key, version, -7, client_id, b"body")
    parsed = header.parse_request_header(frame)
    assert parsed[:4] == (key, version, -7, client_id)
    assert frame[parsed[4] :] == b"body"
    assert header.parse_request_header(memoryview(frame)) == parsed


def test_controlled_shutdown_version_0_has_no_client_id() -> None:
    frame = header.build_request(7, 0, 3, "ignored", b"\x00\x00\x00\x01")
    assert header.parse_request_header(frame) == (7, 0, 3, None, 12)
    assert header.parse_request_header(frame[:12]) == (7, 0, 3, None, 12)


def test_a_header_with_tags_is_stepped_over() -> None:
    frame = header.build_request(3, 12, 1, "c", b"body")
    tagged = frame.replace(b"c\x00body", b"c\x01\x05\x02hibody")
    assert tagged[header.parse_request_header(tagged)[4] :] == b"body"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00\x00\x04\x00\x03\x00\x0c",
        b"\x00\x00\x00\x0a\x00\x03\x00\x08\x00\x00\x00\x01\x00\x05",
        b"\x00\x00\x00\x0a\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x00\x03\x00\x08\x00\x00\x00\x01\xff\xfe",
    ],
)
def test_a_cut_or_lying_header_is_the_peers_fault(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        header.parse_request_header(raw)


def test_an_id_that_is_not_utf8_is_what_a_broker_would_see() -> None:
    raw = b"\x00\x00\x00\x0c\x00\x03\x00\x08\x00\x00\x00\x01\x00\x02a\xff"
    assert header.parse_request_header(raw)[3] == "a�"


@pytest.mark.parametrize(("key", "version", "at"), [(0, 8, 8), (0, 9, 9), (18, 4, 8), (17, 1, 8)])
def test_response_headers(key: int, version: int, at: int) -> None:
    frame = header.build_response(key, version, 77, b"body")
    assert header.correlation_id(frame) == 77
    assert header.response_body_offset(key, version, frame) == at
    assert frame[at:] == b"body"
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_a_response_header_with_tags_is_stepped_over() -> None:
    frame = b"\x00\x00\x00\x09\x00\x00\x00\x01\x01\x00\x01zBODY"
    assert header.response_body_offset(3, 9, frame) == 12


def test_a_short_response_is_the_peers_fault() -> None:
    with pytest.raises(RemoteProtocolError):
        header.correlation_id(b"\x00\x00\x00\x02\x00\x00")
    with pytest.raises(RemoteProtocolError):
        header.response_body_offset(3, 9, b"\x00\x00\x00\x04\x00\x00\x00\x01")


def test_unknown_apis_are_never_flexible() -> None:
    assert not header.is_flexible(5000, 30000)
    assert header.is_flexible(apis.METADATA, 9)
    assert not header.is_flexible(apis.SASL_HANDSHAKE, 1)
