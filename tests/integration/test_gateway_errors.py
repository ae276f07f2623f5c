"""When a broker or the gateway dies, clients get the errors that a broker alone would give."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from headgate.embedded import EmbeddedKafka
from headgate.embedded.process import accepts

from .gateway_kit import topic, wait_for
from .test_gateway_kills import configure, serve

pytestmark = pytest.mark.kafka4

BACKOFF = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Heard(NamedTuple):
    """
    What a producer and a consumer were told.

    Attributes:
        in_flight: why the record failed whose request was unanswered at the death.
        while_down: why the one failed that was produced while nothing answered.
        producer_errors: codes that the producer's ``error_cb`` was called with.
        consumer_errors: the consumer's.
    """

    in_flight: str
    while_down: str
    producer_errors: frozenset[str]
    consumer_errors: frozenset[str]


class Clients:
    """A producer that never retries, and a consumer, of one bootstrap address."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.told: dict[str, set[str]] = {"producer": set(), "consumer": set()}
        self.waiting = 0
        self.delivered: list[str | None] = []
        self.received: list[bytes] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.send.max.retries": 0,
                "message.timeout.ms": 30_000,
                "statistics.interval.ms": 50,
                "stats_cb": self._stats,
                "error_cb": lambda error: self.told["producer"].add(error.name()),
                **BACKOFF,
            }
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "error_cb": lambda error: self.told["consumer"].add(error.name()),
                **BACKOFF,
            }
        )
        self.consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])

    def _stats(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.waiting = sum(broker["waitresp_cnt"] for broker in brokers)

    def produce(self, value: bytes) -> None:
        self.producer.produce(
            self.name,
            value,
            partition=0,
            on_delivery=lambda error, _: self.delivered.append(error and error.name()),
        )

    def poll(self) -> None:
        """Serve both clients' callbacks; keep what was consumed."""
        self.producer.poll(0.02)
        messages = self.consumer.consume(10, 0.02)
        self.received += [message.value() for message in messages if message.error() is None]

    def until(self, happened: Callable[[], bool], what: str) -> None:
        def done() -> bool:
            self.poll()
            return happened()

        wait_for(done, what, 120)

    def live_through(self, freeze: Any, die: Any, live: Any) -> Heard:
        """Have a request in flight, let what answers it die and live again; both clients go on."""
        self.produce(b"before")
        self.until(lambda: self.delivered == [None], "the first record")
        self.until(lambda: self.received == [b"before"], "the consumer")
        freeze()
        self.produce(b"in flight")
        self.until(lambda: self.waiting > 0, "a request in flight")
        die()
        self.until(lambda: len(self.delivered) == 2, "the end of the request in flight")
        self.produce(b"while down")
        both = {KafkaError(KafkaError._ALL_BROKERS_DOWN).name()}
        self.until(lambda: all(both <= told for told in self.told.values()), "both to be told")
        self.producer.purge()
        self.until(lambda: len(self.delivered) == 3, "the record to be given up")
        live()
        while self.delivered[-1] is not None:  # the first may meet a broker that isn't up yet
            self.produce(b"after")
            self.until(lambda: self.producer.flush(0.02) == 0, "the record's end")
        self.until(lambda: b"after" in self.received, "the consumer to go on")
        self.consumer.close()
        return Heard(
            str(self.delivered[1]),
            str(self.delivered[2]),
            frozenset(self.told["producer"]),
            frozenset(self.told["consumer"]),
        )


@contextmanager
def serving(tmp_path: Path, kafka: EmbeddedKafka, port: int) -> Iterator[Callable[[], None]]:
    """``headgate serve`` on a port, and a way to kill it; called again, to start it again."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        running.append(serve(tmp_path, "serve.log"))
        wait_for(lambda: accepts(port), "the gateway to start", 120)

    def turn() -> None:
        if running and running[-1].poll() is None:
            running[-1].kill()
            running[-1].wait()
        else:
            start()

    configure(tmp_path, kafka, port, "headgate.lease.ttl.ms=1000\n")
    start()
    try:
        yield turn
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_deaths_of_brokers_and_gateways_sound_as_a_brokers_own(
    make_kafka: Callable[..., EmbeddedKafka],
    tmp_path: Path,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    kafka = make_kafka(brokers=1)
    port = free_ports(2, consecutive=True)[0]

    def kill_broker() -> None:
        kafka.kill(1)

    def start_broker() -> None:
        kafka.start(1)

    def freeze_broker() -> None:
        kafka.pause(1)

    alone = Clients(kafka.bootstrap(), topic(kafka.bootstrap(), unique("alone"), 1))
    expected = alone.live_through(freeze_broker, kill_broker, start_broker)
    both = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN"})
    assert expected == Heard("_TRANSPORT", "_PURGE_QUEUE", both, both)
    with serving(tmp_path, kafka, port) as turn:
        bootstrap = f"127.0.0.1:{port}"
        behind = Clients(bootstrap, topic(bootstrap, unique("behind"), 1))
        heard = behind.live_through(freeze_broker, kill_broker, start_broker)
        # The gateway's port stays open while its broker is down: a client is told that the
        # connection ended, where a dead broker's port refuses it (_TRANSPORT).
        assert heard == expected._replace(
            producer_errors=expected.producer_errors - {"_TRANSPORT"},
            consumer_errors=expected.consumer_errors - {"_TRANSPORT"},
        )

        def kill_gateway() -> None:
            turn()
            kafka.resume(1)

        before = Clients(bootstrap, topic(bootstrap, unique("before"), 1))
        assert before.live_through(freeze_broker, kill_gateway, turn) == expected
