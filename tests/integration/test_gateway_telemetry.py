"""Client telemetry (KIP-714): a client's metrics reach its broker unchanged."""

from __future__ import annotations

import struct
import threading
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.wire.header import build_response, parse_request_header
from headgate.wire.messages.api_versions import own_response
from kit.upstreams import Upstream
from kit.wire_oracles import kio_decode

OFFERED = {0: (3, 9), 1: (4, 11), 3: (0, 8), 18: (0, 3), 71: (0, 0), 72: (0, 0)}
ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


class Telemetry:
    """A broker's end of it: asks for all metrics, uncompressed, ten times a second."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.pushed: list[Any] = []
        self.enough = threading.Event()

    def versions(self, version: int, correlation: int, frame: bytes) -> bytes:
        return own_response(correlation, version, OFFERED)

    def subscriptions(self, version: int, correlation: int, frame: bytes) -> bytes:
        self.asked.append(kio_decode(71, version, False, frame[parse_request_header(frame)[4] :]))
        body = struct.pack(">ih", 0, 0) + ID.bytes + struct.pack(">i", 17)
        body += b"\x02\0" + struct.pack(">ii?", 100, 1_000_000, True) + b"\x02\x01\0"
        return build_response(71, version, correlation, body)

    def push(self, version: int, correlation: int, frame: bytes) -> bytes:
        self.pushed.append(kio_decode(72, version, False, frame[parse_request_header(frame)[4] :]))
        if len(self.pushed) >= 2:
            self.enough.set()
        return build_response(72, version, correlation, struct.pack(">ih", 0, 0) + b"\0")


def test_a_clients_telemetry_reaches_the_broker(tmp_path: Path) -> None:
    seen = Telemetry()
    answers = {18: seen.versions, 71: seen.subscriptions, 72: seen.push}
    with Upstream([1], answers) as upstream:
        settings = Settings.from_properties(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "headgate.upstream": upstream.address,
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
                "headgate.usage": "none",
            }
        )
        table = QuotaTable.of({QuotaEntity.of(user="ANONYMOUS"): {PRODUCER: 1.0}})
        with GatewayThread(lambda: Gateway(settings, None, table=table)) as gateway:
            producer = Producer(
                {"bootstrap.servers": gateway.bootstrap("PLAINTEXT"), "enable.metrics.push": True}
            )
            for _ in range(600):
                producer.poll(0.1)
                if seen.enough.is_set():
                    break
            closed = dict(gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed)
            del producer
    assert seen.asked[0].client_instance_id is None  # it has none yet
    assert len(seen.pushed) >= 2
    assert {(p.client_instance_id, p.subscription_id) for p in seen.pushed} == {(ID, 17)}
    assert b"org.apache.kafka.producer" in seen.pushed[0].metrics
    assert set(closed) <= {"client-gone"}  # of one that it began with
