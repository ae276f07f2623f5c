"""What opening a connection costs in calls: a count that no busy machine changes."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import headgate
from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from kit.upstreams import Upstream

from .conftest import heartbeat

MOST_CALLS = 116
"""Functions of ours from accepting a connection to forgetting it, with one request between them.

It is 105 where the broker is reached before the request is read. On a busy machine it is reached
after that in most connections: then the request is held and weighed, which takes 12 calls more.
"""
CONNECTIONS = 50
OURS = str(Path(headgate.__file__).parent)


def test_opening_a_connection_takes_few_calls(tmp_path: Path) -> None:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and OURS in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    def beaten(version: int, correlation: int, frame: bytes) -> bytes:
        return struct.pack(">iih", 6, correlation, 0)

    with Upstream([1], {12: beaten}) as upstream:
        settings = Settings.from_properties(
            {
                "headgate.upstream": upstream.address,
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
                "headgate.usage": "none",
            }
        )
        with GatewayThread(lambda: Gateway(settings)) as thread:
            broker = thread.gateway.brokers[1]
            port = int(thread.bootstrap("PLAINTEXT").rpartition(":")[2])

            def talk() -> None:
                with socket.create_connection(("127.0.0.1", port), 60) as client:
                    client.sendall(heartbeat())
                    assert len(client.recv(100)) == 10

            talk()
            thread.call(lambda: sys.setprofile(count))
            for _ in range(CONNECTIONS):
                talk()
            while thread.call(lambda: len(broker.links)):
                time.sleep(0.01)
            thread.call(lambda: sys.setprofile(None))
    # What the clock calls now and then, such as the loop's watcher, is no connection's.
    ours = {name: n // CONNECTIONS for name, n in calls.items() if n >= CONNECTIONS}
    assert sum(ours.values()) <= MOST_CALLS, sorted(ours.items(), key=lambda item: -item[1])
