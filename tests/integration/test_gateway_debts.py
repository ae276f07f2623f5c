"""Clients that reconnect while they owe a wait, fetches that are held in turn, and draining."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER

from .gateway_kit import wait_for
from .scripted_upstream import (
    Start,
    Upstream,
    connect,
    fetch,
    links,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]

ANYONE = QuotaEntity.of(user="ANONYMOUS")
QUOTA = 100_000.0
SECONDS = 6


class Reconnecting(threading.Thread):
    """A client that opens a connection for each request, and hangs up when it was answered."""

    def __init__(self, gateway: GatewayThread, request: bytes) -> None:
        super().__init__(daemon=True)
        self._gateway, self._request = gateway, request
        self.asked_to_stop = threading.Event()
        self.bytes = self.answers = 0

    def run(self) -> None:
        while not self.asked_to_stop.is_set():
            try:
                with connect(self._gateway) as sock:
                    sock.sendall(self._request)
                    self.bytes += len(read_answer(sock))
                    self.answers += 1
            except (OSError, EOFError):
                return


def run(gateway: GatewayThread, request: bytes, many: int) -> tuple[list[Reconnecting], float]:
    clients = [Reconnecting(gateway, request) for _ in range(many)]
    began = time.monotonic()
    for client in clients:
        client.start()
    time.sleep(SECONDS)
    lasted = time.monotonic() - began
    for client in clients:
        client.asked_to_stop.set()
    return clients, lasted


@pytest.mark.parametrize("many", [1, 30])
def test_consumers_that_reconnect_get_their_quota_and_no_more(
    start: Start, upstream: Upstream, many: int
) -> None:
    upstream.records = 30_000
    gateway = start({ANYONE: {CONSUMER: QUOTA}}, headgate__pacing="smooth")
    clients, seconds = run(gateway, fetch(), many)
    got = sum(client.bytes for client in clients)
    assert 0.5 * QUOTA * seconds <= got <= QUOTA * (seconds + 1) + (many + 1) * 31_000
    assert gateway.call(lambda: gateway.gateway.brokers[1].meters.fetches_held) > 0


def test_a_producer_that_reconnects_gets_what_one_that_stays_gets(
    start: Start, upstream: Upstream
) -> None:
    gateway = start({ANYONE: {PRODUCER: QUOTA}}, headgate__pacing="smooth")
    (client,), seconds = run(gateway, produce(20_000), 1)
    assert 0.5 * QUOTA * seconds <= client.answers * 20_000 <= QUOTA * (seconds + 1) + 40_000


def test_an_answer_larger_than_a_buffer_waits_half_unread_and_comes_whole(
    start: Start, upstream: Upstream
) -> None:
    upstream.records = 900_000
    upstream.fetch_s = 0.3
    gateway = start({ANYONE: {CONSUMER: 300_000.0}}, headgate__pacing="smooth")
    front = gateway.gateway.brokers[1]
    with connect(gateway) as one, connect(gateway) as other:
        for sock in (one, other):
            sock.sendall(fetch())  # both are passed on before either is answered
        answers = [len(read_answer(sock)) for sock in (one, other)]
        assert answers == [900_000 + 71, 900_000 + 71]
        assert gateway.call(lambda: front.meters.fetches_held) == 1
        assert gateway.call(lambda: front.rules.gates.kept_bytes) == 0


def test_who_hangs_up_while_its_answer_is_kept_leaves_nothing(
    start: Start, upstream: Upstream
) -> None:
    upstream.records = 900_000
    upstream.fetch_s = 0.3
    gateway = start({ANYONE: {CONSUMER: 50_000.0}})
    front = gateway.gateway.brokers[1]
    socks = [connect(gateway) for _ in range(4)]
    for sock in socks:
        sock.sendall(fetch())
    wait_for(lambda: gateway.call(lambda: front.rules.gates.kept_bytes) > 0, "an answer to be kept")
    for sock in socks:
        sock.close()
    wait_for(lambda: gateway.call(lambda: links(gateway)) == 0, "the connections to be let go")
    assert gateway.call(lambda: front.rules.gates.kept_bytes) == 0


def test_a_drain_doesnt_wait_for_who_is_held(start: Start, upstream: Upstream) -> None:
    upstream.records = 200_000
    gateway = start({ANYONE: {CONSUMER: 10_000.0}}, headgate__drain__timeout__ms="30000")
    with connect(gateway) as first:
        for number in range(2):
            first.sendall(fetch(number + 1))
            told = struct.unpack_from(">i", read_answer(first), 8)[0]
            if told:
                break
        assert told > 5_000
        with connect(gateway) as held:
            held.sendall(fetch())
            wait_for(
                lambda: gateway.call(
                    lambda: any(
                        k.session.hold is not None and k.session.hold.waiting
                        for k in gateway.gateway.brokers[1].links
                    )
                ),
                "the fetch to be held",
            )
            gateway.stop()
            held.settimeout(60)
            assert held.recv(100) == b""
            reasons = gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"].closed
            assert reasons["drain-timeout"] == 0
