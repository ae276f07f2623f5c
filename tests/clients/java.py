"""Apache Kafka's own console and performance tools, of any version since 2.1."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from typing import TypeVar

from clients.interface import HEARTBEAT_MS, Client, Member
from headgate.embedded import tools
from headgate.embedded.tools import run_tool, tool_command

WAIT_MS = 120_000
T = TypeVar("T")


class Tools(Client):
    """
    The console tools.

    Args:
        version: the Kafka they come from.
        protocol: ``classic``, or ``consumer`` for KIP-848.
    """

    def __init__(self, version: str, protocol: str = "classic") -> None:
        self.version = version
        self.release = tuple(int(part) for part in version.split("."))
        self._protocol = protocol

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        said = self.run(
            _since(self.release, (3, 7), tools.TOPICS,
                   "kafka.admin.TopicCommand"),
            "--bootstrap-server", bootstrap, "--create", "--topic", topic,
            "--partitions", str(partitions), "--replication-factor", "1",
        )  # fmt: skip
        assert f"Created topic {topic}" in said

    def produce(self, bootstrap: str, topic: str, values: Sequence[str]) -> None:
        self.run(
            _since(self.release, (4,), tools.CONSOLE_PRODUCER,
                   "kafka.tools.ConsoleProducer"),
            _since(self.release, (2, 5), "--bootstrap-server", "--broker-list"), bootstrap,
            "--topic", topic,
            input="".join(f"{value}\n" for value in values),
        )  # fmt: skip

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        said = self.run(
            self._console_consumer,
            *self._reading(bootstrap, topic, group),
            "--max-messages", str(count), "--timeout-ms", str(WAIT_MS),
        )  # fmt: skip
        return _values(said)

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return Running(
            tool_command(
                self._console_consumer,
                self._reading(bootstrap, topic, group),
                version=self.version,
            )
        )

    def reset(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        said = self.run(
            _since(self.release, (3, 8),
                   tools.GROUPS,
                   "kafka.admin.ConsumerGroupCommand"),
            "--bootstrap-server", bootstrap, "--group", group, "--topic", topic,
            "--reset-offsets", "--to-earliest", "--execute",
        )  # fmt: skip
        places = re.findall(rf"{re.escape(topic)}\s+(\d+)\s+(\d+)", said)
        assert sorted(places) == [(str(number), "0") for number in range(partitions)]

    def run(self, main_class: str, *args: str, input: str = "") -> str:
        """Run a tool to its good end and return what it prints."""
        done = run_tool(main_class, args, version=self.version, input=input, timeout_s=150)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def _console_consumer(self) -> str:
        old = "kafka.tools.ConsoleConsumer"
        return _since(self.release, (3, 8), tools.CONSOLE_CONSUMER, old)

    def _reading(self, bootstrap: str, topic: str, group: str) -> list[str]:
        flag = _since(self.release, (4, 2), "--command-property", "--consumer-property")
        named = ["auto.offset.reset=earliest", "isolation.level=read_committed"]
        if self._protocol == "classic":
            named.append(f"heartbeat.interval.ms={HEARTBEAT_MS}")
        else:
            named.append(f"group.protocol={self._protocol}")
        properties = [word for name in named for word in (flag, name)]
        return ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, *properties]


class PerformanceTools(Tools):
    """kafka-producer-perf-test and kafka-consumer-perf-test: they count, they don't show values."""

    def transact_many(self, bootstrap: str, topic: str, name: str, count: int) -> None:
        """Send ``count`` records in transactions."""
        newer = [f"--command-property=bootstrap.servers={bootstrap}"]
        said = self.run(
            tools.PRODUCER_PERF,
            "--topic", topic, "--num-records", str(count), "--record-size", "100",
            "--throughput", "-1", "--transactional-id", name, "--transaction-duration-ms", "50",
            *_since(self.release, (4, 2), newer,
                    ["--producer-props", f"bootstrap.servers={bootstrap}"]),
        )  # fmt: skip
        assert f"{count} records sent" in said

    def count(self, bootstrap: str, topic: str, group: str, count: int) -> int:
        """Read ``count`` records; return how many the tool reports."""
        said = self.run(
            _since(self.release, (3, 6), tools.CONSUMER_PERF,
                   "kafka.tools.ConsumerPerformance"),
            _since(self.release, (2, 5), "--bootstrap-server", "--broker-list"), bootstrap,
            "--topic", topic, "--group", group, "--messages", str(count),
            "--timeout", str(WAIT_MS),
        )  # fmt: skip
        # start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, …
        return int(said.strip().splitlines()[-1].split(", ")[4])


class Running(Member):
    """A console consumer that runs until it is told to leave."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.values.extend(_values(line))

    def leave(self) -> None:
        self._process.terminate()  # its shutdown hook closes the consumer, which leaves the group
        self._process.wait(60)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _since(release: tuple[int, ...], first: tuple[int, ...], new: T, old: T) -> T:
    return new if release >= first else old


def _values(said: str) -> list[str]:
    """Values among what a tool prints: the tests' own begin with ``v``, a number follows."""
    return [line for line in said.splitlines() if re.fullmatch(r"v\d+", line)]
