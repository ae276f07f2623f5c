"""
Read and write the headers of requests and responses.

The request header is the hottest thing here: one ``unpack`` and one slice.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from headgate.errors import RemoteProtocolError
from headgate.wire.apis import API_VERSIONS, CONTROLLED_SHUTDOWN, FLEXIBLE_SINCE
from headgate.wire.fields import (
    INT32,
    Buffer,
    java_text,
    read_int32,
    skip_tags,
    write_nullable_string,
)

# (api_key, api_version, correlation_id, client_id, offset of the body)
RequestHeader: TypeAlias = tuple[int, int, int, str | None, int]

_FIXED = struct.Struct(">hhih")
_unpack = _FIXED.unpack_from
_PEEK = struct.Struct(">hhi")
_RESPONSE = struct.Struct(">ii")
_NEVER: Final = 32767
_flexible_since = FLEXIBLE_SINCE.get


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact and tagged fields (KIP-482); unknown keys never."""
    return version >= _flexible_since(api_key, _NEVER)


def parse_request_header(frame: Buffer) -> RequestHeader:
    """
    Read a request's header, version 0, 1 or 2 by its API and version.

    Args:
        frame: the request with its length prefix.

    Returns:
        ``(api_key, api_version, correlation_id, client_id, body_offset)``; client_id is None
        where the client sent null. Bytes that aren't UTF-8 become U+FFFD, as in a broker.
    """
    try:
        api_key, version, correlation_id, size = _unpack(frame, 4)
    except struct.error:
        return _odd_header(frame, "a request too short for its header")
    pos = 14
    if size > 0:
        end = pos + size
        if end > len(frame):
            return _odd_header(frame, "the request ends inside its client id")
        try:
            client_id: str | None = str(frame[pos:end], "utf-8")
        except UnicodeDecodeError:
            client_id = java_text(bytes(frame[pos:end]))
        pos = end
    elif size == 0:
        client_id = ""
    elif size == -1:
        client_id = None
    else:
        return _odd_header(frame, f"client id of {size} bytes")
    if version >= _flexible_since(api_key, _NEVER):
        try:
            pos = pos + 1 if frame[pos] == 0 else skip_tags(frame, pos)
        except IndexError:
            raise RemoteProtocolError("the request ends inside its header") from None
    elif api_key == CONTROLLED_SHUTDOWN and version == 0:
        return _odd_header(frame, "")
    return api_key, version, correlation_id, client_id, pos


def _odd_header(frame: Buffer, otherwise: str) -> RequestHeader:
    """Read ControlledShutdown 0's header, which has no client id; else raise ``otherwise``."""
    if len(frame) >= 12:
        api_key, version, correlation_id = _PEEK.unpack_from(frame, 4)
        if api_key == CONTROLLED_SHUTDOWN and version == 0:
            return api_key, version, correlation_id, None, 12
    raise RemoteProtocolError(otherwise)


def correlation_id(response: Buffer) -> int:
    """Return the correlation id of a response frame."""
    return read_int32(response, 4)[0]


def response_body_offset(api_key: int, version: int, frame: Buffer) -> int:
    """
    Return where a response's body begins.

    The header of ApiVersions is always version 0: its reader doesn't know yet what its peer can.
    """
    if version < _flexible_since(api_key, _NEVER) or api_key == API_VERSIONS:
        return 8
    try:
        return 9 if frame[8] == 0 else skip_tags(frame, 8)
    except IndexError:
        raise RemoteProtocolError("a response too short for its header") from None


def build_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """Return a request frame."""
    head = _PEEK.pack(api_key, version, correlation_id)
    if not (api_key == CONTROLLED_SHUTDOWN and version == 0):
        head += write_nullable_string(client_id)
    if is_flexible(api_key, version):
        head += b"\x00"
    return INT32.pack(len(head) + len(body)) + head + body


def build_response(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a response frame."""
    if is_flexible(api_key, version) and api_key != API_VERSIONS:
        return _RESPONSE.pack(len(body) + 5, correlation_id) + b"\x00" + body
    return _RESPONSE.pack(len(body) + 4, correlation_id) + body
