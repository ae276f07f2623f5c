"""A broker that takes connections and answers nobody is named, in bounded time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import HostPort, Settings
from headgate.gateway.cluster.discovery import Answering, silent_lines
from headgate.gateway.health_and_metrics import HealthAndMetrics
from headgate.live.picture import BrokerPicture, Picture
from headgate.live.seen import as_seen_by
from headgate.live.why import why

from .enforcement_kit import BASE

TIMEOUT_MS = 300


@pytest.fixture
def hangs() -> Iterator[HostPort]:
    """A port where the kernel takes connections and nobody reads."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield HostPort(*sock.getsockname())


def asks(where: dict[int, HostPort]) -> tuple[Answering, dict[int, Any]]:
    """Return what asks these brokers, and the brokers."""

    async def own(_: str) -> tuple[Any, None]:
        return Settings.from_properties(BASE).upstream_admin, None

    settings = SimpleNamespace(
        for_listener=lambda _: SimpleNamespace(upstream_connect_timeout_ms=TIMEOUT_MS)
    )
    ways: Any = SimpleNamespace(own=own, own_setting=lambda _: "headgate.upstream.x")
    brokers: Any = {
        broker_id: SimpleNamespace(silent="", listeners={"L": SimpleNamespace(upstream=at)})
        for broker_id, at in where.items()
    }
    in_force: Any = SimpleNamespace(settings=settings)
    return Answering(in_force, brokers, ways), brokers


async def answers_metadata(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a Metadata v8 with no broker."""
    asked = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    body = asked[4:8] + bytes(4) + bytes(4) + b"\xff\xff" + b"\xff" * 4 + bytes(4) + bytes(4)
    writer.write(len(body).to_bytes(4, "big") + body)
    await writer.drain()
    writer.close()


async def test_a_broker_that_hangs_is_named_and_one_that_answers_is_not(hangs: HostPort) -> None:
    server = await asyncio.start_server(answers_metadata, "127.0.0.1", 0)
    there = HostPort(*server.sockets[0].getsockname())
    answering, brokers = asks({1: hangs, 2: there})
    await answering.ask()
    assert silent_lines(brokers) == [
        f"broker 1 doesn't answer: {hangs} takes connections and doesn't answer within "
        f"{TIMEOUT_MS} ms"
    ]
    server.close()
    await server.wait_closed()


async def test_one_that_answers_again_is_forgotten(hangs: HostPort) -> None:
    server = await asyncio.start_server(answers_metadata, "127.0.0.1", 0)
    answering, brokers = asks({1: hangs})
    await answering.ask()
    assert silent_lines(brokers)
    await answering.ask()
    assert silent_lines(brokers)  # whether the cluster names it or not: it hangs as before
    brokers[1].listeners["L"].upstream = HostPort(*server.sockets[0].getsockname())
    await answering.ask()
    assert not silent_lines(brokers)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("others", [{}, {2: ""}], ids=["alone", "one of two"])
def test_readiness_names_it_and_is_503_where_no_broker_answers(others: dict[int, str]) -> None:
    shown: Any = HealthAndMetrics.__new__(HealthAndMetrics)
    shown.started = True
    why_silent = {1: "it hangs", **others}
    shown._brokers = {
        broker_id: SimpleNamespace(silent=text, listeners={})
        for broker_id, text in why_silent.items()
    }
    shown._ports = SimpleNamespace(books={})
    shown._store_link = SimpleNamespace(does_without=False, refuses=lambda: None)
    shown._trouble = lambda: None
    shown._splits = SimpleNamespace(note=lambda: "splits have expired")
    line = "broker 1 doesn't answer: it hangs"
    assert shown.why_not_ready() == (None if others else line)
    assert shown.lacks() == f"{line}\nsplits have expired"
    assert shown.unready() is None  # it serves: nobody is told "nothing is served yet"


def test_why_names_it_and_tells_a_tenant_no_address() -> None:
    silent = BrokerPicture(1, silent="broker-1:9092 hangs")
    picture = Picture(at_ms=1, brokers=(silent, BrokerPicture(2)), user="alice")
    assert list(why(picture, "alice", None).connecting) == [
        "Broker 1 doesn't answer (broker-1:9092 hangs): clients wait for it, and not for a quota."
    ]
    seen = as_seen_by(picture, frozenset(("alice",)))
    assert list(why(seen, "alice", None).connecting) == [
        "Broker 1 doesn't answer (the gateway's own question): clients wait for it, and not for a "
        "quota."
    ]
