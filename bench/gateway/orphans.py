"""
What clients get past their quota that hang up behind data which nobody reads (orphans).

``python bench/gateway/orphans.py [--seconds N] [--only NAME,...] [--list] [--descriptors]``, before
a real broker. Each case has a ``headgate serve`` of its own as shipped. One connection after the
other sends one Produce of 8 MB (quota 100 kB/s) and closes after 0.3 s, whether it was read or not,
so that the gateway can't see its end while it is muted; in the cases of fetches it asks for 1 MB
and sends 8 MB behind that. What passed is what stands in the broker's log (whole requests whose
records are good), and what the journal says was charged. Due are the quota over the time, the burst
that its pacing allows, and one request, or those that were in flight when the first was charged.
Ends with 1 where more passed than was due, or less was charged than the broker took.

``--descriptors``: the first case against a gateway that may open 100 descriptors and closes idle
connections after 30 s: what another client gets every five seconds meanwhile and for 60 s after it,
and what the gateway's log says.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from attacked_memory import descriptors  # noqa: E402
from real_broker import gateway  # noqa: E402
from reconnecting import fetch_of, fill  # noqa: E402

from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.usage.reader import read_events  # noqa: E402
from headgate.wire.apis import PRODUCE  # noqa: E402
from headgate.wire.header import build_request  # noqa: E402
from peers import metadata_frame, record_batch  # noqa: E402

MB = 1_000_000
RATE = 100_000
LARGE, SMALL, ANSWER = 8 * MB, 500_000, 1 * MB
CLOSE_S = 0.3
AT_ONCE_MS = 500
PIECES = 8
CLIENT = "orphan"
FEW_DESCRIPTORS, IDLE_S, AFTER_S = 100, 30, 60


class Case(NamedTuple):
    """
    An attack, and what it is due.

    Attributes:
        acks: of the Produces; None: it fetches.
        size: of each request's records, or of an answer, bytes.
        quota: as ``kafka-configs`` takes it.
        burst_s: seconds' worth of the quota that may pass at once.
        new_ids: each Produce has a producer id of its own; the quota is one of these.
    """

    name: str
    acks: int | None
    size: int = LARGE
    quota: str = f"producer_byte_rate={RATE}"
    pacing: str = "kafka"
    burst_s: float = 10
    pieces: int = 1
    new_ids: bool = False


BPS = f"producer_byte_rate:bps={RATE}"
IDS = f"producer_ids_rate={RATE / LARGE}"
FETCH = f"consumer_byte_rate={RATE}"
CASES = (
    Case("kafka-acks-0", 0),
    Case("kafka-acks-1", 1),
    Case("kafka-pieces", 1, SMALL, pieces=PIECES),
    Case("smooth-acks-0", 0, pacing="smooth", burst_s=1),
    Case("smooth-acks-1", 1, pacing="smooth", burst_s=1),
    Case("smooth-pieces", 1, SMALL, pacing="smooth", burst_s=1, pieces=PIECES),
    Case("bps-acks-0", 0, quota=BPS, burst_s=1),
    Case("bps-acks-1", 1, quota=BPS, burst_s=1),
    Case("ids-acks-0", 0, quota=IDS, burst_s=11, new_ids=True),
    Case("ids-acks-1", 1, quota=IDS, burst_s=11, new_ids=True),
    Case("fetches", None, ANSWER, FETCH),
    Case("smooth-fetches", None, ANSWER, FETCH, pacing="smooth", burst_s=1),
)


def produce(case: Case, topic: str, records: bytes, number: int) -> bytes:
    """A Produce of these records; under a new producer id its checksum is wrong."""
    if case.new_ids:
        records = records[:43] + struct.pack(">q", 1_000 + number) + records[51:]
    body = struct.pack(">hhi", -1, case.acks, 1_000) + struct.pack(">ih", 1, len(topic))
    body += topic.encode() + struct.pack(">iii", 1, 0, len(records)) + records
    return build_request(PRODUCE, 7, 7, CLIENT, body)


def orphan(port: int, request: bytes, pieces: int) -> None:
    """Connect, send as much as is taken, close after a while."""
    until = time.monotonic() + CLOSE_S
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        step = -(-len(request) // pieces)
        for at in range(0, len(request), step):
            sock.settimeout(max(until - time.monotonic(), 0.01))
            with contextlib.suppress(OSError):  # it isn't read, or was closed
                sock.sendall(request[at : at + step])
            if pieces > 1:
                time.sleep(CLOSE_S / pieces / 2)
        time.sleep(max(until - time.monotonic(), 0))


class Most:
    """The most descriptors that a process had."""

    def __init__(self, pid: int) -> None:
        self.seen, self._pid, self._over = 0, pid, threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look four times a second meanwhile."""
        looker = threading.Thread(target=self._look)
        looker.start()
        try:
            yield
        finally:
            self._over.set()
            looker.join()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self.seen = max(self.seen, descriptors(self._pid))


def make_topic(bootstrap: str, topic: str) -> None:
    """Make a topic that takes records of 8 MB."""
    config = {"max.message.bytes": str(10 * MB)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def in_log(bootstrap: str, topic: str) -> int:
    """Return how many batches of one record the broker has taken."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "orphans"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
        return int(end)
    finally:
        consumer.close()


def charged(folder: Path, case: Case) -> tuple[float, float]:
    """
    Return what the journal of the case's quota tells: bytes, or producer ids.

    Returns:
        All of them, and those of requests that were in flight when the first was charged.
    """
    key = case.quota.partition("=")[0]
    rows = [
        (row["t_ms"], row["amount"] * (-1 if row["kind"] == "unrecord" else 1))
        for row in read_events([folder / "usage"]).to_pylist()
        if row["quota_type"] == key and row["kind"] in ("record", "unrecord")
    ]
    first_ms = min((t_ms for t_ms, _ in rows), default=0.0)
    at_once = [amount for t_ms, amount in rows if t_ms < first_ms + AT_ONCE_MS]
    return sum(amount for _, amount in rows), sum(at_once)


def start(
    case: Case, folder: Path, bootstrap: str, **more: str
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the gateway of a case."""
    settings = {"headgate.pacing": case.pacing, **more}
    who = "--entity-name ANONYMOUS"
    if not case.new_ids:
        who = f"--entity-default --entity-type clients --entity-name {CLIENT}"
    return gateway(folder, bootstrap, who, settings, case.quota)


def measured(case: Case, place: Path, bootstrap: str, seconds: float) -> tuple[str, bool]:
    """Attack; return the line of the table, and whether the quota held."""
    topic, records = case.name, b""
    if case.acks is not None:
        make_topic(bootstrap, topic)
        records = record_batch(bytes(case.size))
    gate, port = start(case, place / case.name, bootstrap)
    most, number = Most(gate.pid), 0
    began = time.monotonic()
    try:
        with most.watching():
            while time.monotonic() < began + seconds:
                if case.acks is None:
                    data = fetch_of(CLIENT, case.size) + bytes(LARGE)
                else:
                    data = produce(case, topic, records, number)
                orphan(port, data, case.pieces)
                number += 1
            took = time.monotonic() - began
    finally:
        gate.terminate()
        gate.wait(60)
    unit = 1 if case.new_ids else MB
    rate = RATE / LARGE if case.new_ids else RATE / MB
    one = 1.0 if case.new_ids else case.size / MB
    logged = in_log(bootstrap, topic) * case.size / MB if case.acks is not None else 0.0
    told, at_once = (amount / unit for amount in charged(place / case.name, case))
    due = rate * (took + case.burst_s) + max(one, at_once)
    held = max(logged, told) <= due * 1.02 and (case.new_ids or told >= logged)
    line = (
        f"| {case.name} | {number} | {took:.0f} | {told:.1f} | {logged:.1f} | {due:.1f} "
        f"| {most.seen} | {'held' if held else 'EVADED'} |"
    )
    return line, held


def served(port: int) -> str:
    """Ask for metadata under another client-id; return what came of it."""
    began = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.settimeout(5)
            sock.sendall(metadata_frame(1))
            return "served" if sock.recv(4_096) else "closed"
    except TimeoutError:
        return f"no answer in {time.monotonic() - began:.0f} s"
    except OSError as error:
        return type(error).__name__


def few_descriptors(place: Path, bootstrap: str, seconds: float) -> None:
    """Attack a gateway that may open few descriptors, ask beside, wait until it serves again."""
    case = CASES[0]
    topic = case.name
    make_topic(bootstrap, topic)
    data = produce(case, topic, record_batch(bytes(case.size)), 0)
    gate, port = start(
        case, place / "few", bootstrap, **{"connections.max.idle.ms": str(IDLE_S * 1_000)}
    )
    try:
        resource.prlimit(gate.pid, resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, FEW_DESCRIPTORS))
        began = last = time.monotonic()
        while time.monotonic() < began + seconds + AFTER_S:
            if time.monotonic() < began + seconds:
                with contextlib.suppress(OSError):
                    orphan(port, data, 1)
            else:
                time.sleep(CLOSE_S)
            if time.monotonic() > last + 5:
                last = time.monotonic()
                told = f"{last - began:.0f} s: {descriptors(gate.pid)} descriptors"
                print(f"{told}, another client {served(port)}", flush=True)
    finally:
        gate.terminate()
        gate.wait(60)
        log = (place / "few" / "log").read_text().splitlines()
        print("\n".join(line[:300] for line in log[-30:]))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--descriptors", action="store_true")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [case.name for case in CASES]
    if options.list:
        print("\n".join(chosen))
        return 0
    all_held = True
    with tempfile.TemporaryDirectory() as place, EmbeddedKafka(brokers=1) as kafka:
        bootstrap = kafka.bootstrap("PLAINTEXT")
        if options.descriptors:
            few_descriptors(Path(place), bootstrap, options.seconds)
            return 0
        fill(bootstrap, ANSWER)
        print("| case | connections | s | charged, MB or ids | in the log, MB | due "
              "| descriptors at most | |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
        for case in CASES:
            if case.name in chosen:
                line, held = measured(case, Path(place), bootstrap, options.seconds)
                all_held &= held
                print(line, flush=True)
    return int(not all_held)


if __name__ == "__main__":
    sys.exit(main())
