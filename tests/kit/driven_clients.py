"""
Real clients of known demand, for predicting how they fare and then seeing it.

Each sends to, or reads from, a broker's address until it is told to stop or has done its work:
librdkafka's in threads, Java's performance tools as processes.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.demand.rhythm import Answer, Charge, with_answers
from headgate.embedded.tools import CONSUMER_PERF, PRODUCER_PERF, tool_command
from headgate.usage.reader import read_batches

RECORD = bytes(1_000)
TICK_S = 0.01


class Load:
    """
    A client that runs.

    Args:
        body: what its threads do, given the moment to stop.
        threads: how many do it.
    """

    def __init__(self, body: Callable[[threading.Event], None], threads: int = 1) -> None:
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=body, args=(self._stopped,), daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(30)


class Tool:
    """One of Kafka's performance tools, as a process."""

    def __init__(self, main_class: str, args: Iterable[str]) -> None:
        command = tool_command(main_class, list(args))
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)


def producer(servers: str, client: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client,
            "batch.size": 32_768,
            "linger.ms": 5,
            "log_level": 2,
            "queue.buffering.max.messages": 500_000,
            **more,
        }
    )


def saturating(servers: str, client: str, topic: str, **more: Any) -> Load:
    """Its queue is always full."""

    def body(stopped: threading.Event) -> None:
        mine = producer(servers, client, **{"queue.buffering.max.messages": 2_000, **more})
        while not stopped.is_set():
            try:
                mine.produce(topic, RECORD)
            except BufferError:
                mine.poll(0.02)
        mine.purge()

    return Load(body)


def one_at_a_time(servers: str, client: str, topic: str, size: int, think_s: float) -> Load:
    """It waits for each answer, then for a while, and sends the next request."""

    def body(stopped: threading.Event) -> None:
        mine = producer(servers, client, **{"linger.ms": 0})
        while not stopped.is_set():
            mine.produce(topic, bytes(size))
            mine.flush(60)
            stopped.wait(think_s)

    return Load(body)


def paced(servers: str, client: str, topic: str, per_s: float, threads: int = 1) -> Load:
    """Its application makes records at a steady pace, whatever becomes of them."""

    def body(stopped: threading.Event) -> None:
        mine = producer(servers, client)
        began, made = time.monotonic(), 0
        while not stopped.wait(TICK_S):
            due = int((time.monotonic() - began) * per_s / len(RECORD))
            for _ in range(due - made):
                mine.produce(topic, RECORD)
            made = due
            mine.poll(0)
        mine.purge()

    return Load(body, threads)


def bursts(servers: str, client: str, topic: str, size: int, every_s: float) -> Load:
    """Its application makes many records at once from time to time."""

    def body(stopped: threading.Event) -> None:
        mine = producer(servers, client)
        while not stopped.is_set():
            for _ in range(size // len(RECORD)):
                mine.produce(topic, RECORD)
            until = time.monotonic() + every_s
            while time.monotonic() < until and not stopped.is_set():
                mine.poll(0.05)
        mine.purge()

    return Load(body)


def job(servers: str, client: str, topic: str, size: int) -> Load:
    """It has a number of bytes to send, and ends."""

    def body(stopped: threading.Event) -> None:
        mine = producer(servers, client)
        for _ in range(size // len(RECORD)):
            mine.produce(topic, RECORD)
        while mine.flush(0.2) and not stopped.is_set():
            pass
        mine.purge()

    return Load(body)


def reader(servers: str, client: str, topic: str) -> Load:
    """It reads a topic from its beginning, and goes on at its end."""

    def body(stopped: threading.Event) -> None:
        mine = Consumer(
            {
                "bootstrap.servers": servers,
                "client.id": client,
                "group.id": "none",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 65_536,
            }
        )
        mine.assign([TopicPartition(topic, 0, 0)])
        while not stopped.is_set():
            mine.consume(500, 0.1)
        mine.close()

    return Load(body)


def java_producer(servers: str, client: str, topic: str, records: int, per_s: float = -1) -> Tool:
    """ProducerPerformance: a number of records, at some bytes a second; -1: as fast as it can."""
    rate = -1 if per_s < 0 else round(per_s / len(RECORD))
    return Tool(
        PRODUCER_PERF,
        (
            *("--topic", topic, "--num-records", str(records), "--record-size", str(len(RECORD))),
            *("--throughput", str(rate)),
            *("--command-property", f"bootstrap.servers={servers}", f"client.id={client}"),
        ),
    )


def java_consumer(servers: str, client: str, topic: str, records: int) -> Tool:
    """ConsumerPerformance: it reads a number of records and ends."""
    return Tool(
        CONSUMER_PERF,
        (
            *("--bootstrap-server", servers, "--topic", topic, "--group", client),
            *("--num-records", str(records), "--timeout", "120000"),
            f"--command-property=client.id={client}",
            "--command-property=max.partition.fetch.bytes=65536",
        ),
    )


def charges_of(journal: Path | str, quota_type: str) -> Mapping[str, list[Charge]]:
    """Return a journal's charges to a byte rate, by client-id, in order."""
    found: dict[str, list[Charge]] = {}
    answers: dict[str, list[Answer]] = {}
    for batch in read_batches(journal):
        for row in batch.select(_COLUMNS).to_pylist():
            if row["quota_type"] == quota_type and row["kind"] == "told":
                since_ms = row["amount"]
                answer = Answer(row["t_ms"] - since_ms, row["connection"], since_ms)
                answers.setdefault(row["client_id"], []).append(answer)
            if row["quota_type"] != quota_type or row["kind"] not in ("record", "norecord"):
                continue
            if row["throttle_time_ms"] is None:
                continue
            decided = max(row["throttle_time_ms"], 0)
            told = max(decided, row["told_throttle_time_ms"] or 0)
            charge = Charge(row["t_ms"], row["amount"], decided, told, row["connection"], "c")
            found.setdefault(row["client_id"], []).append(charge)
    for client, charges in found.items():
        charges.sort(key=lambda c: c.t_ms)
        found[client] = with_answers(charges, answers.get(client, ()))
    return found


_COLUMNS = [
    "kind",
    "quota_type",
    "t_ms",
    "amount",
    "throttle_time_ms",
    "told_throttle_time_ms",
    "connection",
    "client_id",
]
