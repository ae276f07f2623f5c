"""
A fleet on one machine: brokers, a gateway process before each, `headgate splits`, real clients.

A tenant with a cluster-wide quota (or several, with shares of each broker's capacity) produces or
consumes through all gateways; how much of which broker's it wants changes from phase to phase.
What the gateways charged (their journals), what was acknowledged to the clients or reached them,
and the splits are kept, for a table, a plot and an assertion.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.embedded import EmbeddedKafka, spark_env
from headgate.embedded.process import free_ports
from headgate.pipeline.splits.split_topic import _scan
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS, QuotaKey, QuotaUnit
from headgate.store import open_store
from headgate.usage.splits import TOPIC, Split, decode
from headgate.usage.topic import decode as decode_batches

USAGE: Final = "headgate_usage"
LOAD: Final = "load"
TENANT: Final = "alice"
MESSAGE: Final = bytes(3900)
_START_S: Final = 180.0
_STEP_S: Final = 0.02
# What each partition holds for those who consume, bytes.
_FILLED: Final = 8_000_000


def read_splits(topic: str, config: Mapping[str, Any]) -> list[Split]:
    """Every split that a topic holds now, in order of offset."""
    return [found for _, found in _scan(topic, config) if isinstance(found, Split)]


@dataclass(frozen=True)
class Phase:
    """
    Some seconds of one load.

    Attributes:
        seconds: how long.
        load: bytes per second that the first tenant wants of each broker; one left out: nothing.
        others: the same of other tenants, by name.
        due: bytes per second that are each tenant's, by name; left out: its quota.
    """

    seconds: float
    load: Mapping[int, float]
    others: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    due: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Measured:
    """
    What a run showed of one tenant.

    Attributes:
        quota: the tenant's cluster-wide quota, bytes per second; its due, if it has shares.
        period_ms: the split period.
        phases: (start, end) of each, epoch ms.
        charged: (epoch ms, broker, bytes) of every charge, from the gateways' journals.
        acknowledged: (epoch ms, broker, bytes of messages), from the clients.
        due: bytes per second that were its own, by phase.
        splits: (epoch ms of arrival, split).
        rounds: what `headgate splits` printed about its rounds.
        logs: what each process wrote, by name.
    """

    quota: float
    period_ms: int
    phases: list[tuple[int, int]] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    charged: list[tuple[float, int, float]] = field(default_factory=list)
    acknowledged: list[tuple[float, int, float]] = field(default_factory=list)
    splits: list[tuple[int, Split]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)

    def windows(
        self,
        events: Sequence[tuple[float, int, float]],
        from_ms: float,
        to_ms: float,
        due: float | None = None,
    ) -> list[float]:
        """Return the part of the quota used in each 60 s between two moments, a second apart."""
        seconds = int((to_ms - from_ms) // 1000)
        sums = [0.0] * max(seconds, 0)
        for t_ms, _, amount in events:
            at = int((t_ms - from_ms) // 1000)
            if 0 <= at < seconds:
                sums[at] += amount
        whole = 60 * (due or self.quota)
        return [sum(sums[i : i + 60]) / whole for i in range(seconds - 59)]

    def settled(self, events: Sequence[tuple[float, int, float]]) -> list[float]:
        """Return the windows that begin two split periods after the load changed, or later."""
        found: list[float] = []
        for n, ((begin, end), due) in enumerate(zip(self.phases, self.due, strict=True)):
            if n == 0:  # clients take a second to begin, one after another
                begin = max(map(self._first_at, self._loads[0]), default=begin)
            found += self.windows(events, begin + 2 * self.period_ms, end, due)
        return found

    def _first_at(self, broker: int) -> int:
        """Return when the tenant's first bytes were charged before a broker."""
        begin = self.phases[0][0]
        found = (t_ms for t_ms, b, _ in self.charged if b == broker and t_ms >= begin)
        return int(min(found, default=begin))

    def crossing(self, events: Sequence[tuple[float, int, float]]) -> list[float]:
        """Return all windows from two split periods after the start on, changes of load or not."""
        begin = self.phases[0][0] + 2 * self.period_ms
        return self.windows(events, begin, self.phases[-1][1])

    def followed_s(self) -> list[float]:
        """Return for each change of load the seconds until a split was there that follows it."""
        out = []
        for (begin, end), load in zip(self.phases, self._loads, strict=True):
            busiest = max(load, key=lambda b: load[b])
            at = (
                t for t, s in self.splits
                if begin <= t < end and s.broker == busiest and s.split > self.quota / 2
            )  # fmt: skip
            first = next(at, None)
            out.append(float("nan") if first is None else (first - begin) / 1000)
        return out

    _loads: list[Mapping[int, float]] = field(default_factory=list)


def summary(found: Sequence[float]) -> tuple[float, float, float]:
    """Return the least, mean and most of some windows; not a number where there are none."""
    if not found:
        return (float("nan"),) * 3
    return min(found), statistics.fmean(found), max(found)


class Fleet:
    """
    Everything started, until left.

    Args:
        folder: for settings, logs, the store.
        quota: the tenant's cluster-wide quota, bytes per second.
        period_ms: the split period.
        brokers: how many, each with a gateway of its own.
        batch_ms: ``headgate.usage.batch.ms``.
        key: what is limited: producing or consuming, in bps or shares.
        shares: weights by tenant, where ``key`` is of shares.
        capacity: bytes per second of each broker that shares divide.

    Attributes:
        of: what was measured of each tenant.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quota: float = 600_000.0,
        period_ms: int = 5000,
        brokers: int = 3,
        batch_ms: int = 1000,
        key: QuotaKey = PRODUCER_BPS,
        shares: Mapping[str, float] | None = None,
        capacity: float | None = None,
    ) -> None:
        self.folder = folder
        self.quota = quota
        self.key = key
        self.limits = dict(shares or {TENANT: quota})
        self.capacity = capacity
        self.period_ms = period_ms
        self.ids = list(range(1, brokers + 1))
        self.batch_ms = batch_ms
        self.of = {name: Measured(quota, period_ms) for name in self.limits}
        self.measured = self.of[next(iter(self.limits))]
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._load: dict[str, Mapping[int, float]] = {name: {} for name in self.limits}
        self._bootstrap = ""
        self._upstream = ""
        self.http_port = 0

    def __enter__(self) -> Fleet:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        kafka = self._stack.enter_context(EmbeddedKafka(brokers=len(self.ids)))
        self._upstream = kafka.bootstrap("PLAINTEXT")
        admin = AdminClient({"bootstrap.servers": self._upstream})
        topics = [
            NewTopic(LOAD, len(self.ids), replica_assignment=[[b] for b in self.ids]),
            NewTopic(USAGE, 1, 1),
        ]
        for made in admin.create_topics(topics).values():
            made.result(60)
        store_url = f"sqlite:{self.folder / 'quotas.db'}"
        store = open_store(store_url)
        store.alter(
            [
                QuotaAlteration.of(QuotaEntity.of(user=name), [Op(self.key, limit)])
                for name, limit in self.limits.items()
            ]
        )
        store.close()
        if self._consumes:
            self._fill()
        port = free_ports(len(self.ids), consecutive=True)[0]
        (self.http_port,) = free_ports(1)
        self._bootstrap = ",".join(f"127.0.0.1:{port + b - 1}" for b in self.ids)
        for broker in self.ids:
            self._serve(kafka, broker, port, store_url)
        self.start_splits(store_url)
        for broker in self.ids:
            self.wait_for(f"gateway-{broker}", "ready")
        for work in (self._watch_splits, self._watch_usage, self._watch_rounds):
            self._thread(work)
        for name in self.limits:
            for broker in self.ids:
                self._thread(self._consume if self._consumes else self._produce, name, broker)

    @property
    def _consumes(self) -> bool:
        return self.key.type == "consumer_byte_rate"

    def _fill(self) -> None:
        """Give every broker's partition something to be read, over and over."""
        producer = Producer({"bootstrap.servers": self._upstream, "batch.size": 16_384})
        for broker in self.ids:
            for _ in range(_FILLED // len(MESSAGE)):
                producer.produce(LOAD, MESSAGE, partition=broker - 1)
            producer.flush(60)

    def _serve(self, kafka: EmbeddedKafka, broker: int, port: int, store: str) -> None:
        own = self.folder / f"gateway-{broker}"
        own.mkdir()
        settings = {
            "listeners": f"SASL://127.0.0.1:{port}",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
            "headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
            "headgate.upstream.admin.security.protocol": "SASL_PLAINTEXT",
            "headgate.upstream.admin.sasl.mechanism": "PLAIN",
            "headgate.upstream.admin.sasl.username": "admin",
            "headgate.upstream.admin.sasl.password": kafka.users["admin"],
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": str(self.ids[-1]),
            "headgate.store": store,
            "headgate.data.dir": str(own),
            "headgate.usage": f"kafka:{USAGE}",
            "headgate.usage.batch.ms": str(self.batch_ms),
            "headgate.splits": "stream",
            "headgate.splits.period.ms": str(self.period_ms),
            "headgate.worker.id": f"gateway-{broker}",
            "headgate.http.listener": f"127.0.0.1:{self.http_port}",
        }
        if self.capacity:
            settings[f"headgate.capacity.{self.key.type}"] = f"{self.capacity:.0f}"
        config = own / "headgate.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._run(f"gateway-{broker}", "serve", "--config", str(config), "--brokers", str(broker))

    def start_splits(self, store: str | None = None) -> None:
        """Start `headgate splits`, and wait for its first round."""
        log = self.folder / "splits.log"
        rounds = self.said("splits").count('"round"') if log.exists() else 0
        url = store or f"sqlite:{self.folder / 'quotas.db'}"
        # Its answer is told to the gateways within half a second; batches are a second long.
        lag = str(self.batch_ms + 500)
        divided: list[str] = []
        if self.capacity and self.key.units == QuotaUnit.SHARES:
            which = "consumer" if self._consumes else "producer"
            divided = [f"--capacity-{which}", f"{self.capacity:.0f}"]
        self._run(
            "splits", "splits", "--topic", USAGE, "--store", url, "--lag-ms", lag,
            "--kafka-config", f"bootstrap.servers={self._upstream}",
            "--period-ms", str(self.period_ms), "--master", "local[2]", *divided,
        )  # fmt: skip
        self.wait_for("splits", '"round"', rounds + 1)

    def kill_splits(self) -> None:
        """End `headgate splits` as kill -9 does."""
        process = self._processes["splits"]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headgate.cli.main", *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | spark_env(),
                start_new_session=True,
            )
        self._processes[name] = process
        self._stack.callback(_end, process)

    def said(self, name: str) -> str:
        """Return what a process has written so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def page(self, path: str) -> str:
        """Return what the gateway of the first broker shows at a path, /readyz or /metrics."""
        address = f"http://127.0.0.1:{self.http_port}{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return str(answer.read().decode())

    def wait_for(self, name: str, text: str, times: int = 1) -> None:
        """
        Wait until a process has written a text ``times`` times.

        Raises:
            RuntimeError: it ended, or didn't within three minutes.
        """
        until = time.monotonic() + _START_S
        while self.said(name).count(text) < times:
            if time.monotonic() > until or self._processes[name].poll() is not None:
                raise RuntimeError(f"{name} never said {text!r}:\n{self.said(name)[-3000:]}")
            time.sleep(0.1)

    def _thread(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stop.set)

    def run(self, phases: Sequence[Phase]) -> Measured:
        """Go through the phases and return what they showed."""
        for phase in phases:
            begin = time.time_ns() // 1_000_000
            first, *_ = self.limits
            self._load = {first: phase.load, **phase.others}
            time.sleep(phase.seconds)
            end = time.time_ns() // 1_000_000
            for name, measured in self.of.items():
                measured.phases.append((begin, end))
                measured.due.append(phase.due.get(name, self.quota))
                measured._loads.append(dict(self._load.get(name, {})))
        self._load = {}
        time.sleep(self.batch_ms / 1000 + 2)  # the journals' last batches
        self.measured.logs = {name: self.said(name) for name in self._processes}
        return self.measured

    def _client(self, tenant: str, broker: int) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": tenant,
            "sasl.password": f"{tenant}-secret",
            "client.id": f"{tenant}-{broker}",
            "log_level": 3,
        }

    def _wanted(self, tenant: str, broker: int) -> float:
        return self._load.get(tenant, {}).get(broker, 0.0)

    def _produce(self, tenant: str, broker: int) -> None:
        """Offer what the phase says; a second's worth may wait in the client, no more."""
        producer = Producer(
            self._client(tenant, broker)
            | {
                "acks": 1,
                "linger.ms": 5,
                "batch.size": 16_384,
                "max.in.flight": 1,
                "socket.timeout.ms": 120_000,
                "message.timeout.ms": 300_000,
            }
        )
        waiting = [0]
        acknowledged = self.of[tenant].acknowledged

        def delivered(error: Any, message: Any) -> None:
            waiting[0] -= len(MESSAGE)
            if error is None:
                acknowledged.append((time.time_ns() / 1e6, broker, float(len(MESSAGE))))

        credit, last = 0.0, time.monotonic()
        while not self._stop.is_set():
            producer.poll(_STEP_S)
            now = time.monotonic()
            rate = self._wanted(tenant, broker)
            credit = min(credit + rate * (now - last), rate)
            last = now
            while credit >= len(MESSAGE):
                credit -= len(MESSAGE)
                if waiting[0] < max(rate, 65_536):
                    producer.produce(LOAD, MESSAGE, partition=broker - 1, on_delivery=delivered)
                    waiting[0] += len(MESSAGE)
        producer.purge()
        producer.flush(10)

    def _consume(self, tenant: str, broker: int) -> None:
        """Take what the phase says, from the beginning again at the end; fetch little ahead."""
        consumer = Consumer(
            self._client(tenant, broker)
            | {
                "group.id": f"fleet-{tenant}-{broker}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "max.partition.fetch.bytes": 16_384,
                "queued.min.messages": 16,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 32,
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 120_000,
            }
        )
        at = TopicPartition(LOAD, broker - 1, 0)
        reached = self.of[tenant].acknowledged
        consumer.assign([at])
        consumer.pause([at])
        paused, credit, last = True, 0.0, time.monotonic()
        try:
            while not self._stop.is_set():
                rate = self._wanted(tenant, broker)
                if paused != (rate == 0.0):
                    (consumer.resume if paused else consumer.pause)([at])
                    paused = not paused
                now = time.monotonic()
                credit = min(credit + rate * (now - last), rate)
                last = now
                if paused or credit < len(MESSAGE):
                    if paused:
                        consumer.poll(0)
                    time.sleep(_STEP_S)
                    continue
                message = consumer.poll(_STEP_S)
                if message is None:
                    continue
                if message.error() is None:
                    credit -= len(MESSAGE)
                    reached.append((time.time_ns() / 1e6, broker, float(len(MESSAGE))))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    consumer.seek(at)
        finally:
            consumer.close()

    def _messages(self, topic: str) -> Iterator[Any]:
        config = {"bootstrap.servers": self._upstream, "group.id": "fleet", "log_level": 3}
        consumer = Consumer(config)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        try:
            while not self._stop.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    yield message
        finally:
            consumer.close()

    def _watch_splits(self) -> None:
        for message in self._messages(TOPIC):
            found = decode(message.key(), message.value())
            if isinstance(found, Split) and found.user in self.of:
                self.of[found.user].splits.append((time.time_ns() // 1_000_000, found))

    def _watch_usage(self) -> None:
        for message in self._messages(USAGE):
            for batch in decode_batches(message.value()):
                for row in batch.select(
                    ["kind", "quota_type", "t_ms", "broker_id", "amount", "quota_user"]
                ).to_pylist():
                    sign = {"record": 1.0, "unrecord": -1.0}.get(row["kind"])
                    if sign and row["quota_type"] == self.key.name:
                        charge = (row["t_ms"], row["broker_id"], sign * abs(row["amount"]))
                        self.of[row["quota_user"]].charged.append(charge)

    def _watch_rounds(self) -> None:
        seen = 0
        while not self._stop.wait(0.5):
            lines = self.said("splits").splitlines()
            for line in lines[seen:]:
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict):
                        self.measured.rounds.append(said)
            seen = len(lines)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
