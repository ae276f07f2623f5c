"""Addresses of brokers' hosts: asked for once for all who want them, and again after a while."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import HostPort
from headgate.gateway.broker.dialing import Dialer
from headgate.gateway.connection.hosts import KEPT_S, BrokerHosts, Hosts
from headgate.gateway.log import PER_MINUTE
from headgate.metrics.meters import Meters

from .conftest import support_of


class Names:
    """A name service that counts what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", self.look_up)

    async def look_up(self, *_: Any, **__: Any) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.addresses:
            raise socket.gaierror("no such host")
        return [(0, 0, 0, "", (address, 0)) for address in self.addresses]


async def test_all_who_want_a_host_share_one_question_until_it_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch, "127.0.0.1", "127.0.0.1", "127.0.0.2")
    now = [100.0]
    hosts = BrokerHosts(lambda: now[0])
    assert hosts.known("kafka") is None
    both = ("127.0.0.1", "127.0.0.2")
    assert await asyncio.gather(*(hosts.look_up("kafka") for _ in range(5))) == [both] * 5
    assert (names.asked, hosts.known("kafka")) == (1, both)
    now[0] += KEPT_S
    assert hosts.known("kafka") is None
    await hosts.look_up("kafka")
    hosts.forget("kafka")
    assert (names.asked, hosts.known("kafka")) == (2, None)


async def test_an_address_is_never_asked_for_and_a_host_without_one_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(monkeypatch)
    hosts = BrokerHosts()
    assert await hosts.look_up("::1") == hosts.known("::1") == ("::1",)
    for _ in range(2):
        with pytest.raises(OSError, match="no such host"):
            await hosts.look_up("gone")
    assert (names.asked, hosts.known("gone")) == (2, None)


async def test_a_host_whose_first_address_refuses_is_reached_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Names(monkeypatch, "127.0.0.9", "127.0.0.1")
        ready: list[bool] = []
        link: Any = SimpleNamespace(
            broker=asyncio.Protocol(),
            closed=None,
            task=asyncio.current_task(),
            upstream_ready=lambda: ready.append(True),
        )
        listener: Any = SimpleNamespace(
            upstream=HostPort("kafka", server.getsockname()[1]),
            lending=None,
            upstream_tls=None,
            settings=SimpleNamespace(upstream_connect_timeout_ms=60_000),
        )
        await Dialer(1, Meters(), BrokerHosts()).connect(listener, link)
    assert ready == [True]


async def test_failed_answers_are_logged_a_few_times_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = support_of(None)
    link: Any = SimpleNamespace(close=lambda reason, detail: None)
    ask: Any = SimpleNamespace(plan=SimpleNamespace(name="AlterClientQuotas"))
    with caplog.at_level(logging.ERROR, "headgate.gateway"):
        for _ in range(3 * PER_MINUTE):
            answers.failed(link, ask, RuntimeError("a bug"))
    assert len(caplog.records) == PER_MINUTE
    assert all(record.exc_info for record in caplog.records)


def test_look_ups_for_connection_limits_leave_threads_for_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look_up_many() -> int:
        loop = asyncio.get_running_loop()
        silent = asyncio.Event()
        under_way = 0

        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            nonlocal under_way
            under_way += 1
            await silent.wait()
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        tasks: list[asyncio.Task[None]] = []
        hosts = Hosts(lambda work: tasks.append(loop.create_task(work)))
        names = [f"host-{number}.example" for number in range(1_000)]
        assert {hosts.address(name) for name in names} == {None}
        for _ in range(5):
            await asyncio.sleep(0)
        at_once = under_way
        silent.set()
        await asyncio.gather(*tasks)
        assert {hosts.address(name) for name in names} == {"192.0.2.1"}
        return at_once

    assert asyncio.run(look_up_many()) == 1
