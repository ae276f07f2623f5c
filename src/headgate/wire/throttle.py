"""
Find, read and patch ``throttle_time_ms`` in a response.

The field is the body's first int32 in all APIs but seven: Produce has it after the responses,
ApiVersions after the keys, the delegation token calls and OffsetDelete where this module says. It
is found in steps, because a client may ask about a hundred thousand partitions or tokens.

Source: Apache Kafka's ``*Response.json``; KIP-219 (the field is told before the mute).
"""

from __future__ import annotations

import struct
from typing import Final

from headgate.errors import KafkaError, RemoteProtocolError
from headgate.steps import Work, finish
from headgate.wire import apis
from headgate.wire.apis import NEVER, THROTTLE_SINCE
from headgate.wire.fields import (
    MAX_INT32,
    Buffer,
    read_array_length,
    skip_bytes,
    skip_string,
    skip_tags,
)
from headgate.wire.header import is_flexible, response_body_offset
from headgate.wire.layout import Skipper, Value

_INT32 = struct.Struct(">i")
_unpack = _INT32.unpack_from
_since = THROTTLE_SINCE.get
_UNSUPPORTED: Final = struct.pack(">h", KafkaError.UNSUPPORTED_VERSION)
"""ApiVersions answers it in version 0, whatever was asked (KIP-511)."""
_ZERO_TAIL: Final = b"\x00" * 5
NOT_FIRST: Final = frozenset(
    (
        apis.PRODUCE,
        apis.API_VERSIONS,
        apis.CREATE_DELEGATION_TOKEN,
        apis.RENEW_DELEGATION_TOKEN,
        apis.EXPIRE_DELEGATION_TOKEN,
        apis.DESCRIBE_DELEGATION_TOKEN,
        apis.OFFSET_DELETE,
    )
)
"""APIs whose throttle_time_ms isn't the first field of the body, by Kafka's message schemas."""
_PRODUCED: Final = (30, (4, skip_string), skip_string)
"""Index, error, base offset, append time, log start offset; records' errors; the error's text."""
_PRINCIPAL: Final = (skip_string, skip_string)  # type, name
_TOKEN: Final = (24, skip_string, skip_bytes)  # issued, expires, at the latest; id, secret


def clamp(ms: int) -> int:
    """
    Return the delay as it goes on the wire.

    Differs: Kafka casts the long to an int, which wraps; we tell at most 2^31-1.
    """
    # Differs: a throttle beyond 2^31-1 ms is told as 2^31-1; Kafka's cast would wrap it.
    return 0 if ms < 0 else min(ms, MAX_INT32)


def pack_throttle(ms: int) -> bytes:
    """Return the field's four bytes, clamped."""
    return _INT32.pack(clamp(ms))


def throttle_offset(api_key: int, version: int, frame: Buffer) -> int | None:
    """Return where the field is in a response frame, in one piece (``finding_throttle``)."""
    return finish(finding_throttle(api_key, version, frame))


def finding_throttle(api_key: int, version: int, frame: Buffer) -> Work[int | None]:
    """
    Find where the field is in a response frame, in steps.

    Args:
        api_key: of the request answered.
        version: of the request answered. A version newer than known is taken to have the field
            where the newest known one has it.
        frame: the response; its first bytes are enough except for the seven odd APIs.

    Returns:
        The offset of the int32, or None where the version, or the answer's own, has none.

    Raises:
        RemoteProtocolError: the frame ends before the field.
    """
    if version < _since(api_key, NEVER):
        return None
    body = at = response_body_offset(api_key, version, frame)
    if api_key == apis.API_VERSIONS and frame[at : at + 2] == _UNSUPPORTED:
        return None
    if api_key in NOT_FIRST:
        at = yield from _odd_offset(api_key, version, frame, at)
    if at < body or at + 4 > len(frame):
        raise RemoteProtocolError("the response ends before its throttle time")
    return at


def read_throttle(frame: Buffer, at: int | None) -> int:
    """Return the throttle a response tells at ``throttle_offset``, in ms; 0 at None."""
    return 0 if at is None else _unpack(frame, at)[0]


def patch_throttle(frame: Buffer, at: int | None, ms: int) -> Buffer:
    """
    Write the throttle into a response.

    Args:
        frame: the response, or its first piece where that is enough (``throttle_offset``).
        at: where the field is; None: it has none.
        ms: the delay in milliseconds; clamped to what the field can hold.

    Returns:
        The frame: the same object where it has no such field or could be written in place.
    """
    return frame if at is None else overwrite(frame, at, pack_throttle(ms))


def overwrite(frame: Buffer, at: int, raw: bytes) -> Buffer:
    """Return the frame with ``raw`` at ``at``: in place if it is writable, else a new one."""
    end = at + len(raw)
    if isinstance(frame, bytes):
        return b"".join((frame[:at], raw, frame[end:]))
    if isinstance(frame, memoryview) and frame.readonly:
        return b"".join((frame[:at], raw, frame[end:]))
    frame[at:end] = raw
    return frame


def _odd_offset(api_key: int, version: int, frame: Buffer, at: int) -> Work[int]:
    if api_key == apis.PRODUCE:
        if version < 9:
            return len(frame) - 4
        # Only a zero throttle without tags ends so: a node endpoint's port is never 0.
        if frame[-5:] == _ZERO_TAIL:
            return len(frame) - 5
        topic = 16 if version >= 13 else skip_string
        return (yield from Skipper(frame).array(at, (topic, _PRODUCED)))
    at += 2  # error code
    if api_key == apis.OFFSET_DELETE:
        return at
    if api_key in (apis.RENEW_DELEGATION_TOKEN, apis.EXPIRE_DELEGATION_TOKEN):
        return at + 8  # expiry time
    flexible = is_flexible(api_key, version)
    if api_key == apis.API_VERSIONS:
        return _after_api_keys(frame, at, flexible)
    principals = 2 if version >= 3 else 1  # owner, requester
    token: tuple[Value, ...] = (*_PRINCIPAL * principals, *_TOKEN)
    if api_key == apis.DESCRIBE_DELEGATION_TOKEN:
        return (yield from Skipper(frame, flexible).array(at, (*token, _PRINCIPAL)))  # renewers
    for part in token:
        at = at + part if isinstance(part, int) else part(frame, at, flexible)
    return at


def _after_api_keys(frame: Buffer, at: int, flexible: bool) -> int:
    count, at = read_array_length(frame, at, flexible)
    if not flexible:
        return at + 6 * max(count, 0)
    for _ in range(count):
        at = skip_tags(frame, at + 6)
    return at
