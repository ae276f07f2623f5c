"""Answers to many requests are read together, and none is left lying."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from headgate.gateway.sides import (
    GATHER_S,
    MANY_UNANSWERED,
    MOST_GATHERED_BYTES,
    SMALL_ANSWER_BYTES,
    BrokerSide,
    ReadBuffer,
)

ANSWER = b"0123456789"


class Answers:
    """A session that counts answers of ten bytes and passes nothing on."""

    def __init__(self, due: int) -> None:
        self.unanswered = deque(range(due))
        self.rules = SimpleNamespace(counts_requests=False)
        self.to_client: list[Any] = []
        self.to_broker: list[Any] = []
        self.commands: list[Any] = []
        self.reads: list[int] = []
        self.all_in = asyncio.Event()

    def broker_data(self, data: memoryview, now_ms: int) -> None:
        self.reads.append(len(data))
        for _ in range(len(data) // len(ANSWER)):
            self.unanswered.popleft()
        if not self.unanswered:
            self.all_in.set()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(GATHER_S)


async def connected(due: int) -> tuple[BrokerSide, Answers, asyncio.StreamWriter]:
    """A broker's side of a link, connected to a broker that we play."""
    session = Answers(due)
    link = SimpleNamespace(session=session, bytes_out=0, lost=lambda side, exc: None)
    side = BrokerSide(link, ReadBuffer())  # type: ignore[arg-type]
    link.broker, link.client = side, None
    came: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, w: came.set_result(w), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.get_running_loop().create_connection(lambda: side, "127.0.0.1", port)
    broker = await came
    server.close()
    return side, session, broker


def low_water(side: BrokerSide) -> int:
    sock = side.transport.get_extra_info("socket")
    return int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))


async def close(side: BrokerSide, broker: asyncio.StreamWriter) -> None:
    side.transport.abort()
    broker.close()
    await until(lambda: side.transport is None)


async def test_half_of_what_is_due_is_waited_for() -> None:
    side, _, broker = await connected(100)
    side.gather(100, 30)
    assert low_water(side) == 1_500
    side.gather(50, 30)
    assert low_water(side) == 750
    side.gather(10_000, 400)
    assert low_water(side) == MOST_GATHERED_BYTES
    side.gather(100, SMALL_ANSWER_BYTES + 1)
    assert low_water(side) == 1
    assert not side.gathering
    await close(side, broker)


async def test_few_requests_wait_for_nothing() -> None:
    side, session, broker = await connected(MANY_UNANSWERED)
    for _ in range(MANY_UNANSWERED):
        side.read_ms = 1 << 60  # as if the last read had been just now
        broker.write(ANSWER)
        expected = len(session.unanswered) - 1
        await until(lambda expected=expected: len(session.unanswered) == expected)  # type: ignore[misc]
        assert low_water(side) == 1
    await close(side, broker)


async def test_what_lies_below_the_mark_is_read_in_the_end() -> None:
    side, session, broker = await connected(100)
    side.gather(100, len(ANSWER))
    broker.write(ANSWER * 7)  # the mark is at 50 of them
    await until(lambda: len(session.unanswered) == 93)
    broker.write(ANSWER * 93)
    await session.all_in.wait()
    await until(lambda: not side.gathering)
    assert low_water(side) == 1
    await close(side, broker)


async def test_a_side_that_ends_meanwhile_leaves_nothing_open() -> None:
    side, _, broker = await connected(100)
    side.gather(100, 30)
    raw = side._raw
    assert raw is not None
    await close(side, broker)
    assert raw.fileno() == -1
    assert not side.gathering
    await asyncio.sleep(3 * GATHER_S)
