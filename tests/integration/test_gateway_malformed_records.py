"""Produces whose records have a negative length or count, at a broker and at the gateway."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.wire.apis import PRODUCE
from headgate.wire.header import build_request

from .gateway_kit import make_gateway, receive, send, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]
CLIENT = "malformed"
SILENT_S = 4


def batch(length: int, count: int) -> bytes:
    """A batch without records that claims to have this many bytes and records."""
    tail = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, count)
    return struct.pack(">qiibI", 0, length, -1, 2, 0) + tail


RECORDS = {
    "the records' length is -2": struct.pack(">i", -2),
    "the records' length is -2147483648": struct.pack(">i", -(2**31)),
    "the batch's length is -1": struct.pack(">i", 61) + batch(-1, 0),
    "the count of records is -1": struct.pack(">i", 61) + batch(49, -1),
}
SILENCED = {what for what in RECORDS if what.startswith("the records")}
"""What Kafka 4.3.1 never answers, and doesn't close for."""


def produce(name: str, acks: int, records: bytes) -> bytes:
    body = struct.pack(">hhi", -1, acks, 1_000) + struct.pack(">ih", 1, len(name)) + name.encode()
    return build_request(PRODUCE, 7, 7, CLIENT, body + struct.pack(">ii", 1, 0) + records)


def came_of(port: int, frame: bytes) -> str:
    """Say a request; return what came of it: an error, a close, or nothing."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.settimeout(SILENT_S)
        sock.sendall(frame)
        try:
            said = sock.recv(4_096)
        except TimeoutError:
            return "silence"
        except ConnectionResetError:
            return "closed"
    if not said:
        return "closed"
    at = 12 + 2 + struct.unpack_from(">h", said, 12)[0] + 8
    return f"error {struct.unpack_from('>h', said, at)[0]}"


def port_of(bootstrap: str) -> int:
    return int(bootstrap.split(",")[0].rpartition(":")[2])


def test_records_of_a_negative_length_are_answered_as_by_the_broker_and_nothing_stays(
    make_gateway: Make, kafka4: EmbeddedKafka, unique: Callable[[str], str]
) -> None:
    gateway = make_gateway()
    direct, ours = kafka4.bootstrap("PLAINTEXT"), gateway.bootstrap("PLAINTEXT")
    name = topic(direct, unique("malformed"), 1)
    set_quota(gateway, QuotaEntity.of(client_id=CLIENT), {PRODUCER: 1e6})
    frames = {
        (what, acks): produce(name, acks, records)
        for what, records in RECORDS.items()
        for acks in (-1, 0, 1)
    }

    def each_at(bootstrap: str) -> dict[tuple[str, int], str]:
        port = port_of(bootstrap)
        with ThreadPoolExecutor(len(frames)) as at_once:
            came = at_once.map(lambda frame: came_of(port, frame), frames.values())
            return dict(zip(frames, came, strict=True))

    by_broker = each_at(direct)
    assert {what for (what, _), came in by_broker.items() if came == "silence"} == SILENCED
    assert each_at(ours) == by_broker

    def links() -> int:
        return gateway.call(lambda: sum(len(b.links) for b in gateway.gateway.brokers.values()))

    wait_for(lambda: not links(), "the connections to be closed")
    send(ours, name, 10)
    assert len(receive(ours, name, 10, unique("group"))) == 10
