"""Other ports than the brokers', and connection limits: bootstrap, standby, hosts, slots."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headgate.config import HostPort
from headgate.gateway import GatewayThread
from headgate.gateway.connection.hosts import Hosts
from headgate.gateway.identity.identity import AuthenticationContext
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONNECTION, CONSUMER_SHARES, PRODUCER, PRODUCER_SHARES
from headgate.store import open_store

from .gateway_kit import wait_for
from .scripted_upstream import (
    VERSIONS,
    Start,
    Upstream,
    connect,
    links,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]


def meters(gateway: GatewayThread) -> Any:
    return gateway.gateway.brokers[1].meters.listeners["PLAINTEXT"]


def waits(gateway: GatewayThread) -> bool:
    """Whether nothing is accepted for now, for want of a slot or because of a rate."""
    return bool(gateway.gateway.brokers[1].listeners["PLAINTEXT"].acceptor.blocked_since_ms)


def at(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def served(client: socket.socket) -> bool:
    """Whether a connection is answered; False if it is closed instead."""
    try:
        client.sendall(VERSIONS)
        return read_answer(client)[4:8] == struct.pack(">i", 9)
    except TimeoutError:
        raise
    except (EOFError, OSError):
        return False


def test_a_bootstrap_port_leads_to_a_broker(start: Start, free_port: int) -> None:
    gateway = start(headgate__bootstrap__listener=f"PLAINTEXT://127.0.0.1:{free_port}")
    with at(free_port) as client:
        assert served(client)
        assert gateway.call(lambda: links(gateway)) == 1
    assert meters(gateway).accepted == 1


def test_612_6_a_bootstrap_port_is_no_way_around_the_rate(start: Start, free_port: int) -> None:
    gateway = start(
        headgate__bootstrap__listener=f"PLAINTEXT://127.0.0.1:{free_port}",
        max__connection__creation__rate="1",
        quota__window__num="2",
    )
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(at(free_port)) for _ in range(4)]
        assert [served(client) for client in clients] == [True] * 4
    assert gateway.call(lambda: meters(gateway).throttle_time.peek(time.time_ns() // 1_000_000)) > 0


def test_612_9_a_bootstrap_port_waits_for_a_slot(start: Start, free_port: int) -> None:
    gateway = start(
        headgate__bootstrap__listener=f"PLAINTEXT://127.0.0.1:{free_port}", max__connections="1"
    )
    with connect(gateway) as first, contextlib.ExitStack() as stack:
        assert served(first)
        second = stack.enter_context(at(free_port))
        bootstrap = gateway.gateway.shared.bootstraps[0]
        wait_for(lambda: gateway.call(lambda: bootstrap._waiting is not None), "it to wait")
        assert meters(gateway).accepted == 1
        first.close()
        assert served(second)


def test_too_many_of_one_address_are_closed_on_every_port(start: Start, free_port: int) -> None:
    gateway = start(
        headgate__bootstrap__listener=f"PLAINTEXT://127.0.0.1:{free_port}",
        max__connections__per__ip="2",
    )
    with connect(gateway) as first, at(free_port) as second:
        assert served(first)
        assert served(second)
        for third in (connect(gateway), at(free_port)):
            with third:
                assert not served(third)
    assert gateway.call(lambda: meters(gateway).closed["max-connections-per-ip"]) == 2


def test_a_standby_opens_admin_and_bootstrap_ports_when_it_takes_over(
    start: Start, tmp_path: Path, free_ports: Any
) -> None:
    port, bootstrap, admin = free_ports(3)
    path = f"sqlite:{tmp_path / 'quotas.db'}"
    here = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "headgate__bootstrap__listener": f"PLAINTEXT://127.0.0.1:{bootstrap}",
        "headgate__admin__listener": f"ADMIN://127.0.0.1:{admin}",
        "listener__security__protocol__map": "PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT",
        "headgate__lease__ttl__ms": "6000",
    }
    one_store, two_store = open_store(path), open_store(path)
    one = start(store=one_store, headgate__worker__id="one", **here)
    two = start(store=two_store, headgate__worker__id="two", **here)  # the same command again
    assert two.gateway.not_ready() == "standing by"
    one.stop(0)
    wait_for(lambda: two.call(lambda: two.gateway.shared.admin_address), "the standby to take over")
    wait_for(lambda: two.call(lambda: two.gateway.shared.bootstraps), "its bootstrap port")
    for where in (port, bootstrap, admin):
        with at(where) as client:
            assert served(client)
    two.stop(0)
    one_store.close()
    two_store.close()


def test_a_http_port_in_use_is_named_with_the_way_out(start: Start, free_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        with pytest.raises(Exception, match=r"http\.listener can't listen.*a standby.*needs its"):
            start(headgate__http__listener=f"127.0.0.1:{free_port}")


def limit(host: str, rate: float | None) -> QuotaAlteration:
    return QuotaAlteration.of(QuotaEntity.of(ip=host), (Op(CONNECTION, rate),))


def test_a_connection_rate_may_name_a_host(start: Start, tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'quotas.db'}")
    gateway = start(store=store, max__connections__per__ip__overrides="localhost:77")
    quotas = gateway.gateway.brokers[1].quotas

    def bound() -> int:
        return int(gateway.call(lambda: quotas.ip_bound("127.0.0.1")))

    def others() -> int:
        return int(gateway.call(lambda: quotas.ip_bound("192.0.2.1")))

    unlimited = bound()
    store.alter([limit("localhost", 7.0)])
    wait_for(lambda: bound() == 7 or _six(gateway, 7), "the host's limit")
    assert others() == unlimited
    store.alter([limit("127.0.0.1", 5.0), limit("::1", 5.0)])  # the address itself goes before
    wait_for(lambda: bound() == 5, "the address's limit")
    store.alter([limit("127.0.0.1", None), limit("::1", None)])
    wait_for(lambda: bound() == 7 or _six(gateway, 7), "the host's limit again")
    store.alter([limit("localhost", None)])
    wait_for(lambda: bound() == unlimited and not _six(gateway, 7), "no limit")
    most = gateway.call(lambda: dict(quotas.max_per_ip_overrides))
    assert list(most.values()) == [77]
    assert set(most) <= {"127.0.0.1", "0:0:0:0:0:0:0:1"}
    gateway.stop(0)
    store.close()


def _six(gateway: GatewayThread, rate: int) -> bool:
    """Whether the limit is localhost's other address's: which comes first is the system's."""
    quotas = gateway.gateway.brokers[1].quotas
    return bool(gateway.call(lambda: quotas.ip_bound("0:0:0:0:0:0:0:1")) == rate)


async def test_a_host_without_an_address_is_said_once_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    from headgate.gateway.connection import hosts as module

    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    asked: list[str] = []
    found = asyncio.Event()

    async def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if len(asked) < 3:
            raise OSError("no such name")
        return [(0, 0, 0, "", ("192.0.2.7", 0))]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    tasks: list[Any] = []
    hosts = Hosts(lambda work: tasks.append(loop.create_task(work)))
    hosts.found = found.set
    assert hosts.address("2001:db8::1") == "2001:db8:0:0:0:0:0:1"
    assert hosts.address("late.example") is None
    await asyncio.wait_for(found.wait(), 60)
    assert hosts.address("late.example") == "192.0.2.7"
    assert asked == ["late.example"] * 3
    assert sum("has no address" in message for message in caplog.messages) == 1


def test_612_7_a_wait_for_a_slot_is_counted_as_blocked_when_it_is_over(start: Start) -> None:
    gateway = start(max__connections="1")
    with connect(gateway) as first, contextlib.ExitStack() as stack:
        assert served(first)
        stack.enter_context(connect(gateway))
        front = gateway.gateway.brokers[1]
        wait_for(
            lambda: gateway.call(lambda: front.listeners["PLAINTEXT"].acceptor.blocked_since_ms),
            "the acceptor to wait",
        )

        def blocked() -> float:
            view = next(iter(gateway.views()))
            meter = view.meters.listeners["PLAINTEXT"].blocked
            assert meter is not None
            return meter.peek(time.time_ns() // 1_000_000)["mean"]

        acceptor = front.listeners["PLAINTEXT"].acceptor
        wait_for(
            lambda: gateway.call(lambda: acceptor._now_ms() > acceptor.blocked_since_ms),
            "a millisecond to pass: less isn't counted",
        )
        assert blocked() == 0
        first.close()
        wait_for(lambda: blocked() > 0, "the wait to be counted")
        assert blocked() < 1


def test_546_9_shares_that_nothing_divides_are_said_once(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"sqlite:{tmp_path / 'quotas.db'}")
    gateway = start(store=store, headgate__capacity__consumer_byte_rate="1000000")

    def weigh(user: str, weight: float | None) -> None:
        ops = (Op(PRODUCER_SHARES, weight), Op(CONSUMER_SHARES, weight))
        store.alter([QuotaAlteration.of(QuotaEntity.of(user=user), ops)])
        seen = store.snapshot().version
        wait_for(lambda: gateway.gateway.table.version >= seen, "the gateway to see it")

    def said() -> list[str]:
        return [m for m in caplog.messages if m.startswith("shares are kept and not enforced")]

    weigh("alice", 2.0)
    weigh("bob", 1.0)
    weigh("alice", None)
    weigh("bob", None)
    weigh("alice", 3.0)
    # A table is in force a moment before it is logged; the last line comes after all others.
    wait_for(lambda: len(said()) >= 2, "it to be said again")
    gateway.stop(0)
    store.close()
    assert len(said()) == 2
    assert "setting=headgate.capacity.producer_byte_rate" in said()[0]


class ByAddress:
    """Names PLAINTEXT clients by where they come from, and turns others away."""

    NAMES: ClassVar = {"127.0.0.2": "alice", "127.0.0.3": "bob"}

    def build(self, context: AuthenticationContext) -> str:
        """Return the name of an address."""
        if context.peer_address not in self.NAMES:
            raise PermissionError("not from there")
        return self.NAMES[context.peer_address]


def test_55_13_a_builder_by_address_gives_two_plaintext_clients_quotas_of_their_own(
    start: Start,
) -> None:
    quotas = {
        QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0},
        QuotaEntity.of(user="bob"): {PRODUCER: 2_000.0},
    }
    gateway = start(quotas, principal__builder__class=f"{__name__}:ByAddress")
    where = gateway.gateway.addresses("PLAINTEXT")[1]
    told = {}
    for address, name in ByAddress.NAMES.items():
        with socket.create_connection(where, 60, source_address=(address, 0)) as client:
            client.sendall(produce(50_000))
            told[name] = int.from_bytes(read_answer(client)[-4:], "big")
    # 5,000 a second over ten seconds, so 4 and 1.5 times the quota too much, times ten seconds
    # less the time until the answer
    assert told == pytest.approx({"alice": 40_000, "bob": 15_000}, abs=5_000)
    with connect(gateway) as stranger:
        assert not served(stranger)
    wait_for(lambda: meters(gateway).closed["principal"] == 1, "the reason")


def test_what_the_one_journal_wrote_is_counted_once_over_its_brokers(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.others[2] = upstream.port
    gateway = start(
        headgate__broker__id__max="2", headgate__usage=f"files:{tmp_path / 'usage'}",
        listeners="PLAINTEXT://127.0.0.1:0",
    )  # fmt: skip
    for port in gateway.gateway.addresses("PLAINTEXT").values():
        with socket.create_connection(port, 60) as client:
            assert served(client)

    def counted() -> list[int]:
        return [view.meters.usage_events for view in gateway.views()]

    wait_for(lambda: sum(counted()) > 0, "the journal to be written")
    assert len(counted()) == 2
    assert counted()[1] == 0


def test_ready_means_that_every_port_accepts(start: Start, free_port: int) -> None:
    gateway = start(
        headgate__admin__listener=f"ADMIN://127.0.0.1:{free_port}",
        listener__security__protocol__map="PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT",
    )
    assert gateway.call(gateway.gateway.not_ready) is None
    for port in (free_port, gateway.gateway.addresses("PLAINTEXT")[1][1]):
        with at(port) as client:
            assert served(client)
    front = gateway.gateway.brokers[1]
    for name in ("ADMIN", "PLAINTEXT"):
        gateway.call(front.listeners[name].acceptor.close)
        said = gateway.call(gateway.gateway.not_ready)
        assert said is not None
        assert f"listener {name} of broker 1 doesn't accept connections" in said.splitlines()


def test_a_port_that_waits_for_a_slot_is_ready(start: Start) -> None:
    gateway = start(max__connections="1")
    with connect(gateway) as first, connect(gateway):
        assert served(first)
        wait_for(
            lambda: gateway.call(lambda: waits(gateway)),
            "the acceptor to wait for a slot",
        )
        assert gateway.call(gateway.gateway.not_ready) is None


def test_a_listener_of_a_name_that_is_open_is_not_opened_over_it(start: Start) -> None:
    gateway = start()
    front = gateway.gateway.brokers[1]

    def again() -> None:
        bind = HostPort("127.0.0.1", 0)
        front.open(front.listeners["PLAINTEXT"], bind, time.time_ns() // 1_000_000)

    with pytest.raises(ValueError, match="listener PLAINTEXT of broker 1 is open already"):
        gateway.call(again)
    with connect(gateway) as client:
        assert served(client)


def test_612_5_the_window_is_the_gateways_quota_window(start: Start) -> None:
    gateway = start(quota__window__size__seconds="2", quota__window__num="3")
    limits = gateway.gateway.brokers[1].quotas

    def waits() -> list[float]:
        limits.set_broker_rate(1)
        now_ms = time.time_ns() // 1_000_000
        return [limits.reserve("PLAINTEXT", now_ms) for _ in range(12)]

    found = gateway.call(waits)
    assert found[0] == 0
    assert max(found) == 2_000  # one window, and not the default's second


class Counted:
    """Names clients by how many it has named before."""

    built: ClassVar[list[str]] = []

    def build(self, context: AuthenticationContext) -> str:
        """Return a new name each time."""
        self.built.append(f"client {len(self.built)}")
        return self.built[-1]


def test_55_12_the_principal_is_the_sessions_and_is_found_once(start: Start) -> None:
    Counted.built.clear()
    gateway = start(
        {QuotaEntity.of(user=DEFAULT): {PRODUCER: 1_000_000.0}},
        principal__builder__class=f"{__name__}:Counted",
    )
    for session in range(2):
        with connect(gateway) as client:
            for _ in range(3):
                client.sendall(produce(100))
                read_answer(client)
            assert Counted.built == [f"client {number}" for number in range(session + 1)]
    manager = gateway.gateway.brokers[1].rules.managers.by_key[PRODUCER]
    # Both are charged by the default user's quota, each under its own name.
    assert gateway.call(
        lambda: [manager.sensor((f"client {n}", "")) is None for n in range(3)]
    ) == [
        False,
        False,
        True,
    ]
