"""Real clients, a real Kafka, the gateway between: nothing breaks, and quotas hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.config import HostPort, Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.store import open_store

pytestmark = pytest.mark.kafka4


def properties(tmp_path: Path, kafka: EmbeddedKafka, **more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "headgate.upstream": kafka.bootstrap("PLAINTEXT"),
        "listener.name.sasl.headgate.upstream": kafka.bootstrap("SASL_PLAINTEXT"),
        "headgate.upstream.admin.sasl.mechanism": "PLAIN",
        "headgate.upstream.admin.sasl.username": "admin",
        "headgate.upstream.admin.sasl.password": "admin-secret",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "9",
        "headgate.store": f"sqlite:{tmp_path / 'quotas.db'}",
        "headgate.data.dir": str(tmp_path),
        "headgate.usage": "none",
        "super.users": "User:admin;User:ANONYMOUS",
        **more,
    }


@pytest.fixture
def make_gateway(tmp_path: Path, kafka4: EmbeddedKafka) -> Iterator[Callable[..., GatewayThread]]:
    """``make_gateway(kafka=…, **properties)``: a started gateway before the shared Kafka."""
    running: list[tuple[GatewayThread, Any]] = []

    def make(kafka: EmbeddedKafka | None = None, **more: str) -> GatewayThread:
        named = {name.replace("__", "."): value for name, value in more.items()}
        settings = Settings.from_properties(properties(tmp_path, kafka or kafka4, **named))
        store = open_store(settings.store)
        thread = GatewayThread(lambda: Gateway(settings, store))
        running.append((thread, store))
        return thread.start()

    yield make
    for thread, store in running:
        thread.stop(0)
        store.close()


def topic(bootstrap: str, name: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def send(bootstrap: str, name: str, count: int, size: int = 1_000, **config: Any) -> list[int]:
    """Produce, return the throttle times the client was told (librdkafka's throttle_cb)."""
    told: list[int] = []
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "throttle_cb": lambda event: told.append(round(event.throttle_time * 1000)),
            **config,
        }
    )
    for number in range(count):
        producer.produce(
            name,
            bytes(size),
            key=str(number).encode(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
    return told


def receive(bootstrap: str, name: str, count: int, group: str, **config: Any) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    consumer.subscribe([name])
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.key())
    consumer.close()
    return found


def set_quota(gateway: GatewayThread, entity: QuotaEntity, **values: Any) -> None:
    """Set quotas as another process would, and wait until the gateway has them."""
    keys = {"producer": PRODUCER, "consumer": CONSUMER}
    store = open_store(gateway.gateway.settings.store)
    try:
        results = store.alter(
            [QuotaAlteration.of(entity, (Op(keys[k], v) for k, v in values.items()))]
        )
        assert [result.error for result in results] == [None]
        version = store.snapshot().version
    finally:
        store.close()
    until = time.monotonic() + 5
    while gateway.gateway.table.version < version:
        assert time.monotonic() < until, "the gateway hasn't seen the quota"
        time.sleep(0.01)


def test_records_pass_whole_and_in_order_through_two_brokers(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("through"), 4)
    assert send(bootstrap, name, 5_000) == []
    found = receive(bootstrap, name, 5_000, unique("group"))
    assert sorted(found, key=int) == [str(n).encode() for n in range(5_000)]


def test_no_client_learns_a_brokers_own_address(
    make_gateway: Callable[..., GatewayThread], kafka4: EmbeddedKafka
) -> None:
    gateway = make_gateway()
    told = AdminClient({"bootstrap.servers": gateway.bootstrap("PLAINTEXT")}).list_topics(
        timeout=30
    )
    ours = gateway.gateway.addresses("PLAINTEXT")
    assert {b.id: (b.host, b.port) for b in told.brokers.values()} == ours
    assert set(ours) == set(kafka4.broker_ids)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_quota_of_a_sasl_user_is_enforced_and_told(
    make_gateway: Callable[..., GatewayThread],
    unique: Callable[[str], str],
    kafka4: EmbeddedKafka,
    mechanism: str,
) -> None:
    gateway = make_gateway(quota__window__num="3")
    set_quota(gateway, QuotaEntity.of(user="alice"), producer=100_000.0)
    bootstrap = gateway.bootstrap("SASL")
    name = topic(gateway.bootstrap("PLAINTEXT"), unique("quota"))
    sasl = {**kafka4.sasl_config("alice", mechanism)}
    sasl.pop("bootstrap.servers")
    told = send(bootstrap, name, 600, 1_000, **sasl)
    # 600 kB over two brokers at 100 kB/s each, of which 2 s' worth pass at once.
    assert max(told) > 0
    ours = gateway.call(
        lambda: [
            total
            for front in gateway.gateway.fronts.values()
            for (kind, user, _), (_, total) in front.meters.throttled.items()
            if (kind, user) == ("producer_byte_rate", "alice")
        ]
    )
    assert sum(ours) == pytest.approx(sum(told), abs=len(told))
    others = {**kafka4.sasl_config("bob", mechanism)}
    others.pop("bootstrap.servers")
    assert send(bootstrap, name, 600, 1_000, **others) == []


def test_kafka_configs_through_the_gateway_sets_what_it_enforces(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    gateway = make_gateway(quota__window__num="3")
    bootstrap = gateway.bootstrap("PLAINTEXT")
    client = unique("client")
    set_it = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", bootstrap, "--alter", "--add-config", "producer_byte_rate=50000",
         "--entity-type", "clients", "--entity-name", client],
    )  # fmt: skip
    assert set_it.returncode == 0, set_it.stderr
    assert f"Completed updating config for client {client}." in set_it.stdout
    described = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", bootstrap, "--describe", "--entity-type", "clients",
         "--entity-name", client],
    )  # fmt: skip
    assert "producer_byte_rate=50000.0" in described.stdout
    name = topic(bootstrap, unique("configured"), 1)
    assert max(send(bootstrap, name, 300, **{"client.id": client})) > 0
    assert send(bootstrap, name, 300, **{"client.id": unique("other")}) == []


def test_a_stranger_may_not_alter_quotas_and_leaves_an_audit_line(
    make_gateway: Callable[..., GatewayThread], kafka4: EmbeddedKafka, tmp_path: Path
) -> None:
    gateway = make_gateway(super__users="User:admin")
    refused = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", gateway.bootstrap("PLAINTEXT"), "--alter", "--add-config",
         "producer_byte_rate=1", "--entity-type", "users", "--entity-name", "alice"],
    )  # fmt: skip
    assert refused.returncode != 0
    assert "Cluster authorization failed" in refused.stdout + refused.stderr
    store = gateway.gateway.store
    assert store is not None
    assert store.snapshot().get(QuotaEntity.of(user="alice"), PRODUCER) is None
    events = [(e.who, e.action, e.outcome) for e in store.audit_log()]
    assert ("User:ANONYMOUS", "DescribeClientQuotas", "refused") in events or (
        "User:ANONYMOUS",
        "AlterClientQuotas",
        "refused",
    ) in events


def test_a_transaction_is_seen_whole_or_not_at_all(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("transaction"), 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"kept", key=b"kept")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"dropped", key=b"dropped")
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"last", key=b"last")
    producer.commit_transaction(30)
    found = receive(bootstrap, name, 2, unique("g"), **{"isolation.level": "read_committed"})
    assert found == [b"kept", b"last"]


def test_consumers_of_a_group_share_partitions(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name, group = topic(bootstrap, unique("group"), 2), unique("g")
    config = {"bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": 6000}
    one, two = Consumer(config), Consumer(config)
    one.subscribe([name])
    two.subscribe([name])
    until = time.monotonic() + 60
    while time.monotonic() < until:
        one.poll(0.2)
        two.poll(0.2)
        if len(one.assignment()) == 1 and len(two.assignment()) == 1:
            break
    assert [len(c.assignment()) for c in (one, two)] == [1, 1]
    one.close()
    two.close()


def test_a_consumer_over_quota_loses_nothing(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    gateway = make_gateway(quota__window__num="3")
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name, client = topic(bootstrap, unique("slow"), 1), unique("reader")
    send(bootstrap, name, 1_000)
    set_quota(gateway, QuotaEntity.of(client_id=client), consumer=200_000.0)
    started = time.monotonic()
    found = receive(bootstrap, name, 1_000, unique("g"), **{"client.id": client})
    assert [int(key) for key in found] == list(range(1_000))
    assert time.monotonic() - started > 2.0


def test_java_console_clients_produce_and_consume(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    bootstrap = make_gateway().bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("java"))
    produced = run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        ["--bootstrap-server", bootstrap, "--topic", name],
        input="one\ntwo\nthree\n",
    )
    assert produced.returncode == 0, produced.stderr
    consumed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ["--bootstrap-server", bootstrap, "--topic", name, "--from-beginning",
         "--max-messages", "3", "--timeout-ms", "30000"],
    )  # fmt: skip
    assert sorted(consumed.stdout.split()) == ["one", "three", "two"]


def test_a_killed_broker_gives_clients_ordinary_errors_and_they_recover(
    make_gateway: Callable[..., GatewayThread],
    make_kafka: Callable[..., EmbeddedKafka],
    unique: Callable[[str], str],
) -> None:
    kafka = make_kafka(brokers=2)
    gateway = make_gateway(kafka)
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("kill"), 2)
    errors: list[int] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "error_cb": lambda error: errors.append(error.code())}
    )
    producer.produce(name, b"x", partition=0)
    producer.produce(name, b"x", partition=1)
    assert producer.flush(30) == 0
    kafka.kill(2)
    delivered: list[Any] = []
    for partition in (0, 1):
        producer.produce(
            name, b"y", partition=partition, on_delivery=lambda error, _: delivered.append(error)
        )
    producer.poll(1)
    kafka.start(2)
    assert producer.flush(60) == 0
    assert delivered == [None, None]
    assert set(errors) <= {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def test_a_restarted_gateway_is_found_again(
    make_gateway: Callable[..., GatewayThread],
    unique: Callable[[str], str],
    free_ports: Callable[..., list[int]],
    kafka4: EmbeddedKafka,
    tmp_path: Path,
) -> None:
    first = free_ports(2, consecutive=True)[0]
    same = {"listeners": f"PLAINTEXT://127.0.0.1:{first}", "headgate.broker.id.max": "2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}  # fmt: skip
    settings = Settings.from_properties(
        {
            k: v
            for k, v in {**properties(tmp_path, kafka4), **same}.items()
            if not k.startswith("listener.name")
        }
    )
    store = open_store(settings.store)
    gateway = GatewayThread(lambda: Gateway(settings, store)).start()
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("restart"), 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"before")
    assert producer.flush(30) == 0
    gateway.stop(0)
    delivered: list[Any] = []
    producer.produce(name, b"after", on_delivery=lambda error, _: delivered.append(error))
    producer.poll(0.5)
    again = GatewayThread(lambda: Gateway(settings, store)).start()
    assert producer.flush(60) == 0
    assert delivered == [None]
    again.stop(0)
    store.close()


def test_upstream_unreachable_names_the_address_and_the_way_out(
    tmp_path: Path, kafka4: EmbeddedKafka, free_port: int
) -> None:
    from headgate.gateway import GatewayError

    named = properties(tmp_path, kafka4)
    named["headgate.upstream"] = f"127.0.0.1:{free_port}"
    settings = Settings.from_properties(named)
    with pytest.raises(GatewayError, match=rf"127.0.0.1:{free_port} can't be reached.*headgate.up"):
        GatewayThread(lambda: Gateway(settings)).start()


def test_a_port_in_use_names_the_port_and_the_way_out(
    tmp_path: Path, kafka4: EmbeddedKafka
) -> None:
    from headgate.gateway import GatewayError

    taken = HostPort.parse(kafka4.bootstrap("PLAINTEXT").split(",")[0])
    named = properties(tmp_path, kafka4)
    named["listeners"] = f"PLAINTEXT://127.0.0.1:{taken.port},SASL://127.0.0.1:0"
    named["headgate.broker.id.max"] = "1"
    settings = Settings.from_properties(named)
    with pytest.raises(GatewayError, match=rf"PLAINTEXT of broker 1 can't listen.*{taken.port}"):
        GatewayThread(lambda: Gateway(settings)).start()
