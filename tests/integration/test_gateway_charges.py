"""On real sockets: a client that leaves is charged, one that reads no answers takes no headroom."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial

import pytest

from headgate.gateway import GatewayThread
from headgate.gateway.connection.hosts import BrokerHosts
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from kit.claims import allowances

from .gateway_kit import wait_for
from .scripted_upstream import (
    PRODUCED,
    Start,
    Upstream,
    connect,
    fetch,
    links,
    produce,
    start,
    upstream,
)

__all__ = ["start", "upstream"]
EVERYBODY = QuotaEntity.of(user="ANONYMOUS")
WINDOWS = "60"  # nothing is forgotten while a test runs


def charged(gateway: GatewayThread, of: str = "produce") -> float:
    """Bytes charged to everybody."""

    def total() -> float:
        sensor = getattr(gateway.gateway.brokers[1].rules.managers, of).sensor(("ANONYMOUS", ""))
        return 0.0 if sensor is None else float(sensor.total)

    return gateway.call(total)


def claims(gateway: GatewayThread) -> int:
    """How much of everybody's quota is claimed."""
    rules = gateway.gateway.brokers[1].rules
    return gateway.call(lambda: sum(one.claimed for one in allowances(rules.contexts)))


def asked(gateway: GatewayThread) -> int:
    """How many requests are unanswered."""
    return sum(len(link.session.unanswered) for link in gateway.gateway.brokers[1].links)


def test_half_sent_requests_and_clients_that_never_read_take_nothing_from_others(
    start: Start, upstream: Upstream
) -> None:
    gateway = start({EVERYBODY: {PRODUCER: 200_000.0}}, quota__window__num="60")  # 11 MB at first
    upstream.records = 20_000_000
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            half = stack.enter_context(connect(gateway))
            half.sendall(produce(1_000_000)[:-1])
        deaf = []
        for _ in range(10):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(gateway.gateway.addresses("PLAINTEXT")[1])
            sock.sendall(fetch(1) + produce(50_000, 2))
            deaf.append(sock)
        wait_for(lambda: charged(gateway) >= 10 * 50_000, "what came whole of who doesn't read")
        assert claims(gateway) == 0
        with connect(gateway) as client:
            client.sendall(b"".join(produce(500_000, n) for n in range(18)))
            client.settimeout(60)
            answers = b""
            while len(answers) < 18 * (8 + len(PRODUCED)):
                answers += client.recv(65_536)
            assert answers.count(PRODUCED) == 18  # told no throttle
        assert charged(gateway) == 10 * 50_000 + 18 * 500_000


@pytest.mark.parametrize("size", [1_000, 3_000_000])
def test_what_was_said_before_the_broker_was_reached_is_passed_on_and_charged(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A broker reads what came before a connection's end; acks=0 is all that its client says."""
    gateway = start({EVERYBODY: {PRODUCER: 1e9}}, quota__window__num=WINDOWS)
    look_up = BrokerHosts.look_up

    async def slowly(hosts: BrokerHosts, host: str) -> tuple[str, ...]:
        await asyncio.sleep(0.3)
        return await look_up(hosts, host)

    monkeypatch.setattr(BrokerHosts, "known", lambda *_: None)
    monkeypatch.setattr(BrokerHosts, "look_up", slowly)
    for _ in range(3):
        with connect(gateway) as client:
            client.sendall(produce(size, 1) + produce(size, 2))
    # An answer that nobody reads resets a connection, here as at a broker: what the client's kernel
    # hasn't sent by then is lost. A small request has been sent, and so has the first large one.
    arrive = 6 if size < 10_000 else 3
    wait_for(lambda: charged(gateway) >= arrive * size, "what was said to be charged")
    wait_for(lambda: upstream.produced >= arrive, "what was said to arrive")
    wait_for(lambda: not gateway.gateway.brokers[1].links, "the ends")
    assert charged(gateway) >= upstream.produced * size


def test_a_client_that_hangs_up_unheard_goes_when_its_broker_cant_be_reached(
    start: Start, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = start({}, quota__window__num=WINDOWS)

    async def nowhere(hosts: BrokerHosts, host: str) -> tuple[str, ...]:
        await asyncio.sleep(0.3)
        raise OSError("nobody is there")

    monkeypatch.setattr(BrokerHosts, "known", lambda *_: None)
    monkeypatch.setattr(BrokerHosts, "look_up", nowhere)
    with connect(gateway) as client:
        client.sendall(produce(1_000, 1))
    broker = gateway.gateway.brokers[1]
    meters = broker.listeners["PLAINTEXT"].meters
    wait_for(lambda: meters.closed["upstream-unreachable"] == 1, "the end")
    assert not broker.links


def test_who_closes_at_once_is_charged_for_all_that_was_passed(
    start: Start, upstream: Upstream
) -> None:
    gateway = start({EVERYBODY: {PRODUCER: 1e9}}, quota__window__num=WINDOWS)
    # An answer that the client hasn't read would make its end a reset, and what it sent be lost.
    upstream.produce_s = 0.3
    for _ in range(20):
        with connect(gateway) as client:
            client.sendall(
                produce(300_000, 1) + produce(300_000, 2) + produce(300_000, 3)[:100_000]
            )
    expected = 20 * (600_000 + 100_000 - 4)
    wait_for(lambda: charged(gateway) >= expected, "all to be charged")
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the connections' end")
    assert charged(gateway) == expected
    assert upstream.produced <= 40


def test_a_fetch_is_charged_though_its_client_closes_at_once(
    start: Start, upstream: Upstream
) -> None:
    gateway = start({EVERYBODY: {CONSUMER: 1e9}}, quota__window__num=WINDOWS)
    upstream.records, upstream.fetch_s = 1_000_000, 2.0
    for number in range(5):
        with connect(gateway) as client:
            client.sendall(fetch(number))
            passed = partial(asked, gateway)
            wait_for(
                lambda passed=passed, n=number + 1: gateway.call(passed) == n, "it to be passed"
            )
    assert charged(gateway, "fetch") == 0.0
    assert gateway.call(lambda: links(gateway)) == 5  # as long as it isn't known they are open
    wait_for(lambda: charged(gateway, "fetch") >= 5 * 1_000_000, "five answers to be charged")
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the connections' end")
    assert charged(gateway, "fetch") < 5 * 1_001_000
