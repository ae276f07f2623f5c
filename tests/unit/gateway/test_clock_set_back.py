"""A wall clock that is set back makes no throttled client wait longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headgate.gateway.connection.link import SET_BACK_MS, Link
from headgate.gateway.connection.transports import ReadBuffer
from headgate.gateway.session.commands import WakeAt
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.playbook import START_MS

from .conftest import Nobody, produce, produced

SLOW = {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}}
HOUR_MS = 3_600_000


def throttled(gateway: Callable[..., Any], now_ms: int) -> Session:
    """A session whose client has sent ten times what it may, and been told."""
    session: Session = gateway(SLOW).session
    session.upstream_ready(now_ms)
    session.client_data(memoryview(bytearray(produce(110_000))), now_ms)
    session.broker_data(memoryview(bytearray(produced())), now_ms)
    assert session.state.throttled_until_ms > now_ms
    return session


def test_a_mute_ends_when_its_time_is_over_by_the_loops_clock(gateway: Callable[..., Any]) -> None:
    session = throttled(gateway, START_MS)
    until_ms = session.state.throttled_until_ms
    session.commands.clear()
    session.wake(START_MS - HOUR_MS, until_ms - 1)
    assert session.commands == [WakeAt(until_ms)]
    session.commands.clear()
    session.wake(START_MS - HOUR_MS, until_ms)
    assert session.state.throttled_until_ms == 0
    assert WakeAt(until_ms) not in session.commands


async def test_a_link_goes_by_the_loops_clock(gateway: Callable[..., Any]) -> None:
    # The session believes it is an hour later than it is: so it looks after a step back.
    ahead_ms = time.time_ns() // 1_000_000 + HOUR_MS
    session = throttled(gateway, ahead_ms)
    nobody: Any = Nobody()
    link = Link(session, ReadBuffer(), nobody, lambda *_: None, lambda *_: None)
    link.client.transport = nobody
    link._wake(time.time_ns() // 1_000_000 + SET_BACK_MS // 2)
    assert (
        session.state.throttled_until_ms > ahead_ms
    )  # a timer that is a little early isn't a step
    link._wake(session.state.throttled_until_ms)
    assert session.state.throttled_until_ms == 0
