"""The embedded Kafka 4.x is a real one: SASL, kill, restart, data that lasts, and no orphans."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.embedded import EmbeddedError, EmbeddedKafka, free_ports
from headgate.embedded import tools as kafka_tools

pytestmark = pytest.mark.kafka4

QUIET = {
    "logger": logging.getLogger("librdkafka"),
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
}


def produce(config: dict[str, str], topic: str, values: list[str]) -> None:
    """Produce and have each record acknowledged by all replicas."""
    failures: list[object] = []
    producer = Producer({**QUIET, **config, "acks": "all", "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _m: failures.append(error) if error else None
        )
    assert producer.flush(90) == 0
    assert failures == []


def consume(config: dict[str, str], topic: str, count: int, group: str = "g") -> list[str]:
    """Read a topic from its start."""
    consumer = Consumer(
        {**QUIET, **config, "group.id": f"{group}-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[str] = []
    give_up = time.monotonic() + 90
    while len(values) < count and time.monotonic() < give_up:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    consumer.close()
    return values


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_come_in_and_move_records(
    kafka4: EmbeddedKafka, unique: Callable[[str], str], mechanism: str
) -> None:
    topic = unique("moved")
    produce(kafka4.sasl_config("alice", mechanism), topic, ["one", "two"])
    assert consume(kafka4.sasl_config("bob", mechanism), topic, 2) == ["one", "two"]


def test_anonymous_clients_come_in_by_the_plaintext_listener(
    kafka4: EmbeddedKafka, unique: Callable[[str], str]
) -> None:
    topic = unique("anonymous")
    produce({"bootstrap.servers": kafka4.bootstrap()}, topic, ["x"])
    assert consume({"bootstrap.servers": kafka4.bootstrap("PLAINTEXT")}, topic, 1) == ["x"]


def test_a_wrong_password_is_refused(kafka4: EmbeddedKafka) -> None:
    errors: list[object] = []
    config = {**kafka4.sasl_config("alice"), "sasl.password": "wrong"}
    client = AdminClient({**QUIET, **config, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    give_up = time.monotonic() + 60
    while not any("Authentication failed" in str(error) for error in errors):
        assert time.monotonic() < give_up, errors
        client.poll(0.5)


def test_both_brokers_are_in_the_cluster_at_their_addresses(kafka4: EmbeddedKafka) -> None:
    client = AdminClient({**QUIET, "bootstrap.servers": kafka4.bootstrap()})
    brokers = client.list_topics(timeout=120).brokers
    expected = {id: names["PLAINTEXT"] for id, names in kafka4.broker_addresses.items()}
    assert {id: (broker.host, broker.port) for id, broker in brokers.items()} == expected
    assert sorted(brokers) == [1, 2]


def test_the_real_tools_run_against_it(kafka4: EmbeddedKafka, unique: Callable[[str], str]) -> None:
    user = unique("tool-user")
    entity = ["--entity-type", "users", "--entity-name", user]
    try:
        said = kafka4.tool(
            kafka_tools.CONFIGS, "--alter", "--add-config", "producer_byte_rate=1024", *entity
        )
        assert said == f"Completed updating config for user {user}.\n"
        told = kafka4.tool(kafka_tools.CONFIGS, "--describe", *entity, user="admin")
        assert told == f"Quota configs for user-principal '{user}' are producer_byte_rate=1024.0\n"
    finally:
        kafka4.tool(
            kafka_tools.CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *entity
        )


def test_a_tool_that_fails_or_hangs_is_an_error_with_its_words(kafka4: EmbeddedKafka) -> None:
    with pytest.raises(EmbeddedError, match="no-such-topic"):
        kafka4.tool(kafka_tools.TOPICS, "--describe", "--topic", "no-such-topic")
    silent = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(EmbeddedError, match="took more than 3 s"):
        kafka_tools.run_tool(
            kafka_tools.TOPICS, ["--bootstrap-server", silent, "--list"], timeout_s=3
        )


def test_the_request_log_is_written(kafka4: EmbeddedKafka) -> None:
    log = kafka4.request_log_path(1).read_text()
    assert '"requestApiKeyName":"API_VERSIONS"' in log


def test_a_killed_broker_comes_back_on_its_ports_with_its_data(
    make_kafka: Callable[..., EmbeddedKafka],
) -> None:
    kafka = make_kafka(brokers=2)
    addresses = kafka.broker_addresses
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap()})
    admin.create_topics([NewTopic("kept", 1, 2)])["kept"].result(60)
    produce(kafka.sasl_config("alice"), "kept", ["before"])
    kafka.kill(2)
    assert not kafka.running(2)
    assert kafka.running(1)
    # One replica is left: the broker's death is noticed and writing goes on.
    produce(kafka.sasl_config("alice"), "kept", ["during"])
    kafka.start(2)
    assert kafka.broker_addresses == addresses
    kafka._broker(2).child.stop()  # in order
    kafka.start(2)
    with pytest.raises(EmbeddedError, match="broker 2 runs already"):
        kafka.start(2)
    assert consume(kafka.sasl_config("carol"), "kept", 2) == ["before", "during"]


@pytest.mark.slow
def test_a_given_folder_keeps_its_data_over_whole_restarts(tmp_path: Path) -> None:
    users = {"erin o'neil": 'p"w\\d', "admin": "other"}
    with EmbeddedKafka(tmp_path / "kafka", users=users) as kafka:
        produce(kafka.sasl_config("erin o'neil"), "kept", ["x"])
        kafka.kill(1)
    told: list[str] = []
    with EmbeddedKafka(tmp_path / "kafka", users=users, progress=told.append) as kafka:
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            config = kafka.sasl_config("erin o'neil", mechanism)
            assert consume(config, "kept", 1, group=mechanism) == ["x"]
    assert told[-1].startswith("Kafka 4.3.1: 1 brokers ready in ")
    assert (tmp_path / "kafka" / "broker-1" / "data" / "meta.properties").is_file()


def test_a_second_one_in_the_same_folder_is_refused_and_the_first_unharmed(
    make_kafka: Callable[..., EmbeddedKafka], tmp_path: Path
) -> None:
    first = make_kafka(dir=tmp_path)
    with pytest.raises(EmbeddedError, match=r"is in use by another embedded Kafka \(process \d+\)"):
        make_kafka(dir=tmp_path)
    produce(first.sasl_config("alice"), "unharmed", ["x"])


def test_settings_a_broker_refuses_are_reported_with_its_words(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, extra_properties={"num.io.threads": "none"})
    with pytest.raises(EmbeddedError, match=r"num\.io\.threads"):
        kafka.start_all()


@pytest.mark.slow
def test_a_temporary_cluster_leaves_nothing_behind() -> None:
    with EmbeddedKafka() as kafka:
        folder, pid = kafka.dir, kafka.pid(1)
        assert folder.is_dir()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_brokers_die_with_a_killed_parent_and_another_takes_over_at_once(tmp_path: Path) -> None:
    program = """
        import sys, time
        from headgate.embedded import EmbeddedKafka
        with EmbeddedKafka(sys.argv[1]) as kafka:
            print(kafka.pid(1), kafka.bootstrap(), flush=True)
            time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid, bootstrap = parent.stdout.readline().split()
    produce({"bootstrap.servers": bootstrap}, "kept", ["before"])
    assert b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    with EmbeddedKafka(tmp_path) as again:  # the folder is free only when the broker is gone
        assert not is_kafka(pid)
        assert consume({"bootstrap.servers": again.bootstrap()}, "kept", 1) == ["before"]


def is_kafka(pid: str) -> bool:
    """Tell whether a process is a broker; a zombie's command line is empty."""
    try:
        return b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
