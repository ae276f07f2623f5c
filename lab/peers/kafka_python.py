"""
A pytest plugin that hands kafka-python's own integration tests a broker that is already there.

Its tests start brokers from an unpacked Kafka (``servers/``, which isn't in the source package).
This replaces that one class's ``instance``; everything else, tests and fixtures, is as it came.
Addresses come by environment: ``PEER_PLAINTEXT``, ``PEER_SASL_PLAINTEXT``, ``PEER_SSL``
(``host:port``) and ``PEER_SSL_DIR``, the folder with ``ca-cert``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from test.integration import fixtures  # type: ignore[import-not-found]  # kafka-python's

from headgate.embedded import run_tool
from headgate.embedded.properties import client_properties
from headgate.embedded.tools import TOPICS


class _Child:
    """Stands for the process of a broker that isn't ours."""

    def dump_logs(self) -> None:
        """The logs are where the broker is."""


class RunningKafka(fixtures.KafkaFixture):  # type: ignore[misc]
    """A broker's address in the form that the suite's fixtures expect."""

    def __init__(
        self, transport: str = "PLAINTEXT", sasl_mechanism: str | None = None, **asked: Any
    ) -> None:
        unknown = {k: v for k, v in asked.items() if (k, v) != ("partitions", 4) and k != "tmp_dir"}
        assert not unknown, f"the broker hasn't been set up for {unknown}"
        self.transport = transport
        self.sasl_mechanism = sasl_mechanism
        host, _, port = os.environ[f"PEER_{transport}"].partition(":")
        self.host, self.port = host, int(port)
        self.ssl_dir = os.environ["PEER_SSL_DIR"]
        self.partitions, self.replicas = 4, 1
        self.child = _Child()
        self.zookeeper = None

    @classmethod
    def instance(cls, broker_id: int, **asked: Any) -> RunningKafka:
        """Return the broker; its id is the one that the suite gives the first it starts."""
        assert broker_id == 0
        return cls(**asked)

    def start(self) -> bool:
        """It runs."""
        return True

    def close(self) -> None:
        """It goes on running."""

    def get_topic_names(self) -> list[str]:
        """Ask Kafka's own tool, by the same address."""
        assert self.sasl_mechanism is not None
        config = Path(self.ssl_dir) / f"client-{self.sasl_mechanism}.properties"
        config.write_text(
            client_properties(self.broker_user, self.broker_password, self.sasl_mechanism)
        )
        where = ["--bootstrap-server", self.bootstrap_server(), "--command-config", str(config)]
        done = run_tool(TOPICS, [*where, "--list"])
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def pytest_configure(config: pytest.Config) -> None:
    """Put the running broker in the place of those that the suite would start."""
    fixtures.KafkaFixture.instance = RunningKafka.instance
