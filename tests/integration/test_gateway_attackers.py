"""Clients that try to exceed their quota: all their bytes are charged, and others don't wait."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.record import MemoryRecordsBuilder

from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.throttle.manager import RateSensor

from .gateway_kit import make_gateway, send, set_quota, topic, wait_for
from .scripted_upstream import VERSIONS, read_answer

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]
RECORD_BYTES = 1_000


def produce(
    name: str, client: str, acks: int, records: int, correlation: int = 1, transaction: str = ""
) -> bytes:
    """A Produce v7 of one batch of records of RECORD_BYTES for partition 0."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 24)
    for number in range(records):
        builder.append(timestamp=number, key=None, value=bytes(RECORD_BYTES), headers=[])
    builder.close()
    batch = bytes(builder.buffer())
    body = (
        struct.pack(">h", len(transaction)) + transaction.encode() if transaction else b"\xff\xff"
    )
    body += struct.pack(">hii", acks, 30_000, 1) + struct.pack(">h", len(name)) + name.encode()
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    head = struct.pack(">hhih", 0, 7, correlation, len(client)) + client.encode()
    return struct.pack(">i", len(head + body)) + head + body


def fetch(name: str, client: str, correlation: int) -> bytes:
    """A Fetch v4 that asks for all of partition 0."""
    body = struct.pack(">iiiib", -1, 100, 1, 100_000_000, 0) + struct.pack(">i", 1)
    body += struct.pack(">h", len(name)) + name.encode()
    body += struct.pack(">iiqi", 1, 0, 0, 100_000_000)
    head = struct.pack(">hhih", 1, 4, correlation, len(client)) + client.encode()
    return struct.pack(">i", len(head + body)) + head + body


def leader(bootstrap: str, name: str) -> int:
    """Return the broker that leads partition 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return int(admin.list_topics(name, timeout=60).topics[name].partitions[0].leader)


@contextlib.contextmanager
def opened(gateway: GatewayThread, broker: int, buffer: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as sock:
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.settimeout(60)
        sock.connect(gateway.gateway.addresses("PLAINTEXT")[broker])
        # Before this is answered the broker isn't reached, and nothing can be passed on to it.
        sock.sendall(VERSIONS)
        read_answer(sock)
        yield sock


def charged(gateway: GatewayThread, client: str, broker: int) -> float:
    """Bytes charged to a client id for producing, of the last windows."""

    def total() -> float:
        sensor: RateSensor | None = gateway.gateway.brokers[broker].rules.managers.produce.sensor(
            ("", client)
        )
        return 0.0 if sensor is None else sensor.total

    return gateway.call(total)


def records_in(bootstrap: str, name: str) -> int:
    partition = TopicPartition(name, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # asks for as long as it lives
    found = admin.list_offsets({partition: OffsetSpec.latest()})
    return int(found[partition].result(60).offset)


def test_half_sent_requests_and_clients_that_never_read_take_nothing_from_others(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(quota__window__num="60")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("shared")
    name = topic(bootstrap, unique("beside"), 1)
    broker = leader(bootstrap, name)
    send(bootstrap, name, 8_000, RECORD_BYTES)
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 3_000_000.0})
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            half = stack.enter_context(opened(gateway, broker))
            half.sendall(produce(name, client, 1, 900)[:600_000])
        for _ in range(10):
            mute = stack.enter_context(opened(gateway, broker, 4_096))
            asked = b"".join(fetch(name, client, n) for n in range(3))
            mute.sendall(asked + produce(name, client, 1, 20, 3))
        wait_for(
            lambda: charged(gateway, client, broker) >= 10 * 20 * RECORD_BYTES,
            "what they sent whole",
        )
        # 174 MB may pass; half-sent requests, 9 MB, take nothing of them.
        told = send(bootstrap, name, 9_000, RECORD_BYTES, **{"client.id": client, "acks": "all"})
        assert not told
    assert charged(gateway, client, broker) > 9_000 * RECORD_BYTES


@pytest.mark.parametrize(("acks", "transaction"), [(1, ""), (1, "t" * 9_000), (0, "t" * 30_000)])
def test_who_closes_at_once_is_charged_for_all_that_reached_the_log(
    make_gateway: Make, unique: Unique, acks: int, transaction: str
) -> None:
    gateway = make_gateway(quota__window__num="60")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("quitter")
    name = topic(bootstrap, unique("quit"), 1)
    broker = leader(bootstrap, name)
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 1e9})
    said = produce(name, client, acks, 200, 1, transaction)
    whole, cut = 20, len(said) // 2
    for number in range(whole):
        with opened(gateway, broker) as sock:
            # The acks come in a later segment than the header.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(said[:1_000])
            time.sleep(0.01)
            sock.sendall(said[1_000:])
            if number % 2:
                sock.shutdown(socket.SHUT_WR)
    with opened(gateway, broker) as sock:
        sock.sendall(said[:cut])
    expected = whole * (len(said) - 4) + cut - 4
    wait_for(
        lambda: charged(gateway, client, broker) >= expected, f"{expected} bytes to be charged", 20
    )
    assert charged(gateway, client, broker) == expected
    assert 0 < records_in(bootstrap, name) <= whole * 200


def test_a_fetch_is_charged_though_its_client_closes_at_once(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(quota__window__num="60")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("leaver")
    name = topic(bootstrap, unique("left"), 1)
    broker = leader(bootstrap, name)
    send(bootstrap, name, 500, RECORD_BYTES)
    set_quota(gateway, QuotaEntity.of(client_id=client), {CONSUMER: 1e9})
    for _ in range(5):
        with opened(gateway, broker) as sock:
            sock.sendall(fetch(name, client, 1))

    def fetched() -> float:
        sensor = gateway.gateway.brokers[broker].rules.managers.fetch.sensor(("", client))
        return 0.0 if sensor is None else sensor.total

    wait_for(lambda: gateway.call(fetched) >= 5 * 500 * RECORD_BYTES, "five fetches' charges", 20)
    wait_for(
        lambda: gateway.call(lambda: len(gateway.gateway.brokers[broker].links)) == 0, "their end"
    )
