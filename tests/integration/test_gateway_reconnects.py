"""Ending a connection gains nothing before a real broker, and held consumers don't notice."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from clients.kinds import client as kind_of
from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.wire.apis import FETCH, PRODUCE
from headgate.wire.header import build_request

from .gateway_kit import make_gateway, send, set_quota, topic, wait_for
from .test_gateway_oracle import SLOTS, sessions_held

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4

QUOTA = 200_000
SECONDS = 15


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A broker that keeps few fetch sessions."""
    extra = {"max.incremental.fetch.session.cache.slots": str(SLOTS)}
    with EmbeddedKafka(brokers=1, extra_properties=extra) as kafka:
        yield kafka


class Reconnecting(threading.Thread):
    """A client that opens a connection for each request, and hangs up when it was answered."""

    def __init__(self, bootstrap: str, request: bytes) -> None:
        super().__init__(daemon=True)
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._request = request
        self.asked_to_stop = threading.Event()
        self.bytes = self.answers = 0
        self.longest_s = 0.0

    def run(self) -> None:
        while not self.asked_to_stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(self._address, 60) as sock:
                stream = sock.makefile("rb")
                sock.sendall(self._request)
                asked = time.monotonic()
                size = int.from_bytes(stream.read(4), "big")
                got = len(stream.read(size))
                self.longest_s = max(self.longest_s, time.monotonic() - asked)
                if got == size:
                    self.answers += 1
                    self.bytes += size


def fetch_of(name: str, client: str) -> bytes:
    """A full Fetch from a topic's beginning, without a session."""
    body = struct.pack(">iiiibii", -1, 500, 1, 52_428_800, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name.encode()
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1_048_576) + struct.pack(">ih", 0, 0)
    return build_request(FETCH, 11, 7, client, body)


def produce_to(name: str, client: str, size: int) -> bytes:
    """A Produce of a batch that no broker takes: it is charged all the same."""
    body = struct.pack(">hhi", -1, -1, 1_000) + struct.pack(">ih", 1, len(name)) + name.encode()
    body += struct.pack(">iii", 1, 0, size) + bytes(size)
    return build_request(PRODUCE, 7, 7, client, body)


def run(clients: list[Reconnecting]) -> float:
    """Return how long they ran, s."""
    began = time.monotonic()
    for client in clients:
        client.start()
    time.sleep(SECONDS)
    lasted = time.monotonic() - began
    for client in clients:
        client.asked_to_stop.set()
    return lasted


@pytest.mark.parametrize("many", [1, 20])
def test_consumers_that_reconnect_get_their_quota_and_no_more(
    make_gateway: Callable[..., GatewayThread],
    kafka: EmbeddedKafka,
    unique: Callable[[str], str],
    many: int,
) -> None:
    gateway = make_gateway(kafka)
    name, client = topic(kafka.bootstrap(), unique("evaded"), 1), unique("reader")
    send(kafka.bootstrap(), name, 1_000)
    set_quota(gateway, QuotaEntity.of(client_id=client), {CONSUMER: float(QUOTA)})
    request = fetch_of(name, client)
    readers = [Reconnecting(gateway.bootstrap("PLAINTEXT"), request) for _ in range(many)]
    seconds = run(readers)
    assert 0.5 * QUOTA * seconds <= sum(r.bytes for r in readers) <= 2 * QUOTA * seconds


def test_producers_that_reconnect_get_what_one_that_stays_gets(
    make_gateway: Callable[..., GatewayThread],
    kafka: EmbeddedKafka,
    unique: Callable[[str], str],
) -> None:
    gateway = make_gateway(kafka)
    name, client = topic(kafka.bootstrap(), unique("evaded"), 1), unique("writer")
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: float(QUOTA)})
    size = 100_000
    writer = Reconnecting(gateway.bootstrap("PLAINTEXT"), produce_to(name, client, size))
    seconds = run([writer])
    # The window's worth at once, as everyone gets, and the quota from then on.
    assert 0.5 * QUOTA * seconds <= writer.answers * size <= QUOTA * (seconds + 11) + size


@pytest.mark.parametrize(
    "kind",
    [
        "confluent-kafka",
        pytest.param("aiokafka", marks=pytest.mark.slow),
        pytest.param("console-4.3.1", marks=pytest.mark.slow),
        pytest.param("kafka-python", marks=pytest.mark.slow),
        pytest.param("franz-go", marks=pytest.mark.slow),
    ],
)
def test_a_held_consumer_keeps_its_group_and_its_fetch_session(
    make_gateway: Callable[..., GatewayThread],
    kafka: EmbeddedKafka,
    unique: Callable[[str], str],
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Four that reconnect take turns with it: it is held for seconds, again and again."""
    gateway = make_gateway(kafka)
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name, group = topic(kafka.bootstrap(), unique("held"), 1), unique("group")
    values = [f"v{number:0999}" for number in range(20_000)]
    kind_of("confluent-kafka", "4.3.1").produce(kafka.bootstrap(), name, values)
    # One quota-id for all: every client of the listener is the same user.
    set_quota(gateway, QuotaEntity.of(user="ANONYMOUS"), {CONSUMER: float(QUOTA)})
    others = [Reconnecting(bootstrap, fetch_of(name, "other")) for _ in range(4)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    members: set[str] = set()

    def stable() -> bool:
        try:
            described = admin.describe_consumer_groups([group])[group].result(60)
        except KafkaException:  # nobody coordinates it yet
            return False
        members.update(member.member_id for member in described.members)
        return bool(described.state == ConsumerGroupState.STABLE and described.members)

    with (
        caplog.at_level(logging.WARNING),
        kind_of(kind, "4.3.1").member(bootstrap, name, group) as one,
    ):
        wait_for(stable, "the group", 60)
        wait_for(lambda: len(one.values) > 0, "the first records", 60)
        before = len(one.values)
        for other in others:
            other.start()
        until = time.monotonic() + 25
        while time.monotonic() < until:
            assert stable()
            time.sleep(1)
        # Its turn comes, if late: what it took at first may owe longer than these 25 s.
        wait_for(lambda: len(one.values) > before, "the consumer's turn", 90)
        assert stable() and len(members) == 1  # nobody was thrown out, nobody joined again
        assert one.values == values[: len(one.values)]
        # Of those that reconnect, none opens a session; the consumer has one at most.
        assert sessions_held(kafka, name) <= 2
    for other in others:
        other.asked_to_stop.set()
        assert other.longest_s < 15
    held = gateway.call(
        lambda: sum(front.meters.fetches_held for front in gateway.gateway.brokers.values())
    )
    assert held > 0
    assert not [r for r in caplog.records if "imed out" in r.getMessage()]
