"""
What embedded brokers are told: server.properties, logging and client settings, as text.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ADMIN = "admin"
_PATTERN = "[%d] %p %m (%c)%n"  # Kafka's own; the request log of a real broker looks so
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class BrokerPorts(NamedTuple):
    """A broker's ports; the controller's is used by node 1 only."""

    plaintext: int
    sasl: int
    controller: int


def new_cluster_id() -> str:
    """
    Return a random cluster id in Kafka's form: 16 bytes, URL-safe base64 without padding.

    One that starts with a dash would be taken for an option by Kafka's own tools; like
    `org.apache.kafka.common.Uuid.randomUuid`, draw again.
    """
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


def _listeners(ports: BrokerPorts) -> str:
    return f"PLAINTEXT://127.0.0.1:{ports.plaintext},SASL_PLAINTEXT://127.0.0.1:{ports.sasl}"


MOST_QUEUED_BYTES = 100 << 20
"""Kafka wants it to be ``socket.request.max.bytes`` at least, which is 100 MiB."""


def common(
    ports: BrokerPorts, data: Path, users: Mapping[str, str], brokers: int
) -> dict[str, str]:
    """
    Return the settings that both kinds of broker share.

    Args:
        ports: its ports.
        data: folder for its logs of records.
        users: name to password.
        brokers: how many there are; internal topics are replicated to at most two.
    """
    listeners = _listeners(ports)
    replicas = str(min(brokers, 2))
    plain = " ".join(f"{_quoted(f'user_{name}')}={_quoted(word)}" for name, word in users.items())
    login = f"username={_quoted(ADMIN)} password={_quoted(users[ADMIN])}"
    sasl = "listener.name.sasl_plaintext."
    return {
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{sasl}plain.sasl.jaas.config": f"{_PLAIN} required {login} {plain};",
        f"{sasl}scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        f"{sasl}scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "log.dirs": str(data),
        "num.partitions": "1",
        # Else each connection may have a request of 100 MiB in memory. A broker takes one more
        # than this when there is a byte left, so 200 MiB: the heap has room for them.
        "queued.max.request.bytes": str(MOST_QUEUED_BYTES),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # Kafka's default of 128 MB is a third of the heap. When a setting of the cleaner changes,
        # a second buffer is allocated before the first is freed; a broker in ZooKeeper mode then
        # takes no further changes.
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        # Tests stop brokers often; the leader election of a clean stop needn't be waited for long.
        "controlled.shutdown.max.retries": "1",
    }


def kraft(broker: int, ports: BrokerPorts, voter: str) -> dict[str, str]:
    """
    Return the settings of a KRaft node; node 1 is broker and controller.

    Args:
        broker: its id.
        ports: its ports.
        voter: ``1@host:port`` of the controller.
    """
    listeners = _listeners(ports)
    if broker == 1:
        listeners += f",CONTROLLER://127.0.0.1:{ports.controller}"
    return {
        "process.roles": "broker,controller" if broker == 1 else "broker",
        "node.id": str(broker),
        "controller.quorum.voters": voter,
        "controller.listener.names": "CONTROLLER",
        "listeners": listeners,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # A killed broker is noticed after this long (9 s by default).
        "broker.session.timeout.ms": "6000",
    }


def zookeeper_mode(broker: int, ports: BrokerPorts, zookeeper: str) -> dict[str, str]:
    """
    Return the settings of a broker in ZooKeeper mode.

    Args:
        broker: its id.
        ports: its ports.
        zookeeper: ``host:port``.
    """
    return {
        "broker.id": str(broker),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "6000",
        "listeners": _listeners(ports),
    }


def as_text(settings: Mapping[str, str]) -> str:
    """
    Return settings as a properties file.

    Args:
        settings: name to value.
    """
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def client_properties(user: str, password: str, mechanism: str = "PLAIN") -> str:
    """
    Return the ``--command-config`` of a Java client that comes in as a user.

    Args:
        user: its name.
        password: its password.
        mechanism: the SASL mechanism.
    """
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    login = f"username={_quoted(user)} password={_quoted(password)}"
    return as_text(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{module} required {login};",
        }
    )


def logging_option(settings: Path) -> str:
    """
    Return the Java option that names a file of logging settings.

    Args:
        settings: the file: XML for log4j2 (4.x), properties for reload4j (3.9).
    """
    name = "log4j2.configurationFile" if settings.suffix == ".xml" else "log4j.configuration"
    return f"-D{name}={settings.as_uri()}"


def write_log4j2(folder: Path, *, request_level: str) -> None:
    """
    Write a 4.x broker's logging settings.

    Args:
        folder: the broker's folder; logs go to ``log`` in it.
        request_level: level of kafka.request.logger; DEBUG fills ``request.log``.
    """

    def appender(name: str, file: str) -> str:
        return (
            f'<File name="{name}" fileName="{folder}/log/{file}" append="true">'
            f'<PatternLayout pattern="{_PATTERN}"/></File>'
        )

    (folder / "log4j2.xml").write_text(
        f"""<Configuration status="WARN" shutdownHook="disable">
  <Appenders>{appender("Main", "server.log")}{appender("Requests", "request.log")}</Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="Main"/></Root>
    <Logger name="kafka.request.logger" level="{request_level}" additivity="false">
      <AppenderRef ref="Requests"/>
    </Logger>
  </Loggers>
</Configuration>
"""
    )


def write_reload4j(folder: Path, *, request_level: str) -> None:
    """
    Write a 3.9 broker's or a ZooKeeper's logging settings.

    Args:
        folder: its folder; logs go to ``log`` in it.
        request_level: level of kafka.request.logger; DEBUG fills ``request.log``.
    """
    lines = ["log4j.rootLogger=INFO, main"]
    for name, file in (("main", "server.log"), ("requests", "request.log")):
        lines += [
            f"log4j.appender.{name}=org.apache.log4j.FileAppender",
            f"log4j.appender.{name}.File={_escaped(f'{folder}/log/{file}')}",
            f"log4j.appender.{name}.Append=true",
            f"log4j.appender.{name}.layout=org.apache.log4j.PatternLayout",
            f"log4j.appender.{name}.layout.ConversionPattern={_PATTERN}",
        ]
    lines += [
        f"log4j.logger.kafka.request.logger={request_level}, requests",
        "log4j.additivity.kafka.request.logger=false",
    ]
    (folder / "log4j.properties").write_text("\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    """Quote a value for a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    """Escape for Java's Properties, which knows backslashes and, beyond Latin-1, UTF-16 codes."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)
