"""Answers to many requests are read together, and none is left lying."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from headgate.gateway.connection.gathering import (
    GATHER_S,
    MANY_UNANSWERED,
    MOST_GATHERED_BYTES,
    SMALL_ANSWER_BYTES,
    Gathering,
)
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.connection.transports import BrokerSide
from headgate.gateway.session.session import Session
from kit.playbook import START_MS

from .conftest import Nobody, beaten, heartbeat

ANSWER_BYTES = len(beaten())


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(GATHER_S)


class Broker:
    """A broker that we play: it answers heartbeats, as many as we like."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.answered = 0

    def answer(self, count: int) -> None:
        told = range(self.answered + 1, self.answered + count + 1)
        self.writer.write(b"".join(beaten(number) for number in told))
        self.answered += count


async def connected(gateway: Callable[..., Any], due: int) -> tuple[BrokerSide, Session, Broker]:
    """A link's broker side, with some heartbeats unanswered."""
    session: Session = gateway().session
    session.upstream_ready(START_MS)
    nobody: Any = Nobody()
    link = Link(session, ReadBuffer(), nobody, lambda *_: None, lambda *_: None)
    link.client.transport = nobody
    for number in range(1, due + 1):
        session.client_data(memoryview(bytearray(heartbeat(number))), START_MS)
    session.to_broker.clear()
    side = link.broker
    came: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, w: came.set_result(w), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    make: Any = lambda: side  # noqa: E731
    await asyncio.get_running_loop().create_connection(make, "127.0.0.1", port)
    broker = Broker(await came)
    server.close()
    return side, session, broker


def low_water(side: BrokerSide) -> int:
    sock = side.transport.get_extra_info("socket")
    return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))


async def close(side: BrokerSide, broker: Broker) -> None:
    side.transport.abort()
    broker.writer.close()
    await until(lambda: side.transport is None)


def mark_of(side: BrokerSide) -> Gathering:
    side.gathering = side.gathering or Gathering.of(side.transport)
    assert side.gathering is not None
    return side.gathering


async def test_half_of_what_is_due_is_waited_for(gateway: Callable[..., Any]) -> None:
    side, _, broker = await connected(gateway, 100)
    mark_of(side).gather(100, 30)
    assert low_water(side) == 1_500
    mark_of(side).gather(50, 30)
    assert low_water(side) == 750
    mark_of(side).gather(10_000, 400)
    assert low_water(side) == MOST_GATHERED_BYTES
    mark_of(side).gather(100, SMALL_ANSWER_BYTES + 1)
    assert low_water(side) == 1
    assert not mark_of(side).active
    await close(side, broker)


async def test_few_requests_wait_for_nothing(gateway: Callable[..., Any]) -> None:
    side, session, broker = await connected(gateway, MANY_UNANSWERED)
    for _ in range(MANY_UNANSWERED):
        mark_of(side).read_ms = 1 << 60  # as if the last read had been just now
        broker.answer(1)
        expected = len(session.unanswered) - 1
        await until(lambda expected=expected: len(session.unanswered) == expected)  # type: ignore[misc]
        assert low_water(side) == 1
    await close(side, broker)


async def test_what_lies_below_the_mark_is_read_in_the_end(gateway: Callable[..., Any]) -> None:
    side, session, broker = await connected(gateway, 100)
    mark_of(side).gather(100, ANSWER_BYTES)
    broker.answer(7)  # the mark is at 50 of them
    await until(lambda: len(session.unanswered) == 93)
    broker.answer(93)
    await until(lambda: not session.unanswered)
    await until(lambda: not mark_of(side).active)
    assert low_water(side) == 1
    await close(side, broker)


async def test_a_side_that_ends_meanwhile_leaves_nothing_open(gateway: Callable[..., Any]) -> None:
    side, _, broker = await connected(gateway, 100)
    mark_of(side).gather(100, 30)
    raw = mark_of(side)._raw
    assert raw is not None
    await close(side, broker)
    assert raw.fileno() == -1
    assert side.gathering is not None
    assert not side.gathering.active
    await asyncio.sleep(3 * GATHER_S)
