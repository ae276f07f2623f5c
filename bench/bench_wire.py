"""
Time what the wire room does per request, and what the journal costs per event.

    python bench/bench_wire.py

Prints the least of several runs in microseconds: the figure that depends least on what else runs.
"""

from __future__ import annotations

import struct
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.gateway.background import GarbageBounds
from headgate.gateway.session.rewrite import rewriting
from headgate.gateway.usage_journal import UsageJournal
from headgate.quota.key import PRODUCER
from headgate.steps import finish
from headgate.throttle.registry import Throttle
from headgate.usage.writer import JournalWriter
from headgate.wire.fields import write_nullable_string, write_varint
from headgate.wire.header import build_request, build_response, parse_request_header
from headgate.wire.messages import fetch, produce
from headgate.wire.throttle import patch_throttle, read_throttle, throttle_offset

EVENTS = 20_000
RUNS = 9


def least_us(work: Callable[[], object], number: int = 20_000) -> float:
    return min(timeit.repeat(work, number=number, repeat=9)) / number * 1e6


def produce_request(partitions: int, size: int) -> bytes:
    batch = struct.pack(">qiibIhiqqqhii", 0, 49 + size, 0, 2, 0, 0, 0, 0, 0, 7, 0, 0, 16)
    batch += bytes(size)
    body = b"\x00" + struct.pack(">hi", -1, 30_000) + b"\x02\x02t" + write_varint(partitions + 1)
    for index in range(partitions):
        body += struct.pack(">i", index) + write_varint(len(batch) + 1) + batch + b"\x00"
    return build_request(0, 9, 1, "producer-1", body + b"\x00\x00")


def metadata_response(topics: int) -> bytes:
    brokers = b"".join(
        struct.pack(">i", n)
        + write_nullable_string(f"broker-{n}", True)
        + struct.pack(">i", 9092)
        + b"\x00\x00"
        for n in range(3)
    )
    topic = struct.pack(">h", 0) + write_nullable_string("a-topic-name", True) + bytes(17) + b"\x04"
    part = (
        struct.pack(">hiii", 0, 0, 1, 0) + b"\x04" + bytes(12) + b"\x04" + bytes(12) + b"\x01\x00"
    )
    topic += part * 3 + struct.pack(">i", 0) + b"\x00"
    body = struct.pack(">i", 0) + b"\x04" + brokers + b"\x01" + struct.pack(">i", 1)
    return build_response(3, 12, 1, body + write_varint(topics + 1) + topic * topics + b"\x00")


class Given:
    """An object with what it is given."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def journal_costs() -> tuple[float, float, float]:
    """Return microseconds to pack an event and to write one, and its bytes on disk."""
    packed = written = float("inf")
    with tempfile.TemporaryDirectory() as place:
        writer = JournalWriter(place, "bench", flush_ms=10**6)
        journal = UsageJournal(writer, 11, 1000)
        plan, name = Given(key=0, version=9), PRODUCER.name
        journal.start(1, 0, {name: lambda _: {}})
        sessions = [
            Given(
                broker_id=1, listener="PLAINTEXT", client_ip="127.0.0.1",
                connection=f"1-PLAINTEXT-{n}", origins={}, origin_seen={},
            )
            for n in range(50)
        ]  # fmt: skip
        whose = [
            (session, Given(principal=f"u{n}", client_id="app"),
             Throttle(0, f"u{n}", "", 1e6))
            for n, session in enumerate(sessions)
        ]  # fmt: skip
        for turn in range(RUNS):
            began = time.thread_time()
            for n in range(EVENTS):
                session, context, decision = whose[n % 50]
                journal.record(
                    session, context, plan, name, 1_700_000_000_000 + turn * 400 + n // 50,  # type: ignore[arg-type]
                    16_384, decision, 0, 0, 16_384, 0, None,
                )  # fmt: skip
            packed = min(packed, time.thread_time() - began)
            began = time.thread_time()
            writer.flush()
            written = min(written, time.thread_time() - began)
        journal.close()
        size = sum(path.stat().st_size for path in Path(place).iterdir())
    return packed / EVENTS * 1e6, written / EVENTS * 1e6, size / EVENTS / RUNS


def main() -> None:
    GarbageBounds().settle()  # as headgate serve does
    request = produce_request(4, 16_384)
    body = parse_request_header(request)[4]
    answer = build_response(0, 9, 1, b"\x02\x02t\x02" + bytes(30) + b"\x01\x00\x00\x00" + bytes(5))
    beat = build_response(12, 4, 1, bytes(7))
    writable = bytearray(beat)
    fetching = bytearray(
        build_request(1, 12, 1, "c", struct.pack(">iiiibii", -1, 500, 1, 5_000_000, 0, 0, -1))
    )
    at = parse_request_header(fetching)[4]
    book = {n: (f"gate-{n}", 19_000 + n) for n in range(3)}
    metadata = metadata_response(500)
    rows = [
        ("request header (10-byte client id)", least_us(lambda: parse_request_header(request))),
        ("acks of a Produce", least_us(lambda: produce.acks(request, 9, body))),
        (
            "producer ids of a Produce, 4 partitions of 16 KB",
            least_us(lambda: produce.producer_ids(request, 9, body)),
        ),
        (
            "throttle of a Produce answer read",
            least_us(lambda: read_throttle(answer, throttle_offset(0, 9, answer))),
        ),
        (
            "the same written, in a copy",
            least_us(lambda: patch_throttle(answer, throttle_offset(0, 9, answer), 9)),
        ),
        (
            "throttle of a small answer, in place",
            least_us(lambda: patch_throttle(writable, throttle_offset(12, 4, writable), 9)),
        ),
        (
            "fetch limits capped, nothing to do",
            least_us(lambda: fetch.cap_request(fetching, 12, at, 10**7)),
        ),
        (
            "Metadata, 500 topics, rewritten",
            least_us(lambda: finish(rewriting(3, 12, metadata, book))),
        ),
    ]
    packed, written, on_disk = journal_costs()
    rows.append(("journal: an event packed", packed))
    rows.append(("journal: an event written, CPU", written))
    for what, us in rows:
        print(f"{what:40} {us:8.2f} us")
    print(f"{'journal: an event on disk':40} {on_disk:8.1f} bytes")


if __name__ == "__main__":
    main()
