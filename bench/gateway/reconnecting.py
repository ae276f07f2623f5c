"""
What a quota lets through when its clients stay connected, and when they reconnect each time.

``python bench/gateway/reconnecting.py [--connections N ...] [--seconds N] [--quota N] [--answer N]
[--json FILE]``, before a real broker and ``headgate serve`` as shipped; a short run is
``--seconds 30 --connections 1 50``. Each number of fetch connections runs twice at the same time,
under two quota-ids: one keeps its connections, the other opens one for each fetch. Then 50
producers of each kind. A client asks again at once when it was answered, always for what the topic
begins with: a broker has it at hand, so nothing but the quota slows it. Connections are opened
within a second, and gateway and broker have a ``socket.listen.backlog.size`` of ``BACKLOG``: at
Kafka's 50, of two thousand clients that come in the same millisecond many wait for the kernel's
retries, up to 63 s, and neither the gateway nor its quota has anything to do with that.

Ratios are bytes received by quota x time: of the first 20 s, of those 20 s that had most, and of
the whole run. It fails where fetches got more than ``MOST_20_S`` in any 20 s, or ``MOST`` in the
whole run (which a run much shorter than 120 s may miss: the burst at the beginning is ten seconds'
worth); where a connection got nothing after the first 20 s, while the quota had enough for two
rounds; and where reconnecting producers got more or less than staying ones by a factor of ``MOST``.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from neighbours import free_port  # noqa: E402
from real_broker import serve  # noqa: E402

from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.quota.alteration import Op, QuotaAlteration  # noqa: E402
from headgate.quota.entity import QuotaEntity  # noqa: E402
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey  # noqa: E402
from headgate.store import open_store  # noqa: E402
from headgate.wire.apis import FETCH, PRODUCE  # noqa: E402
from headgate.wire.header import build_request  # noqa: E402

MOST_20_S = 2.0
MOST = 1.15
SHORT_S = 20
PRODUCERS = 50
BACKLOG = 4_096
OPENED_A_SECOND = 1_000
TOPIC = "evaded"
RECORD = 1_000
RECORDS_A_BATCH = 4
WAYS = ("staying", "reconnecting")


def fetch_of(client: str, size: int) -> bytes:
    """A full Fetch of ``size`` bytes from the topic's beginning, without a session."""
    body = struct.pack(">iiiibii", -1, 500, 1, 52_428_800, 0, 0, -1)
    body += struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode()
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, size) + struct.pack(">ih", 0, 0)
    return build_request(FETCH, 11, 7, client, body)


def produce_of(client: str, size: int) -> bytes:
    """A Produce of a batch that no broker takes: it is charged all the same."""
    body = struct.pack(">hhi", -1, -1, 1_000) + struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode()
    body += struct.pack(">iii", 1, 0, size) + bytes(size)
    return build_request(PRODUCE, 7, 7, client, body)


@dataclasses.dataclass
class Group:
    """Connections of one quota-id, and what they got."""

    connections: int
    way: str
    key: QuotaKey
    size: int
    per_second: list[int] = dataclasses.field(default_factory=list)
    served: list[int] = dataclasses.field(default_factory=list)
    empty: int = 0
    opened: int = 0
    failed: int = 0
    longest_s: float = 0.0
    count_from: int = 0
    """From which second on answers are counted: a burst goes to those that come first."""

    @property
    def client(self) -> str:
        return f"{self.key.name}-{self.connections}-{self.way}"

    async def run(self, port: int, seconds: int) -> None:
        self.count_from = SHORT_S if seconds > SHORT_S else 0
        self.per_second = [0] * seconds
        self.served = [0] * self.connections
        began = time.monotonic()
        asking = [
            asyncio.create_task(self._ask(number, port, began))
            for number in range(self.connections)
        ]
        await asyncio.wait(asking, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for one in asking:
            if one.done():
                one.result()
            one.cancel()
        await asyncio.wait(asking)

    async def _ask(self, number: int, port: int, began: float) -> None:
        """Ask again and again, by one connection or by one for each request."""
        fetches = self.key is CONSUMER
        request = (fetch_of if fetches else produce_of)(self.client, self.size)
        writer = None
        await asyncio.sleep(number / max(self.connections, OPENED_A_SECOND))
        while True:
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    self.opened += 1
                writer.write(request)
                asked = time.monotonic()
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
            except (OSError, asyncio.IncompleteReadError):
                self.failed += 1
                if writer is not None:
                    writer.close()
                writer = None
                await asyncio.sleep(0.05)
                continue
            now = time.monotonic()
            second = int(now - began)
            if second < len(self.per_second):
                self.longest_s = max(self.longest_s, now - asked)
                self.per_second[second] += 4 + size if fetches else len(request)
                if fetches and size < self.size // 2:
                    self.empty += 1
                elif second >= self.count_from:
                    self.served[number] += 1
            if self.way == "reconnecting":
                writer.close()
                writer = None

    def result(self, quota: int) -> dict[str, float | int | str]:
        sums = self.per_second
        short = min(SHORT_S, len(sums))
        most = max(sum(sums[at : at + short]) for at in range(len(sums) - short + 1))
        return {
            "kind": "consumer" if self.key is CONSUMER else "producer",
            "connections": self.connections,
            "way": self.way,
            "first_20_s": sum(sums[:short]) / quota / short,
            "most_20_s": most / quota / short,
            "whole": sum(sums) / quota / len(sums),
            "served_least": min(self.served),
            "served_most": max(self.served),
            "served_all": sum(self.served),
            "empty": self.empty,
            "longest_s": self.longest_s,
            "opened": self.opened,
            "failed": self.failed,
        }


def gateway(
    folder: Path, upstream: str, groups: list[Group], quota: int
) -> tuple[subprocess.Popen[bytes], int]:
    """``headgate serve`` as shipped, with a quota for each group's client-id."""
    port = free_port()
    lines = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "headgate.upstream": upstream,
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.store": f"sqlite:{folder}/quotas.db",
        "headgate.usage": f"files:{folder}/usage",
        "headgate.data.dir": str(folder),
        "socket.listen.backlog.size": str(BACKLOG),
    }
    store = open_store(lines["headgate.store"])
    for group in groups:
        op = Op(group.key, float(quota))
        store.alter([QuotaAlteration.of(QuotaEntity.of(client_id=group.client), (op,))])
    store.close()
    return serve(folder, lines, port), port


def fill(bootstrap: str, size: int) -> None:
    """Write more than a fetch takes, in batches that are smaller than a fetch."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": RECORDS_A_BATCH, "linger.ms": 5}
    )
    for _ in range(10 * size // RECORD):
        producer.produce(
            TOPIC, bytes(RECORD), on_delivery=lambda e, _: failed.append(e) if e else None
        )
        producer.poll(0)
    if producer.flush(60) or failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[:1]}")


def measure(pairs: list[list[Group]], args: argparse.Namespace) -> list[dict[str, object]]:
    """Run the pairs one after the other."""
    rows: list[dict[str, object]] = []

    async def both(pair: list[Group], port: int) -> None:
        await asyncio.gather(*(group.run(port, args.seconds) for group in pair))

    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedKafka(
            brokers=1, extra_properties={"socket.listen.backlog.size": str(BACKLOG)}
        ) as kafka,
    ):
        fill(kafka.bootstrap("PLAINTEXT"), args.answer)
        groups = [group for pair in pairs for group in pair]
        process, port = gateway(Path(name), kafka.bootstrap("PLAINTEXT"), groups, args.quota)
        try:
            for pair in pairs:
                uvloop.run(both(pair, port))
                for group in pair:
                    row = {**group.result(args.quota), "load": os.getloadavg()[0]}
                    rows.append(row)
                    print(line(row), flush=True)
        finally:
            process.terminate()
            process.wait(60)
    return rows


def line(row: dict[str, object]) -> str:
    return (
        "| {connections:,} {kind}s, {way} | {first_20_s:.2f} | {most_20_s:.2f} | {whole:.3f} |"
        " {served_least} to {served_most} | {empty} | {longest_s:.1f} | {opened:,} | {failed} |"
        " {load:.1f} |"
    ).format(**row)


def verdict(rows: list[dict[str, object]]) -> list[tuple[bool, str]]:
    """Hold what was measured to the bounds asked for."""
    told = []
    whole: dict[object, float] = {}
    for row in rows:
        who = f"{row['connections']} {row['kind']}s, {row['way']}"
        if row["kind"] == "producer":
            whole[row["way"]] = float(str(row["whole"]))
            continue
        for what, most in (("most_20_s", MOST_20_S), ("whole", MOST)):
            ratio = float(str(row[what]))
            told.append((ratio <= most, f"{who}: {what} {ratio:.3f} of the quota (<= {most})"))
        if int(str(row["served_all"])) < 2 * int(str(row["connections"])):
            continue  # the quota hadn't enough for two rounds
        least = int(str(row["served_least"]))
        told.append((least > 0, f"{who}: who was answered least got {least} fetches (> 0)"))
    if len(whole) == len(WAYS):
        ratio = whole["reconnecting"] / max(whole["staying"], 1e-9)
        text = f"producers reconnecting: {ratio:.3f} of staying (1 / {MOST} to {MOST})"
        told.append((1 / MOST <= ratio <= MOST, text))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 50, 1_000])
    parser.add_argument("--producers", type=int, default=PRODUCERS, help="0: none")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--quota", type=int, default=1_000_000, help="bytes/s")
    parser.add_argument("--answer", type=int, default=20_000, help="bytes of a request's records")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    # Both sides of two thousand connections are this machine's.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pairs = [[Group(n, way, CONSUMER, args.answer) for way in WAYS] for n in args.connections]
    if args.producers:
        pairs.append([Group(args.producers, way, PRODUCER, args.answer) for way in WAYS])
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.UTC)
    print(f"{now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {load}; quota {args.quota} B/s")
    print(
        f"| connections of a quota-id | first {SHORT_S} s | most in {SHORT_S} s |"
        f" {args.seconds} s | then answered each, least to most | empty | longest wait, s |"
        " opened | failed | load |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    rows = measure(pairs, args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    told = verdict(rows)
    for met, text in told:
        print(f"{'met   ' if met else 'MISSED'} {text}")
    return 0 if all(met for met, _ in told) else 1


if __name__ == "__main__":
    sys.exit(main())
