"""
Kafka as the live oracle: the same clients straight at a broker and through gateways, side by side.

One real broker. Users named ``direct-*`` are held by the broker's own quotas, the others by a
gateway in front of the same broker, which has none for them. Each way has a saturating producer and
a saturating consumer with a quota of their user, a producer with a smaller one of its user and
client-id together, and a producer and a consumer without any that move 200 records a second.
``python bench/gateway/oracle.py [--seconds N] [--batch-bytes N] [--json FILE] [--plot PNG]``; run
it alone on the machine. It ends with the bounds asked for, and fails where one is missed. A broker
gives a whole batch to a client that asks for less, so how even a consumer's rate can be depends on
the batches that its topic has: up to 1 MB here, or ``--batch-bytes``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
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
SMALL_QUOTA = 100_000
FREE_RECORDS = 200
"""A second, of 1,000 bytes: what the clients without a quota move."""
RECORD = 1_000
BATCH_BYTES = 1_000_000
"""How large batches of the topic that is read may be: librdkafka's default."""
WINDOW_S = 11
"""What a quota's samples hold by default, seconds."""
WAYS: Mapping[str, Mapping[str, str]] = {
    "direct": {},
    "gateway": {},
    "emptying": {"headgate.fetch": "kafka"},
    "smooth": {"headgate.pacing": "smooth"},
}
KINDS = ("producer", "small-producer", "consumer", "free-producer", "free-consumer")
QUOTAS = {"producer": QUOTA, "consumer": QUOTA, "small-producer": SMALL_QUOTA}
PASSWORD = "bench-secret"


class Client(threading.Thread):
    """A client that notes what it got each second."""

    def __init__(self, bootstrap: str, topic: str, user: str, kind: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.user, self.kind, self.seconds, self.topic = user, kind, seconds, topic
        self.per_second: dict[int, int] = {}
        self.latencies: list[float] = []
        self.throttle_ms = 0
        self.config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "client.id": kind,
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
        if self.kind == "free-producer":
            self._produce_freely()
        elif "producer" in self.kind:
            self._produce()
        else:
            self._consume()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._count(RECORD)
            self.latencies.append(message.latency())

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
        while time.monotonic() < self.until:
            try:
                producer.produce(self.topic, bytes(RECORD), on_delivery=self._delivered)
                producer.poll(0)
            except BufferError:
                producer.poll(0.01)
        producer.purge()
        producer.flush(10)

    def _produce_freely(self) -> None:
        producer = Producer({**self.config, "linger.ms": 5})
        sent = 0
        while (now := time.monotonic()) < self.until:
            while sent < (now - self.began) * FREE_RECORDS:
                producer.produce(self.topic, bytes(RECORD), on_delivery=self._delivered)
                sent += 1
            producer.poll(0.01)
        producer.flush(10)

    def _consume(self) -> None:
        consumer = Consumer({**self.config, "group.id": self.user, "fetch.max.bytes": 1_000_000})
        consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
        while time.monotonic() < self.until:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    self._count(len(message.value()))
                    if self.kind == "free-consumer":
                        self.latencies.append(time.time() - message.timestamp()[1] / 1000)
        consumer.close()

    def result(self) -> dict[str, Any]:
        sums = [self.per_second.get(n, 0) for n in range(int(self.seconds))]
        rate = long_run(sums)
        row: dict[str, Any] = {
            "rate": rate,
            "of_quota": rate / QUOTAS.get(self.kind, FREE_RECORDS * RECORD),
            "variation": statistics.pstdev(sums[2:]) / max(statistics.fmean(sums[2:]), 1),
            "throttle_s": self.throttle_ms / 1000,
            "per_second": sums,
        }
        if self.latencies:
            ranked = sorted(self.latencies)
            row["p50_s"] = ranked[len(ranked) // 2]
            row["p99_s"] = ranked[len(ranked) * 99 // 100]
        return row


def long_run(sums: list[int]) -> float:
    """
    Return the bytes per second of a saw-tooth: the slope of what came, by least squares.

    The first two windows are left out, since every client begins with a burst of ten seconds'
    worth. A mean between two moments would be wrong by up to one such burst more; the slope over
    140 s is wrong by less than 0.5 %.
    """
    came = list(itertools.accumulate(sums))[2 * WINDOW_S :]
    return statistics.linear_regression(range(len(came)), came).slope


def entity(way: str, kind: str) -> QuotaEntity:
    """Whose quota holds a client."""
    client_id = kind if kind == "small-producer" else None
    return QuotaEntity.of(user=f"{way}-{kind}", client_id=client_id)


def gateway(folder: Path, kafka: EmbeddedKafka, name: str) -> tuple[Any, str]:
    """Start ``headgate serve`` with quotas for the users of its name."""
    port = free_port()
    place = folder / name
    place.mkdir()
    store = open_store(f"sqlite:{place / 'quotas.db'}")
    store.alter(
        [
            QuotaAlteration.of(
                entity(name, kind), (Op(PRODUCER if "producer" in kind else CONSUMER, quota),)
            )
            for kind, quota in QUOTAS.items()
        ]
    )
    store.close()
    config = place / "headgate.properties"
    lines = {
        "listeners": f"SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
        "headgate.upstream.security.protocol": "SASL_PLAINTEXT",
        "headgate.upstream.admin.sasl.mechanism": "PLAIN",
        "headgate.upstream.admin.sasl.username": "admin",
        "headgate.upstream.admin.sasl.password": "admin-secret",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
        "headgate.data.dir": str(place),
        **WAYS[name],
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
            return process, f"127.0.0.1:{port}"
    raise RuntimeError(f"the gateway {name} ended with {process.wait()}")


def hold_at_the_broker(kafka: EmbeddedKafka) -> None:
    """Give the broker's own quotas to the direct users."""
    for kind, quota in QUOTAS.items():
        key = "producer_byte_rate" if "producer" in kind else "consumer_byte_rate"
        client = ["--entity-type", "clients", "--entity-name", kind]
        run_tool(
            "kafka.admin.ConfigCommand",
            ["--bootstrap-server", kafka.bootstrap(), "--alter", "--add-config", f"{key}={quota}",
             "--entity-type", "users", "--entity-name", f"direct-{kind}",
             *(client if kind == "small-producer" else ())],
        )  # fmt: skip


def measure(seconds: int, batch_bytes: int) -> dict[str, dict[str, Any]]:
    """Run all clients at once; way and kind to what became of them."""
    users = {f"{way}-{kind}": PASSWORD for way in WAYS for kind in KINDS}
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedKafka(brokers=1, users={**users, "admin": "admin-secret"}) as kafka,
    ):
        ways: dict[str, str] = {"direct": kafka.bootstrap("SASL_PLAINTEXT")}
        processes = []
        for way in WAYS:
            if way != "direct":
                process, ways[way] = gateway(Path(name), kafka, way)
                processes.append(process)
        hold_at_the_broker(kafka)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
        for topic in ("written", "read", *(f"free-{way}" for way in WAYS)):
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        filler = Producer(
            {"bootstrap.servers": kafka.bootstrap(), "linger.ms": 50, "batch.size": batch_bytes}
        )
        for _ in range(QUOTA * (seconds + 30) // RECORD):
            filler.produce("read", bytes(RECORD))
            filler.poll(0)
        filler.flush(60)
        clients = {
            f"{way}-{kind}": Client(
                address,
                f"free-{way}" if "free" in kind else "read" if kind == "consumer" else "written",
                f"{way}-{kind}",
                kind,
                seconds,
            )
            for way, address in ways.items()
            for kind in KINDS
        }
        for client in clients.values():
            client.start()
        for client in clients.values():
            client.join()
        for process in processes:
            process.terminate()
            process.wait(30)
    return {who: client.result() for who, client in clients.items()}


def verdict(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[bool, str]]:
    """Hold what was measured to the bounds asked for."""
    told = []

    def near(kind: str, way: str, what: str, by: float) -> None:
        a, b = found[f"direct-{kind}"][what], found[f"{way}-{kind}"][what]
        apart = abs(b / a - 1)
        told.append((apart <= by, f"{way} {kind}: {what} {b:.3f}, broker {a:.3f}: {apart:.1%}"))

    for kind in QUOTAS:
        variation = found[f"smooth-{kind}"]["variation"]
        told.append((variation <= 0.3, f"smooth {kind}: coefficient of variation {variation:.2f}"))
    for kind in ("producer", "small-producer"):
        near(kind, "gateway", "of_quota", 0.02)
        near(kind, "gateway", "throttle_s", 0.05)
        near(kind, "smooth", "of_quota", 0.02)
        lower = found[f"direct-{kind}"]["p99_s"] / found[f"smooth-{kind}"]["p99_s"]
        told.append((lower >= 5, f"smooth {kind}: p99 of acknowledgement {lower:.0f} x lower"))
    near("consumer", "emptying", "of_quota", 0.02)
    near("consumer", "emptying", "throttle_s", 0.05)
    for kind in ("free-producer", "free-consumer"):
        for way in WAYS:
            near(kind, way, "rate", 0.02)
            throttled = found[f"{way}-{kind}"]["throttle_s"]
            told.append((throttled == 0, f"{way} {kind}: throttled {throttled:.3f} s"))
    return told


def plot(found: Mapping[str, Mapping[str, Any]], target: Path) -> None:
    """Draw what saturating producers got each second; needs the Chromium of ``make browser``."""
    import shutil

    import plotly.graph_objects as go
    from playwright.sync_api import sync_playwright
    from plotly.subplots import make_subplots

    names = {"direct": "broker", "gateway": "gateway", "smooth": "gateway, pacing=smooth"}
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.05,
        subplot_titles=[f"producer at the {name}" for name in names.values()],
    )  # fmt: skip
    for row, way in enumerate(names, 1):
        sums = [size / 1_000 for size in found[f"{way}-producer"]["per_second"]]
        figure.add_trace(go.Bar(x=list(range(len(sums))), y=sums, showlegend=False), row, 1)
        figure.add_hline(QUOTA / 1_000, line_dash="dot", row=row, col=1)
        figure.update_yaxes(title_text="kB/s", row=row, col=1)
    figure.update_xaxes(title_text="second", row=3, col=1)
    figure.update_layout(
        width=900, height=620, template="plotly_white", margin={"l": 60, "r": 10, "t": 30, "b": 45}
    )
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        page_file = Path(name) / "oracle.html"
        figure.write_html(page_file, include_plotlyjs=True, config={"displayModeBar": False})
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 910, "height": 630})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=target)
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=165)
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--again", type=Path, metavar="JSON", help="judge and draw a run of before")
    args = parser.parse_args()
    if args.again:
        found = json.loads(args.again.read_text())
    else:
        found = measure(args.seconds, args.batch_bytes)
    for who, row in found.items():
        values = {name: value for name, value in row.items() if name != "per_second"}
        print(f"{who:24} " + "  ".join(f"{name} {v:10.3f}" for name, v in values.items()))
    if args.json:
        args.json.write_text(json.dumps(found) + "\n")
    if args.plot:
        plot(found, args.plot)
    told = verdict(found)
    for met, text in told:
        print(f"{'met   ' if met else 'MISSED'} {text}")
    return 0 if all(met for met, _ in told) else 1


if __name__ == "__main__":
    sys.exit(main())
