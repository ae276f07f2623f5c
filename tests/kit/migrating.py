"""
A real cluster on its way from ZooKeeper to KRaft: Kafka 3.9.2, one broker, one KRaft controller.

Each step is one of Kafka's own. In dual write the controller is KRaft's, the broker still asks
ZooKeeper, and what the controller changes it writes to ZooKeeper too.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headgate.embedded import EmbeddedKafka, EmbeddedZooKeeper, properties
from headgate.embedded.cache import temporary_folder
from headgate.embedded.process import Child, accepts, free_ports
from headgate.embedded.tools import java_command, run_tool

VERSION = "3.9.2"
CONTROLLER = 3000
_PATIENCE_S = 180.0


class Migrating:
    """
    A cluster in ZooKeeper mode, to be migrated step by step.

    Args:
        kafka: one started broker of 3.9.2, for this test alone.
    """

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self._port = free_ports(1)[0]
        self._folder = temporary_folder("controller")
        self._controller: Child | None = None
        self._starts = 0

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        return self.kafka.zookeeper

    @property
    def url(self) -> str:
        """The store in ZooKeeper."""
        return f"zookeeper://{self.zookeeper.address}"

    def registered(self) -> dict[str, Any]:
        """What /controller says."""
        with self.zookeeper.client() as client:
            data, _stat = client.get("/controller")
        found: dict[str, Any] = json.loads(data)
        return found

    # --- the steps of Kafka's own guide

    def start_controller(self) -> None:
        """Start a KRaft controller in migration mode."""
        with self.zookeeper.client() as client:
            data, _stat = client.get("/cluster/id")
        self._write(migrating=True)
        settings = str(self._folder / "server.properties")
        cluster_id = json.loads(data)["id"]
        done = run_tool(
            "kafka.tools.StorageTool", ["format", "-t", cluster_id, "-c", settings], version=VERSION
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._launch()

    def let_the_broker_migrate(self) -> None:
        """Start the broker again, still in ZooKeeper mode, and wait for dual write."""
        broker = self.kafka.brokers[1]
        broker.child.stop()
        broker.write_settings(
            self.kafka.settings_of(broker) | self._voters() | self._migrating(), request_log=False
        )
        self.kafka.start(1)
        self._until("enters dual write", self._dual_write)

    def restart_controller(self) -> None:
        """Start the controller again: it compares ZooKeeper with what it has."""
        self.stop_controller()
        self._launch()
        self._until("enters dual write", self._dual_write)

    def make_the_broker_kraft(self) -> None:
        """Start the broker again in KRaft mode."""
        broker = self.kafka.brokers[1]
        broker.child.stop()
        settings = self.kafka.settings_of(broker) | self._voters()
        for name in [name for name in settings if name.startswith("zookeeper.")]:
            del settings[name]
        del settings["broker.id"]
        broker.write_settings(
            {**settings, "process.roles": "broker", "node.id": "1"}, request_log=False
        )
        broker.launch((), ())
        self._until("serves", lambda: "Kafka Server started" in broker.child.log_text())
        self._until("accepts", lambda: accepts(broker.ports.plaintext))

    def finish(self) -> None:
        """Start the controller again without migration: nobody writes to ZooKeeper any more."""
        self.stop_controller()
        self._write(migrating=False)
        self._launch()

    # --- the controller

    def stop_controller(self) -> None:
        if self._controller is not None and self._controller.running:
            self._controller.stop()

    def close(self) -> None:
        self.stop_controller()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_text(self) -> str:
        assert self._controller is not None
        return self._controller.log_text()

    def _dual_write(self) -> bool:
        return "transitioning from KRAFT_CONTROLLER_TO_BROKER_COMM to DUAL_WRITE" in self.log_text()

    def _voters(self) -> dict[str, str]:
        return {
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
        }

    def _migrating(self) -> dict[str, str]:
        return {
            "zookeeper.metadata.migration.enable": "true",
            "zookeeper.connect": self.zookeeper.address,
        }

    def _write(self, *, migrating: bool) -> None:
        (self._folder / "log").mkdir(parents=True, exist_ok=True)
        settings = self._voters() | {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://127.0.0.1:{self._port}",
            "log.dirs": str(self._folder / "data"),
        }
        if migrating:
            settings |= self._migrating()
        (self._folder / "server.properties").write_text(properties.as_text(settings))
        properties.write_reload4j(self._folder, request_level="WARN")

    def _launch(self) -> None:
        self._starts += 1
        logging = properties.logging_option(self._folder / "log4j.properties")
        self._controller = Child(
            java_command(
                "kafka.Kafka",
                str(self._folder / "server.properties"),
                version=VERSION,
                heap="256m",
                options=("-Djava.awt.headless=true", logging),
            ),
            name="KRaft controller",
            output=self._folder / "log" / "stdout.log",
            log=self._folder / "log" / "server.log",
            keep_open=(),
        )
        self._until("serves", lambda: "Kafka Server started" in self.log_text())

    def _until(self, what: str, ready: Any) -> None:
        give_up = time.monotonic() + _PATIENCE_S
        while not ready():
            controller = self._controller
            assert controller is not None
            assert controller.running, self.log_text()[-3_000:]
            assert time.monotonic() < give_up, f"nobody {what}: {self.log_text()[-3_000:]}"
            time.sleep(0.1)


@contextlib.contextmanager
def migrating(folder: Path | None = None) -> Iterator[Migrating]:
    """Give a cluster in ZooKeeper mode of one's own."""
    with EmbeddedKafka(folder, version=VERSION) as kafka:
        cluster = Migrating(kafka)
        try:
            yield cluster
        finally:
            cluster.close()
