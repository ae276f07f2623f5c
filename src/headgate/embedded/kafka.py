"""
Real Kafka brokers on loopback: a KRaft cluster (4.x), or brokers in ZooKeeper mode (3.9).

Each broker has a PLAINTEXT and a SASL_PLAINTEXT listener (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) on
free ports of its own, which it keeps over kill, stop and start. Node 1 is the controller too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from headgate.embedded import properties
from headgate.embedded.broker import BrokerProcess
from headgate.embedded.cache import hold, temporary_folder
from headgate.embedded.jars import KAFKA_4, ensure_jars
from headgate.embedded.process import EmbeddedError, free_ports
from headgate.embedded.properties import ADMIN, BrokerPorts
from headgate.embedded.tools import TIMEOUT_S, run_tool
from headgate.embedded.zookeeper import EmbeddedZooKeeper
from headgate.wire.scram import HASHES, LEAST_ITERATIONS, credential_text

DEFAULT_USERS: Mapping[str, str] = MappingProxyType(
    {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret", ADMIN: "admin-secret"}
)
PLAINTEXT = "PLAINTEXT"
SASL_PLAINTEXT = "SASL_PLAINTEXT"


class EmbeddedKafka:
    """
    A Kafka cluster of this process; its brokers die with it.

    Used as a context manager (starts, stops), or by `start_all` and `stop`.

    Args:
        dir: folder for data, settings and logs, kept over restarts; by default a temporary one
            that is removed at the end.
        version: ``4.3.1`` (KRaft) or ``3.9.2`` (ZooKeeper mode).
        brokers: how many; their ids are 1, 2, …
        users: name to password, for PLAIN and SCRAM. ``admin`` is always there. A KRaft folder
            that already holds data keeps the SCRAM users it was made with.
        extra_properties: broker settings that come on top.
        request_log: write the request log (``kafka.request.logger`` at DEBUG) to
            `request_log_path`.
        zookeeper: the ZooKeeper for 3.9.2; one of its own by default.
        java_options: further options for the brokers' Java.
        progress: takes lines about the progress; by default they are dropped.
    """

    def __init__(
        self,
        dir: Path | str | None = None,
        *,
        version: str = KAFKA_4,
        brokers: int = 1,
        users: Mapping[str, str] | None = None,
        extra_properties: Mapping[str, str] | None = None,
        request_log: bool = False,
        zookeeper: EmbeddedZooKeeper | None = None,
        java_options: tuple[str, ...] = (),
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if brokers < 1:
            raise EmbeddedError(f"an embedded Kafka needs at least one broker, not {brokers}")
        self.version = version
        self.users = dict(DEFAULT_USERS if users is None else users)
        self.users.setdefault(ADMIN, DEFAULT_USERS[ADMIN])
        self.kraft = not version.startswith("3.")
        self._given_dir = None if dir is None else Path(dir).resolve()
        self._dir: Path | None = self._given_dir
        self._ids = range(1, brokers + 1)
        self._extra = dict(extra_properties or {})
        self._request_log = request_log
        self._zookeeper = zookeeper
        self._own_zookeeper = zookeeper is None and not self.kraft
        self._java_options = java_options
        self._progress = progress or (lambda _text: None)
        self.brokers: dict[int, BrokerProcess] = {}
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start_all(self) -> None:
        """
        Start every broker and wait until all serve.

        Raises:
            EmbeddedError: one didn't start; holds its last log lines.
            ConfigError: there is no Java.
        """
        ensure_jars(self.version, progress=self._progress)
        if self._dir is None:
            self._dir = temporary_folder("kafka")
        self._dir.mkdir(parents=True, exist_ok=True)
        # Kafka's own lock doesn't cover its metadata log: two Kafkas in one folder would damage it.
        self._lock = hold(self._dir, "embedded Kafka")
        try:
            if self._zookeeper is None and self._own_zookeeper:
                self._zookeeper = EmbeddedZooKeeper(self._dir / "zookeeper")
            if self._own_zookeeper and not self.zookeeper.running:
                self.zookeeper.start()
            for attempt in range(3):
                try:
                    self._start_once()
                    return
                except EmbeddedError as error:
                    # Someone took a port between our look and the broker's: look again.
                    if "Address already in use" not in str(error) or attempt == 2:
                        raise
                    self._end_children(kill=True)
                    self.brokers = {}
        except BaseException:
            self.stop(kill=True)
            raise

    def _start_once(self) -> None:
        started = time.monotonic()
        if not self.brokers:
            free = iter(free_ports(3 * len(self._ids)))
            for id_ in self._ids:
                self.brokers[id_] = self.make_broker(
                    id_, BrokerPorts(next(free), next(free), next(free))
                )
        brokers = self.brokers.values()
        for broker in brokers:
            broker.write_settings(self.settings_of(broker), request_log=self._request_log)
        if self.kraft:
            self._format(brokers)
        else:
            for user, password in self.users.items():
                self.zookeeper.put_user(
                    user,
                    {
                        name: credential_text(name, password, os.urandom(16), LEAST_ITERATIONS)
                        for name in HASHES
                    },
                )
        for broker in brokers:
            self._launch(broker)
        for knows in ((), self._ids):
            for broker in brokers:
                broker.wait(knows, self._progress)
        took = time.monotonic() - started
        self._progress(f"Kafka {self.version}: {len(brokers)} brokers ready in {took:.1f} s")

    def make_broker(self, id: int, ports: BrokerPorts) -> BrokerProcess:
        """Return a broker that was never started."""
        return BrokerProcess(id, self._folder(id), ports, self.version)

    def settings_of(self, broker: BrokerProcess) -> dict[str, str]:
        """Return what is in a broker's server.properties."""
        if self.kraft:
            voter = f"1@127.0.0.1:{self.brokers[1].ports.controller}"
            settings = properties.kraft(broker.id, broker.ports, voter)
        else:
            address = self.zookeeper.address
            settings = properties.zookeeper_mode(broker.id, broker.ports, address)
        common = properties.common(broker.ports, broker.data, self.users, len(self._ids))
        return settings | common | self._extra

    def _format(self, brokers: Collection[BrokerProcess]) -> None:
        """Format the brokers that aren't yet, with one cluster id; SCRAM users go to node 1's."""
        ids = [broker.cluster_id() for broker in brokers]
        cluster_id = next(filter(None, ids), None) or properties.new_cluster_id()
        for broker, own in zip(brokers, ids, strict=True):
            if own is None:
                broker.format(cluster_id, self.users if broker.id == 1 else {})

    def _launch(self, broker: BrokerProcess) -> None:
        if not self.kraft:
            # A killed broker's registration lasts as long as its session; 3.9 refuses to start
            # beside it.
            self.zookeeper.wait_gone(f"/brokers/ids/{broker.id}")
        broker.launch(self._java_options, () if self._lock is None else (self._lock,))

    @property
    def dir(self) -> Path:
        """The folder with data, settings and logs."""
        if self._dir is None:
            raise EmbeddedError("the embedded Kafka hasn't been started")
        return self._dir

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self._ids)

    @property
    def broker_addresses(self) -> dict[int, dict[str, tuple[str, int]]]:
        """Broker id to listener name to (host, port)."""
        return {
            id_: {
                PLAINTEXT: ("127.0.0.1", broker.ports.plaintext),
                SASL_PLAINTEXT: ("127.0.0.1", broker.ports.sasl),
            }
            for id_, broker in self.brokers.items()
        }

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """The ZooKeeper of a 3.9.2 cluster."""
        if self._zookeeper is None:
            raise EmbeddedError(f"Kafka {self.version} runs without a ZooKeeper")
        return self._zookeeper

    def bootstrap(self, listener: str = PLAINTEXT) -> str:
        """
        Return ``host:port,…`` of every broker.

        Args:
            listener: ``PLAINTEXT`` or ``SASL_PLAINTEXT``.
        """
        addresses = (broker[listener] for broker in self.broker_addresses.values())
        return ",".join(f"{host}:{port}" for host, port in addresses)

    def pid(self, broker: int) -> int:
        """
        Return a broker's process id.

        Args:
            broker: its id.
        """
        return self._broker(broker).child.pid

    def running(self, broker: int) -> bool:
        """
        Tell whether a broker runs.

        Args:
            broker: its id.
        """
        return broker in self.brokers and self.brokers[broker].running

    def request_log_path(self, broker: int = 1) -> Path:
        """
        Return a broker's request log; it's filled when ``request_log`` was asked for.

        Args:
            broker: its id.
        """
        return self._folder(broker) / "log" / "request.log"

    def sasl_config(self, user: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """
        Return a confluent-kafka client's settings to come in as a user.

        Args:
            user: one of ``users``.
            mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        """
        return {
            "bootstrap.servers": self.bootstrap(SASL_PLAINTEXT),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
        }

    def _folder(self, broker: int) -> Path:
        return self.dir / f"broker-{broker}"

    def _broker(self, broker: int) -> BrokerProcess:
        found = self.brokers.get(broker)
        if found is None:
            raise EmbeddedError(f"there is no broker {broker} that was started")
        return found

    def start(self, broker: int) -> None:
        """
        Start one broker again, on its ports and data, and wait until it serves.

        Args:
            broker: its id.

        Raises:
            EmbeddedError: it runs already, or didn't start.
        """
        if self.running(broker):
            raise EmbeddedError(f"broker {broker} runs already")
        self._launch(self._broker(broker))
        self._broker(broker).wait((), self._progress)

    def kill(self, broker: int) -> None:
        """
        End one broker at once, as kill -9 does.

        Args:
            broker: its id.
        """
        self._broker(broker).child.kill()

    def pause(self, broker: int) -> None:
        """
        Freeze one broker (SIGSTOP): connections stay open and nothing is answered.

        Args:
            broker: its id.
        """
        self._broker(broker).child.pause()

    def resume(self, broker: int) -> None:
        """
        Let a frozen broker go on.

        Args:
            broker: its id.
        """
        self._broker(broker).child.resume()

    def stop(self, *, kill: bool | None = None) -> None:
        """
        End all brokers (and a ZooKeeper of our own), and remove a temporary folder.

        Args:
            kill: don't wait for an orderly shutdown; by default so for a temporary folder, whose
                data nobody will read again.
        """
        temporary = self._given_dir is None
        self._end_children(kill=temporary if kill is None else kill)
        if self._own_zookeeper and self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        self._let_go()
        if temporary and self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None
            self.brokers = {}

    def _end_children(self, *, kill: bool) -> None:
        # The controller last: a broker that can't reach it waits long before it stops.
        for broker in reversed(self.brokers.values()):
            if broker.running:
                broker.child.resume()
                broker.child.kill() if kill else broker.child.stop()

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def tool(
        self, main_class: str, *args: str, timeout_s: float = TIMEOUT_S, user: str | None = None
    ) -> str:
        """
        Run one of Kafka's tools against this cluster and return what it prints.

        Args:
            main_class: such as ``kafka.admin.ConfigCommand``.
            args: its arguments; ``--bootstrap-server`` is put before them.
            timeout_s: seconds it may take.
            user: come in as this user (PLAIN); anonymous by default.

        Raises:
            EmbeddedError: it failed; holds its output.
        """
        listener, extra = PLAINTEXT, []
        if user is not None:
            listener = SASL_PLAINTEXT
            config = self.dir / f"client-{user}.properties"
            config.write_text(properties.client_properties(user, self.users[user]))
            extra = ["--command-config", str(config)]
        done = run_tool(
            main_class,
            ["--bootstrap-server", self.bootstrap(listener), *extra, *args],
            version=self.version,
            timeout_s=timeout_s,
        )
        if done.returncode != 0:
            raise EmbeddedError(f"{main_class} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout
