"""
How embedded brokers are made: settings written, data formatted, Java started and waited for.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from headgate.embedded import properties
from headgate.embedded.cluster import Cluster
from headgate.embedded.jars import ensure_jars
from headgate.embedded.java import find_java
from headgate.embedded.process import Child, EmbeddedError, accepts
from headgate.embedded.scram import scram_entity_config
from headgate.embedded.tools import run_tool

# Measured: 2.7-6 s; 15 s on a loaded machine. The rest is room for a very loaded one.
_READY_TIMEOUT_S = 180.0
_JAVA_OPTIONS = (
    "-Xmx384m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)


class Brokers(Cluster):
    """Makes, starts and waits for the brokers of a cluster."""

    def _write_settings(self, broker: int) -> None:
        folder = self._folder(broker)
        (folder / "log").mkdir(parents=True, exist_ok=True)
        ports = self._ports[broker]
        if self.kraft:
            voter = f"1@127.0.0.1:{self._ports[1].controller}"
            settings = properties.kraft(broker, ports, voter)
        else:
            settings = properties.zookeeper_mode(broker, ports, self.zookeeper.address)
        settings |= properties.common(ports, folder / "data", self.users, len(self._ids))
        settings |= self._extra
        (folder / "server.properties").write_text(properties.as_text(settings))
        level = "DEBUG" if self._request_log else "WARN"
        write_logging = properties.write_log4j2 if self.kraft else properties.write_reload4j
        write_logging(folder, request_level=level)

    def _format(self) -> None:
        """Format the brokers that aren't yet, with one cluster id; SCRAM users go to node 1's."""
        cluster_id = next(
            (found for b in self._ids if (found := self._cluster_id(b)) is not None),
            properties.new_cluster_id(),
        )
        for broker in self._ids:
            if self._cluster_id(broker) is not None:
                continue
            folder = self._folder(broker)
            args = ["format", "-t", cluster_id, "-c", str(folder / "server.properties")]
            for user, password in self.users.items() if broker == 1 else ():
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    args += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
            done = run_tool("kafka.tools.StorageTool", args, version=self.version)
            if done.returncode != 0:
                raise EmbeddedError(
                    f"Kafka's StorageTool couldn't format broker {broker} in {folder}:\n"
                    f"{(done.stdout + done.stderr).strip()[-2_000:]}"
                )

    def _cluster_id(self, broker: int) -> str | None:
        meta = self._folder(broker) / "data" / "meta.properties"
        if not meta.is_file():
            return None
        pairs = (line.partition("=") for line in meta.read_text().splitlines())
        return next((value for name, _, value in pairs if name == "cluster.id"), None)

    def _put_scram_users(self) -> None:
        for user, password in self.users.items():
            self.zookeeper.put_user(user, scram_entity_config(password))

    def _launch(self, broker: int) -> None:
        folder = self._folder(broker)
        if not self.kraft:
            # A killed broker's registration lasts as long as its session; 3.9 refuses to start
            # beside it.
            self.zookeeper.wait_gone(f"/brokers/ids/{broker}")
        self._children[broker] = Child(
            [
                find_java().executable,
                *_JAVA_OPTIONS,
                *self._java_options,
                *properties.logging_options(folder, kraft=self.kraft),
                "-cp",
                f"{ensure_jars(self.version)}/*",
                "kafka.Kafka",
                folder / "server.properties",
            ],
            name=f"broker {broker} (Kafka {self.version})",
            output=folder / "log" / "stdout.log",
            log=folder / "log" / "server.log",
            keep_open=() if self._lock is None else (self._lock,),
        )

    def _wait(self, broker: int, knows: Iterable[int] = ()) -> None:
        """Wait until a broker serves, and tells clients of itself and of those in ``knows``."""
        child = self._children[broker]
        ports = self._ports[broker]
        # 4.x prints this when the controller has let the broker in; 3.9 when it has registered. By
        # then it needn't have heard of any broker: for a moment it tells clients of none.
        mark = "Kafka Server started" if self.kraft else "started (kafka.server.KafkaServer)"
        told = {broker, *knows}
        child.wait_until(
            lambda: (
                mark in child.log_text()
                and accepts(ports.sasl)
                and told <= brokers_told(ports.plaintext)
            ),
            timeout_s=_READY_TIMEOUT_S,
            progress=self._progress,
        )


def brokers_told(port: int) -> set[int]:
    """
    Ask a broker on loopback for the brokers it knows.

    Args:
        port: of its PLAINTEXT listener.

    Returns:
        Their ids; none where it doesn't answer within 5 s.
    """
    body = struct.pack(">hhihiBBB", 3, 8, 1, -1, 0, 0, 0, 0)  # Metadata 8 of no topic
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(struct.pack(">i", len(body)) + body)
            with sock.makefile("rb") as answers:
                (size,) = struct.unpack(">i", answers.read(4))
                answer = answers.read(size)
        _, _, count = struct.unpack_from(">iii", answer)
        at = 12
        ids = set()
        for _ in range(count):
            broker, length = struct.unpack_from(">ih", answer, at)
            ids.add(broker)
            at += 6 + length + 4
            (rack,) = struct.unpack_from(">h", answer, at)
            at += 2 + max(rack, 0)
        return ids
    except (OSError, struct.error):
        return set()
