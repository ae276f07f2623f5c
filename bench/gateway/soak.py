"""
An hour of everyday load through ``headgate serve`` before a real broker: does its memory stay flat?

``python bench/gateway/soak.py [--minutes 60] [--csv FILE]`` samples every 15 s, prints a verdict
and ends with 1 if memory, descriptors or threads grew; SIGINT ends it early, with a verdict on the
samples so far; ``--verdict CSV --plot PNG`` draws a run. Some 200 requests a second: producers and
consumers, of which some are throttled; five connections a second that come with a client-id of
their own and end well or badly; admin requests, quota changes, metrics. The gateway runs as shipped
(journal on, a SQLite store), with one difference: sensors expire after ``--expiry-minutes`` (5)
instead of Kafka's hour, so that they come and go twelve times. A thread of the bench inside the
gateway's process counts objects.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from peers import record_batch

PERIOD_S = 15.0
WARM_UP_MINUTES = 10.0
BOUND_PERCENT = 2.0
"""How much more RSS the last third of the samples may show than the first, by their medians: steps
of 5 MB come and go as the allocator keeps or returns what a moment took."""
BOUND_BLOCKS_PER_CLIENT = 0.5
"""Growth of Python's allocated blocks for each connection that came and went: a leak is one."""
LEAST_MINUTES = 30.0
"""Tens of thousands of blocks come and go; in a shorter run that hides what a client leaves."""
FIELDS = [
    *("minute", "rss_kb", "private_kb", "fds", "threads", "cpu_s", "objects", "blocks", "sensors"),
    *("journal_waiting", "connections", "requests", "events", "dropped", "delivered", "received"),
    *("failed", "churned", "series", "arrow_kb"),
]


# --- In the gateway's process


def probe(report: Path, expiry_minutes: float, arguments: list[str]) -> int:
    """Run ``headgate``, with a thread that writes down what its process holds."""
    import headgate.throttle.connection as connection
    import headgate.throttle.registry as registry
    from headgate.cli.main import main
    from headgate.gateway import Gateway
    from headgate.usage.writer import JournalWriter

    registry.EXPIRY_MS = connection.EXPIRY_MS = round(expiry_minutes * 60_000)
    gateways: list[Any] = []
    writers: list[Any] = []

    def remember(kind: Any, made: list[Any]) -> None:
        plain = kind.__init__

        def init(self: Any, *args: Any, **named: Any) -> None:
            plain(self, *args, **named)
            made.append(self)

        kind.__init__ = init

    remember(Gateway, gateways)
    remember(JournalWriter, writers)

    def look() -> None:
        import pyarrow

        rounds = 0
        while True:
            time.sleep(PERIOD_S / 3)
            rounds += 1
            row: dict[str, Any] = {
                "blocks": sys.getallocatedblocks(),
                "sensors": sum(
                    len(getattr(manager, "_sensors", ()))
                    for gateway in gateways
                    for front in list(gateway.brokers.values())
                    for manager in front.rules.managers.by_key.values()
                ),
                "journal_waiting": sum(writer.waiting for writer in writers),
                "arrow_kb": pyarrow.total_allocated_bytes() // 1024,
            }
            if rounds % 12 == 1:
                objects = gc.get_objects()
                row["objects"] = len(objects)
                kinds = Counter(type(o).__name__ for o in objects)
                del objects
                row["kinds"] = dict(kinds.most_common(40))
            with report.open("a") as out:
                out.write(json.dumps(row) + "\n")

    threading.Thread(target=look, name="soak-probe", daemon=True).start()
    return main(arguments)


# --- Load


def frame(key: int, version: int, correlation: int, client_id: str, body: bytes) -> bytes:
    """A request with header version 1."""
    head = struct.pack(">hhih", key, version, correlation, len(client_id)) + client_id.encode()
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    """A string of the wire."""
    return struct.pack(">h", len(value)) + value.encode()


class Load:
    """Threads that keep the gateway busy until told to stop; they count what they did."""

    def __init__(self, plain: int, sasl: int, topic: str, store: str) -> None:
        self.plain, self.sasl, self.topic, self.store = plain, sasl, topic, store
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.last_failure = ""
        self._batch = record_batch(bytes(300))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all threads."""
        for number, (rate, size) in enumerate([(45, 400), (45, 400), (45, 1_000)]):
            self._thread(self.produce, f"producer-{number}", rate, size, number == 0)
        self._thread(self.produce, "slow-producer", 60, 1_000, False)
        self._thread(self.consume, "consumer-0", 0)
        self._thread(self.consume, "consumer-1", 60)
        self._thread(self.consume, "slow-consumer", 0)
        self._thread(self.churn)
        self._thread(self.change_quotas)
        self._thread(self.ask)

    def _thread(self, work: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            while not self.stop.is_set():
                try:
                    work(*args)
                except Exception as error:  # the soak goes on, and says how often
                    self.counts["failed"] += 1
                    self.last_failure = f"{work.__name__}: {error!r}"
                    self.stop.wait(1)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join(60)

    def produce(self, client_id: str, rate: int, size: int, idempotent: bool) -> None:
        """A request per record, at most ``rate`` a second and 50 waiting."""
        from confluent_kafka import Producer

        def done(error: Any, _: Any) -> None:
            self.counts["delivered" if error is None else "failed"] += 1

        producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{self.plain}", "client.id": client_id, "linger.ms": 0,
             "enable.idempotence": idempotent, "topic.metadata.refresh.interval.ms": 60_000}
        )  # fmt: skip
        while not self.stop.wait(1 / rate):
            if len(producer) < 50:
                producer.produce(self.topic, bytes(size), on_delivery=done)
            producer.poll(0)
        producer.flush(60)

    def consume(self, client_id: str, leave_after_s: float) -> None:
        """Read in a group; with ``leave_after_s`` leave it and join again from time to time."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{self.plain}", "client.id": client_id,
             "group.id": "slow" if "slow" in client_id else "soak", "auto.offset.reset": "latest",
             "fetch.min.bytes": 20_000, "fetch.wait.max.ms": 100,
             "queued.max.messages.kbytes": 2_000}
        )  # fmt: skip
        consumer.subscribe([self.topic])
        until = time.monotonic() + (leave_after_s or 1e9)
        while not self.stop.is_set() and time.monotonic() < until:
            for message in consumer.consume(500, 0.2):
                self.counts["failed" if message.error() else "received"] += 1
        consumer.close()

    def churn(self) -> None:
        """Five connections a second, each with a client-id that nobody had; some stay a minute."""
        idle: list[socket.socket] = []
        while not self.stop.wait(0.2):
            number = self.counts["churned"]
            name = f"churn-{number}"
            sasl = number % 3 == 0
            sock = socket.create_connection(("127.0.0.1", self.sasl if sasl else self.plain), 20)
            sock.settimeout(60)
            if sasl:
                self._exchange(sock, frame(17, 1, 1, name, text("PLAIN")))
                token = b"\0bob\0bob-secret"
                self._exchange(sock, frame(36, 0, 2, name, struct.pack(">i", len(token)) + token))
            else:
                self._exchange(sock, frame(18, 0, 1, name, b""))
            body = text(self.topic) + struct.pack(">ii", 1, number % 2)
            body += struct.pack(">i", len(self._batch)) + self._batch
            body = struct.pack(">hhii", -1, 1, 20_000, 1) + body
            self._exchange(sock, frame(0, 7, 3, name, body))
            self._exchange(
                sock, frame(3, 8, 4, name, struct.pack(">i", 1) + text(self.topic) + bytes(3))
            )
            self.counts["churned"] += 1
            if number % 40 == 1:
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")  # closed by the gateway
            elif number % 4 == 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif number % 4 == 2:
                sock.sendall(frame(0, 7, 5, name, body)[:-100])  # never finished
            elif number % 4 == 3:
                sock.sendall(frame(0, 7, 5, name, body))  # gone before the answer
            if number % 15 == 0:
                idle.append(sock)
                if len(idle) > 20:
                    idle.pop(0).close()
            else:
                sock.close()
        for sock in idle:
            sock.close()

    @staticmethod
    def _exchange(sock: socket.socket, request: bytes) -> bytes:
        sock.sendall(request)

        def read(count: int) -> bytes:
            got = b""
            while len(got) < count:
                piece = sock.recv(count - len(got))
                if not piece:
                    raise ConnectionError("closed by the gateway")
                got += piece
            return got

        return read(struct.unpack(">i", read(4))[0])

    def change_quotas(self) -> None:
        """One change every 10 s, in turn through the gateway and past it in the store."""
        from headgate.admin import AdminClient, AlterQuotasEntry, Op, QuotaEntity
        from headgate.quota.key import CONSUMER, PRODUCER

        number = 0
        while not self.stop.wait(10):
            number += 1
            slow = 30_000.0 if number % 2 else 20_000.0
            entries = [
                AlterQuotasEntry(QuotaEntity.of(client_id="slow-producer"), [Op(PRODUCER, slow)]),
                AlterQuotasEntry(QuotaEntity.of(client_id="slow-consumer"), [Op(CONSUMER, slow)]),
                AlterQuotasEntry(
                    QuotaEntity.of(user=f"tenant-{number % 60}", client_id="x"),
                    [Op(PRODUCER, None if number % 120 >= 60 else 1e6)],
                ),
            ]
            place = f"127.0.0.1:{self.plain}"
            with AdminClient(store=self.store) if number % 3 == 0 else AdminClient(place) as admin:
                admin.alter_quotas(entries).all().result(60)
                admin.describe_quotas().entities().result(60)
            self.counts["changed"] += 1

    def ask(self) -> None:
        """What an operator's tools ask, by a new client every minute."""
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}", "client.id": "ops"})
        for _ in range(12):
            if self.stop.wait(5):
                return
            admin.describe_cluster().result(30)
            admin.list_topics(timeout=30)
            for resource in (
                ConfigResource(ResourceType.TOPIC, self.topic),
                ConfigResource(ResourceType.BROKER, "1"),
            ):
                admin.describe_configs([resource])[resource].result(30)
            admin.list_consumer_groups().result(30)


# --- Samples


def sample(pid: int, http: int, report: Path, load: Load, began: float) -> dict[str, float]:
    """One row: from /proc, the probe, the metrics and the load's counts."""
    proc = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
    )
    rollup = (proc / "smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    ticks = (proc / "stat").read_text().rpartition(")")[2].split()
    row: dict[str, float] = {
        "minute": round((time.monotonic() - began) / 60, 3),
        "rss_kb": int(status["VmRSS"].split()[0]),
        "private_kb": private,
        "fds": len(list((proc / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "cpu_s": (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK"),
    }
    seen = [json.loads(line) for line in report.read_text().splitlines()[-13:]]
    for found in seen:
        row.update({k: v for k, v in found.items() if k != "kinds"})
    with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    for field, name in (
        ("connections", "headgate_connections{"),
        ("requests", "headgate_requests_total{"),
        ("events", "headgate_usage_events_total"),
        ("dropped", "headgate_usage_dropped_total"),
    ):
        row[field] = sum(float(line.split()[-1]) for line in lines if line.startswith(name))
    row["series"] = sum(not line.startswith("#") for line in lines)
    for field in ("delivered", "received", "failed", "churned"):
        row[field] = load.counts[field]
    return row


def slope(rows: Sequence[dict[str, float]], field: str) -> float:
    """Least-squares growth per minute."""
    n = len(rows)
    mean_x = sum(row["minute"] for row in rows) / n
    mean_y = sum(row[field] for row in rows) / n
    above = sum((row["minute"] - mean_x) * (row[field] - mean_y) for row in rows)
    return above / sum((row["minute"] - mean_x) ** 2 for row in rows)


def verdict(rows: Sequence[dict[str, float]], last_failure: str = "") -> bool:
    """Print what the samples say; whether nothing grew."""
    minutes = rows[-1]["minute"]
    warm = min(WARM_UP_MINUTES, minutes / 3)
    steady = [row for row in rows if row["minute"] >= warm]
    if len(steady) < 4:
        print("too few samples for a verdict")
        return False
    first, last = steady[0], steady[-1]
    grows = slope(steady, "rss_kb")
    third = len(steady) // 3

    def mean(part: Sequence[dict[str, float]], field: str) -> float:
        return sum(row[field] for row in part) / len(part)

    span_s = (last["minute"] - first["minute"]) * 60
    print(f"{minutes:.0f} minutes, the first {warm:.0f} not counted:")
    print(
        f"  {(last['requests'] - first['requests']) / span_s:.0f} requests/s, "
        f"{(last['churned'] - first['churned']) / span_s:.1f} connections/s with new client-ids, "
        f"{(last['cpu_s'] - first['cpu_s']) / span_s * 100:.0f} % of a core; "
        f"{last['delivered']:.0f} records delivered, {last['failed']:.0f} failures, "
        f"{last['dropped']:.0f} journal events dropped"
    )
    if last_failure:
        print(f"  last failure: {last_failure}")
    middle = [
        statistics.median(r["rss_kb"] for r in part) for part in (steady[:third], steady[-third:])
    ]
    percent = (middle[1] / middle[0] - 1) * 100
    clients = slope(steady, "blocks") / slope(steady, "churned")
    print(
        f"  RSS: {percent:+.1f} % (bound {BOUND_PERCENT:.0f}), by least squares {grows:+.0f} KB/min"
    )
    print(
        f"  blocks per client that came and went: {clients:+.3f} (bound {BOUND_BLOCKS_PER_CLIENT}, "
        f"from {LEAST_MINUTES:.0f} minutes on)"
    )
    flat = percent <= BOUND_PERCENT
    flat &= clients <= BOUND_BLOCKS_PER_CLIENT or minutes < LEAST_MINUTES
    for field in ("rss_kb", "private_kb", "blocks", "objects", "sensors", "fds", "threads"):
        before, after = mean(steady[:third], field), mean(steady[-third:], field)
        print(
            f"  {field}: {before:.0f} in the first third, {after:.0f} in the last; least "
            f"{min(r[field] for r in steady):.0f}, most {max(r[field] for r in steady):.0f}"
        )
        if field in ("fds", "threads"):
            flat &= after <= before + 5
    print("  nothing grew" if flat else "  IT GROWS")
    return flat


# --- The run


def run(minutes: float, target: Path, expiry_minutes: float, keep: Path | None) -> bool:
    """Start Kafka, the gateway and the load; sample until the time is over."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from headgate.embedded import EmbeddedKafka
    from headgate.embedded.process import accepts, free_ports

    early = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: early.set())
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        folder = keep or Path(name) / "gateway"
        folder.mkdir(parents=True, exist_ok=True)
        plain, sasl, http = free_ports(3)
        store, report = f"sqlite:{folder}/quotas.db", folder / "probe.jsonl"
        lines = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "headgate.upstream": kafka.bootstrap("PLAINTEXT"),
            "listener.name.sasl.headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
            "headgate.upstream.admin.sasl.username": "admin",
            "headgate.upstream.admin.sasl.password": "admin-secret",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(folder),
            "headgate.http.listener": f"127.0.0.1:{http}",
            "super.users": "User:admin;User:ANONYMOUS",
        }
        config = folder / "headgate.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        set_first_quotas(store)
        log = folder / "serve.log"
        process = subprocess.Popen(
            [sys.executable, __file__, "--expiry-minutes", str(expiry_minutes),
             "--probe", str(report), "serve", "--config", str(config)],
            stderr=log.open("wb"),
        )  # fmt: skip
        load = None
        rows: list[dict[str, float]] = []
        try:
            until = time.monotonic() + 120
            while not (accepts(plain) and accepts(sasl)):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the gateway didn't start: {log.read_text()}")
                time.sleep(0.2)
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}"})
            small = {"retention.bytes": "20000000", "segment.bytes": "5000000"}
            admin.create_topics([NewTopic("soak", 2, 1, config=small)])["soak"].result(60)
            load = Load(plain, sasl, "soak", store)
            load.start()
            began = time.monotonic()
            with target.open("w", newline="") as out:
                writer = csv.DictWriter(out, FIELDS, restval=0)
                writer.writeheader()
                while time.monotonic() < began + minutes * 60 and not early.wait(PERIOD_S):
                    if process.poll() is not None:
                        raise RuntimeError(f"the gateway ended: {log.read_text()[-3000:]}")
                    rows.append(sample(process.pid, http, report, load, began))
                    writer.writerow(rows[-1])
                    out.flush()
        finally:
            if load is not None:
                load.stop.set()
                load.join()
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        said = Counter(
            line.split(" ", 2)[2][:120]
            for line in log.read_text().splitlines()
            if " ERROR " in line or " WARNING " in line
        )
        for line, count in said.most_common(5):
            print(f"logged {count} times: {line}")
        return verdict(rows, load.last_failure)


def plot(rows: Sequence[dict[str, float]], target: Path) -> None:
    """Draw memory and what comes and goes meanwhile; needs the Chromium of ``make browser``."""
    import shutil

    import plotly.graph_objects as go
    from playwright.sync_api import sync_playwright
    from plotly.subplots import make_subplots

    minutes = [row["minute"] for row in rows]
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.6, 0.4]
    )
    for place, field, name, unit in (
        (1, "rss_kb", "RSS, MB", 1024),
        (1, "private_kb", "private memory, MB", 1024),
        (2, "sensors", "sensors", 1),
        (2, "churned", "client-ids so far, tens", 10),
        (2, "fds", "open files", 1),
    ):
        line = go.Scatter(x=minutes, y=[row[field] / unit for row in rows], name=name)
        figure.add_trace(line, place, 1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title_text="minutes", row=2)
    figure.update_layout(
        width=900, height=460, template="plotly_white", margin={"l": 50, "r": 10, "t": 10, "b": 45}
    )
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        page_file = Path(name) / "soak.html"
        figure.write_html(page_file, include_plotlyjs=True, config={"displayModeBar": False})
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 910, "height": 470})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=target)
        browser.close()


def set_first_quotas(store: str) -> None:
    """What is in force from the start: everybody has quotas, two are throttled by theirs."""
    from headgate.quota.alteration import Op, QuotaAlteration
    from headgate.quota.entity import DEFAULT, QuotaEntity
    from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
    from headgate.store import open_store

    everybody = (Op(PRODUCER, 1e6), Op(CONSUMER, 2e6), Op(REQUEST, 400.0))
    opened = open_store(store)
    opened.alter(
        [
            QuotaAlteration(QuotaEntity.of(client_id=DEFAULT), everybody),
            QuotaAlteration(QuotaEntity.of(user="bob"), (Op(PRODUCER, 5e6),)),
            QuotaAlteration(QuotaEntity.of(client_id="slow-producer"), (Op(PRODUCER, 2e4),)),
            QuotaAlteration(QuotaEntity.of(client_id="slow-consumer"), (Op(CONSUMER, 3e4),)),
        ]
    )
    opened.close()


def main() -> int:
    """Run, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--csv", type=Path, default=Path("soak.csv"))
    parser.add_argument("--expiry-minutes", type=float, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the gateway's files, not removed")
    parser.add_argument("--verdict", type=Path, metavar="CSV", help="on the samples of a run")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="with --verdict: draw them too")
    parser.add_argument("--probe", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.probe:
        return probe(Path(args.probe[0]), args.expiry_minutes, args.probe[1:])
    if args.verdict:
        with args.verdict.open() as lines:
            rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(lines)]
        if args.plot:
            plot(rows, args.plot)
        return not verdict(rows)
    return not run(args.minutes, args.csv, args.expiry_minutes, args.keep)


if __name__ == "__main__":
    sys.exit(main())
