"""Malformed requests that the gateway answers itself: refused, counted, and logged sparingly."""

from __future__ import annotations

import logging
import struct

import pytest

from .scripted_upstream import Start, connect, start, upstream
from .test_gateway_bad_peers import closed, ends

__all__ = ["start", "upstream"]


@pytest.mark.parametrize("key_version", [(32, 4), (44, 1), (48, 1), (49, 1)])
def test_a_garbled_question_is_malformed_and_said_ten_times_a_minute(
    start: Start, caplog: pytest.LogCaptureFixture, key_version: tuple[int, int]
) -> None:
    # A principal without permission is refused before its request is read.
    gateway = start(**{"super.users": "User:ANONYMOUS"})
    body = struct.pack(">hhih", *key_version, 1, -1) + b"\0" + b"\x7f" * 20
    with caplog.at_level(logging.WARNING, "headgate.gateway"):
        for _ in range(30):
            with connect(gateway) as client:
                client.sendall(len(body).to_bytes(4, "big") + body)
                assert ends(client)
    assert closed(gateway) == {"malformed": 30}
    assert len(caplog.records) <= 20
    assert not any(record.exc_info for record in caplog.records)
