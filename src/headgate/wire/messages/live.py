"""
Headgate's own call: what goes on at a broker now. A gateway answers it and never advertises it.

Key 28101, version 0, never flexible, request header 1 and response header 0. A broker without a
gateway closes the connection, as it does on any key that it doesn't know.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.wire.schema import Int16, Int32, Struct, message, struct

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


REQUESTS: Final[dict[int, Struct[Any]]] = {LIVE: struct(LiveRequest)}
RESPONSES: Final[dict[int, Struct[Any]]] = {LIVE: struct(LiveResponse)}
