"""
The demo's clients, in a process of their own: ``python -m headgate.demo.load``.

Real producers and consumers (confluent-kafka), one thread each, told on stdin where to connect and
for how long. Twice a second a line of JSON says what each has sent and received on the wire, and
which throttle times it was told: what the demo shows is the clients' view, not the gateway's.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from headgate.demo.sample import CLIENTS, USERS, SampleClient

REPORT_S = 0.5
LAST_ACKS_S = 5.0
_lock = threading.Lock()


@dataclass(slots=True)
class ClientTally:
    """What one client has seen so far, in the order of a report's row."""

    wire_bytes: int = 0
    told_ms: int = 0
    told: int = 0
    meant: int = 0
    messages: int = 0
    slowest_ack_ms: float = 0.0

    def __add__(self, other: ClientTally) -> ClientTally:
        return ClientTally(
            self.wire_bytes + other.wire_bytes,
            self.told_ms + other.told_ms,
            self.told + other.told,
            self.meant + other.meant,
            self.messages + other.messages,
            max(self.slowest_ack_ms, other.slowest_ack_ms),
        )

    def stats(self, field: str, text: str) -> None:
        """Take librdkafka's statistics: bytes over all connections to brokers."""
        brokers = json.loads(text)["brokers"].values()
        self.wire_bytes = sum(broker[field] for broker in brokers)

    def throttled(self, event: Any) -> None:
        """Take a throttle time from a response."""
        told = round(event.throttle_time * 1000)
        if told > 0:
            self.told_ms += told
            self.told += 1


class Processor:
    """
    How long this process has waited for a processor, beside how long it has run.

    Its threads wait for a processor on a busy machine; their waits for each other don't count.
    Linux counts both times for each thread, in nanoseconds (``schedstat``).
    """

    def __init__(self) -> None:
        self._ran, self._waited = self._totals()

    def _totals(self) -> tuple[int, int]:
        ran = waited = 0
        for thread in Path("/proc/self/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # a thread that has ended meanwhile
                found = thread.read_text().split()
                ran, waited = ran + int(found[0]), waited + int(found[1])
        return ran, waited

    def waited_share(self) -> float:
        """Return the share of time spent waiting; 0 where the system doesn't count it."""
        ran, waited = self._totals()
        ran, waited = ran - self._ran, waited - self._waited
        return max(0.0, waited / (ran + waited)) if ran + waited > 0 else 0.0


def settings(
    client: SampleClient, servers: dict[str, str], seen: ClientTally, field: str
) -> dict[str, Any]:
    """Return a client's librdkafka settings."""
    found: dict[str, Any] = {
        "bootstrap.servers": servers["sasl" if client.user else "plain"],
        "client.id": client.client_id,
        "statistics.interval.ms": int(REPORT_S * 1000),
        "stats_cb": lambda text: seen.stats(field, text),
        "throttle_cb": seen.throttled,
        # Kept quiet: an error that matters shows as messages that weren't acknowledged.
        "error_cb": lambda _error: None,
        "log_level": 2,
        # A throttled request waits for minutes at most; nothing may be given up meanwhile.
        "socket.timeout.ms": 180_000,
        "enable.metrics.push": False,
    }
    if client.user:
        found |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": client.user,
            "sasl.password": USERS[client.user],
        }
    return found


def produce(
    client: SampleClient, servers: dict[str, str], seen: ClientTally, stop: threading.Event
) -> None:
    """Produce as fast as the gateway lets it, or at its pace."""
    from confluent_kafka import Producer

    size = client.message_bytes
    producer = Producer(
        settings(client, servers, seen, "txbytes")
        | {
            "acks": "1",
            "linger.ms": 5,
            "batch.size": client.produce_bytes,
            "batch.num.messages": max(1, client.produce_bytes // (size + 40)),
            "max.in.flight.requests.per.connection": 1,
            "queue.buffering.max.messages": 64,
            "message.timeout.ms": 300_000,
        }
    )
    payload = bytes(range(256)) * (size // 256 + 1)

    def acked(error: Any, message: Any) -> None:
        if error is None:
            seen.messages += 1
            seen.slowest_ack_ms = max(seen.slowest_ack_ms, message.latency() * 1000)

    due = time.monotonic()
    while not stop.is_set():
        if client.pace:
            due += size / client.pace
            # An acknowledgement ends a poll early.
            while not stop.is_set() and (left := due - time.monotonic()) > 0:
                producer.poll(min(left, REPORT_S))
            if stop.is_set():
                break
            seen.meant += 1
        try:
            producer.produce(client.topic + "-out", payload[:size], partition=0, on_delivery=acked)
        except BufferError:
            producer.poll(0.05)
        else:
            producer.poll(0)
    if client.pace:
        producer.flush(LAST_ACKS_S)
    producer.purge()
    producer.poll(0)


def consume(
    client: SampleClient, servers: dict[str, str], seen: ClientTally, stop: threading.Event
) -> None:
    """Read its topic over and over as fast as the gateway lets it; a paced one reads once."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        settings(client, servers, seen, "rxbytes")
        | {
            "group.id": client.topic,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": client.fetch_bytes,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 1_024,
        }
    )
    suffix = "-in" if client.saturating else "-out"
    where = OFFSET_BEGINNING if client.saturating else OFFSET_END
    start = TopicPartition(client.topic + suffix, 0, where)
    consumer.assign([start])
    while not stop.is_set():
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                seen.messages += 1
            elif error.code() == KafkaError._PARTITION_EOF and client.saturating:
                consumer.seek(TopicPartition(client.topic + suffix, 0, OFFSET_BEGINNING))
    consumer.close()


def main() -> int:
    """Run the load; returns the exit status."""
    order = json.loads(sys.stdin.readline())
    servers, seconds = order["servers"], float(order["seconds"])
    stop = threading.Event()
    seen: dict[tuple[int, str], ClientTally] = {}
    threads = []
    for place, client in enumerate(CLIENTS):
        for role, work in (("produce", produce), ("fetch", consume)):
            mine = seen[place, role] = ClientTally()
            threads.append(
                threading.Thread(target=work, args=(client, servers, mine, stop), daemon=True)
            )
    import confluent_kafka  # noqa: F401 - loaded before the clock starts, not by the first client

    processor = Processor()
    began = time.monotonic()
    for thread in threads:
        thread.start()
    while True:
        passed = time.monotonic() - began
        report(passed, seen, processor.waited_share())
        if passed >= seconds:
            break
        time.sleep(REPORT_S)
    stop.set()
    for thread in threads:
        thread.join(20)
    # What came in while they ended belongs to the time they ran.
    report(passed, seen, processor.waited_share())
    return 0


def report(passed: float, seen: dict[tuple[int, str], ClientTally], waited_share: float) -> None:
    """Print one line: seconds since the start, the share of waiting, each client's figures."""
    rows = [[place, role, *astuple(found)] for (place, role), found in seen.items()]
    line = {"s": round(passed, 3), "waited_share": round(waited_share, 3), "rows": rows}
    with _lock:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
