"""Fetch sizes and sessions at their edges."""

import json
import struct
from pathlib import Path

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire.header import build_request, parse_request_header
from headgate.wire.messages import fetch

SIZES = json.loads((Path(__file__).parents[2] / "data" / "wire" / "log_sizes.json").read_text())[
    "cases"
]["fetch"]


@pytest.mark.parametrize("case", SIZES, ids=lambda case: f"v{case['version']}-{case['body']}")
def test_what_is_charged_is_what_kafka_charges(case: dict) -> None:
    if case["version"] >= 4:
        assert fetch.charged_bytes(case["wire_frame"], case["version"]) == case["charged"]


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_old_requests_are_capped_where_they_have_a_field(version: int) -> None:
    body = struct.pack(">iii", -1, 500, 1000) + (struct.pack(">i", 2000) if version >= 3 else b"")
    frame = build_request(1, version, 1, "c", body + b"\x00" * 4)
    offset = parse_request_header(frame)[4]
    head = fetch.read_request(frame, version, offset)
    assert head.max_bytes == (2000 if version >= 3 else 2**31 - 1)
    capped = fetch.cap_request(frame, version, offset, 10)
    head = fetch.read_request(capped, version, offset)
    assert head.min_bytes == 10
    assert head.max_bytes == (10 if version >= 3 else 2**31 - 1)
    assert len(capped) == len(frame)
    assert fetch.set_session(frame, version, offset, 1, 1) is frame


def test_a_cap_never_raises_what_was_asked() -> None:
    frame = build_request(1, 12, 1, "c", struct.pack(">iiiib", -1, 500, 1, 1000, 0) + b"\x00" * 20)
    offset = parse_request_header(frame)[4]
    assert fetch.cap_request(frame, 12, offset, 5000) is frame
    assert fetch.cap_request(frame, 12, offset, 2**40) is frame


def test_a_negative_window_asks_for_nothing() -> None:
    frame = build_request(1, 12, 1, "c", struct.pack(">iiiib", -1, 500, 1, 1000, 0) + b"\x00" * 20)
    offset = parse_request_header(frame)[4]
    head = fetch.read_request(fetch.cap_request(frame, 12, offset, -5), 12, offset)
    assert (head.min_bytes, head.max_bytes) == (0, 0)


def test_a_cut_request_is_the_peers_fault() -> None:
    frame = build_request(1, 12, 1, "c", b"\x00" * 10)
    offset = parse_request_header(frame)[4]
    with pytest.raises(RemoteProtocolError):
        fetch.read_request(frame, 12, offset)
    with pytest.raises(RemoteProtocolError):
        fetch.set_session(frame, 12, offset, 1, 1)


def test_a_cut_answer_is_the_upstreams_fault() -> None:
    answer = fetch.empty_response(17, 1, 0, 9)
    assert fetch.tail_offset(answer, 17) == len(answer) - 1
    for end in range(9, len(answer)):
        with pytest.raises(RemoteProtocolError):
            fetch.tail_offset(answer[:end], 17)
        masker = fetch.EndpointMasker(17)
        masker.feed(answer[:end])
        with pytest.raises(RemoteProtocolError):
            masker.finish()


def test_versions_without_endpoints_pass_a_masker_untouched() -> None:
    masker = fetch.EndpointMasker(15)
    piece = b"anything at all"
    assert masker.feed(piece) is piece
    masker.finish()
    assert not masker.masked
