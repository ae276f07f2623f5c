"""``headgate serve --process-per-broker``: real processes, one place to look at all of them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.admin import AdminClient
from headgate.client import connection
from headgate.metrics.table import BY_NAME
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.store import open_store
from kit.upstreams import Upstream


class Supervised:
    """A supervisor with its workers; its log lines are JSON."""

    def __init__(self, config: Path, http_port: int) -> None:
        self.http_port = http_port
        self.ports: list[int] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config),
             "--process-per-broker"],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Return ``count`` lines of an event; lines that came before are in ``lines``."""
        found = []
        while len(found) < count:
            line = self._queue.get(timeout=240)
            assert line is not None, f"never said {event!r}: {self.lines}"
            self.lines.append(line)
            if line["event"] == event:
                found.append(line)
        return found

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=120) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def until(self, path: str, expected: tuple[int, str]) -> None:
        deadline = time.monotonic() + 120
        while (said := self.get(path)) != expected:
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_end()
        return self.process.wait(120)

    def wait_for_end(self) -> None:
        while (line := self._queue.get(timeout=240)) is not None:
            self.lines.append(line)


@pytest.fixture
def supervise(
    tmp_path: Path, free_ports: Callable[..., list[int]]
) -> Iterator[Callable[..., Supervised]]:
    running: list[Supervised] = []

    def start(upstream: Upstream, **more: str) -> Supervised:
        ports = free_ports(4, consecutive=True)
        config = tmp_path / "headgate.properties"
        config.write_text(
            f"""\
listeners=PLAINTEXT://127.0.0.1:{ports[0]}
headgate.upstream={upstream.address}
headgate.broker.id.min=1
headgate.broker.id.max=3
headgate.upstream.refresh.ms=100
headgate.data.dir={tmp_path}
headgate.usage=none
headgate.http.listener=127.0.0.1:{ports[3]}
headgate.log.format=json
headgate.lease.ttl.ms=3600000
"""
            + "".join(f"{name.replace('__', '.')}={value}\n" for name, value in more.items()),
            encoding="utf-8",
        )
        running.append(Supervised(config, ports[3]))
        running[-1].ports = ports[:3]
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        assert one.process.stderr is not None
        one.process.stderr.close()


def brokers_of(text: str, name: str) -> dict[str, float]:
    return {
        sample.labels["broker"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_one_place_shows_all_workers_and_names_the_one_that_is_missing(
    supervise: Callable[..., Supervised],
) -> None:
    with Upstream([1, 2]) as upstream:
        served = supervise(upstream)
        ready = served.wait_for("ready", 2)
        pids = {line["worker"]: line["pid"] for line in ready}
        assert sorted(pids) == ["1", "2"]
        served.until("/readyz", (200, "ready\n"))
        assert served.get("/healthz") == (200, "ok\n")
        status, text = served.get("/metrics")
        assert status == 200
        assert brokers_of(text, "headgate_worker_up") == {"1": 1.0, "2": 1.0}
        assert set(brokers_of(text, "headgate_connections")) == {"1", "2"}
        families = [family.name for family in text_string_to_metric_families(text)]
        assert len(families) == len(set(families))
        names = {s.name for f in text_string_to_metric_families(text) for s in f.samples}
        assert names <= set(BY_NAME)

        # One that hangs is named, the other's metrics stay.
        os.kill(pids["2"], signal.SIGSTOP)
        served.until("/healthz", (503, "broker 2: no answer\n"))
        text = served.get("/metrics")[1]
        assert brokers_of(text, "headgate_worker_up") == {"1": 1.0, "2": 0.0}
        assert set(brokers_of(text, "headgate_connections")) == {"1"}
        os.kill(pids["2"], signal.SIGCONT)
        served.until("/healthz", (200, "ok\n"))

        # One that was killed is started again, and has its lease of an hour back.
        os.kill(pids["2"], signal.SIGKILL)
        ended = served.wait_for("a worker ended; it is started again")[0]
        assert (ended["broker"], ended["status"]) == (2, -9)
        again = served.wait_for("ready")[0]
        assert again["worker"] == "2"
        assert again["pid"] != pids["2"]
        served.until("/readyz", (200, "ready\n"))
        assert served.end() == 0


def knows(*apis: tuple[int, int, int]) -> Callable[[int, int, bytes], bytes]:
    """What answers ApiVersions 0 with these APIs, as a broker does that knows no other version."""

    def answer(version: int, correlation: int, frame: bytes) -> bytes:
        told = b"".join(struct.pack(">hhh", *api) for api in apis)
        body = struct.pack(">ihi", correlation, 35 if version else 0, len(apis)) + told
        return struct.pack(">i", len(body)) + body

    return answer


def test_each_worker_names_a_broker_that_hangs_whether_the_cluster_names_it_or_not(
    supervise: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 2.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as hangs,
        Upstream([1, 2], {18: knows((3, 8, 8), (18, 0, 0))}) as upstream,
    ):
        upstream.ports[2] = hangs.getsockname()[1]
        served = supervise(
            upstream, super__users="User:ANONYMOUS", headgate__upstream__connect__timeout__ms="500"
        )
        served.wait_for("ready", 2)
        upstream.brokers.remove(2)  # as a cluster does some seconds after a broker hangs
        served.wait_for("a broker doesn't answer the gateway")
        why = f"127.0.0.1:{upstream.ports[2]} takes connections and doesn't answer within 500 ms"
        served.until("/readyz", (200, f"ready\nbroker 2: broker 2 doesn't answer: {why}\n"))
        up = brokers_of(served.get("/metrics")[1], "headgate_broker_up")
        assert up == {"1": 1.0, "2": 0.0}
        for port in served.ports[:2]:
            with AdminClient(f"127.0.0.1:{port}") as client:
                found = client.describe_live("ANONYMOUS").brokers
            assert {broker.broker_id: broker.silent for broker in found if broker.silent} == {
                2: why
            }
        assert served.end() == 0


def test_a_worker_that_hangs_is_killed_and_its_clients_go_on_with_another(
    supervise: Callable[..., Supervised],
) -> None:
    with Upstream([1], {0: produced}) as upstream:
        served = supervise(upstream, headgate__worker__hang__timeout__ms="5000")
        hung = served.wait_for("ready")[0]["pid"]

        def acknowledged(correlation: int) -> bytes:
            with socket.create_connection(("127.0.0.1", served.ports[0]), 120) as client:
                client.sendall(produce(correlation, 100))
                return client.recv(8, socket.MSG_WAITALL)[4:]

        assert acknowledged(1) == b"\0\0\0\1"
        with socket.create_connection(("127.0.0.1", served.ports[0]), 120) as waiting:
            os.kill(hung, signal.SIGSTOP)
            waiting.sendall(produce(2, 100))
            with contextlib.suppress(ConnectionResetError):  # its worker is gone, and it knows
                assert waiting.recv(8) == b""
        killed = served.wait_for("a worker hangs; it is killed")[0]
        assert (killed["broker"], killed["worker_pid"], killed["silent_ms"]) == (1, hung, 5000)
        assert served.wait_for("a worker ended; it is started again")[0]["status"] == -9
        assert served.wait_for("ready")[0]["pid"] != hung
        assert acknowledged(3) == b"\0\0\0\3"
        text = served.get("/metrics")[1]
        restarts = {
            sample.labels["reason"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "headgate_worker_restarts_total"
        }
        assert restarts == {"ended": 0.0, "hung": 1.0}
        assert served.end() == 0


def test_a_broker_that_joins_gets_a_worker_and_orphans_drain(
    supervise: Callable[..., Supervised],
) -> None:
    with Upstream([1]) as upstream:
        served = supervise(upstream)
        served.wait_for("ready")
        upstream.brokers.append(2)
        assert served.wait_for("a broker has joined the cluster")[0]["broker"] == 2
        assert served.wait_for("ready")[0]["worker"] == "2"
        served.until("/readyz", (200, "ready\n"))
        # Nobody could see or stop workers without their supervisor.
        served.process.kill()
        assert {line["worker"] for line in served.wait_for("stopped", 2)} == {"1", "2"}
        served.wait_for_end()


def produce(correlation: int, size: int) -> bytes:
    """Produce 7 with acks=1, one topic, and so many bytes that nobody looks into."""
    body = struct.pack(">hhih", 0, 7, correlation, -1) + struct.pack(">hhii", -1, 1, 1000, 1)
    body += b"\0\1t" + struct.pack(">iii", 1, 0, size) + bytes(size)
    return struct.pack(">i", len(body)) + body


def produced(version: int, correlation: int, frame: bytes) -> bytes:
    body = struct.pack(">ii", correlation, 1) + b"\0\1t"
    body += struct.pack(">iihqqqi", 1, 0, 0, 0, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


class Client(threading.Thread):
    """Sends to one broker as much as it may; waits as long as it is told to."""

    def __init__(self, port: int, size: int) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._size = size
        self.enough = threading.Event()

    def run(self) -> None:
        with self._socket:
            for correlation in itertools.count(1):
                self._socket.sendall(produce(correlation, self._size))
                answer = self._socket.recv(4, socket.MSG_WAITALL)
                answer = self._socket.recv(int.from_bytes(answer, "big"), socket.MSG_WAITALL)
                told_ms = int.from_bytes(answer[-4:], "big")
                if self.enough.wait(max(told_ms / 1000, 0.01)):
                    return


def test_a_cluster_wide_quota_goes_to_the_worker_whose_clients_want_it(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    quota = 100_000.0
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as store:
        anonymous = QuotaEntity.of(user="ANONYMOUS")
        store.alter([QuotaAlteration.of(anonymous, [Op(PRODUCER_BPS, quota)])])
    with Upstream([1, 2], {0: produced}) as upstream:
        served = supervise(upstream, headgate__splits__period__ms="200")
        served.wait_for("ready", 2)
        clients = [Client(served.ports[0], 10_000), Client(served.ports[1], 100)]
        for client in clients:
            client.start()

        deadline = time.monotonic() + 120
        while True:  # two workers are read one after the other: perhaps between two rounds
            text = served.get("/metrics")[1]
            now = brokers_of(text, "headgate_quota_split")
            expired = brokers_of(text, "headgate_split_expired")
            if (
                now.get("1", 0.0) > 0.7 * quota
                and 0 < now.get("2", quota) < 0.3 * quota
                and expired == {"1": 0.0, "2": 0.0}
            ):
                break
            assert time.monotonic() < deadline, (now, expired)
            time.sleep(0.1)
        for client in clients:
            client.enough.set()
            client.join(120)
        assert served.end() == 0
