"""What is done to a connection when it is accepted, before anything is read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.connection import acceptor
from headgate.gateway.connection.acceptor import Acceptor, accept, listen, size_buffers
from headgate.metrics.meters import ListenerMeters
from headgate.throttle.connection import ConnectionQuotas


@pytest.fixture
def accepted() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0, 1) as server:
        server.setblocking(True)
        with socket.create_connection(server.getsockname()[:2]), server.accept()[0] as sock:
            yield sock


def buffers(sock: socket.socket) -> tuple[int, int]:
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
    )


def asked_for(size: int) -> tuple[int, int]:
    """The sizes that the system may report for a size set: that, or on Linux twice that."""
    return size, 2 * size


def sizes(send: int, receive: int) -> Settings:
    return Settings.from_properties(
        {"socket.send.buffer.bytes": str(send), "socket.receive.buffer.bytes": str(receive)}
    )


def test_a_buffer_gets_its_size_and_minus_1_leaves_it_to_the_system(
    accepted: socket.socket,
) -> None:
    send, receive = buffers(accepted)
    size_buffers(accepted, sizes(-1, -1))
    assert buffers(accepted) == (send, receive)
    size_buffers(accepted, sizes(30_000, -1))
    assert buffers(accepted)[0] in asked_for(30_000)
    assert buffers(accepted)[1] == receive
    size_buffers(accepted, sizes(-1, 20_000))
    assert buffers(accepted)[0] in asked_for(30_000)
    assert buffers(accepted)[1] in asked_for(20_000)


def test_accepted_connections_have_the_buffers_of_their_listener() -> None:
    with listen("127.0.0.1", 0, 1) as server:
        size_buffers(server, sizes(30_000, 20_000))
        server.setblocking(True)
        with socket.create_connection(server.getsockname()[:2]):
            sock, _ = accept(server)
            with sock:
                send, receive = buffers(sock)
    assert send in asked_for(30_000)
    assert receive in asked_for(20_000)


class Clock:
    """A wall clock that goes when it is told."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Seen:
    """Keeps what is written down of connections: listener, address, delay."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def connection(
        self, broker_id: int, listener: str, address: str, now_ms: int, throttle_ms: int
    ) -> None:
        self.seen.append((listener, address, throttle_ms))


class Door:
    """An acceptor at a port, its quotas, and who knocks."""

    def __init__(
        self, stack: contextlib.ExitStack, beside: Door | None = None, **limits: str
    ) -> None:
        self.stack, self.journal = stack, Seen()
        self.name = "L" if beside is None else "M"
        if beside is None:
            self.clock = Clock()
            config = {name.replace("__", "."): value for name, value in limits.items()}
            self.quotas = ConnectionQuotas(("L",), None, config, num_samples=2)
        else:
            self.clock, self.quotas = beside.clock, beside.quotas
            self.quotas.add_listener(self.name, self.clock())
        self.meters = ListenerMeters()
        self.taken: list[socket.socket] = []
        sock = stack.enter_context(listen("127.0.0.1", 0, 50))
        journal: Any = self.journal  # the class itself may be compiled, and then has no heirs here
        self.acceptor = Acceptor(
            sock, self.name, 1, self.quotas, self.meters, journal, self.take, self.clock
        )
        stack.callback(self.acceptor.close)
        self.acceptor.start()

    def take(self, sock: socket.socket, address: str) -> None:
        self.taken.append(self.stack.enter_context(sock))

    async def knock(self, times: int) -> None:
        for _ in range(times):
            self.stack.enter_context(socket.create_connection(self.acceptor.address, 10))
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0.005)

    def free(self) -> None:
        self.quotas.release("L", "127.0.0.1")
        self.acceptor.slot_freed()

    @property
    def blocked(self) -> float:
        assert self.meters.blocked is not None
        return self.meters.blocked.peek(self.clock())["mean"]


async def test_612_6_while_a_delay_runs_nothing_is_accepted() -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack, max__connection__creation__rate="1")
        await door.knock(3)
        for taken in (1, 2, 3):
            assert len(door.taken) == taken
            door.clock.now_ms += 999
            door.acceptor.slot_freed()
            await door.turn()
            assert len(door.taken) == taken
            door.clock.now_ms += 1
            door.acceptor.slot_freed()
            await door.turn()


async def test_612_6_612_9_it_goes_on_when_the_delay_is_over_and_a_slot_is_free() -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack, max__connection__creation__rate="1", max__connections="1")
        await door.knock(2)
        assert len(door.taken) == 1  # the second is too early, and has no slot
        door.free()
        await door.turn()
        assert len(door.taken) == 1  # a slot, and still too early
        door.clock.now_ms += 1_000
        door.acceptor.slot_freed()
        await door.turn()
        assert len(door.taken) == 2
        await door.knock(1)
        door.clock.now_ms += 1_000
        await door.turn()
        assert len(door.taken) == 2  # late enough, and no slot
        door.free()
        await door.turn()
        assert len(door.taken) == 3


async def test_612_7_nobody_waits_nothing_is_blocked_or_charged() -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack, max__connection__creation__rate="2", max__connections="2")
        await door.knock(2)
        assert len(door.taken) == 2
        rate = door.quotas.broker_rate(door.clock())
        assert rate == 2.0  # over a window of a second; a third isn't there
        door.clock.now_ms += 30_000
        assert door.blocked == 0.0  # no slot is left, and nobody wants one
        await door.knock(1)
        assert door.blocked == 0.0
        door.clock.now_ms += 30_000
        assert door.blocked == 0.0  # it still waits: Kafka's meter counts a wait when it is over
        door.free()
        await door.turn()
        assert len(door.taken) == 3
        assert door.blocked == 0.5


async def test_612_9_a_slot_that_two_listeners_wait_for_is_taken_once() -> None:
    with contextlib.ExitStack() as stack:
        first = Door(stack, max__connections="1")
        second = Door(stack, first)
        await first.knock(2)
        await second.knock(1)
        assert (len(first.taken), len(second.taken)) == (1, 0)
        first.quotas.release("L", "127.0.0.1")
        for door in (first, second):  # both hear of it before either has accepted
            door.acceptor.slot_freed()
        for _ in range(3):
            await first.turn()
        assert len(first.taken) + len(second.taken) == 2
        assert first.quotas.total == 1
        holder = first if len(first.taken) == 2 else second
        first.quotas.release(holder.name, "127.0.0.1")
        for door in (first, second):
            door.acceptor.slot_freed()
        await first.turn()
        assert (len(first.taken), len(second.taken)) == (2, 1)


async def test_observed_rates_are_measured_and_journaled_and_delay_and_refuse_nobody() -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack, max__connection__creation__rate="1", max__connections="40")
        door.quotas.observing = True
        door.quotas.set_ip_rate(None, 1.0)
        await door.knock(30)
        assert len(door.taken) == 30
        assert door.quotas.broker_rate(door.clock()) == 30.0
        assert dict(door.quotas.ip_rates(door.clock())) == {"127.0.0.1": 30.0}
        assert door.meters.closed == {}
        assert door.blocked == 0.0
        delays = [delay for _, address, delay in door.journal.seen if not address]
        refusals = [delay for _, address, delay in door.journal.seen if address]
        assert len(refusals) == 30
        assert max(delays) == max(refusals) == 1_000  # what they would have been told
        await door.knock(20)
        assert len(door.taken) == 40  # a limit of connections isn't a quota's throttle
        door.quotas.observing = False


async def test_a_failure_costs_one_connection_and_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack)
        calls = 0
        taken = door.acceptor._on_accept

        def fails(sock: socket.socket, address: str) -> None:
            nonlocal calls
            calls += 1
            raise RuntimeError("a bug")

        door.acceptor._on_accept = fails
        await door.knock(3)
        assert calls == 1  # the others wait: it isn't the loop's only business
        assert "a connection couldn't be taken" in caplog.text
        assert door.meters.closed == {"accept-failed": 1}
        assert door.quotas.total == 0
        door.acceptor._on_accept = taken
        door.clock.now_ms += 100
        door.acceptor.slot_freed()
        await door.turn()
        assert len(door.taken) == 2


async def test_a_clock_that_is_set_back_keeps_nobody_waiting() -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack, max__connection__creation__rate="1")
        await door.knock(2)
        assert len(door.taken) == 1
        door.clock.now_ms -= 3_600_000
        door.acceptor.slot_freed()
        await door.turn()
        assert len(door.taken) == 2
        assert door.blocked == 0.0


async def test_only_so_many_that_came_too_fast_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "MOST_PARKED", 2)
    with contextlib.ExitStack() as stack:
        door = Door(stack)
        door.quotas.set_ip_rate(None, 1.0)
        await door.knock(6)
        assert len(door.taken) == 1
        assert len(door.acceptor._parked) == 2
        assert door.meters.closed == {"ip-connection-rate": 5}
        parked = list(door.acceptor._parked.items())
        door.acceptor.close()
        assert door.acceptor._parked == {}
        assert all(sock.fileno() < 0 and timer.cancelled() for sock, timer in parked)


async def test_without_free_descriptors_clients_wait_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        door = Door(stack)

        def full(_sock: socket.socket) -> tuple[socket.socket, Any]:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(acceptor, "accept", full)
            await door.knock(3)
            door.clock.now_ms += 100
            door.acceptor.slot_freed()
            await door.turn()
        assert door.meters.closed == {f"accept-{errno.EMFILE}": 2}
        (said,) = [line for line in caplog.messages if "wait to be accepted" in line]
        assert "Too many open files" in said
        door.clock.now_ms += 100
        door.acceptor.slot_freed()
        await door.turn()
        assert len(door.taken) == 3
