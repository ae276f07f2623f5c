"""The embedded Kafka 3.9 in ZooKeeper mode, and a ZooKeeper that is killed and comes back."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headgate.embedded import EmbeddedError, EmbeddedKafka, EmbeddedZooKeeper
from headgate.embedded import tools as kafka_tools

pytestmark = pytest.mark.kafka3

QUIET = {
    "logger": logging.getLogger("librdkafka"),
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
}


def produce(config: dict[str, str], topic: str, value: str) -> None:
    producer = Producer({**QUIET, **config, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(90) == 0


def consume_one(config: dict[str, str], topic: str) -> str | None:
    consumer = Consumer(
        {**QUIET, **config, "group.id": f"read-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    give_up = time.monotonic() + 90
    value = None
    while value is None and time.monotonic() < give_up:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value().decode()
    consumer.close()
    return value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_come_in_and_move_records(
    kafka3: EmbeddedKafka, unique: Callable[[str], str], mechanism: str
) -> None:
    topic = unique("moved")
    produce(kafka3.sasl_config("alice", mechanism), topic, "one")
    assert consume_one(kafka3.sasl_config("bob", mechanism), topic) == "one"


def test_a_quota_set_by_the_real_tool_stands_in_zookeeper_beside_the_credentials(
    kafka3: EmbeddedKafka,
) -> None:
    entity = ["--entity-type", "users", "--entity-name", "carol"]
    kafka3.tool(kafka_tools.CONFIGS, "--alter", "--add-config", "producer_byte_rate=1024", *entity)
    with kafka3.zookeeper.client() as client:
        config = json.loads(client.get("/config/users/carol")[0])["config"]
        assert config["producer_byte_rate"] == "1024"
        assert {"SCRAM-SHA-256", "SCRAM-SHA-512"} <= set(config)
    kafka3.tool(kafka_tools.CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *entity)


@pytest.mark.slow
def test_a_killed_broker_waits_for_its_old_registration_and_comes_back(
    make_kafka: Callable[..., EmbeddedKafka],
) -> None:
    kafka = make_kafka(version="3.9.2")
    produce(kafka.sasl_config("alice"), "kept", "x")
    kafka.kill(1)
    kafka.start(1)
    assert consume_one(kafka.sasl_config("bob"), "kept") == "x"


def test_a_broker_may_share_a_given_zookeeper(
    zookeeper: EmbeddedZooKeeper, make_kafka: Callable[..., EmbeddedKafka]
) -> None:
    kafka = make_kafka(version="3.9.2", zookeeper=zookeeper)
    assert kafka.zookeeper is zookeeper
    produce(kafka.sasl_config("alice"), "shared", "x")
    kafka.stop()
    assert zookeeper.running


def test_a_killed_zookeeper_comes_back_on_its_port_with_its_data(
    make_zookeeper: Callable[..., EmbeddedZooKeeper],
) -> None:
    zookeeper = make_zookeeper()
    port = zookeeper.port
    with zookeeper.client() as client:
        client.create("/kept", b"value")
    zookeeper.kill()
    assert not zookeeper.running
    zookeeper.start()
    with pytest.raises(EmbeddedError, match="runs already"):
        zookeeper.start()
    assert zookeeper.port == port
    with zookeeper.client() as client:
        assert client.get("/kept")[0] == b"value"
    assert zookeeper._child is not None
    zookeeper._child.stop()  # in order
    zookeeper.start()
    with zookeeper.client() as client:
        assert client.get("/kept")[0] == b"value"


def test_waiting_for_a_znode_that_stays_is_an_error(zookeeper: EmbeddedZooKeeper) -> None:
    with pytest.raises(EmbeddedError, match="/zookeeper is still in ZooKeeper after 0 s"):
        zookeeper.wait_gone("/zookeeper", timeout_s=0.1)


def test_a_kraft_cluster_has_no_zookeeper() -> None:
    with pytest.raises(EmbeddedError, match=r"Kafka 4\.3\.1 runs without a ZooKeeper"):
        _ = EmbeddedKafka().zookeeper


def test_a_second_zookeeper_in_the_same_folder_is_refused(
    make_zookeeper: Callable[..., EmbeddedZooKeeper], tmp_path: Path
) -> None:
    first = make_zookeeper(dir=tmp_path)
    with pytest.raises(EmbeddedError, match="is in use by another embedded ZooKeeper"):
        make_zookeeper(dir=tmp_path)
    assert first.running
