"""``headgate serve`` as an operator runs it: starts, drains, reloads, and says what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka4


class Served:
    """A ``headgate serve`` of its own process."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"never said {text!r}: {''.join(self.lines)}")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=240)
        return self.process.returncode, "".join(self.lines) + rest


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """``serve(**properties)``: a started process; properties with ``__`` for dots."""
    running: list[Served] = []

    def start(**named: str) -> Served:
        config = tmp_path / "headgate.properties"
        config.write_text(
            "".join(f"{k.replace('__', '.')}={v}\n" for k, v in named.items()),
            encoding="utf-8",
        )
        running.append(Served(config))
        return running[-1]

    yield start
    for served in running:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()
        if served.process.stderr is not None:
            served.process.stderr.close()


def common(tmp_path: Path, kafka: EmbeddedKafka, first_port: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{first_port}",
        "headgate__upstream": kafka.bootstrap("PLAINTEXT"),
        "headgate__broker__id__min": "1",
        "headgate__broker__id__max": "2",
        "headgate__data__dir": str(tmp_path),
        "headgate__usage": "none",
    }


def test_serves_and_drains_on_sigterm(
    serve: Callable[..., Served],
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    served = serve(**common(tmp_path, kafka4, port))
    served.wait_for("ready")
    bootstrap = f"127.0.0.1:{port}"
    name = unique("served")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(120)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"x")
    assert producer.flush(120) == 0
    status, said = served.end()
    assert status == 0, said
    assert "stopped" in said
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        raise AssertionError("the port is still open")


def test_reloads_on_sighup_and_a_file_with_mistakes_changes_nothing(
    serve: Callable[..., Served],
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    served = serve(**common(tmp_path, kafka4, port))
    served.wait_for("ready")
    config = tmp_path / "headgate.properties"
    with config.open("a") as file:
        file.write("super.users=User:root\n")
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("settings reloaded")
    with config.open("a") as file:
        file.write("connections.max.idle.ms=soon\n")
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("settings not reloaded")
    assert "connections.max.idle.ms" in served.lines[-1]
    assert served.end()[0] == 0


@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        ({"listeners": "PLAINTEXT:/x"}, 1, "headgate.properties:1: listeners"),
        ({"headgate__upstream": "127.0.0.1:1"}, 1, "127.0.0.1:1 can't be reached"),
        (
            {
                "headgate__store": "zookeeper://127.0.0.1:1/x",
                "zookeeper__session__timeout__ms": "1000",
            },
            1,
            "ZooKeeper 127.0.0.1:1/x can't be reached",
        ),
    ],
)
def test_says_what_is_wrong_where_and_the_way_out(
    serve: Callable[..., Served],
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
    wrong: dict[str, str],
    status: int,
    said: str,
) -> None:
    port = free_ports(2, consecutive=True)[0]
    served = serve(**{**common(tmp_path, kafka4, port), **wrong})
    _, text = served.process.communicate(timeout=240)
    assert served.process.returncode == status, text
    assert said in text
    assert "Traceback" not in text


def test_a_port_in_use_is_named(
    serve: Callable[..., Served], tmp_path: Path, kafka4: EmbeddedKafka, free_port: int
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        served = serve(**common(tmp_path, kafka4, free_port))
        _, text = served.process.communicate(timeout=240)
    assert served.process.returncode == 1
    assert f"can't listen on 127.0.0.1:{free_port}" in text
    assert "Choose other ports" in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.properties"
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(missing)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 1
    assert str(missing) in done.stderr


def test_peers_that_talk_nonsense_are_closed_others_go_on(
    serve: Callable[..., Served],
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    served = serve(**{**common(tmp_path, kafka4, port), "socket__request__max__bytes": "1000000"})
    served.wait_for("ready")
    with socket.create_connection(("127.0.0.1", port), 60) as good:
        for nonsense, reason in (
            (b"GET / HTTP/1.1\r\n\r\n", "oversized"),
            (struct.pack(">i", 1_000_001) + bytes(100), "oversized"),
            (struct.pack(">ihhih", 20, 9_999, 0, 1, -1) + bytes(100), "unknown-api"),
        ):
            with socket.create_connection(("127.0.0.1", port), 60) as bad:
                bad.sendall(nonsense)
                bad.settimeout(60)
                assert bad.recv(100) == b""
            served.wait_for(f"reason={reason}")
        good.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        good.settimeout(60)
        head = good.recv(8)
        assert head[4:8] == struct.pack(">i", 7)
    assert served.end()[0] == 0


def test_a_process_per_broker_survives_the_loss_of_one(
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    config = tmp_path / "headgate.properties"
    named = {**common(tmp_path, kafka4, port), "headgate__lease__ttl__ms": "6000"}
    config.write_text("".join(f"{k.replace('__', '.')}={v}\n" for k, v in named.items()))
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config),
         "--process-per-broker"],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    pids = []
    for line in process.stderr:
        if ready := re.search(r" ready .*pid=(\d+)", line):
            pids.append(int(ready[1]))
            if len(pids) == 2:
                break
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    name = unique("workers")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(120)
    os.kill(pids[0], signal.SIGKILL)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1):
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(120) == 0
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=240)
    assert process.returncode == 0, rest


def test_a_killed_gateway_is_replaced_by_its_standby(
    serve: Callable[..., Served],
    tmp_path: Path,
    kafka4: EmbeddedKafka,
    free_ports: Callable[..., list[int]],
    unique: Callable[[str], str],
) -> None:
    port = free_ports(2, consecutive=True)[0]
    named = {**common(tmp_path, kafka4, port), "headgate__lease__ttl__ms": "6000"}
    active = serve(**named)
    active.wait_for("ready")
    standby = serve(**named)
    standby.wait_for("standing by")
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    name = unique("standby")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(120)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    delivered: list[object] = []
    for number in range(200):
        producer.produce(name, str(number), on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0)
        if number == 100:
            os.kill(active.process.pid, signal.SIGKILL)
    assert producer.flush(120) == 0
    assert delivered == [None] * 200
    standby.wait_for("taking over")
    assert not any(" ready " in line for line in standby.lines)
    standby.wait_for(" ready ")
    assert standby.end()[0] == 0
