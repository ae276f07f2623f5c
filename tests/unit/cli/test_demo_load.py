"""The demo's paced clients keep their pace, whatever wakes them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from headgate.demo import load as demo_load
from headgate.demo import sample as demo_plan
from headgate.demo.quota_ids import QuotaIdLine, attained, take
from headgate.demo.result import BUSY_SHARE

MESSAGES = 20


class Broker:
    """A producer whose every poll is ended at once by an acknowledgement."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop, self.sent, self.flushed = stop, 0, False

    def poll(self, seconds: float) -> int:
        return 1

    def produce(
        self, topic: str, value: bytes, partition: int, on_delivery: Callable[[Any, Any], None]
    ) -> None:
        self.sent += 1
        on_delivery(None, SimpleNamespace(latency=lambda: 0.002))
        if self.sent == MESSAGES:
            self.stop.set()

    def flush(self, seconds: float) -> int:
        self.flushed = True
        return 0

    def purge(self) -> None:
        return


def test_an_acknowledgement_does_not_bring_the_next_message_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()
    broker = Broker(stop)
    monkeypatch.setattr(confluent_kafka, "Producer", lambda _settings: broker)
    client = next(c for c in demo_plan.CLIENTS if not c.saturating)
    seen = demo_load.ClientTally()
    began = time.monotonic()
    demo_load.produce(client, {"sasl": "x:1", "plain": "x:1"}, seen, stop)
    assert time.monotonic() - began >= MESSAGES * client.message_bytes / client.pace
    assert (seen.meant, seen.messages, seen.slowest_ack_ms) == (MESSAGES, MESSAGES, 2.0)
    assert broker.flushed


def test_the_share_is_of_what_was_due() -> None:
    place, client = next((i, c) for i, c in enumerate(demo_plan.CLIENTS) if not c.saturating)
    quota_id = f"{client.name}:"
    lines = {(quota_id, "produce"): QuotaIdLine(quota_id, "produce", None, "", saturating=False)}
    rows = [[place, "produce", 10_000, 0, 0, 40, 39, 17.5]]
    take({"s": 9.0, "rows": rows}, lines)
    assert attained(list(lines.values())) == (39 / 40, 17.5)


def test_threads_that_share_one_processor_have_waited_for_it() -> None:
    """In a process of its own: three threads of work at one processor each run a third of it."""
    program = """
import os, threading, zlib
from headgate.demo.load import Processor
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
processor, data = Processor(), bytes(1 << 20)
def work():
    for _ in range(300):
        zlib.crc32(data)  # releases Python's own lock
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads[:1]:
    thread.join()
print(processor.waited_share())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert BUSY_SHARE < float(done.stdout) < 1
