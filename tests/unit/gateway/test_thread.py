"""A gateway that is stopped leaves nothing open, whatever its clients are doing."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from kit.upstreams import Upstream

VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, 0)


@pytest.mark.parametrize("drain_ms", [0, 50])
@pytest.mark.parametrize("said", [b"", VERSIONS, b"\0\0\0\x20\0"], ids=["nothing", "all", "half"])
def test_an_open_client_keeps_no_stopped_gateway(
    tmp_path: Path, said: bytes, drain_ms: int
) -> None:
    with Upstream([1]) as upstream:
        settings = Settings.from_properties(
            {
                "headgate.upstream": upstream.address,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
            }
        )
        thread = GatewayThread(lambda: Gateway(settings)).start()
        port = int(thread.bootstrap("PLAINTEXT").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(said)
            deadline = time.monotonic() + 60
            while not thread.call(lambda: len(thread.gateway.brokers[1].links)):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            # Warnings are errors here: a handle left to the end of the loop never lets it end.
            thread.stop(drain_ms)
            assert not thread._thread.is_alive()
            client.settimeout(60)
            try:
                while client.recv(1 << 16):
                    pass
            except ConnectionError:
                pass  # a request that came in half was never to be answered
