"""
One embedded broker: its settings written, its data formatted, its Java started and waited for.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from headgate.embedded import properties
from headgate.embedded.process import Child, EmbeddedError, accepts
from headgate.embedded.properties import BrokerPorts
from headgate.embedded.tools import java_command, run_tool
from headgate.errors import RemoteProtocolError
from headgate.wire.messages.metadata import build_metadata_request, read_metadata_response

# Measured: 2.7-6 s; 15 s on a loaded machine. The rest is room for a very loaded one.
_READY_TIMEOUT_S = 180.0
HEAP = "576m"
"""Twice the largest request (``properties.MOST_QUEUED_BYTES``), and what else a broker needs."""


class BrokerProcess:
    """
    A broker and its folder; it may run or not.

    Args:
        id: its id.
        folder: for its data, settings and logs.
        ports: its ports.
        version: of Kafka.
    """

    def __init__(self, id: int, folder: Path, ports: BrokerPorts, version: str) -> None:
        self.id = id
        self.folder = folder
        self.ports = ports
        self.version = version
        self.kraft = not version.startswith("3.")
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """Its process, running or ended."""
        if self._child is None:
            raise EmbeddedError(f"there is no broker {self.id} that was started")
        return self._child

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.running

    @property
    def data(self) -> Path:
        """Where its records are."""
        return self.folder / "data"

    def write_settings(self, settings: Mapping[str, str], *, request_log: bool) -> None:
        """Write server.properties and its logging settings."""
        (self.folder / "log").mkdir(parents=True, exist_ok=True)
        (self.folder / "server.properties").write_text(properties.as_text(settings))
        write_logging = properties.write_log4j2 if self.kraft else properties.write_reload4j
        write_logging(self.folder, request_level="DEBUG" if request_log else "WARN")

    def cluster_id(self) -> str | None:
        """Return the id of the cluster that its data was formatted for; None: it wasn't yet."""
        meta = self.data / "meta.properties"
        if not meta.is_file():
            return None
        pairs = (line.partition("=") for line in meta.read_text().splitlines())
        return next((value for name, _, value in pairs if name == "cluster.id"), None)

    def format(self, cluster_id: str, users: Mapping[str, str]) -> None:
        """
        Format its data.

        Args:
            cluster_id: of its cluster.
            users: SCRAM users to put there, name to password.

        Raises:
            EmbeddedError: Kafka's StorageTool failed.
        """
        args = ["format", "-t", cluster_id, "-c", str(self.folder / "server.properties")]
        for user, password in users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                args += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        done = run_tool("kafka.tools.StorageTool", args, version=self.version)
        if done.returncode != 0:
            raise EmbeddedError(
                f"Kafka's StorageTool couldn't format broker {self.id} in {self.folder}:\n"
                f"{(done.stdout + done.stderr).strip()[-2_000:]}"
            )

    def launch(self, java_options: Collection[str], keep_open: Collection[int]) -> None:
        """
        Start its Java.

        Args:
            java_options: further ones.
            keep_open: descriptors that stay open as long as it lives.
        """
        settings = str(self.folder / "server.properties")
        file = self.folder / ("log4j2.xml" if self.kraft else "log4j.properties")
        logging = properties.logging_option(file)
        # Without the second one, a broker that is out of memory stays up and answers nobody.
        options = (
            "-Xms128m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", *java_options,
            logging,
        )  # fmt: skip
        self._child = Child(
            java_command("kafka.Kafka", settings, version=self.version, heap=HEAP, options=options),
            name=f"broker {self.id} (Kafka {self.version})",
            output=self.folder / "log" / "stdout.log",
            log=self.folder / "log" / "server.log",
            keep_open=tuple(keep_open),
        )

    def wait(self, knows: Collection[int], progress: Callable[[str], None]) -> None:
        """
        Wait until it serves, and tells clients its address and those of the brokers in ``knows``.

        Raises:
            EmbeddedError: it ended, or isn't ready in three minutes; holds its last log lines.
        """
        child = self.child
        # 4.x prints this when the controller has let the broker in; 3.9 when it has registered. By
        # then it needn't have heard of any broker: for a moment it tells clients of none.
        mark = "Kafka Server started" if self.kraft else "started (kafka.server.KafkaServer)"
        child.wait_until(
            lambda: (
                mark in child.log_text()
                and accepts(self.ports.sasl)
                and {self.id, *knows} <= brokers_told(self.ports.plaintext)
            ),
            timeout_s=_READY_TIMEOUT_S,
            progress=progress,
        )


def brokers_told(port: int) -> set[int]:
    """
    Ask a broker on loopback for the brokers it knows.

    Args:
        port: of its PLAINTEXT listener.

    Returns:
        Their ids; none where it doesn't answer within 5 s.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(build_metadata_request(8, 1, None, ()))
            with sock.makefile("rb") as answers:
                prefix = answers.read(4)
                answer = prefix + answers.read(int.from_bytes(prefix, "big"))
        return {broker.node_id for broker in read_metadata_response(8, answer).brokers}
    except (OSError, RemoteProtocolError):
        return set()
