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

from headgate.errors import RemoteProtocolError
from headgate.steps import FEW, Work, finish
from headgate.wire import apis
from headgate.wire.apis import NEVER, THROTTLE_SINCE
from headgate.wire.fields import (
    MAX_INT32,
    Buffer,
    read_array_length,
    read_nullable_bytes,
    read_nullable_string,
    read_varint,
    skip_tags,
)
from headgate.wire.header import is_flexible, response_body_offset

_INT32 = struct.Struct(">i")
_unpack = _INT32.unpack_from
_since = THROTTLE_SINCE.get
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
        The offset of the int32, or None where the version has none.

    Raises:
        RemoteProtocolError: the frame ends before the field.
    """
    if version < _since(api_key, NEVER):
        return None
    body = at = response_body_offset(api_key, version, frame)
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
        return (yield from _skip_produce_responses(frame, at, version))
    if api_key == apis.API_VERSIONS:
        return _after_api_keys(frame, at + 2, version)
    if api_key == apis.OFFSET_DELETE:
        return at + 2
    if api_key in (apis.RENEW_DELEGATION_TOKEN, apis.EXPIRE_DELEGATION_TOKEN):
        return at + 10  # error code, expiry time
    flexible = is_flexible(api_key, version)
    requester = version >= 3
    if api_key == apis.CREATE_DELEGATION_TOKEN:
        return _skip_token(frame, at + 2, flexible, requester)
    return (yield from _skip_tokens(frame, at + 2, flexible, requester))


def _after_api_keys(frame: Buffer, at: int, version: int) -> int:
    flexible = version >= 3
    count, at = read_array_length(frame, at, flexible)
    if not flexible:
        return at + 6 * max(count, 0)
    for _ in range(count):
        at = skip_tags(frame, at + 6)
    return at


def _skip_token(frame: Buffer, at: int, flexible: bool, requester: bool) -> int:
    """Skip a delegation token, as far as both calls that tell one have it."""
    for _ in range(4 if requester else 2):
        _, at = read_nullable_string(frame, at, flexible)
    at += 24  # issued, expires, at the latest
    _, at = read_nullable_string(frame, at, flexible)
    _, at = read_nullable_bytes(frame, at, flexible)
    return at


def _skip_tokens(frame: Buffer, at: int, flexible: bool, requester: bool) -> Work[int]:
    """Skip a list of delegation tokens, each with those who may renew it."""
    tokens, at = read_array_length(frame, at, flexible)
    seen = 0
    for _ in range(tokens):
        seen += 1
        if not seen % FEW:
            yield
        at = _skip_token(frame, at, flexible, requester)
        renewers, at = read_array_length(frame, at, flexible)
        for _ in range(renewers):
            seen += 1
            if not seen % FEW:
                yield
            for _ in range(2):
                _, at = read_nullable_string(frame, at, flexible)
            if flexible:
                at = skip_tags(frame, at)
        if flexible:
            at = skip_tags(frame, at)
    return at


def _skip_produce_responses(frame: Buffer, at: int, version: int) -> Work[int]:
    """Return the offset after the topics of a Produce response, version 9 or later."""
    topics, at = read_array_length(frame, at, True)
    seen = 0
    for _ in range(topics):
        seen += 1
        if not seen % FEW:
            yield
        if version >= 13:
            at += 16
        else:
            size, at = read_varint(frame, at)
            at += max(size - 1, 0)
        partitions, at = read_array_length(frame, at, True)
        for _ in range(partitions):
            seen += 1
            if not seen % FEW:
                yield
            # index, error, base offset, append time, log start offset
            errors, at = read_array_length(frame, at + 30, True)
            for _ in range(errors):
                seen += 1
                if not seen % FEW:
                    yield
                size, at = read_varint(frame, at + 4)
                at = skip_tags(frame, at + max(size - 1, 0))
            size, at = read_varint(frame, at)
            at = skip_tags(frame, at + max(size - 1, 0))
        at = skip_tags(frame, at)
    return at
