"""
ShareFetch 78: its size caps. Its answers are rewritten as a whole, never emptied.

Source: Apache Kafka's ``ShareFetchRequest.json``; ``KafkaApis.handleShareFetchRequest``.
"""

from __future__ import annotations

import struct

from headgate.wire.fields import Buffer, skip_string, truncated
from headgate.wire.throttle import overwrite

_TWO = struct.Struct(">ii")


def cap_request(frame: Buffer, version: int, body_offset: int, limit: int) -> Buffer:
    """
    Lower MaxBytes and MinBytes of a ShareFetch request to a limit in bytes, never raise them.

    Args:
        frame: the request with its length prefix.
        version: 1 or 2.
        body_offset: where its body begins.
        limit: quota times (samples - 1) times window, in bytes.

    Returns:
        The frame: the same object if nothing had to change or it could be written in place.
    """
    at, min_bytes, max_bytes = _caps(frame, body_offset)
    limit = max(0, min(limit, 2**31 - 1))
    if min_bytes <= limit and max_bytes <= limit:
        return frame
    return overwrite(frame, at, _TWO.pack(min(min_bytes, limit), min(max_bytes, limit)))


def ask_little(frame: Buffer, version: int, body_offset: int) -> Buffer:
    """Have a ShareFetch answered at once with as little as can be: a batch, if there is one."""
    at, _, _ = _caps(frame, body_offset)
    return overwrite(frame, at - 4, struct.pack(">iii", 0, 0, 1))  # the longest wait too


def _caps(frame: Buffer, body_offset: int) -> tuple[int, int, int]:
    """Return where MinBytes and MaxBytes are, and both."""
    at = skip_string(frame, body_offset, True)  # group
    at = skip_string(frame, at, True) + 8  # member; session epoch, longest wait
    try:
        return at, *_TWO.unpack_from(frame, at)
    except struct.error:
        raise truncated("a ShareFetch request", at) from None


def charged_bytes(frame_bytes: int) -> int:
    """Return what a broker charges for a ShareFetch response: 4 bytes and its body."""
    return frame_bytes - 5
