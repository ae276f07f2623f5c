"""
Real Kafka, ZooKeeper and Spark for integration tests, one of each for the whole session.

The shared ones are for tests that leave them as they were: use names of your own (``unique``), and
take away quotas that you set. A test that kills or stops brokers makes its own with ``make_kafka``.
Users are alice, bob, carol and admin; each password is ``<name>-secret``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headgate.embedded import EmbeddedKafka, EmbeddedZooKeeper, spark_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA_4 = "4.3.1"
KAFKA_3 = "3.9.2"
# Beside PLAIN and SCRAM: OAUTHBEARER by unsigned tokens (anybody may be anyone, as in Kafka's own
# tests), delegation tokens, and re-authentication, due after an hour.
_LOGINS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin";'
    ),
    "connections.max.reauth.ms": "3600000",
    "delegation.token.secret.key": "shared",
}


@pytest.fixture(scope="session")
def kafka4() -> Iterator[EmbeddedKafka]:
    """Kafka 4.3.1, KRaft, two brokers (ids 1 and 2), shared: don't kill it. Mark: kafka4."""
    with EmbeddedKafka(
        version=KAFKA_4, brokers=2, request_log=True, extra_properties=_LOGINS
    ) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka3() -> Iterator[EmbeddedKafka]:
    """Kafka 3.9.2 in ZooKeeper mode, one broker (id 1), shared; ``.zookeeper``. Mark: kafka3."""
    with EmbeddedKafka(version=KAFKA_3, extra_properties=_LOGINS) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper 3.8 alone, shared: use a chroot of your own. Mark: kafka3."""
    with EmbeddedZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture
def make_kafka() -> Iterator[Callable[..., EmbeddedKafka]]:
    """``make_kafka(**EmbeddedKafka arguments)``: a started cluster of one's own, to be broken."""
    with contextlib.ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(EmbeddedKafka(**arguments))


@pytest.fixture
def make_zookeeper() -> Iterator[Callable[..., EmbeddedZooKeeper]]:
    """``make_zookeeper(**EmbeddedZooKeeper arguments)``: a started one, to be broken."""
    with contextlib.ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(EmbeddedZooKeeper(**arguments))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session of two cores for the whole run. Mark: spark."""
    os.environ.update(spark_env())
    from headgate.pipeline.session import open_session

    session = open_session("headgate-tests", master="local[2]")
    yield session
    session.stop()
