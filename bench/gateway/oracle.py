"""
Kafka as the live oracle: the same saturating clients straight at a broker and through gateways.

One real broker; clients named ``direct-*`` are held by the broker's own quotas, the others by a
gateway before the same broker, which has none for them. ``python bench/gateway/oracle.py
[--seconds N] [--json FILE]``; run it alone on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from relay import free_port  # noqa: E402

from headgate.embedded import EmbeddedKafka, run_tool  # noqa: E402
from headgate.quota.alteration import Op, QuotaAlteration  # noqa: E402
from headgate.quota.entity import QuotaEntity  # noqa: E402
from headgate.quota.key import CONSUMER, PRODUCER  # noqa: E402
from headgate.store import open_store  # noqa: E402

QUOTA = 400_000


class Client(threading.Thread):
    """A saturating producer or consumer that notes what it got each second."""

    def __init__(self, bootstrap: str, topic: str, name: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.name_, self.seconds, self.topic = name, seconds, topic
        self.per_second: dict[int, int] = {}
        self.latencies: list[float] = []
        self.throttle_ms = 0
        self.config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "throttle_cb": self._told,
        }

    def _told(self, event: Any) -> None:
        if time.monotonic() < self.until:
            self.throttle_ms += round(event.throttle_time * 1000)

    def _count(self, size: int) -> None:
        now = time.monotonic()
        if now < self.until:
            second = int(now - self.began)
            self.per_second[second] = self.per_second.get(second, 0) + size

    def run(self) -> None:
        self.began = time.monotonic()
        self.until = self.began + self.seconds
        if "consumer" in self.name_:
            self._consume()
        else:
            self._produce()

    def _produce(self) -> None:
        producer = Producer(
            {
                **self.config,
                "batch.size": 16_384,
                "linger.ms": 5,
                "queue.buffering.max.messages": 64,
                "max.in.flight": 1,
            }
        )

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._count(1_000)
                self.latencies.append(message.latency())

        while time.monotonic() < self.until:
            try:
                producer.produce(self.topic, bytes(1_000), on_delivery=delivered)
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)
        producer.purge()
        producer.flush(10)

    def _consume(self) -> None:
        consumer = Consumer({**self.config, "group.id": self.name_, "fetch.max.bytes": 1_000_000})
        consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < self.until:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    self._count(len(message.value()))
        consumer.close()

    def result(self) -> dict[str, float]:
        sums = [self.per_second.get(n, 0) for n in range(int(self.seconds))]
        row = {
            "rate": statistics.fmean(sums),
            "of_quota": statistics.fmean(sums) / QUOTA,
            "variation": statistics.pstdev(sums[2:]) / max(statistics.fmean(sums[2:]), 1),
            "throttle_s": self.throttle_ms / 1000,
        }
        if self.latencies:
            ranked = sorted(self.latencies)
            row["ack_p99_s"] = ranked[len(ranked) * 99 // 100]
        return row


def gateway(folder: Path, kafka: EmbeddedKafka, name: str, **more: str) -> tuple[Any, str]:
    """Start ``headgate serve`` with quotas for every client but the direct ones."""
    port = free_port()
    place = folder / name
    place.mkdir()
    store = open_store(f"sqlite:{place / 'quotas.db'}")
    default = QuotaEntity.of(client_id=f"{name}-producer")
    store.alter([QuotaAlteration.of(default, (Op(PRODUCER, QUOTA),))])
    default = QuotaEntity.of(client_id=f"{name}-consumer")
    store.alter([QuotaAlteration.of(default, (Op(CONSUMER, QUOTA),))])
    store.close()
    config = place / "headgate.properties"
    lines = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "headgate.upstream": kafka.bootstrap(),
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.data.dir": str(place),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "ready" in line:
            break
    return process, f"127.0.0.1:{port}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=66)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(brokers=1) as kafka:
        folder = Path(name)
        ways: dict[str, str] = {"direct": kafka.bootstrap()}
        processes = []
        for way, more in (
            ("gateway", {}),
            ("emptying", {"headgate_fetch": "kafka"}),
            ("smooth", {"headgate_pacing": "smooth"}),
        ):
            process, ways[way] = gateway(folder, kafka, way, **more)
            processes.append(process)
        for kind, key in (("producer", "producer_byte_rate"), ("consumer", "consumer_byte_rate")):
            run_tool(
                "kafka.admin.ConfigCommand",
                ["--bootstrap-server", kafka.bootstrap(), "--alter", "--add-config",
                 f"{key}={QUOTA}", "--entity-type", "clients", "--entity-name", f"direct-{kind}"],
            )  # fmt: skip
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
        for topic in ("written", "read"):
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        filler = Producer({"bootstrap.servers": kafka.bootstrap(), "linger.ms": 50})
        for _ in range(QUOTA * (args.seconds + 30) // 1_000):
            filler.produce("read", bytes(1_000))
            filler.poll(0)
        filler.flush(60)
        clients = [
            Client(address, "written" if kind == "producer" else "read", f"{way}-{kind}",
                   args.seconds)
            for way, address in ways.items()
            for kind in ("producer", "consumer")
        ]  # fmt: skip
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        found = {client.name_: client.result() for client in clients}
        for process in processes:
            process.terminate()
            process.wait(30)
    for who, row in found.items():
        print(f"{who:20} " + "  ".join(f"{name} {value:10.3f}" for name, value in row.items()))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
