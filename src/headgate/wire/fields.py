"""
Read and write Kafka's primitive fields.

Readers take ``(buffer, offset)`` and return ``(value, next offset)``; writers return bytes. A
reader never trusts a length: it is checked against what is there before anything is made of it.

Source: Apache Kafka's protocol guide, "Protocol Primitive Types"; KIP-482 for compact and tagged.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from headgate.errors import LocalProtocolError, RemoteProtocolError

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview
Reader: TypeAlias = Callable[[Buffer, int], tuple[T, int]]

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
FLOAT64 = struct.Struct(">d")

MOST_TAGS = 1_024
"""Tagged fields of one section; Kafka's own messages have six at most."""
MAX_INT16 = 2**15 - 1
MAX_INT32 = 2**31 - 1
_MAX_VARINT_BYTES = 5
"""Groups of seven bits that a 32-bit number takes at most."""


def truncated(what: str, offset: int) -> RemoteProtocolError:
    """Return the error for a frame that ends inside a field."""
    return RemoteProtocolError(f"the frame ends inside {what} at byte {offset}")


def _fixed(layout: struct.Struct, name: str) -> Reader[Any]:
    unpack, size = layout.unpack_from, layout.size

    def read(buffer: Buffer, offset: int) -> tuple[Any, int]:
        try:
            return unpack(buffer, offset)[0], offset + size
        except struct.error:
            raise truncated(name, offset) from None

    read.__doc__ = f"Read a big-endian {name}."
    return read


read_int8: Reader[int] = _fixed(INT8, "int8")
read_int16: Reader[int] = _fixed(INT16, "int16")
read_int32: Reader[int] = _fixed(INT32, "int32")
read_int64: Reader[int] = _fixed(INT64, "int64")
read_float64: Reader[float] = _fixed(FLOAT64, "float64")
"""An IEEE 754 double; infinities and NaN are values like any other."""


def read_bool(buffer: Buffer, offset: int) -> tuple[bool, int]:
    """Read a bool; as in Kafka, every byte but 0 is true."""
    value, offset = read_int8(buffer, offset)
    return value != 0, offset


def read_uuid(buffer: Buffer, offset: int) -> tuple[uuid.UUID, int]:
    """Read a 16-byte uuid."""
    end = offset + 16
    if end > len(buffer):
        raise truncated("uuid", offset)
    return uuid.UUID(bytes=bytes(buffer[offset:end])), end


def read_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read an unsigned varint of 32 bits."""
    value = shift = 0
    for at in range(offset, offset + _MAX_VARINT_BYTES):
        try:
            byte = buffer[at]
        except IndexError:
            raise truncated("varint", offset) from None
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return value, at + 1
        shift += 7
    raise RemoteProtocolError(f"varint at byte {offset} is longer than 32 bits")


def quick_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """
    Read an unsigned varint of 32 bits, sooner if it is one byte.

    Raises:
        IndexError: the buffer ends before it.
    """
    byte = buffer[offset]
    return (byte, offset + 1) if byte < 0x80 else read_varint(buffer, offset)


def _take(buffer: Buffer, offset: int, size: int, what: str) -> tuple[bytes, int]:
    end = offset + size
    if end > len(buffer):
        raise truncated(what, offset)
    return bytes(buffer[offset:end]), end


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def java_text(raw: bytes) -> str:
    """
    Decode UTF-8 as Java's ``new String(bytes, UTF_8)`` does: what isn't UTF-8 is no error.

    Both put U+FFFD in place of what they can't read. For an encoded surrogate Java puts one, Python
    three.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def _length(buffer: Buffer, offset: int, flexible: bool, read: Reader[int]) -> tuple[int, int]:
    """Return the length that stands before a value, -1 for null."""
    if flexible:
        value, offset = read_varint(buffer, offset)
        return value - 1, offset
    value, after = read(buffer, offset)
    if value < -1:
        raise RemoteProtocolError(f"negative length {value} at byte {offset}")
    return value, after


def read_nullable_string(
    buffer: Buffer, offset: int, flexible: bool = False
) -> tuple[str | None, int]:
    """Read a string or null."""
    size, offset = _string_length(buffer, offset, flexible)
    if size < 0:
        return None, offset
    raw, offset = _take(buffer, offset, size, "string")
    return java_text(raw), offset


def _string_length(buffer: Buffer, offset: int, flexible: bool) -> tuple[int, int]:
    """Return the length that stands before a string, -1 for null."""
    size, offset = _length(buffer, offset, flexible, read_int16)
    if size > MAX_INT16:
        raise RemoteProtocolError(
            f"string of {size} bytes at byte {offset}; Kafka's limit is 32767"
        )
    return size, offset


def read_string(buffer: Buffer, offset: int, flexible: bool = False) -> tuple[str, int]:
    """Read a string that can't be null."""
    value, after = read_nullable_string(buffer, offset, flexible)
    if value is None:
        raise RemoteProtocolError(f"null at byte {offset} where a string must stand")
    return value, after


def read_nullable_bytes(
    buffer: Buffer, offset: int, flexible: bool = False
) -> tuple[bytes | None, int]:
    """Read bytes or null."""
    size, offset = _length(buffer, offset, flexible, read_int32)
    if size < 0:
        return None, offset
    return _take(buffer, offset, size, "bytes")


def read_bytes(buffer: Buffer, offset: int, flexible: bool = False) -> tuple[bytes, int]:
    """Read bytes that can't be null."""
    value, after = read_nullable_bytes(buffer, offset, flexible)
    if value is None:
        raise RemoteProtocolError(f"null at byte {offset} where bytes must stand")
    return value, after


def read_array_length(buffer: Buffer, offset: int, flexible: bool = False) -> tuple[int, int]:
    """
    Read the number of elements of an array.

    Returns:
        The count, -1 for null, and the next offset.

    Raises:
        RemoteProtocolError: also if there are more elements than bytes left, since none is
            smaller than a byte; so a count can never make us reserve memory.
    """
    count, after = _length(buffer, offset, flexible, read_int32)
    if count > len(buffer) - after:
        raise RemoteProtocolError(f"array of {count} elements at byte {offset} can't fit its frame")
    return count, after


def skip_string(buffer: Buffer, offset: int, flexible: bool) -> int:
    """Return the offset after a string or null; it may be behind the buffer's end."""
    try:
        if flexible and (size := buffer[offset]) < 0x80:
            return offset + (size or 1)  # the byte says one more than there are
    except IndexError:
        raise truncated("string", offset) from None
    size, offset = _string_length(buffer, offset, flexible)
    return offset + max(size, 0)


def skip_bytes(buffer: Buffer, offset: int, flexible: bool) -> int:
    """Return the offset after bytes or null; it may be behind the buffer's end."""
    size, offset = _length(buffer, offset, flexible, read_int32)
    return offset + max(size, 0)


def skip_tags(buffer: Buffer, offset: int) -> int:
    """Return the offset after a tagged-field section."""
    try:
        if buffer[offset] == 0:
            return offset + 1
    except IndexError:
        raise truncated("tagged fields", offset) from None
    count, offset = _tag_count(buffer, offset)
    for _ in range(count):
        _, offset = read_varint(buffer, offset)
        size, offset = read_varint(buffer, offset)
        offset += size
        if offset > len(buffer):
            raise truncated("a tagged field", offset - size)
    return offset


def skip_tagged(buffer: Buffer, offset: int, flexible: bool) -> int:
    """Return the offset after the tagged fields of a version that may have none."""
    return skip_tags(buffer, offset) if flexible else offset


def read_tags(buffer: Buffer, offset: int) -> tuple[dict[int, bytes], int]:
    """Read a tagged-field section: tag number to raw value, in the order sent."""
    tags: dict[int, bytes] = {}
    count, offset = _tag_count(buffer, offset)
    for _ in range(count):
        tag, offset = read_varint(buffer, offset)
        size, offset = read_varint(buffer, offset)
        tags[tag], offset = _take(buffer, offset, size, "a tagged field")
    return tags, offset


def _tag_count(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read how many tagged fields there are."""
    count, after = read_varint(buffer, offset)
    return check_tag_count(count, offset), after


def check_tag_count(count: int, offset: int | None = None) -> int:
    """
    Return how many tagged fields a section has.

    Args:
        count: as read.
        offset: of the section; None where a message passes by in pieces.

    Raises:
        RemoteProtocolError: there are more than ``MOST_TAGS``.
    """
    if count > MOST_TAGS:
        # Differs: Kafka reads any number of tagged fields; a million would stop the gateway.
        place = "" if offset is None else f" at byte {offset}"
        raise RemoteProtocolError(f"{count} tagged fields{place}; at most {MOST_TAGS} are read")
    return count


def write_varint(value: int) -> bytes:
    """Write an unsigned varint."""
    if value < 0:
        raise LocalProtocolError(f"an unsigned varint can't be {value}")
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_nullable_string(value: str | None, flexible: bool = False) -> bytes:
    """Write a string or null."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_INT16:
        raise LocalProtocolError(f"string of {len(raw)} bytes; Kafka's limit is 32767")
    return (write_varint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def write_nullable_bytes(value: bytes | None, flexible: bool = False) -> bytes:
    """Write bytes or null."""
    if value is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    return (write_varint(len(value) + 1) if flexible else INT32.pack(len(value))) + value


def write_array_length(count: int, flexible: bool = False) -> bytes:
    """Write the number of elements of an array, -1 for null."""
    return write_varint(count + 1) if flexible else INT32.pack(count)


def write_tags(tags: dict[int, bytes]) -> bytes:
    """Write a tagged-field section, tags ascending as the protocol demands."""
    out = [write_varint(len(tags))]
    for tag in sorted(tags):
        out += (write_varint(tag), write_varint(len(tags[tag])), tags[tag])
    return b"".join(out)
