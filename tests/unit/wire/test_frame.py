"""Frames cut from a byte stream: whole, in pieces, bounded."""

import struct

import pytest

from headgate.errors import RemoteProtocolError
from headgate.wire.frame import BODY, HEAD, HEAD_BYTES, TAIL, WHOLE, FrameScanner


def frame(size: int, fill: int = 7) -> bytes:
    return struct.pack(">i", size) + bytes([fill]) * size


def joined(pieces: list) -> bytes:
    return b"".join(bytes(view) for _, _, view in pieces)


def test_a_frame_that_fills_the_read_is_given_out_without_a_copy() -> None:
    data = frame(300)
    [(kind, size, view)] = FrameScanner().feed(data)
    assert (kind, size) == (WHOLE, 304)
    assert view is data


def test_several_frames_in_one_read_are_views_of_it() -> None:
    data = frame(10, 1) + frame(20, 2) + frame(30, 3)
    pieces = FrameScanner().feed(data)
    assert [(kind, size) for kind, size, _ in pieces] == [(WHOLE, 14), (WHOLE, 24), (WHOLE, 34)]
    assert joined(pieces) == data
    assert all(view.obj is data for _, _, view in pieces)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64, 1000])
def test_frames_are_the_same_however_they_arrive(step: int) -> None:
    frames = [frame(n, n % 251) for n in (4, 5, 300, 64, 4096, 9)]
    data = b"".join(frames)
    scanner = FrameScanner()
    out = []
    for at in range(0, len(data), step):
        out += [bytes(view) for _, _, view in scanner.feed(data[at : at + step])]
    assert out == frames
    assert scanner.idle


def test_what_is_held_does_not_depend_on_a_buffer_that_is_read_into_again() -> None:
    buffer = bytearray(64)
    whole = frame(100, 9)
    scanner = FrameScanner()
    buffer[:60] = whole[:60]
    assert scanner.feed(memoryview(buffer)[:60]) == []
    buffer[:44] = whole[60:]
    [(_, _, view)] = scanner.feed(memoryview(buffer)[:44])
    assert view == whole


def test_a_streamed_frame_is_asked_for_once_and_passes_as_it_comes() -> None:
    asked = []

    def stream(head: bytes, size: int) -> bool:
        asked.append((len(head), size))
        return True

    whole = frame(100_000)
    scanner = FrameScanner(stream=stream)
    kinds, out = [], b""
    for at in range(0, len(whole), 16_384):
        for kind, size, view in scanner.feed(whole[at : at + 16_384]):
            assert size == 100_004
            kinds.append(kind)
            out += view
            assert scanner.pending_bytes == 0
    assert out == whole
    assert kinds == [HEAD, BODY, BODY, BODY, BODY, BODY, TAIL]
    assert asked == [(16_384, 100_004)]


def test_a_head_comes_only_with_enough_bytes_to_decide() -> None:
    heads = []

    def stream(head: bytes, size: int) -> bool:
        heads.append(len(head))
        return True

    whole = frame(5000)
    scanner = FrameScanner(stream=stream)
    pieces = []
    for at in range(0, len(whole), 50):
        pieces += scanner.feed(whole[at : at + 50])
    assert joined(pieces) == whole
    assert len(heads) == 1
    assert heads[0] >= HEAD_BYTES
    assert pieces[0][0] == HEAD
    assert pieces[-1][0] == TAIL


def test_a_frame_that_may_not_stream_is_collected_and_asked_for_once() -> None:
    asked = []
    scanner = FrameScanner(stream=lambda head, size: bool(asked.append(size)))
    whole = frame(3000)
    assert scanner.feed(whole[:100]) == []
    assert scanner.feed(whole[100:900]) == []
    assert scanner.feed(whole[900:1000]) == []
    assert scanner.pending_bytes == 1000
    [(kind, _, view)] = scanner.feed(whole[1000:])
    assert kind == WHOLE
    assert view == whole
    assert asked == [3004]


def test_a_streamed_frame_is_followed_by_others() -> None:
    whole = frame(1000, 1)
    scanner = FrameScanner(stream=lambda head, size: size > 500)
    first = scanner.feed(whole[:600])
    rest = scanner.feed(whole[600:] + frame(10, 2) + frame(2000, 3)[:300])
    assert [p[0] for p in first + rest] == [HEAD, TAIL, WHOLE, HEAD]
    assert joined(first + rest) == whole + frame(10, 2) + frame(2000, 3)[:300]


def test_a_small_rest_does_not_pin_the_read_it_came_in() -> None:
    data = frame(200_000) + frame(1000)[:40]
    scanner = FrameScanner()
    scanner.feed(data)
    assert type(scanner._parts[0]) is bytes  # a copy of 40 bytes, not a view of 200 KB
    assert scanner.pending_bytes == 40


@pytest.mark.parametrize("length", [-1, 0, 3])
def test_impossible_lengths_are_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        FrameScanner().feed(struct.pack(">i", length) + b"x" * 20)
    assert caught.value.reason == "malformed"


def test_a_frame_above_the_limit_is_refused_by_its_length_alone() -> None:
    scanner = FrameScanner(max_frame_bytes=1000)
    assert scanner.feed(frame(996))[0][1] == 1000
    with pytest.raises(RemoteProtocolError) as caught:
        scanner.feed(struct.pack(">i", 997))
    assert caught.value.reason == "oversized"


def test_the_limit_may_rise_after_authentication() -> None:
    scanner = FrameScanner(max_frame_bytes=100)
    scanner.feed(frame(90))
    scanner.max_frame_bytes = 10_000
    assert scanner.feed(frame(5000))[0][1] == 5004
