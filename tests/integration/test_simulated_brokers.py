"""The simulator's brokers, held against Kafka: the same requests get the same answers, in order."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.record.default_records import DefaultRecordBatchBuilder

from headgate.embedded import EmbeddedKafka
from simulation import doors
from simulation import speech as say
from simulation.brokers import Cluster, SimBroker
from simulation.loop import Host, SimLoop
from simulation.network import Network
from simulation.peers import Frames, Peer
from simulation.seed import Seed

from .gateway_kit import topic

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]
MOST_S = 60
LOADING = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


def records(token: int, producer: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """Return a batch of one record, as Kafka takes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=10_000,
    )
    builder.append(0, token, None, b"x" * 50, [])
    return bytes(builder.build())


class Real:
    """Connections to real brokers."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, leader: int) -> None:
        self.topic = topic
        at = {n: kafka.broker_addresses[n]["PLAINTEXT"] for n in (1, 2)}
        self.leads = leader
        self._at = {"leader": at[leader], "other": at[3 - leader]}
        self._lines: dict[str, tuple[socket.socket, Frames, list[bytes]]] = {}

    def open(self, name: str, broker: str = "leader") -> None:
        host, port = self._at[broker]
        sock = socket.create_connection((host, int(port)), timeout=MOST_S)
        self._lines[name] = sock, Frames(), []

    def send(self, name: str, *frames: bytes) -> None:
        self._lines[name][0].sendall(b"".join(frames))

    def take(self, name: str) -> bytes | None:
        sock, frames, have = self._lines[name]
        while not have:
            try:
                data = sock.recv(1 << 20)
            except ConnectionError:
                return None
            if not data:
                return None
            have += frames.feed(data)
        return have.pop(0)

    def hang_up(self, name: str) -> None:
        self._lines.pop(name)[0].close()

    def close(self) -> None:
        for name in list(self._lines):
            self.hang_up(name)


class Simulated:
    """Connections to the simulator's brokers; who connects is logged in first."""

    topic = "t"
    leads = 1

    def __init__(self) -> None:
        self.loop = SimLoop(Seed(1))
        self.network = Network(self.loop)
        self._at = {"leader": 1, "other": 2}
        self._lines: dict[str, tuple[Peer, Frames, list[bytes]]] = {}
        self.cluster = Cluster(self.loop)
        self._host = Host(self.loop, "client", "10.2.0.1")

    def open(self, name: str, broker: str = "leader") -> None:
        address = f"10.0.1.{self._at[broker]}"
        opened: list[Any] = []
        self.network.connect(self._host, (address, SimBroker.port), opened.append)
        self._until(lambda: bool(opened))
        frames, have = Frames(), []  # type: ignore[var-annotated]
        peer = Peer(opened[0], lambda data: have.extend(frames.feed(data)), lambda how: None)
        self._lines[name] = peer, frames, have
        login = struct.pack(">i", 10) + b"\0bob\0right"
        self.send(name, say.request(say.SASL_HANDSHAKE, 1, 1, "c", say.text("PLAIN")),
                  say.request(say.SASL_AUTHENTICATE, 0, 2, "c", login))  # fmt: skip
        assert self.take(name) is not None
        assert self.take(name) is not None

    def _until(self, done: Callable[[], bool]) -> None:
        end_ms = self.loop.now_ms + MOST_S * 1000
        while not done() and self.loop.now_ms < end_ms:
            self.loop.run(self.loop.now_ms + 1)

    def send(self, name: str, *frames: bytes) -> None:
        self._lines[name][0].send(b"".join(frames))

    def take(self, name: str) -> bytes | None:
        peer, _, have = self._lines[name]
        self._until(lambda: bool(have) or peer.gone)
        return have.pop(0) if have else None

    def hang_up(self, name: str) -> None:
        self._lines.pop(name)[0].close()


def told(play: Any, name: str, what: str, *more: Any) -> Any:
    """Take an answer, and say what is in it; None: the connection was ended."""
    data = play.take(name)
    if data is None:
        return None
    number = say.correlation_of(data)
    if what == "produce":
        found = say.read_produce_answer(data, *more)
        return number, found.error, found.offset
    if what == "fetch":
        got = say.read_fetch_answer(data, *more)
        return number, got.error, got.records > 0, got.partitions
    return number, struct.unpack_from(">h", data, 8 + more[0])[0]


def settled(play: Any, name: str, asked: bytes) -> bytes:
    """Ask again until Kafka has made its own topics, and elected and loaded what it needs."""
    for _ in range(200):
        play.send(name, asked)
        data: bytes = play.take(name)
        if struct.unpack_from(">h", data, 12)[0] not in LOADING:
            break
        time.sleep(0.2 if isinstance(play, Real) else 0)
    return data


def produces(play: Any) -> list[Any]:
    play.open("a")
    play.open("b", "other")
    ask = lambda n, acks, data, version=7: say.produce(  # noqa: E731
        version, n, "app", play.topic, 0, data, acks
    )
    play.send("a", ask(1, -1, records(1)), ask(2, 0, records(2)), ask(3, 1, records(3)))
    found = [told(play, "a", "produce", 7), told(play, "a", "produce", 7)]
    play.send("a", ask(4, -1, records(4), 9))
    found.append(told(play, "a", "produce", 9))
    play.send("b", ask(5, -1, records(5)))
    found.append(told(play, "b", "produce", 7))
    play.send("b", ask(6, 0, records(6)))  # nobody can be told, so the connection ends
    found.append(told(play, "b", "produce", 7))
    return found


def fetches(play: Any) -> list[Any]:
    play.open("a")
    play.open("b")
    play.open("c", "other")
    ask = lambda n, offset, version=11, **more: say.fetch(  # noqa: E731
        version, n, "app", play.topic, 0, offset, **more
    )
    play.send("a", say.produce(7, 1, "app", play.topic, 0, records(11), -1))
    (_, _, offset) = told(play, "a", "produce", 7)
    play.send("a", ask(2, offset), ask(3, offset, 12), ask(4, offset + 1, wait_ms=300))
    found = [told(play, "a", "fetch", version) for version in (11, 12, 11)]
    play.send("a", ask(5, offset + 1, wait_ms=20_000))  # a long poll, ended by what comes
    play.send("b", say.produce(7, 6, "app", play.topic, 0, records(12), -1))
    found += [told(play, "b", "produce", 7)[:2], told(play, "a", "fetch", 11)]
    play.send("c", ask(7, offset))
    found.append(told(play, "c", "fetch", 11))
    play.send("a", ask(8, 0, session=(12_345, 5)))  # a session that nobody has
    found.append(told(play, "a", "fetch", 11))
    return found


def in_order(play: Any) -> list[Any]:
    """What is quick waits for what is slow before it, and a hang-up in the middle harms nobody."""
    play.open("a")
    play.open("b")
    play.send("a", say.produce(7, 1, "app", play.topic, 0, records(21), -1))
    (_, _, offset) = told(play, "a", "produce", 7)
    names = struct.pack(">i", 1) + say.text(play.topic)
    play.send(
        "a",
        say.fetch(11, 2, "app", play.topic, 0, offset + 1, wait_ms=400),
        say.request(say.METADATA, 1, 3, "app", names),
        say.produce(7, 4, "app", play.topic, 0, records(22), 0),
        say.produce(7, 5, "app", play.topic, 0, records(23), -1),
    )
    found = [told(play, "a", "fetch", 11), say.correlation_of(play.take("a"))]
    found.append(told(play, "a", "produce", 7)[:2])
    half = say.produce(7, 6, "app", play.topic, 0, records(24), -1)
    play.send("b", half[: len(half) // 2])
    play.hang_up("b")
    play.send("a", say.produce(7, 7, "app", play.topic, 0, records(25), -1))
    (_, error, last) = told(play, "a", "produce", 7)
    return [*found, error, last - offset]


def idempotent(play: Any) -> list[Any]:
    play.open("a")
    body = say.text(None) + struct.pack(">i", 60_000)
    asked = say.request(say.INIT_PRODUCER_ID, 1, 1, "app", body)
    data = settled(play, "a", asked)
    error, producer, epoch = struct.unpack_from(">hqh", data, 12)
    found: list[Any] = [error, epoch]
    base = None
    for number, (at, sequence) in enumerate([(0, 0), (0, 1), (0, 1), (0, 5), (0, 2), (3, 0),
                                             (2, 3)], 2):  # fmt: skip
        batch = records(30 + number, producer, at, sequence)
        play.send("a", say.produce(7, number, "app", play.topic, 0, batch, -1))
        (_, error, offset) = told(play, "a", "produce", 7)
        base = offset if base is None else base
        found.append((at, sequence, error, offset - base if offset >= 0 else None))
    return found


def groups(play: Any) -> list[Any]:
    play.open("a")
    group = f"group-{play.topic}"
    asked = say.request(say.FIND_COORDINATOR, 2, 1, "app", say.text(group), b"\0")
    data = settled(play, "a", asked)
    reader = say.Reader(data, 14, False)
    reader.text()
    leads = reader.fixed("i")
    found: list[Any] = [struct.unpack_from(">h", data, 12)[0]]
    play.open("g", "leader" if leads == play.leads else "other")
    body = say.text(group) + struct.pack(">ii", 10_000, 10_000) + say.text("")
    body += say.text("consumer") + struct.pack(">i", 1) + say.text("range") + b"\0\0\0\x02\0\0"
    asked = say.request(say.JOIN_GROUP, 2, 2, "app", body)
    reader = say.Reader(settled(play, "g", asked), 12, False)
    found += [reader.fixed("h"), reader.fixed("i"), reader.text()]
    leader, member = reader.text(), reader.text()
    found.append(leader == member)
    mine = say.text(group) + struct.pack(">i", 1) + say.text(member)
    given = struct.pack(">i", 1) + say.text(member) + b"\0\0\0\x01x"
    leave = say.text(group) + say.text(member)
    play.send(
        "g",
        say.request(say.SYNC_GROUP, 1, 3, "app", mine, given),
        say.request(say.HEARTBEAT, 1, 4, "app", mine),
        say.request(say.LEAVE_GROUP, 1, 5, "app", leave),
    )
    return [*found, *(told(play, "g", "error", 4) for _ in range(3))]


def versions(play: Any) -> list[Any]:
    play.open("a")
    play.send("a", say.request(say.API_VERSIONS, 2, 1, "app"))
    found = [told(play, "a", "error", 0)]
    play.send("a", say.request(say.API_VERSIONS, 50, 2, "app", b"\0\x01\x01\0"))
    found.append(told(play, "a", "error", 0))
    play.send("a", say.request(say.METADATA, 1, 3, "app", struct.pack(">i", 0)))
    found.append(say.correlation_of(play.take("a")))
    play.send("a", say.request(say.PRODUCE, 999, 4, "app"))
    return [*found, play.take("a")]


SCRIPTS = (produces, fetches, in_order, idempotent, groups, versions)


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.__name__ for script in SCRIPTS])
def test_simulated_brokers_answer_as_kafka_does(
    kafka4: EmbeddedKafka, unique: Callable[[str], str], script: Callable[[Any], list[Any]]
) -> None:
    name = topic(kafka4.bootstrap(), unique("held"), 1)
    admin = AdminClient({"bootstrap.servers": kafka4.bootstrap()})
    leader = int(admin.list_topics(name, timeout=60).topics[name].partitions[0].leader)
    real: Any = Real(kafka4, name, leader)
    try:
        said = script(real)
    finally:
        real.close()
    with doors.opened():
        play: Any = Simulated()
        assert script(play) == said
