"""Limits on connections: who may change them, which are refused, which listener is exempt."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread

from .gateway_kit import make_gateway, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Make = Callable[..., GatewayThread]


def alter(admin: AdminClient, broker: str, settings: dict[str, str]) -> None:
    """Set settings of a broker; raises what the answer says."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource], request_timeout=60).values():
        future.result(60)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max.connections": "0"}, "Invalid max.connections 0"),
        (
            {"listener.name.plaintext.max.connection.creation.rate": "0"},
            "Invalid max.connection.creation.rate 0",
        ),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be set to zero only if"),
        ({"max.connections": "many"}, "Not a number of type INT"),
    ],
)
def test_612_2_what_would_lock_everybody_out_is_refused_as_kafka_does(
    make_gateway: Make, kafka4: EmbeddedKafka, settings: dict[str, str], says: str
) -> None:
    gateway = make_gateway()
    told = []
    for bootstrap in (kafka4.bootstrap("PLAINTEXT"), gateway.bootstrap("PLAINTEXT")):
        with pytest.raises(KafkaException) as raised:
            alter(AdminClient({"bootstrap.servers": bootstrap}), "1", settings)
        assert says in str(raised.value)
        error: KafkaError = raised.value.args[0]
        told.append((error.code(), error.str()))
    assert told[0] == told[1]
    assert gateway.gateway.broker_configs == {}


def test_612_2_only_super_users_change_the_gateways_settings(
    make_gateway: Make, kafka4: EmbeddedKafka
) -> None:
    gateway = make_gateway()
    bootstrap = gateway.bootstrap("SASL")

    def admin(user: str) -> AdminClient:
        return AdminClient({**kafka4.sasl_config(user), "bootstrap.servers": bootstrap})

    with pytest.raises(KafkaException) as raised:
        alter(admin("alice"), "1", {"max.connections": "3"})
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert gateway.gateway.broker_configs == {}
    alter(admin("admin"), "1", {"max.connections": "300"})
    wait_for(lambda: gateway.gateway.brokers[1].quotas.max_connections == 300, "the setting")


VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def connect(gateway: GatewayThread, listener: str) -> socket.socket:
    """Return a connection that was served."""
    made = socket.create_connection(gateway.gateway.addresses(listener)[1], 60)
    made.sendall(VERSIONS)
    assert made.recv(8)
    return made


def blocked(gateway: GatewayThread, listener: str) -> float:
    """Return the share of time in which a listener of broker 1 wasn't accepting."""
    meter = gateway.gateway.brokers[1].meters.listeners[listener].blocked
    assert meter is not None
    return gateway.call(lambda: meter.peek(time.time_ns() // 1_000_000)["mean"])


def test_612_4_the_inter_broker_listener_goes_beyond_the_brokers_limits_and_others_give_way(
    make_gateway: Make,
) -> None:
    gateway = make_gateway(
        quota__window__num="2",
        inter__broker__listener__name="SASL",
        max__connections="2",
        listener__name__sasl__max__connections="100",
        max__connection__creation__rate="1",
        listener__name__sasl__max__connection__creation__rate="1000",
        listener__name__plaintext__max__connection__creation__rate="1000",
    )
    front = gateway.gateway.brokers[1]
    with connect(gateway, "PLAINTEXT") as first, connect(gateway, "PLAINTEXT") as second:
        second.sendall(VERSIONS)  # so the first is the least recently used
        assert second.recv(8)
        inner = [connect(gateway, "SASL") for _ in range(2)]
        first.settimeout(60)
        second.settimeout(60)
        while first.recv(4096):
            pass
        while second.recv(4096):
            pass
        closed = {name: meters.closed for name, meters in front.meters.listeners.items()}
        assert gateway.call(lambda: closed["PLAINTEXT"]["max-connections"]) == 2
        more = [connect(gateway, "SASL") for _ in range(5)]
        assert gateway.call(lambda: front.quotas._listeners["SASL"].count) == 7
        assert gateway.call(lambda: dict(closed["SASL"])) == {}
        # Seven at once were too fast for the broker's 1 per second, which doesn't count here.
        assert blocked(gateway, "SASL") == 0
        for made in (*inner, *more):
            made.close()
    wait_for(lambda: gateway.call(lambda: front.quotas.total) == 0, "all to be gone")

    def delayed() -> bool:
        connect(gateway, "PLAINTEXT").close()
        return blocked(gateway, "PLAINTEXT") > 0

    wait_for(delayed, "the broker's rate to delay another listener")
