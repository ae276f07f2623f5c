"""What no client, peer or failing part may do: stop a port, keep what is whose no more, or hang."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import HostPort, Settings
from headgate.gateway import Gateway, GatewayThread, health_and_metrics, periodic_work
from headgate.gateway.charging.journal import Journal
from headgate.gateway.health_and_metrics import HttpListener
from headgate.store import open_store
from kit.upstreams import Upstream


class Closed(Journal):
    """Knows whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def settings(upstream: Upstream, folder: Path, **more: str) -> Settings:
    return Settings.from_properties(
        {
            "headgate.upstream": upstream.address,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(folder),
            "headgate.usage": "none",
            "headgate.upstream.connect.timeout.ms": "3600000",
        }
        | {name.replace("__", "."): value for name, value in more.items()}
    )


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayThread]:
    with (
        Upstream([1]) as upstream,
        GatewayThread(lambda: Gateway(settings(upstream, tmp_path), journal=Closed())) as one,
    ):
        yield one


def client_of(gateway: GatewayThread) -> socket.socket:
    port = int(gateway.bootstrap("PLAINTEXT").rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), 60)


def until(done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_broker_at_an_address_that_cant_be_one_costs_its_client_only(
    gateway: GatewayThread,
) -> None:
    front = gateway.gateway.brokers[1]
    # A label of 70 characters: UnicodeError, which is no OSError.
    gateway.call(
        lambda: setattr(front.listeners["PLAINTEXT"], "upstream", HostPort("x" * 70, 9092))
    )
    with client_of(gateway) as client:
        assert hung_up(client)
    closed = front.meters.listeners["PLAINTEXT"].closed
    until(lambda: gateway.call(lambda: dict(closed)) == {"upstream-unreachable": 1})
    assert gateway.call(lambda: (len(front.links), front.quotas.total)) == (0, 0)


def test_a_client_that_goes_takes_the_way_to_its_broker_along(gateway: GatewayThread) -> None:
    front = gateway.gateway.brokers[1]
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        host, port = deaf.getsockname()
        for _ in range(4):  # a backlog that is full: who comes now isn't answered at all
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((host, port))
        gateway.call(
            lambda: setattr(front.listeners["PLAINTEXT"], "upstream", HostPort("127.0.0.1", port))
        )
        with client_of(gateway):
            until(lambda: gateway.call(lambda: len(front.links)) == 1)
            assert gateway.call(lambda: len(front.clients.opening)) == 1
        until(lambda: gateway.call(lambda: len(front.links)) == 0)
        until(lambda: gateway.call(lambda: len(front.clients.opening)) == 0)


def test_nobody_is_taken_for_a_broker_that_another_may_front(gateway: GatewayThread) -> None:
    front = gateway.gateway.brokers[1]
    gateway.call(lambda: setattr(front.clients, "ending", True))
    with client_of(gateway) as client:
        assert hung_up(client)
    closed = front.meters.listeners["PLAINTEXT"].closed
    until(lambda: gateway.call(lambda: dict(closed)) == {"drained": 1})
    assert gateway.call(lambda: (len(front.links), front.quotas.total)) == (0, 0)


def test_the_bootstrap_port_forgets_a_broker_that_was_lost(
    tmp_path: Path, free_ports: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headgate.gateway")
    port = free_ports(1)[0]
    more = {"headgate__bootstrap__listener": f"PLAINTEXT://127.0.0.1:{port}"}
    with (
        Upstream([1]) as upstream,
        GatewayThread(lambda: Gateway(settings(upstream, tmp_path, **more))) as thread,
    ):
        front = thread.gateway.brokers[1]
        [listener] = thread.gateway.shared.bootstraps
        lost = SimpleNamespace(clients=SimpleNamespace(ending=True))
        thread.call(lambda: setattr(listener, "_next", lost))
        with socket.create_connection(("127.0.0.1", port), 60):
            until(lambda: thread.call(lambda: len(front.links)) == 1)
        # A failure is said, costs a moment, and doesn't become the loop's only business.
        broken: Any = SimpleNamespace(clients=SimpleNamespace(ending=False), quotas=None)
        thread.call(lambda: setattr(listener, "_next", broken))
        with socket.create_connection(("127.0.0.1", port), 60):
            until(lambda: "a connection couldn't be taken" in caplog.text)
            until(lambda: thread.call(lambda: len(front.links)) == 1)


def test_one_part_that_doesnt_end_well_keeps_no_other_from_it(
    gateway: GatewayThread, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headgate.gateway")

    async def fails(timeout_ms: int) -> None:
        raise RuntimeError("a bug")

    front = gateway.gateway.brokers[1]
    drain, front.drain = front.drain, fails  # type: ignore[method-assign]
    gateway.stop(0)
    front.close_ports()
    del drain
    assert "a part of the gateway failed while it was stopped" in caplog.text
    journal = gateway.gateway.journal
    assert isinstance(journal, Closed)
    assert journal.closed


class Quiet:
    """Shows so much that nobody reads it at once."""

    async def health(self) -> str | None:
        return "x" * 50_000_000

    ready = note = health

    async def samples(self) -> list[Any]:
        return []


async def test_a_scraper_that_reads_nothing_keeps_no_gateway_from_ending() -> None:
    listener = HttpListener(HostPort("127.0.0.1", 0), Quiet())
    listener.start()
    reader, writer = await asyncio.open_connection(*listener.address, limit=1)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readexactly(1)  # the answer has begun
    async with asyncio.timeout(60):
        await listener.close()
    writer.transport.abort()
    await asyncio.sleep(0.01)


async def test_connections_that_ask_for_nothing_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_and_metrics, "MOST_CONNECTIONS", 3)
    listener = HttpListener(HostPort("127.0.0.1", 0), Quiet())
    listener.start()
    idle = [await asyncio.open_connection(*listener.address) for _ in range(4)]
    assert await idle[0][0].read() == b""  # the oldest has gone
    reader, writer = idle[3]
    writer.write(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"404" in await reader.readline()
    for _, one in idle:
        one.transport.abort()
    await listener.close()
    await asyncio.sleep(0.01)


def many(upstream: Upstream, folder: Path, first: int, **more: str) -> Settings:
    return settings(
        upstream,
        folder,
        listeners=f"PLAINTEXT://127.0.0.1:{first}",
        headgate__broker__id__max="3",
        headgate__upstream__refresh__ms="100",
        **more,
    )


def test_a_port_that_is_taken_keeps_no_other_broker_from_being_fronted(
    tmp_path: Path, free_ports: Callable[..., list[int]]
) -> None:
    ports = free_ports(3, consecutive=True)
    with (
        Upstream([1]) as upstream,
        open_store(f"sqlite:{tmp_path / 'quotas.db'}") as store,
        GatewayThread(lambda: Gateway(many(upstream, tmp_path, ports[0]), store)) as thread,
    ):
        with socket.create_server(("127.0.0.1", ports[1])):
            upstream.brokers += [2, 3]
            until(lambda: thread.call(lambda: sorted(thread.gateway.brokers)) == [1, 3])
            leases = thread.gateway.ports.leases
            assert leases is not None
            until(lambda: thread.call(lambda: sorted(leases.epochs)) == [1, 3])
        until(lambda: thread.call(lambda: sorted(thread.gateway.brokers)) == [1, 2, 3])


class Leases:
    """Has what it is told."""

    def __init__(self, *brokers: int) -> None:
        self.epochs = dict.fromkeys(brokers, 1)
        self.asked = threading.Event()

    async def wait_for(self, broker: int) -> None:
        self.asked.set()
        while broker not in self.epochs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def name_of(self, broker: int) -> str:
        return str(broker)


def test_a_standby_opens_every_port_it_couldnt_at_first_and_none_without_its_lease(
    tmp_path: Path, free_ports: Callable[..., list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    ports = free_ports(6, consecutive=True)
    listeners = f"A://127.0.0.1:{ports[0]},B://127.0.0.1:{ports[3]}"
    more = {"listener__security__protocol__map": "A:PLAINTEXT,B:PLAINTEXT"}
    leases: Any = Leases(2)
    with (
        Upstream([1, 2, 3]) as upstream,
        GatewayThread(
            lambda: Gateway(
                settings(
                    upstream,
                    tmp_path,
                    listeners=listeners,
                    headgate__broker__id__max="3",
                    **more,
                ),
                only_brokers=frozenset({1}),
            )
        ) as thread,
    ):
        gateway = thread.gateway

        def opened(broker: int) -> list[str]:
            front = gateway.brokers.get(broker)
            return [] if front is None else sorted(front.listeners)

        def take(broker: int) -> Any:
            return thread.call(
                lambda: gateway.work.tasks.spawn(gateway.ports.take_over(broker, leases))
            )

        with socket.create_server(("127.0.0.1", ports[4])):
            task = take(2)
            until(lambda: thread.call(lambda: opened(2)) == ["A"])
        until(task.done)
        assert thread.call(lambda: opened(2)) == ["A", "B"]
        with socket.create_server(("127.0.0.1", ports[2])):
            leases.epochs[3] = 1
            thread.call(lambda: gateway.ports.standing_by.add(3))
            task = take(3)
            until(lambda: "can't take over yet" in caplog.text.split("broker=2")[-1])
            thread.call(lambda: leases.epochs.pop(3))  # lost before its port is free
            thread.call(lambda: gateway.ports.lost(3))
        leases.asked.wait(60)
        assert not task.done()
        assert thread.call(lambda: (opened(3), gateway.ports.standing_by)) == ([], {3})
        leases.epochs[3] = 2
        until(task.done)
        assert thread.call(lambda: (opened(3), gateway.ports.standing_by)) == (["A", "B"], set())


async def test_a_lease_that_is_lost_while_the_quotas_are_taken_fronts_nothing() -> None:
    settings = Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:1",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
        }
    )
    gateway = Gateway(settings)
    ports, leases = gateway.ports, Leases(1)
    made = 0

    async def make(broker_id: int) -> Any:
        nonlocal made
        made += 1
        if made == 1:  # lost, and somebody else's lease in between
            del leases.epochs[broker_id]
            ports.lost(broker_id)
            leases.epochs[broker_id] = 2
        await asyncio.sleep(0)
        return SimpleNamespace(broker_id=broker_id, made=made, rules=Rules(), listeners={})

    class Rules:
        """Of no quota."""

        managers = SimpleNamespace(sharing_among=lambda *_: iter(()))

    had: list[int] = []

    async def wait_for(broker_id: int) -> None:
        had.append(broker_id)
        if len(had) > 1:  # the first time it was lost again before this returned: seed 4124
            leases.epochs[broker_id] = 1

    del leases.epochs[1]
    leases.wait_for = wait_for  # type: ignore[method-assign]
    ports._make = make
    ports.standing_by.add(1)
    seen: list[dict[int, Any]] = []
    ports._on_change = lambda: seen.append({n: it.made for n, it in gateway.brokers.items()})
    await ports.take_over(1, leases)
    assert had == [1, 1]
    assert (made, seen[-1]) == (2, {1: 2})


def test_a_sweep_that_fails_is_made_again(
    gateway: GatewayThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(periodic_work, "_SWEEP_S", 0.01)
    swept: list[int] = []

    def fails(now_ms: int, skew_ms: int) -> None:
        swept.append(now_ms)
        raise RuntimeError("a bug")

    monkeypatch.setattr(gateway.gateway.brokers[1], "sweep", fails)
    until(lambda: len(swept) > 2)
    assert "closing idle connections" in caplog.text
