"""
``headgate demo``: set, enforce, account for and draw quotas, once, on a real Kafka.

It takes five steps and about two minutes. kafka-configs puts KIP-55's sample quotas into a store. A
gateway is started in front of an embedded Apache Kafka of two brokers. Real clients run through it,
and their rates are shown live. Spark reads the gateway's usage events and a real broker's request
log. The last step writes one HTML report.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.cli import exit_codes, extras
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.results import Result
from headgate.clock import now_ms
from headgate.demo import sample
from headgate.demo.quota_ids import QuotaIdLine, lines_of, scaled, take
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.demo.progress import View

MARK: Final = ".headgate-demo"
"""A file in the demo's folder that says the folder may be emptied."""


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate demo",
        "Show everything once, on a real Kafka, in about two minutes: quotas set, enforced on real "
        "clients, accounted by Spark, drawn as a report.",
        _show,
        example="headgate demo --dir headgate-demo",
        json=None,
    )
    made.add_argument(
        "--quiet", action="store_true", help="print only the closing tables and the report's path"
    )
    made.add_argument(
        "--dir", type=Path, default=Path("headgate-demo"), metavar="DIR",
        help="where everything goes; emptied first if a demo made it (default: headgate-demo)",
    )  # fmt: skip
    made.add_argument(
        "--seconds", type=float, default=45.0, metavar="S",
        help="how long the clients run (default: 45, at least 30)",
    )  # fmt: skip
    return made


def _show(options: argparse.Namespace) -> Result:
    if options.seconds < 30:
        raise BadUsage("--seconds must be at least 30, for whole cycles to fit in")
    extras.require()
    from rich.console import Console

    from headgate.demo.progress import View

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)
    view = View(console, quiet=options.quiet)
    with contextlib.ExitStack() as stack:
        out = Demo(prepared(options.dir), options.seconds, view, stack).run()
    if not out:
        return Result()
    raise HeadgateError("\n".join(out))


def prepared(place: Path) -> Path:
    """
    Return the demo's folder, empty.

    Raises:
        HeadgateError: it holds something that no demo made.
    """
    place = place.resolve()
    if place.exists() and any(place.iterdir()) and not (place / MARK).exists():
        raise HeadgateError(f"{place} isn't empty and no demo made it; choose another --dir")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / MARK).touch()
    return place


class Demo:
    """One demo; `run` goes through the five steps."""

    def __init__(
        self, place: Path, seconds: float, view: View, stack: contextlib.ExitStack
    ) -> None:
        self.place = place
        self.seconds = seconds
        self.view = view
        self.stack = stack
        self.store = f"sqlite:{place / 'quotas.db'}"
        self.tables = place / "tables"  # of the gateway's journal
        self.log_tables = place / "broker-log"
        self.began = time.monotonic()
        self.kafka: Any = None
        self.gateway: Any = None
        self.servers: dict[str, str] = {}
        self.lines: list[QuotaIdLine] = []
        self.waited_share = 0.0

    def run(self) -> list[str]:
        """Go through the five steps; returns which figures aren't what they have to be."""
        self.view.way.print(
            "[bold]Headgate[/] shows what it does: quotas for a real Kafka, set, enforced and "
            "accounted for.", soft_wrap=True
        )  # fmt: skip
        # Kafka takes seconds to start; it does so while the quotas are set.
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(self.start_kafka)
            self.set_quotas()
            starting.result()
        self.start_gateway()
        self.load()
        self.account()
        return self.tell()

    # --- 1 ------------------------------------------------------------------------------------

    def set_quotas(self) -> None:
        """Set KIP-55's sample configuration with the kafka-configs command line."""
        from headgate.cli.kafka_configs import kafka_configs

        self.view.step(1, 'Quotas: the "Sample configuration" of KIP-55, by kafka-configs')
        self.view.say(
            f"Its figures times {sample.SCALE}, so that two minutes show them. For clientA of "
            "user2 the KIP's JSON says 30 for consumers, its prose 20: the JSON counts.", "dim"
        )  # fmt: skip
        for quota in sample.SAMPLE:
            command = quota.command(self.store)
            shown = [word.replace(str(self.place), ".") for word in command]
            self.view.say("$ kafka-configs " + " ".join(shown))
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                status = kafka_configs.main(command)
            if status != 0:
                failed = f"kafka-configs {' '.join(command)} failed"
                raise HeadgateError(f"{failed}: {said.getvalue().strip()}")
        self.view.say(
            f"{len(sample.SAMPLE)} entities set in {self.store.replace(str(self.place), '.')}"
        )

    # --- 2 ------------------------------------------------------------------------------------

    def start_kafka(self) -> None:
        """Start Apache Kafka: two brokers on loopback."""
        from headgate.embedded import EmbeddedKafka
        from headgate.embedded.keeping import keeping

        self.kafka = EmbeddedKafka(self.place / "kafka", brokers=sample.BROKERS, users=sample.USERS)
        self.kafka.start_all()
        self.stack.callback(self.kafka.stop)
        self.stack.enter_context(keeping(self.kafka, self.view.say))

    def start_gateway(self) -> None:
        """Start the gateway in front of it: a process with one port per broker and listener."""
        from headgate.embedded import free_ports
        from headgate.embedded.process import Child

        self.view.step(2, f"A gateway in front of a real Apache Kafka {self.kafka.version}")
        addresses = self.kafka.broker_addresses
        self.view.say(
            f"{sample.BROKERS} brokers (KRaft) on loopback: "
            + ", ".join(f"broker {b} at port {a['PLAINTEXT'][1]}" for b, a in addresses.items())
        )
        self.make_topics()
        ports = free_ports(2 * sample.BROKERS, consecutive=True)
        plain, sasl = ports[0], ports[sample.BROKERS]
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
            "headgate.upstream": self.kafka.bootstrap("PLAINTEXT"),
            "listener.name.sasl_plaintext.headgate.upstream": self.kafka.bootstrap(
                "SASL_PLAINTEXT"
            ),
            "headgate.upstream.admin.sasl.username": "admin",
            "headgate.upstream.admin.sasl.password": sample.USERS["admin"],
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": str(sample.BROKERS),
            "headgate.store": self.store,
            "headgate.usage": f"files:{self.place / 'usage'}",
            "headgate.data.dir": str(self.place),
            "quota.window.num": str(sample.WINDOW_NUM),
            "quota.window.size.seconds": str(sample.WINDOW_S),
            "super.users": "User:admin",
        }
        config = self.place / "headgate.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        log = self.place / "gateway.log"
        self.gateway = Child(
            [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)],
            name="the gateway",
            output=log,
            log=log,
        )
        self.stack.callback(lambda: self.gateway.running and self.gateway.kill())
        self.gateway.wait_until(
            lambda: " ready logger=headgate.serve" in self.gateway.log_text(),
            timeout_s=180,
            progress=self.view.say,
        )
        self.servers = {
            "plain": ",".join(f"127.0.0.1:{plain + i}" for i in range(sample.BROKERS)),
            "sasl": ",".join(f"127.0.0.1:{sasl + i}" for i in range(sample.BROKERS)),
        }
        self.view.say(
            f"gateway: PLAINTEXT {self.servers['plain']}, SASL_PLAINTEXT {self.servers['sasl']}"
        )
        self.view.say(
            f"quota window: {sample.WINDOW_NUM} samples of {sample.WINDOW_S} s instead of Kafka's "
            "11, so that the next step shows several whole cycles", "dim"
        )  # fmt: skip

    def make_topics(self) -> None:
        """Make each client's topics on its broker, and fill those that are read."""
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        servers = self.kafka.bootstrap("PLAINTEXT")
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        topics = [
            NewTopic(client.topic + suffix, 1, replica_assignment=[[client.broker]])
            for client in sample.CLIENTS
            for suffix in ("-in", "-out")
        ]
        for name, made in admin.create_topics(topics, operation_timeout=120).items():
            try:
                made.result(120)
            except Exception as exc:
                raise HeadgateError(f"topic {name} can't be made: {exc}") from exc
        for client in sample.CLIENTS:
            if not client.saturating:
                continue
            size = max(100, min(1_000, client.fetch_bytes // 4))
            producer = Producer(
                {"bootstrap.servers": servers, "linger.ms": 20, "log_level": 2, "acks": "1",
                 "batch.size": client.fetch_bytes // 2,
                 "batch.num.messages": max(1, client.fetch_bytes // 2 // (size + 40)),
                 "queue.buffering.max.messages": 1_000_000}
            )  # fmt: skip
            for _ in range(min(20_000, 400 * client.fetch_bytes // size)):
                producer.produce(client.topic + "-in", b"x" * size, partition=0)
            if producer.flush(120):
                raise HeadgateError(f"topic {client.topic}-in can't be filled: broker too slow")

    # --- 3 ------------------------------------------------------------------------------------

    def load(self) -> None:
        """Let real clients produce and consume through the gateway, and show what they see."""
        self.view.step(
            3, f"{2 * len(sample.CLIENTS)} clients (librdkafka) for {self.seconds:.0f} s"
        )
        self.lines = lines_of(self.store)
        log = self.place / "clients.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "headgate.demo.load"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"servers": self.servers, "seconds": self.seconds}) + "\n")
        process.stdin.flush()
        by_key = {(line.quota_id, line.what): line for line in self.lines}
        passed = 0.0
        for text in process.stdout:
            if not self.gateway.running:
                raise HeadgateError(f"the gateway ended; its log is {self.gateway.log}")
            report = json.loads(text)
            passed = min(report["s"], self.seconds)
            take(report, by_key)
            self.waited_share = report["waited_share"]
            self.view.update(self.lines, passed, self.seconds)
        if process.wait() != 0:
            raise HeadgateError(f"the clients failed; see {log}")
        self.view.done(self.lines, passed, self.seconds)
        self.gateway.stop()
        self.view.say("gateway drained and stopped; its usage journal is in ./usage")

    # --- 4 ------------------------------------------------------------------------------------

    def account(self) -> None:
        """Run the pipeline on the gateway's journal and on a real broker's log."""
        from headgate.cli.main import load
        from headgate.pipeline.bundled import BUNDLED_BROKER_ID, bundled_log, bundled_quotas

        self.view.step(4, "Accounting by Spark: the gateway's usage events, a real broker's log")
        windows = ["--quota-window-num", str(sample.WINDOW_NUM),
                   "--quota-window-size-seconds", str(sample.WINDOW_S)]  # fmt: skip
        own = ["--requests", str(self.place / "usage"), "--store", self.store,
               "--out", str(self.tables)]  # fmt: skip
        log = ["--requests", str(bundled_log()), "--quotas", str(bundled_quotas()),
               "--broker-id", str(BUNDLED_BROKER_ID), "--out", str(self.log_tables)]  # fmt: skip
        plans = {self.place / "twice.yaml": 2.0, self.place / "half.yaml": 0.5}
        for file, factor in plans.items():
            file.write_text(scaled(self.store, factor), encoding="utf-8")
        what_if = ["--requests", str(self.place / "usage"), "--plan", *map(str, plans),
                   "--out", str(self.tables), *windows]  # fmt: skip
        prices = self.place / "prices.yaml"
        prices.write_text(sample.PRICES, encoding="utf-8")
        small = ["--max-request-bytes", "6000", "--min-history-s", "20"]
        storm = ["--connections-per-second", "3", "--requests-per-second", "100"]
        steps: list[tuple[str, str, list[str]]] = [
            ("usage of every quota-id, per second", "usage", own),
            ("which quota applied to which client", "effective", own),
            ("exact replay of every throttle time", "replay", [*own, *windows]),
            ("what if every quota were twice as large, or half", "what-if", what_if),
            ("which quotas would fit", "recommend", [*own, *windows, *small]),
            ("what it costs", "chargeback", [*own, "--prices", str(prices)]),
            ("storms of connections and requests", "storms", [*own, *storm]),
            ("a real broker's log: usage", "usage", log),
            ("a real broker's log: replay", "replay", log),
        ]
        quiet = ["--quiet"] if self.view.way.quiet else []
        printed = (self.place / "pipeline.txt").open("w", encoding="utf-8")
        self.stack.callback(printed.close)
        for words, name, arguments in steps:
            self.view.say(words)
            printed.write(f"\n$ headgate {name} {' '.join(arguments)}\n\n")
            with contextlib.redirect_stdout(printed):
                status = load(name)([*arguments, *quiet])
            if status not in (exit_codes.DONE, exit_codes.FOUND):
                raise HeadgateError(f"{words}: the pipeline failed, see above")

    # --- 5 ------------------------------------------------------------------------------------

    def tell(self) -> list[str]:
        """Write the report and print the closing table; returns the figures that are out."""
        from headgate.demo.result import close
        from headgate.pipeline.report import write_report

        now = now_ms()
        window = sample.WINDOW_NUM * sample.WINDOW_S
        self.view.step(5, "The report")
        main_page = write_report(
            self.tables, self.place / "report.html", generated_ms=now, window_s=window,
            title="Headgate demo: KIP-55's sample quotas at work",
        )  # fmt: skip
        write_report(
            self.log_tables, self.place / "broker-log.html", generated_ms=now,
            title="Headgate demo: a real broker's request log",
        )  # fmt: skip
        out = close(self.view, self.tables, self.log_tables, self.lines, self.waited_share,
                    self.place / "demo.json")  # fmt: skip
        took = time.monotonic() - self.began
        self.view.console.print()
        self.view.say(f"took {took:.0f} s; everything is in {self.place}", "dim")
        self.view.console.print(f"\nReport: [bold]{main_page.path}[/]", soft_wrap=True)
        return out
