"""Nothing acknowledged is lost or doubled while gateway and broker are killed again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headgate.embedded import EmbeddedKafka
from headgate.embedded.process import accepts

from .gateway_kit import topic, wait_for


class Load(threading.Thread):
    """An idempotent producer that notes what was acknowledged."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.failed: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 900_000,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # else it tells every kill, which is asserted here
            }
        )
        self._name, self._partitions = name, partitions
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            self._producer.produce(
                self._name,
                bytes(200),
                key=str(number),
                partition=number % self._partitions,
                on_delivery=self._done,
            )
            self._producer.poll(0)
            number += 1
            time.sleep(0.002)
        assert self._producer.flush(300) == 0

    def _done(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(int(message.key()))  # type: ignore[attr-defined]
        else:
            self.failed.append(error)


def configure(tmp_path: Path, kafka: EmbeddedKafka, port: int, more: str = "") -> None:
    """Settings of a gateway in front of two brokers, the rest as shipped."""
    (tmp_path / "headgate.properties").write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nheadgate.upstream={kafka.bootstrap()}\n"
        "headgate.broker.id.min=1\nheadgate.broker.id.max=2\n"
        f"headgate.data.dir={tmp_path}\n{more}"
    )


def serve(tmp_path: Path, log: str) -> subprocess.Popen[bytes]:
    """``headgate serve`` with those settings."""
    command = [sys.executable, "-m", "headgate.cli.main", "serve"]
    with (tmp_path / log).open("ab") as out:
        return subprocess.Popen(
            [*command, "--config", str(tmp_path / "headgate.properties")], stderr=out
        )


def run(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    port: int,
    name: str,
    gateway_kills: int,
    broker_kills: int,
    seconds_between: float = 0,
) -> None:
    """
    Kill and restart under load, then look at what is in the log.

    Args:
        seconds_between: from one kill to the next, at least; none is made before records have gone
            on after the one before.
    """
    configure(tmp_path, kafka, port, "headgate.lease.ttl.ms=1000\n")

    def start() -> subprocess.Popen[bytes]:
        process = serve(tmp_path, "serve.log")
        try:
            wait_for(lambda: accepts(port) and accepts(port + 1), "the gateway to start", 120)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    gateway = start()
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    topic(bootstrap, name, 2)
    load = Load(bootstrap, name, 2)
    load.start()

    def grown() -> None:
        before = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > before + 200, "records to go on", 300)

    def in_turn(kills: int, kill: Callable[[int], None]) -> None:
        for number in range(kills):
            next_at = time.monotonic() + seconds_between
            kill(number)
            grown()
            time.sleep(max(0.0, next_at - time.monotonic()))

    def kill_gateway(_: int) -> None:
        nonlocal gateway
        gateway.kill()
        gateway.wait()
        gateway = start()

    def kill_broker(number: int) -> None:
        broker = 2 - number % 2  # 1 is the controller too
        kafka.kill(broker)
        time.sleep(0.5)
        kafka.start(broker)

    try:
        grown()
        in_turn(gateway_kills, kill_gateway)
        in_turn(broker_kills, kill_broker)
        load.stop.set()
        load.join(330)
        assert not load.is_alive(), "the producer is still waiting for acknowledgements"
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(60) == 0
    finally:
        load.stop.set()
        gateway.kill()
        gateway.wait()
    assert load.failed == []
    keys = [int(key) for key in whole_topic(kafka.bootstrap(), name, 2)]
    assert len(keys) == len(set(keys)), "records came twice"
    assert set(load.acknowledged) <= set(keys), "acknowledged records are gone"


def whole_topic(bootstrap: str, name: str, partitions: int) -> list[bytes]:
    """Every key in the log, up to its end: more than was acknowledged if something came twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    places = [TopicPartition(name, n, OFFSET_BEGINNING) for n in range(partitions)]
    ends = {place.partition: consumer.get_watermark_offsets(place, 60)[1] for place in places}
    consumer.assign(places)
    keys: list[bytes] = []
    reached = dict.fromkeys(ends, 0)
    until = time.monotonic() + 600
    while any(reached[n] < end for n, end in ends.items()):
        assert time.monotonic() < until, f"read to {reached} of {ends} only"
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            reached[message.partition()] = message.offset() + 1
            keys.append(message.key())
    consumer.close()
    return keys


@pytest.mark.kafka4
def test_a_few_kills_lose_and_double_nothing(
    make_kafka: Callable[..., EmbeddedKafka],
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    run(make_kafka(brokers=2), tmp_path, port, unique("kills"), 2, 1)


@pytest.mark.kafka4
@pytest.mark.slow
def test_twenty_kills_of_each_over_half_an_hour_lose_and_double_nothing(
    make_kafka: Callable[..., EmbeddedKafka],
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    run(make_kafka(brokers=2), tmp_path, port, unique("kills"), 20, 20, 45)


@pytest.mark.kafka4
@pytest.mark.slow
def test_clients_recover_within_15_s_when_the_active_gateway_is_killed(
    make_kafka: Callable[..., EmbeddedKafka],
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    """
    The one test whose claim is a time: as shipped, the lease lasts 10 s.

    Each has a folder of its own, as on hosts of their own, so nothing but the lease's end tells a
    standby that the other is dead.
    """
    port = free_ports(2, consecutive=True)[0]
    kafka, name = make_kafka(brokers=2), unique("standby")

    def gateway(number: int) -> subprocess.Popen[bytes]:
        folder = tmp_path / str(number)
        folder.mkdir()
        configure(folder, kafka, port, f"headgate.store=sqlite:{tmp_path}/quotas.db\n")
        return serve(folder, "serve.log")

    running = [gateway(0)]
    try:
        wait_for(lambda: accepts(port) and accepts(port + 1), "the gateway to start", 120)
        bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        topic(bootstrap, name, 2)
        load = Load(bootstrap, name, 2)
        load.start()
        for number in range(1, 4):
            running.append(gateway(number))
            log = tmp_path / str(number) / "serve.log"
            wait_for(lambda log=log: log.read_text().count("standing by") >= 2, "a standby", 120)  # type: ignore[misc]
            before = len(load.acknowledged)
            wait_for(lambda b=before: len(load.acknowledged) > b + 500, "records", 120)  # type: ignore[misc]
            killed = time.monotonic()
            running[-2].kill()
            running[-2].wait()
            before = len(load.acknowledged)
            # More than were on their way: these went through the standby, to both brokers.
            wait_for(lambda b=before: len(load.acknowledged) > b + 500, "records", 120)  # type: ignore[misc]
            took = time.monotonic() - killed
            print(f"recovered in {took:.1f} s")
            assert took <= 15
        load.stop.set()
        load.join(330)
        assert load.failed == []
    finally:
        for process in running:
            process.kill()
            process.wait()
