"""What the reference marks **R** is in force after a reload, each setting by what it does."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER

from .gateway_kit import wait_for
from .scripted_upstream import (
    SLOW,
    VERSIONS,
    Start,
    Upstream,
    connect,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]

Reload = Callable[..., None]


@pytest.fixture
def reload(tmp_path: Path, upstream: Upstream) -> Reload:
    """``reload(gateway, **properties)``: the file again, with these, as on SIGHUP."""

    def made(gateway: GatewayThread, **named: str) -> None:
        lines = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.upstream": f"127.0.0.1:{upstream.port}",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(tmp_path),
            "headgate.store": f"sqlite:{tmp_path / 'quotas.db'}",
            "headgate.usage": "none",
            **{name.replace("__", "."): value for name, value in named.items()},
        }
        file = tmp_path / "again.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        gateway.call(lambda: gateway.gateway.reload(file))

    return made


def closed(gateway: GatewayThread) -> dict[str, int]:
    found: dict[str, int] = gateway.call(
        lambda: dict(gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed)
    )
    return found


def told_ms(gateway: GatewayThread, size: int = 100_000) -> int:
    """Produce once on a connection of its own; return the throttle that was told."""
    with connect(gateway) as client:
        client.sendall(produce(size))
        told: int = struct.unpack(">i", read_answer(client)[-4:])[0]
    return told


def is_ended(gateway: GatewayThread, said: bytes = b"") -> bool:
    """Whether the gateway ends a connection that says this, rather than answer VERSIONS."""
    with connect(gateway) as client, suppress(ConnectionError):
        client.sendall(said or VERSIONS)
        client.settimeout(60)
        return client.recv(1) == b""
    return True


def test_the_longest_frame(start: Start, reload: Reload) -> None:
    gateway = start()
    assert not is_ended(gateway, produce(100_000))
    reload(gateway, socket__request__max__bytes="50000")
    assert is_ended(gateway, produce(100_000))
    assert closed(gateway)["oversized"] == 1
    reload(gateway)
    assert not is_ended(gateway, produce(100_000))


def test_idle_connections_end_also_those_that_were_there(start: Start, reload: Reload) -> None:
    gateway = start()
    with connect(gateway) as client:
        client.sendall(VERSIONS)
        read_answer(client)
        reload(gateway, connections__max__idle__ms="200")
        client.settimeout(60)
        assert client.recv(1) == b""
    assert closed(gateway)["idle"] == 1


@pytest.mark.parametrize(
    "limit", ["max.connections.per.ip=1", "max.connections.per.ip.overrides=127.0.0.1:1"]
)
def test_connections_of_an_address(start: Start, reload: Reload, limit: str) -> None:
    name, _, value = limit.partition("=")
    gateway = start()
    with connect(gateway) as first:
        first.sendall(VERSIONS)
        read_answer(first)
        assert not is_ended(gateway)
        reload(gateway, **{name: value})
        wait_for(lambda: is_ended(gateway), "the limit")
        reload(gateway)
        wait_for(lambda: not is_ended(gateway), "the limit to be gone")
    assert closed(gateway)["max-connections-per-ip"] >= 1


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
def test_connections_of_a_broker_or_listener(start: Start, reload: Reload, prefix: str) -> None:
    gateway = start()
    with connect(gateway) as first:
        first.sendall(VERSIONS)
        read_answer(first)
        reload(gateway, **{f"{prefix}max.connections": "1"})
        with connect(gateway) as second:  # waits in the kernel's queue
            second.sendall(VERSIONS)
            second.settimeout(0.5)
            with pytest.raises(TimeoutError):
                second.recv(1)
            reload(gateway)
            assert read_answer(second)


def test_what_is_enforced_and_for_whom(start: Start, reload: Reload) -> None:
    gateway = start(SLOW)  # 12 kB are two seconds too much: the next connection waits for them
    assert told_ms(gateway, 12_000) > 0
    reload(gateway, headgate__enforce="observe")
    assert told_ms(gateway, 12_000) == 0
    reload(gateway, headgate__exempt__principals="User:ANONYMOUS")
    assert told_ms(gateway, 12_000) == 0
    reload(gateway, headgate__enforce="missing")
    assert told_ms(gateway, 12_000) == 0
    reload(gateway)
    assert told_ms(gateway, 12_000) > 0


@pytest.mark.parametrize("name", ["super.users", "headgate.admin.principals"])
def test_who_may_read_quotas(start: Start, reload: Reload, name: str) -> None:
    gateway = start({QuotaEntity.of(user="x"): {PRODUCER: 1.0}})
    ask = struct.pack(">ihhihib", 15, 48, 0, 7, -1, 0, 0)

    def error() -> int:
        with connect(gateway) as client:
            client.sendall(ask)
            found: int = struct.unpack_from(">h", read_answer(client), 12)[0]
        return found

    assert error() == 31  # CLUSTER_AUTHORIZATION_FAILED
    reload(gateway, **{name: "User:ANONYMOUS"})
    assert error() == 0
    reload(gateway)
    assert error() == 31


def test_who_a_client_is(start: Start, reload: Reload) -> None:
    gateway = start({QuotaEntity.of(user="builder"): {PRODUCER: 1_000.0}})
    assert told_ms(gateway) == 0
    reload(gateway, principal__builder__class=f"{__name__}:Builder")
    assert told_ms(gateway) > 0
    reload(gateway)
    assert told_ms(gateway) == 0


class Builder:
    """Names everybody alike."""

    def build(self, context: object) -> str:
        return "builder"


def test_how_long_a_drain_may_take(start: Start, reload: Reload) -> None:
    gateway = start(headgate__drain__timeout__ms="3600000")
    with connect(gateway) as client:
        client.sendall(produce(100_000)[:50_000])
        front = gateway.gateway.brokers[1]
        wait_for(
            lambda: gateway.call(lambda: any(k.session.begun for k in front.links)),
            "the half",
        )
        reload(gateway, headgate__drain__timeout__ms="100")
        gateway.stop()
    assert front.meters.listeners["PLAINTEXT"].closed == {"drain-timeout": 1}
