"""What closed connections leave on the loop that is used, where topic changes mute them."""

from __future__ import annotations

import gc
import socket
import struct
import time
from collections import Counter
from pathlib import Path

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.gateway.connection.link import Link
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import MUTATION
from headgate.quota.table import QuotaTable
from kit.upstreams import Upstream

from .conftest import answer, request, string

CONNECTIONS = 60
CREATE_TOPICS = 19
PERMISSIVE = 4
"""The last version of CreateTopics that is charged whatever is owed."""


def create(partitions: int) -> bytes:
    body = struct.pack(">i", 1) + string("t") + struct.pack(">ihii", partitions, 1, 0, 0)
    return request(CREATE_TOPICS, PERMISSIVE, 1, body + struct.pack(">ib", 1_000, 0))


def created(version: int, correlation: int, frame: bytes) -> bytes:
    body = struct.pack(">ii", 0, 1) + string("t") + struct.pack(">h", 0) + string(None)
    return answer(correlation, body)


def left() -> Counter[str]:
    gc.collect()
    found = Counter(type(one).__name__ for one in gc.get_objects())
    names = (Link.__name__, Session.__name__, "TimerHandle")  # uvloop's
    return Counter({name: found[name] for name in names})


def test_connections_that_were_muted_for_topic_changes_leave_nothing(tmp_path: Path) -> None:
    table = QuotaTable.of({QuotaEntity.of(client_id="app"): {MUTATION: 0.01}})
    with Upstream([1], {CREATE_TOPICS: created}) as upstream:
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
        with GatewayThread(lambda: Gateway(settings, table=table)) as thread:
            gateway = thread.gateway
            port = int(thread.bootstrap("PLAINTEXT").rpartition(":")[2])
            before = thread.call(left)
            told = []
            for _ in range(CONNECTIONS):
                with socket.create_connection(("127.0.0.1", port), 60) as client:
                    client.sendall(create(100))
                    if told:  # it waits for what the first one left
                        client.sendall(bytes(100_000))
                        continue
                    told.append(struct.unpack_from(">i", client.recv(1_000), 8)[0])
            assert told[0] > 60_000
            until = time.monotonic() + 60
            while thread.call(lambda: len(gateway.brokers[1].links)) and time.monotonic() < until:
                time.sleep(0.01)
            after = thread.call(left)
            assert thread.call(lambda: len(gateway.brokers[1].rules.lanes)) == 1
    assert after["Link"] == after["Session"] == 0
    assert after["TimerHandle"] <= before["TimerHandle"] + 2  # the gateway's own come and go
