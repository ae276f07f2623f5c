"""
Headgate's own call: what goes on at a broker now. A gateway answers it and never advertises it.

Key 28101, version 0, never flexible, request header 1 and response header 0. A broker without a
gateway closes the connection, as it does on any key that it doesn't know.
"""

from __future__ import annotations

from typing import Final

from headgate.wire.fields import Buffer
from headgate.wire.header import build_request, build_response
from headgate.wire.schema import Int16, Int32, message, struct

LIVE: Final = 28_101
LIVE_NAME: Final = "DescribeLive"


@message()
class LiveRequest:
    """
    What is asked.

    Attributes:
        user: a principal's name; null: everybody, for administrators only.
        client_id: a client-id; null: any.
        most: quota-ids to name at most.
    """

    user: str | None
    client_id: str | None
    most: Int32


@message("throttle_time_ms")
class LiveResponse:
    """
    What goes on.

    Attributes:
        error_code: Kafka's.
        error_message: why not, or null.
        picture: ``live.picture.Picture`` as JSON text; null with an error.
    """

    error_code: Int16
    error_message: str | None
    picture: bytes | None
    throttle_time_ms: Int32 = 0


REQUEST: Final = struct(LiveRequest)
RESPONSE: Final = struct(LiveResponse)


def decode_request(frame: Buffer, body_offset: int) -> LiveRequest:
    """
    Read a request frame's body.

    Raises:
        RemoteProtocolError: it isn't one.
    """
    return REQUEST.decode(frame, 0, False, body_offset)


def encode_request(correlation_id: int, client_id: str | None, request: LiveRequest) -> bytes:
    """Return a request frame."""
    body = REQUEST.encode(request, 0, False)
    return build_request(LIVE, 0, correlation_id, client_id, body)


def decode_response(frame: Buffer) -> LiveResponse:
    """
    Read a response frame.

    Raises:
        RemoteProtocolError: it isn't one.
    """
    return RESPONSE.decode(frame, 0, False, 8)


def encode_response(correlation_id: int, response: LiveResponse) -> bytes:
    """Return a response frame."""
    return build_response(LIVE, 0, correlation_id, RESPONSE.encode(response, 0, False))
