"""Beyond bytes: topic mutations, connections, broker settings, the admin and HTTP listeners."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from headgate.admin import AdminClient as QuotaAdmin
from headgate.admin import AlterQuotasEntry, Op
from headgate.cli.quotas import kafka_quotas
from headgate.embedded import run_tool
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONNECTION, CONSUMER, MUTATION, PRODUCER, PRODUCER_IDS
from headgate.wire.apis import CREATE_TOPICS
from headgate.wire.messages import decode_response, encode_request, mutation

from .gateway_kit import make_gateway, receive, send, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]


def test_topics_over_the_mutation_quota_get_error_89_and_the_others_go_on(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(controller__quota__window__num="400")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("builder")
    entity, four_at_once = QuotaEntity.of(client_id=client), {MUTATION: 0.01}
    set_quota(gateway, entity, four_at_once)
    first, second = unique("first"), unique("second")
    told, results = _create(gateway, client, {first: 6, second: 1})
    assert results == {first: 0, second: KafkaError.THROTTLING_QUOTA_EXCEEDED}
    assert 0 < told <= 200_000  # 2 below zero at 1 in 100 s, less the time the broker took
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def names() -> set[str]:
        return set(admin.list_topics(timeout=120).topics)

    wait_for(lambda: first in names(), "the broker that is asked to hear of the topic")
    assert second not in names()
    # What the broker refuses is given back: an existing topic costs nothing in the end.
    set_quota(gateway, entity, {MUTATION: 1_000.0})
    wait_for(lambda: gateway.call(lambda: _tokens(gateway, client)) > 4, "the bucket to fill again")
    assert _create(gateway, client, {first: 1})[1] == {first: KafkaError.TOPIC_ALREADY_EXISTS}
    set_quota(gateway, entity, four_at_once)
    before = gateway.call(lambda: _tokens(gateway, client))
    _, results = _create(gateway, client, {first: 100})
    assert results == {first: KafkaError.TOPIC_ALREADY_EXISTS}
    assert gateway.call(lambda: _tokens(gateway, client)) >= before > 0


def test_observed_topics_are_all_made_nobody_waits_and_nobody_is_left_owing(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(headgate__enforce="observe")
    client = unique("watched")
    set_quota(gateway, QuotaEntity.of(client_id=client), {MUTATION: 0.01})
    first, second = unique("first"), unique("second")
    assert _create(gateway, client, {first: 6, second: 1}) == (0, {first: 0, second: 0})
    owed = gateway.call(lambda: _tokens(gateway, client))
    assert -6 < owed < 0  # the first alone: the second would have been refused
    assert _create(gateway, client, {first: 100, second: 1}) == (
        0,
        dict.fromkeys((first, second), KafkaError.TOPIC_ALREADY_EXISTS),
    )
    assert owed <= gateway.call(lambda: _tokens(gateway, client)) < 0  # no credit for refusals


def _create(
    gateway: GatewayThread, client: str, topics: dict[str, int]
) -> tuple[int, dict[str, int]]:
    """Ask for topics by CreateTopics 7, strict: the throttle time told and an error per topic."""
    request = mutation.CreateTopicsRequest(
        tuple(mutation.CreatableTopic(name, count, 1) for name, count in topics.items())
    )
    with socket.create_connection(gateway.gateway.addresses("PLAINTEXT")[1], 60) as sock:
        sock.sendall(encode_request(CREATE_TOPICS, 7, 1, client, request))
        sock.settimeout(60)
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
            frame += sock.recv(65_536)
    response = decode_response(CREATE_TOPICS, 7, frame)
    return response.throttle_time_ms, {t.name: t.error_code for t in response.topics}


def _tokens(gateway: GatewayThread, client: str) -> float:
    now = time.time_ns() // 1_000_000
    return gateway.gateway.brokers[1].rules.managers.mutation.peek(("", client), now)


def test_deletes_and_growth_are_charged_by_the_clusters_own_counts(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway()
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("destroyer")
    grown, gone = topic(bootstrap, unique("grown"), 2), topic(bootstrap, unique("gone"), 7)
    set_quota(gateway, QuotaEntity.of(client_id=client), {MUTATION: 1_000.0})
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client})
    admin.create_partitions([NewPartitions(grown, 5)])[grown].result(120)
    admin.delete_topics([gone])[gone].result(120)

    def charged() -> float:
        return sum(
            sensor.rate.value
            for front in gateway.gateway.brokers.values()
            for sensor in front.rules.managers.mutation.sensors()
            if sensor.client_tag == client
        )

    assert gateway.call(charged) == 3 + 7


def test_936_2_new_producer_ids_are_charged_on_produce_only(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(
        producer__id__quota__window__num="20", producer__id__quota__cache__window__seconds="600"
    )
    bootstrap = gateway.bootstrap("PLAINTEXT")
    name = topic(bootstrap, unique("ids"), 1)
    set_quota(
        gateway, QuotaEntity.of(user="ANONYMOUS"), {PRODUCER_IDS: 0.1}
    )  # 2 at once, then 1 in 10 s
    seen: list[int] = []
    while len(seen) < 4 and not any(seen):  # each further one would be held 10 s longer
        told = send(bootstrap, name, 1, **{"enable.idempotence": True})
        seen.append(max(told, default=0))
    assert seen[:2] == [0, 0]
    assert max(seen[2:]) > 0
    assert send(bootstrap, name, 5) == []  # no producer id: a request without one is free


def test_records_that_ask_for_no_acknowledgement_are_charged_held_and_arrive(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(quota__window__num="2")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("silent")
    name = topic(bootstrap, unique("silent"), 1)
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 100_000.0})
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client, "acks": 0,
                         "batch.num.messages": 50, "linger.ms": 0})  # fmt: skip
    for _ in range(300):
        producer.produce(name, bytes(1_000))
    assert producer.flush(60) == 0  # as soon as they are sent: nobody answers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    end = {TopicPartition(name, 0): OffsetSpec.latest()}
    wait_for(
        lambda: [f.result(60).offset for f in admin.list_offsets(end).values()] == [300],
        "the records to arrive",
    )
    told = gateway.call(
        lambda: [
            front.meters.throttled["producer_byte_rate"].get(("", client))
            for front in gateway.gateway.brokers.values()
        ]
    )
    assert sum(counts.count for counts in told if counts is not None) > 0
    del producer


VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def _ask(address: tuple[str, int]) -> bytes:
    """Say ApiVersions on a new connection; b"" if it was closed."""
    return _ask_at_once(address, 1)[0]


def _ask_at_once(address: tuple[str, int], count: int) -> list[bytes]:
    """Connect so often before anything is said: the kernel's backlog takes all."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(count)]
        answers = []
        for sock in socks:
            try:
                sock.sendall(VERSIONS)
                answers.append(sock.recv(8))
            except ConnectionError:
                answers.append(b"")
        return answers


def test_612_6_612_7_while_a_delay_runs_nothing_is_accepted_and_other_listeners_go_on(
    make_gateway: Make,
) -> None:
    gateway = make_gateway(
        quota__window__num="2",
        quota__window__size__seconds="2",
        listener__name__plaintext__max__connection__creation__rate="1",
    )
    address = gateway.gateway.addresses("PLAINTEXT")[1]
    front = gateway.gateway.brokers[1]
    answers: list[bytes] = []
    client = threading.Thread(target=lambda: answers.extend(_ask_at_once(address, 6)))
    client.start()

    def delayed() -> tuple[int, int]:
        """When the delay began, 0 for none, and what was accepted by now."""
        listener = front.meters.listeners["PLAINTEXT"]
        return front.listeners["PLAINTEXT"].acceptor.blocked_since_ms, listener.accepted

    seen = 0
    while client.is_alive():
        since, accepted = gateway.call(delayed)
        if since and _ask(gateway.gateway.addresses("SASL")[1]):
            again, now_accepted = gateway.call(delayed)
            if again == since:  # the same delay: two looks at it, and a client served between
                assert now_accepted == accepted < 6
                seen += 1
    client.join()
    assert seen > 0
    assert [len(answer) for answer in answers] == [8] * 6
    view = next(v for v in gateway.views() if v.broker_id == 1)
    assert view.meters.listeners["PLAINTEXT"].blocked.peek(time.time_ns() // 1_000_000)["mean"] > 0


def test_612_9_612_7_without_a_slot_the_acceptor_waits_for_one(make_gateway: Make) -> None:
    gateway = make_gateway(listener__name__plaintext__max__connections="1")
    address = gateway.gateway.addresses("PLAINTEXT")[1]
    with socket.create_connection(address, 60) as first:
        first.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        assert first.recv(8)
        with socket.create_connection(address, 60) as second:
            second.sendall(struct.pack(">ihhih", 10, 18, 0, 8, -1))
            front = gateway.gateway.brokers[1]
            wait_for(
                lambda: gateway.call(
                    lambda: front.listeners["PLAINTEXT"].acceptor.blocked_since_ms
                ),
                "the acceptor to wait",
            )
            first.close()
            second.settimeout(60)
            assert second.recv(8)[4:] == struct.pack(">i", 8)


def test_a_connection_rate_of_an_address_refuses_connections(make_gateway: Make) -> None:
    gateway = make_gateway(quota__window__num="2")
    set_quota(gateway, QuotaEntity.of(ip="127.0.0.1"), {CONNECTION: 2.0})
    address = gateway.gateway.addresses("PLAINTEXT")[1]
    answers = _ask_at_once(address, 30)
    assert b"" in answers
    assert any(answers)
    closed = gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed
    assert closed["ip-connection-rate"] > 0


def test_612_2_kafka_configs_sets_our_broker_settings_and_the_brokers_own(
    make_gateway: Make,
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("PLAINTEXT")

    def configs(*args: str) -> str:
        done = run_tool(
            "kafka.admin.ConfigCommand",
            ["--bootstrap-server", bootstrap, "--entity-type", "brokers", *args],
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    configs(
        "--entity-name", "1", "--alter", "--add-config",
        "max.connections=77,listener.name.plaintext.max.connection.creation.rate=55,"
        "log.cleaner.threads=2",
    )  # fmt: skip
    wait_for(lambda: gateway.gateway.brokers[1].quotas.max_connections == 77, "the setting")
    assert gateway.gateway.brokers[2].quotas.max_connections > 77
    described = configs("--entity-name", "1", "--describe")
    assert "max.connections=77" in described
    assert "listener.name.plaintext.max.connection.creation.rate=55" in described
    assert "log.cleaner.threads=2" in described
    configs(
        "--entity-name", "1", "--alter", "--delete-config",
        "max.connections,listener.name.plaintext.max.connection.creation.rate,log.cleaner.threads",
    )  # fmt: skip
    wait_for(lambda: gateway.gateway.brokers[1].quotas.max_connections > 77, "its removal")
    broker = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([broker])[broker].result(60)
    assert found["max.connections"].value != "77"
    # Where brokers and controllers listen is nobody's business, an administrator's neither.
    upstream = [where for cluster in gateway.gateway.discovery.clusters.values() for where in
                cluster.brokers.values()]  # fmt: skip
    assert upstream
    for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        assert found[name].value is None
        assert found[name].is_sensitive
    told = [v for c in found.values() for v in (c.value, *(s.value for s in c.synonyms.values()))]
    for where in upstream:
        assert not [value for value in told if value and f":{where.port}" in value]

    # What the broker refuses of an alteration keeps our part of it from being made.
    store = gateway.gateway.store
    assert store is not None

    def alter(operation: AlterConfigOpType, connections: str | None, threads: str | None) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=operation)
            for name, value in (("max.connections", connections), ("log.cleaner.threads", threads))
        ]
        mixed = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([mixed])[mixed].result(60)

    with pytest.raises(KafkaException, match=r"log\.cleaner\.threads"):
        alter(AlterConfigOpType.SET, "66", "-5")
    assert not store.broker_settings.now().get("1")
    alter(AlterConfigOpType.SET, "66", "2")
    assert store.broker_settings.now()["1"] == {"max.connections": "66"}
    alter(AlterConfigOpType.DELETE, None, None)
    assert not store.broker_settings.now().get("1")


def test_546_35_the_admin_listener_speaks_the_drafts_own_calls(make_gateway: Make) -> None:
    gateway = make_gateway(
        headgate__admin__listener="ADMIN://127.0.0.1:0",
        **{
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,ADMIN:PLAINTEXT"
            )
        },
    )
    assert gateway.gateway.shared.admin_address is not None
    host, port = gateway.gateway.shared.admin_address
    set_quota(gateway, QuotaEntity.of(user="carol"), {PRODUCER: 4_096.0})
    with QuotaAdmin(f"{host}:{port}") as admin:
        found = admin.describe_quotas([]).entities().result(120)
        assert found[QuotaEntity.of(user="carol")] == {PRODUCER: 4_096.0}
        entry = AlterQuotasEntry(QuotaEntity.of(user="dave"), [Op(PRODUCER, 8_192)])
        admin.alter_quotas([entry]).all().result(120)
        effective = admin.describe_effective_quotas([QuotaEntity.of(user="dave")])
        config = effective.config()[QuotaEntity.of(user="dave")].result(120)
    wait_for(
        lambda: gateway.gateway.table.get(QuotaEntity.of(user="dave"), PRODUCER) == 8_192,
        "the quota set by the draft's call",
    )
    assert config[PRODUCER].entry.value == 8_192


def test_55_3_the_last_resort_is_in_force_and_explained_on_the_data_listener(
    make_gateway: Make, unique: Unique, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = make_gateway(
        quota__producer__default="20000", quota__consumer__default="25000", quota__window__num="2"
    )
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("plain")
    name = topic(bootstrap, unique("last"), 1)
    assert max(send(bootstrap, name, 60, **{"client.id": client})) > 0
    told: list[float] = []
    throttled = {"client.id": client, "throttle_cb": lambda e: told.append(e.throttle_time)}
    assert len(receive(bootstrap, name, 60, unique("group"), **throttled)) == 60
    assert max(told, default=0) > 0
    asked = QuotaEntity.of(user="bob", client_id=client)
    with QuotaAdmin(bootstrap) as admin:
        values = admin.describe_effective_quotas([asked]).config()[asked].result(120)
    assert {key: (str(v.entry.source), v.entry.value) for key, v in values.items()} == {
        PRODUCER: ("server.properties", 20_000.0),
        CONSUMER: ("server.properties", 25_000.0),
    }
    argv = ["--bootstrap-server", bootstrap]
    assert kafka_quotas.main([*argv, "--describe", f"--names=user=bob,client-id={client}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "consumer_byte_rate:broker_bps=25000 server.properties",
        "producer_byte_rate:broker_bps=20000 server.properties",
    ]


def test_health_and_metrics_over_http(make_gateway: Make, unique: Unique) -> None:
    gateway = make_gateway(headgate__http__listener="127.0.0.1:0", quota__window__num="2")
    assert gateway.gateway.http is not None
    host, port = gateway.gateway.http.address

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=120) as answer:
            text: str = answer.read().decode()
            return text

    assert get("/healthz") == "ok\n"
    assert get("/readyz") == "ready\n"
    client = unique("metered")
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 100_000.0})
    bootstrap = gateway.bootstrap("PLAINTEXT")
    send(bootstrap, topic(bootstrap, unique("metered"), 1), 300, **{"client.id": client})
    metrics = get("/metrics")
    assert f'kafka_server_produce_byte_rate{{broker="1",client_id="{client}"}}' in metrics or (
        f'kafka_server_produce_byte_rate{{broker="2",client_id="{client}"}}' in metrics
    )
    assert "headgate_throttled_total" in metrics


def test_a_quota_set_by_another_process_is_in_force_within_a_second(
    make_gateway: Make, unique: Unique
) -> None:
    gateway = make_gateway(quota__window__num="3")
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("live")
    name = topic(bootstrap, unique("live"), 1)
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    producer.produce(name, b"x")
    assert producer.flush(120) == 0
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 1_000.0})
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        producer.produce(name, bytes(1_000))
        producer.poll(0.1)
    assert told


def test_the_store_may_go_away_and_the_last_quotas_stay(
    make_gateway: Make, unique: Unique, tmp_path: Any
) -> None:
    gateway = make_gateway(quota__window__num="3")
    client = unique("lasting")
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 50_000.0})
    wait_for((tmp_path / "snapshot.json").exists, "the snapshot")
    from headgate.gateway.store_link.guard import load_snapshot

    def kept() -> bool:
        snapshot = load_snapshot(gateway.gateway.settings)
        table = gateway.gateway.table if snapshot is None else snapshot.table
        return table.get(QuotaEntity.of(client_id=client), PRODUCER) == 50_000.0

    wait_for(kept, "the quota in the snapshot")
