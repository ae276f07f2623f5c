"""
What an embedded Kafka has, and where: brokers, ports, folders, users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from headgate.embedded.jars import KAFKA_4
from headgate.embedded.process import Child, EmbeddedError
from headgate.embedded.properties import ADMIN, Ports
from headgate.embedded.zookeeper import EmbeddedZooKeeper

DEFAULT_USERS: Mapping[str, str] = MappingProxyType(
    {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret", ADMIN: "admin-secret"}
)
PLAINTEXT = "PLAINTEXT"
SASL_PLAINTEXT = "SASL_PLAINTEXT"


class Cluster:
    """
    What an embedded Kafka has; the arguments are ``EmbeddedKafka``'s.

    Args:
        dir: folder for data, settings and logs, kept over restarts; by default a temporary one
            that is removed at the end.
        version: ``4.3.1`` (KRaft) or ``3.9.2`` (ZooKeeper mode).
        brokers: how many; their ids are 1, 2, …
        users: name to password, for PLAIN and SCRAM. ``admin`` is always there. A folder that
            already holds data keeps the SCRAM users it was made with.
        extra_properties: broker settings that come on top.
        request_log: write the request log (``kafka.request.logger`` at DEBUG) to
            `request_log_path`.
        zookeeper: the ZooKeeper for 3.9.2; one of its own by default.
        java_options: further options for the brokers' Java.
        progress: told what is going on; by default nothing is.
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
        self.users = {**DEFAULT_USERS, **(users or {})} if users is None else dict(users)
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
        self._ports: dict[int, Ports] = {}
        self._children: dict[int, Child] = {}
        self._lock: int | None = None

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
            broker: {
                PLAINTEXT: ("127.0.0.1", ports.plaintext),
                SASL_PLAINTEXT: ("127.0.0.1", ports.sasl),
            }
            for broker, ports in self._ports.items()
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
        return self._child(broker).pid

    def running(self, broker: int) -> bool:
        """
        Tell whether a broker runs.

        Args:
            broker: its id.
        """
        child = self._children.get(broker)
        return child is not None and child.running

    def server_log_path(self, broker: int = 1) -> Path:
        """
        Return a broker's own log.

        Args:
            broker: its id.
        """
        return self._folder(broker) / "log" / "server.log"

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

    def _child(self, broker: int) -> Child:
        child = self._children.get(broker)
        if child is None:
            raise EmbeddedError(f"there is no broker {broker} that was started")
        return child
