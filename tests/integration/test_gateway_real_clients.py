"""Real clients through the gateway to a real Kafka: they work, and quotas hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from headgate.config import HostPort, Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import Gateway, GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.store import open_store

from .gateway_kit import (
    make_gateway,
    properties,
    read_all,
    receive,
    send,
    set_quota,
    topic,
    wait_for,
)

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4


@pytest.mark.short
def test_records_pass_whole_and_in_order_through_two_brokers(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("through"), 4)
    assert send(bootstrap, name, 5_000) == []
    found = read_all(bootstrap, name, 4, 5_000)
    assert all(keys == sorted(keys, key=int) for keys in found.values())
    assert sorted(int(k) for keys in found.values() for k in keys) == list(range(5_000))


def test_no_client_learns_a_brokers_own_address(
    make_gateway: Callable[..., GatewayThread], kafka4: EmbeddedKafka
) -> None:
    gateway = make_gateway()
    told = AdminClient({"bootstrap.servers": gateway.bootstrap("PLAINTEXT")}).list_topics(
        timeout=120
    )
    ours = gateway.gateway.addresses("PLAINTEXT")
    assert {b.id: (b.host, b.port) for b in told.brokers.values()} == ours
    assert set(ours) == set(kafka4.broker_ids)
    # In KRaft brokers name any of them: here all clients go to the same with what is its.
    assert told.controller_id == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.short
def test_a_quota_of_a_sasl_user_is_enforced_and_told(
    make_gateway: Callable[..., GatewayThread],
    unique: Callable[[str], str],
    kafka4: EmbeddedKafka,
    mechanism: str,
) -> None:
    gateway = make_gateway(quota__window__num="3")
    set_quota(gateway, QuotaEntity.of(user="alice"), {PRODUCER: 100_000.0})
    bootstrap = gateway.bootstrap("SASL")
    name = topic(gateway.bootstrap("PLAINTEXT"), unique("quota"))
    sasl = {**kafka4.sasl_config("alice", mechanism)}
    sasl.pop("bootstrap.servers")
    told = send(bootstrap, name, 600, 1_000, **sasl)
    # 600 kB over two brokers at 100 kB/s each, of which 2 s' worth pass at once.
    assert max(told) > 0
    ours = gateway.call(
        lambda: [
            counts.ms
            for front in gateway.gateway.brokers.values()
            for (user, _), counts in front.meters.throttled["producer_byte_rate"].items()
            if user == "alice"
        ]
    )
    assert sum(ours) == pytest.approx(sum(told), abs=len(told))
    others = {**kafka4.sasl_config("bob", mechanism)}
    others.pop("bootstrap.servers")
    assert send(bootstrap, name, 600, 1_000, **others) == []


@pytest.mark.short
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
    events = [(e.who, e.action, e.outcome) for e in store.history.audit_log()]
    assert ("User:ANONYMOUS", "DescribeClientQuotas", "refused") in events or (
        "User:ANONYMOUS",
        "AlterClientQuotas",
        "refused",
    ) in events


@pytest.mark.short
def test_a_consumer_over_quota_loses_nothing(
    make_gateway: Callable[..., GatewayThread], unique: Callable[[str], str]
) -> None:
    gateway = make_gateway(quota__window__num="3")
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name, client = topic(bootstrap, unique("slow"), 1), unique("reader")
    # Small batches: a batch is given whole, and a last one that held nearly all would have nothing
    # after it to wait for.
    send(bootstrap, name, 1_500, **{"batch.num.messages": 50})
    set_quota(gateway, QuotaEntity.of(client_id=client), {CONSUMER: 200_000.0})
    started = time.monotonic()
    found = receive(bootstrap, name, 1_500, unique("g"), **{"client.id": client})
    assert [int(key) for key in found] == list(range(1_500))
    assert time.monotonic() - started > 2.0


def test_records_for_a_killed_broker_wait_until_it_is_back(
    make_gateway: Callable[..., GatewayThread],
    make_kafka: Callable[..., EmbeddedKafka],
    unique: Callable[[str], str],
) -> None:
    """What clients are told meanwhile: test_gateway_errors."""
    kafka = make_kafka(brokers=2)
    gateway = make_gateway(kafka)
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("kill"), 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"x", partition=0)
    producer.produce(name, b"x", partition=1)
    assert producer.flush(120) == 0
    partitions = producer.list_topics(name, 60).topics[name].partitions
    leaders = {partition: told.leader for partition, told in partitions.items()}
    assert sorted(leaders.values()) == [1, 2]
    kafka.kill(2)
    delivered: dict[int, Any] = {}
    for partition, leader in leaders.items():
        producer.produce(
            name,
            b"y",
            partition=partition,
            on_delivery=lambda error, _, leader=leader: delivered.update({leader: error}),
        )

    def acknowledged() -> bool:
        producer.poll(0.1)
        return 1 in delivered

    wait_for(acknowledged, "the living broker's record", 120)
    assert delivered == {1: None}
    assert len(producer) == 1
    kafka.start(2)
    assert producer.flush(120) == 0
    assert delivered == {1: None, 2: None}


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
    assert producer.flush(120) == 0
    gateway.stop(0)
    delivered: list[Any] = []
    producer.produce(name, b"after", on_delivery=lambda error, _: delivered.append(error))
    producer.poll(0.5)
    again = GatewayThread(lambda: Gateway(settings, store)).start()
    assert producer.flush(120) == 0
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
