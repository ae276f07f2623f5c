"""Primitive fields: values at their edges, and lengths that lie."""

import math

import pytest

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.wire import fields as f
from headgate.wire import skim


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")],
)
def test_varints(value: int, raw: str) -> None:
    assert f.write_varint(value) == bytes.fromhex(raw)
    assert f.read_varint(bytes.fromhex(raw), 0) == (value, len(raw) // 2)


@pytest.mark.parametrize("raw", ["ffffffff1f", "ffffffffff01", "80", ""])
def test_a_varint_that_is_too_long_or_cut_is_refused(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        f.read_varint(bytes.fromhex(raw), 0)


def test_float64_takes_infinity_and_nan() -> None:
    for value in (math.inf, -math.inf, 0.1, 1e308, 5e-324):
        assert f.read_float64(f.FLOAT64.pack(value), 0) == (value, 8)
    assert math.isnan(f.read_float64(f.FLOAT64.pack(math.nan), 0)[0])


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("text", [None, "", "a", "ü" * 200, "x" * 32767])
def test_nullable_strings(text: str | None, flexible: bool) -> None:
    raw = f.write_nullable_string(text, flexible)
    assert f.read_nullable_string(raw, 0, flexible) == (text, len(raw))
    assert f.read_nullable_string(memoryview(b"ab" + raw), 2, flexible) == (text, len(raw) + 2)


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("value", [None, b"", b"abc", bytes(70_000)])
def test_nullable_bytes(value: bytes | None, flexible: bool) -> None:
    raw = f.write_nullable_bytes(value, flexible)
    assert f.read_nullable_bytes(raw, 0, flexible) == (value, len(raw))


def test_null_is_refused_where_none_may_be() -> None:
    with pytest.raises(RemoteProtocolError, match="null"):
        f.read_string(b"\xff\xff", 0)
    with pytest.raises(RemoteProtocolError, match="null"):
        f.read_bytes(b"\x00", 0, True)


def test_bytes_that_are_not_utf8_are_replaced_as_java_does() -> None:
    assert f.read_string(b"\x00\x02a\xff", 0) == ("a�", 4)


@pytest.mark.parametrize(
    "read", [f.read_int8, f.read_int16, f.read_int32, f.read_int64, f.read_float64, f.read_uuid]
)
def test_a_cut_number_is_refused(read: object) -> None:
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        read(b"", 0)  # type: ignore[operator]


def test_lengths_beyond_the_frame_are_refused_before_anything_is_reserved() -> None:
    with pytest.raises(RemoteProtocolError, match="can't fit"):
        f.read_array_length(f.INT32.pack(2**31 - 1), 0)
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        f.read_bytes(f.INT32.pack(2**31 - 1), 0)
    with pytest.raises(RemoteProtocolError, match="ends inside"):
        f.skip_tags(b"\x01\x00\x7f", 0)
    with pytest.raises(RemoteProtocolError, match="negative length"):
        f.read_nullable_string(b"\xff\xfe", 0)


def test_tags_keep_what_was_sent() -> None:
    raw = f.write_tags({5: b"five", 0: b"", 300: b"x" * 200})
    assert f.read_tags(raw, 0) == ({0: b"", 5: b"five", 300: b"x" * 200}, len(raw))
    assert f.skip_tags(raw, 0) == len(raw)


def test_tagged_fields_that_pass_by_in_pieces_are_bounded() -> None:
    skimmer = skim.Skimmer(skim.tags())
    skimmer.feed(f.write_tags(dict.fromkeys(range(f.MOST_TAGS), b"")))
    assert skimmer.done
    with pytest.raises(RemoteProtocolError, match="1025 tagged fields; at most 1024 are read"):
        skim.Skimmer(skim.tags()).feed(f.write_varint(f.MOST_TAGS + 1))


def test_what_kafka_could_not_read_is_not_written() -> None:
    with pytest.raises(LocalProtocolError):
        f.write_nullable_string("x" * 32768)
    with pytest.raises(LocalProtocolError):
        f.write_varint(-1)
