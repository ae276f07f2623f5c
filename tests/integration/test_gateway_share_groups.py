"""Share groups, a token's end and a leader that moves: a real Kafka 4, and quotas that bind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaType
from headgate.wire.fields import INT64
from headgate.wire.sasl_client import plain
from kit.logins import CreateDelegationTokenRequest, token_request, token_response

from .gateway_kit import make_gateway, read_all, send, set_quota, topic, wait_for
from .test_gateway_sasl import by_token, connected, login, principals, token_works

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]
Unique = Callable[[str], str]


def throttled(gateway: GatewayThread, kind: QuotaType) -> int:
    """Requests that were told a throttle time by a quota of a kind."""
    return gateway.call(
        lambda: sum(
            front.meters.throttled_in_all.get(kind, (0, 0))[0]
            for front in gateway.gateway.brokers.values()
        )
    )


def test_a_share_group_gets_every_record_and_is_held_to_its_consumer_quota(
    make_gateway: Make, unique: Unique, tmp_path: Path
) -> None:
    gateway = make_gateway()
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("share")
    name, group = topic(bootstrap, unique("shared"), 2), unique("group")
    send(bootstrap, name, 400, 1_000)
    set_quota(gateway, QuotaEntity.of(client_id=client), {CONSUMER: 20_000.0})
    asked = run_tool(
        "kafka.admin.ConfigCommand",
        ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name",
         group, "--add-config", "share.auto.offset.reset=earliest"],
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    config = tmp_path / "share.properties"
    config.write_text(f"client.id={client}\nmax.poll.records=50\nfetch.max.bytes=60000\n")
    read = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        ["--bootstrap-server", bootstrap, "--topic", name, "--group", group, "--max-messages",
         "400", "--command-config", str(config)],
    )  # fmt: skip
    assert read.returncode == 0, read.stderr
    assert "Processed a total of 400 messages" in read.stderr + read.stdout
    assert throttled(gateway, QuotaType(CONSUMER.type)) > 0


def test_a_token_for_another_is_his_and_an_ended_one_is_nobodys(
    make_gateway: Make, kafka4: EmbeddedKafka
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("SASL").split(",")[0]
    with connected(bootstrap) as connection:
        assert login(connection, "PLAIN", plain("admin", "admin-secret"))[0] == 0
        wanted = CreateDelegationTokenRequest(owner_type="User", owner_name="bob")
        said = connection.say(token_request(3, wanted)[4:])
        token = token_response(3, len(said).to_bytes(4, "big") + said)
        assert (token.error_code, token.owner_name) == (0, "bob")
        assert token.requester_name == "admin"
        for broker in (1, 2):
            host, port = kafka4.broker_addresses[broker]["SASL_PLAINTEXT"]
            wait_for(lambda at=f"{host}:{port}": token_works(at, token), "the token to be known")
        with connected(bootstrap) as other:
            exchange = by_token(token.token_id, token.hmac)
            assert login(other, "SCRAM-SHA-256", exchange) == (0, None)
            assert sorted(principals(gateway)) == ["admin", "bob"]  # never its requester
    with connected(bootstrap) as his:
        # Ended by its owner (a controller refuses its requester): from then on it opens nothing,
        # whatever the gateway remembers.
        assert login(his, "PLAIN", plain("bob", "bob-secret"))[0] == 0
        body = len(token.hmac).to_bytes(4, "big") + token.hmac + INT64.pack(-1)
        assert his.ask(40, 1, body)[8:10] == b"\0\0"
    for broker in (1, 2):
        host, port = kafka4.broker_addresses[broker]["SASL_PLAINTEXT"]
        wait_for(lambda at=f"{host}:{port}": not token_works(at, token), "the token to be gone")
    with connected(bootstrap) as late:
        error, _ = login(late, "SCRAM-SHA-256", by_token(token.token_id, token.hmac))
        assert error
        assert "bob" not in principals(gateway)


def test_a_leader_that_moves_under_a_quota_is_found_through_the_gateway(
    make_gateway: Make, kafka4: EmbeddedKafka, unique: Unique, tmp_path: Path
) -> None:
    gateway = make_gateway()
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("mover")
    name = topic(bootstrap, unique("moved"), 1)
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 40_000.0})
    seen: set[str] = set()
    failed: list[Any] = []

    def note(text: str) -> None:
        seen.update(node["nodename"] for node in json.loads(text)["brokers"].values())

    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": client, "statistics.interval.ms": 200,
         "stats_cb": note, "linger.ms": 5, "batch.size": 10_000,
         # A batch that is sent again to the next leader isn't there twice.
         "enable.idempotence": True}
    )  # fmt: skip
    done = threading.Event()
    sent = 0

    def move() -> None:
        for replicas in ([1], [2], [1]):
            plan = tmp_path / "plan.json"
            part = {"topic": name, "partition": 0, "replicas": replicas}
            plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
            run_tool(
                "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
                ["--bootstrap-server", kafka4.bootstrap("PLAINTEXT"), "--execute",
                 "--reassignment-json-file", str(plan)],
            )  # fmt: skip
        done.set()

    thread = threading.Thread(target=move)
    thread.start()
    # The first thousand are above the quota, however soon the moves are over.
    while not done.is_set() or sent < 1_000:
        producer.produce(
            name, bytes(1_000), key=str(sent).encode(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
        sent += 1
        producer.poll(0.005 if sent < 1_000 else 0.02)
    thread.join()
    assert producer.flush(120) == 0
    assert not failed
    keys = read_all(bootstrap, name, 1, sent)[0]
    assert {int(key) for key in keys} == set(range(sent))
    assert throttled(gateway, QuotaType(PRODUCER.type)) > 0
    ours = set(bootstrap.split(","))
    assert {node for node in seen if node not in (":0", "")} <= ours
