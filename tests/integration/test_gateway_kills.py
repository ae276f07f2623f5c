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
from confluent_kafka import Producer

from headgate.embedded import EmbeddedKafka

from .gateway_kit import read_all, topic, wait_for


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
                "delivery.timeout.ms": 120_000,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
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
        assert self._producer.flush(180) == 0

    def _done(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(int(message.key()))  # type: ignore[attr-defined]
        else:
            self.failed.append(error)


def run(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    port: int,
    name: str,
    gateway_kills: int,
    broker_kills: int,
) -> None:
    config = tmp_path / "headgate.properties"
    config.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nheadgate.upstream={kafka.bootstrap()}\n"
        "headgate.broker.id.min=1\nheadgate.broker.id.max=2\n"
        f"headgate.data.dir={tmp_path}\nheadgate.lease.ttl.ms=1000\n"
    )
    command = [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)]

    log = tmp_path / "serve.log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            process = subprocess.Popen(command, stderr=out)
        wait_for(lambda: "ready, process" in log.read_text(), "the gateway to start", 60)
        return process

    gateway = start()
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    topic(bootstrap, name, 2)
    load = Load(bootstrap, name, 2)
    load.start()

    def grown() -> None:
        before = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > before + 200, "records to go on", 120)

    grown()
    for _ in range(gateway_kills):
        gateway.kill()
        gateway.wait()
        gateway = start()
        grown()
    for _ in range(broker_kills):
        kafka.kill(2)
        time.sleep(0.5)
        kafka.start(2)
        grown()
    load.stop.set()
    load.join(300)
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(60) == 0
    assert load.failed == []
    found = read_all(kafka.bootstrap(), name, 2, len(load.acknowledged))
    keys = [int(key) for keys in found.values() for key in keys]
    assert len(keys) == len(set(keys)), "records came twice"
    assert set(load.acknowledged) <= set(keys), "acknowledged records are gone"


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
def test_twenty_kills_of_each_lose_and_double_nothing(
    make_kafka: Callable[..., EmbeddedKafka],
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    run(make_kafka(brokers=2), tmp_path, port, unique("kills"), 20, 20)
