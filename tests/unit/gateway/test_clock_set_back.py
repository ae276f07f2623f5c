"""A wall clock that is set makes no throttled client wait longer, or less."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.session.commands import WakeAt
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from kit.playbook import START_MS

from .conftest import (
    Nobody,
    StillFace,
    StillIdentity,
    fetch,
    fetched,
    produce,
    produced,
    request,
    string,
)

SLOW = {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}}
SLOW_FETCH = {QuotaEntity.of(user="alice"): {CONSUMER: 10_000.0}}
HOUR_MS = 3_600_000


class Clock:
    """How far the wall clock is ahead of the one that is never set."""

    skew_ms = 0

    def skew(self) -> int:
        return self.skew_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def throttled(gateway: Callable[..., Any], clock: Clock, now_ms: int) -> Session:
    """A session whose client has sent ten times what it may, and been told."""
    session: Session = gateway(SLOW, skew=clock.skew).session
    session.upstream_ready(now_ms)
    session.client_data(memoryview(bytearray(produce(110_000))), now_ms)
    session.broker_data(memoryview(bytearray(produced())), now_ms)
    assert session.throttled_until_ms > now_ms
    return session


def test_a_mute_ends_when_its_time_is_over_by_the_loops_clock(
    gateway: Callable[..., Any], clock: Clock
) -> None:
    session = throttled(gateway, clock, START_MS)
    until_ms = session.throttled_until_ms
    session.commands.clear()
    clock.skew_ms = -HOUR_MS
    session.wake(until_ms - 2 - HOUR_MS, until_ms - 1)
    assert session.commands == []  # its own time was asked for, and will come
    session.wake(until_ms - 1 - HOUR_MS, until_ms)
    again_ms = until_ms - HOUR_MS  # a timer that was early: its time by the clock as it is now
    assert session.commands == [WakeAt(again_ms)]
    session.commands.clear()
    session.wake(again_ms, again_ms)
    assert session.throttled_until_ms == 0
    assert session.commands == []


def test_a_mute_that_was_waited_out_is_left_to_nobody_though_the_clock_was_set_back(
    gateway: Callable[..., Any], clock: Clock
) -> None:
    """Found by the simulator: seed 3020, where a newcomer took it for the one that came after."""
    session = throttled(gateway, clock, START_MS)
    until_ms = session.throttled_until_ms
    clock.skew_ms = -HOUR_MS
    session.wake(until_ms - HOUR_MS, until_ms)
    session.close("client-gone", "", until_ms - HOUR_MS)
    assert len(session.rules.lanes) == 0
    clock.skew_ms = 0
    again = throttled(gateway, clock, START_MS)
    again.close("client-gone", "", START_MS - HOUR_MS)
    assert len(again.rules.lanes) == 1


def test_a_time_that_was_asked_for_before_ends_no_later_mute(
    gateway: Callable[..., Any], clock: Clock
) -> None:
    """
    Found by the simulator: seed 207414848183.

    What was asked for before the clock was set back may be the same time as the mute's end.
    """
    clock.skew_ms = -HOUR_MS
    session = throttled(gateway, clock, START_MS - HOUR_MS)
    until_ms = session.throttled_until_ms
    session.wake(START_MS - HOUR_MS + 1, START_MS)
    assert session.throttled_until_ms == until_ms
    session.wake(START_MS - HOUR_MS + 1, until_ms)
    assert session.throttled_until_ms == until_ms


def test_a_mute_that_is_told_after_the_clock_was_set_back_lasts_as_long(
    gateway: Callable[..., Any], clock: Clock
) -> None:
    """By the wall clock it ends before the one in force."""
    session = throttled(gateway, clock, START_MS)
    first_ms = session.throttled_until_ms - START_MS
    clock.skew_ms = -HOUR_MS
    session.start_throttle(2 * first_ms, None, START_MS - HOUR_MS)
    session.wake(START_MS + first_ms - HOUR_MS, START_MS + first_ms)
    assert session.throttled_until_ms == START_MS - HOUR_MS + 2 * first_ms
    session.wake(session.throttled_until_ms, session.throttled_until_ms)
    assert session.throttled_until_ms == 0


def test_a_mute_lasts_though_the_clock_is_set_forward(
    gateway: Callable[..., Any], clock: Clock
) -> None:
    """Found by the simulator: seed 36631193109, where a fetch was woken for another reason."""
    session = throttled(gateway, clock, START_MS)
    until_ms = session.throttled_until_ms
    session.commands.clear()
    clock.skew_ms = HOUR_MS
    session.wake(until_ms - 1 + HOUR_MS, until_ms - 1)
    session.nudged(until_ms - 1 + HOUR_MS)
    assert session.throttled_until_ms == until_ms
    assert session.commands == []
    session.wake(until_ms + HOUR_MS, until_ms)
    assert session.throttled_until_ms == 0


class Dates(Journal):
    """Keeps when fetches were charged, and how long they throttle."""

    def __init__(self) -> None:
        self.charged: list[tuple[int, int]] = []

    def record(self, *args: Any) -> None:
        self.charged.append((args[4], args[6].throttle_time_ms))


def test_a_held_answer_goes_by_the_loops_clock_and_is_charged_by_the_wall_clock(
    gateway: Callable[..., Any],
) -> None:
    journal = Dates()
    skew_ms = 0
    rules = gateway(SLOW_FETCH, journal=journal, skew=lambda: skew_ms).rules
    first, second, third = (
        Session(rules, StillIdentity("alice"), build_plans(), StillFace()) for _ in range(3)
    )
    for session in (first, second, third):
        session.upstream_ready(START_MS)
    for session in (first, second):
        session.client_data(memoryview(bytearray(fetch())), START_MS)
    first.broker_data(memoryview(bytearray(fetched(150_000))), START_MS)
    ((_, closed_ms),) = journal.charged
    assert closed_ms > 5_000
    second.broker_data(memoryview(bytearray(fetched(20_000))), START_MS + 1)
    assert WakeAt(START_MS + closed_ms) in second.commands
    assert not second.to_client
    assert second.hold is not None
    second.hold.rest(START_MS - 1_000)  # a picture's clock was read before: that is no step
    assert rules.gates.ahead_ms == 0
    skew_ms = -HOUR_MS
    back_ms = START_MS + closed_ms - HOUR_MS
    second.wake(back_ms, START_MS + closed_ms)
    assert second.to_client
    assert [t_ms for t_ms, _ in journal.charged] == [START_MS, back_ms]
    # The gate is closed for the second's throttle, and not for what the clock was set back.
    third.client_data(memoryview(bytearray(fetch())), back_ms + 1)
    assert third.commands[-1] == WakeAt(back_ms + journal.charged[-1][1])
    assert 0 < journal.charged[-1][1] < 30_000


def test_a_gateway_that_stood_still_knows_how_far_its_clock_was_set_back(
    gateway: Callable[..., Any],
) -> None:
    """Found by the simulator: seed 73099."""
    journal = Dates()
    skew_ms = 0
    rules = gateway(SLOW_FETCH, journal=journal, skew=lambda: skew_ms).rules
    first, second, third = (
        Session(rules, StillIdentity("alice"), build_plans(), StillFace()) for _ in range(3)
    )
    for session in (first, second, third):
        session.upstream_ready(START_MS)
        session.client_data(memoryview(bytearray(fetch())), START_MS)
    first.broker_data(memoryview(bytearray(fetched(120_000))), START_MS)
    second.broker_data(memoryview(bytearray(fetched(5_000))), START_MS)
    third.broker_data(memoryview(bytearray(fetched(5_000))), START_MS)
    assert third.hold is not None
    opens_ms, third_ms = START_MS + journal.charged[0][1], third.hold.wake_ms
    # It was due 3 s ago, and by the clock it will be in half a second.
    now_ms = opens_ms - 500
    skew_ms = -3_500
    second.wake(now_ms, opens_ms)
    assert second.to_client
    assert rules.gates.ahead_ms == 3_500
    closed_ms = journal.charged[1][1]
    # What was due a little later tells nothing new: it waits for the second's throttle to end.
    third.wake(now_ms, third_ms)
    assert rules.gates.ahead_ms == 3_500
    assert not third.to_client
    third.nudged(now_ms)
    assert WakeAt(now_ms + closed_ms) in third.commands


async def test_a_link_goes_by_the_loops_clock(gateway: Callable[..., Any], clock: Clock) -> None:
    # The wall clock was an hour ahead when the mute began, and is set back since.
    clock.skew_ms = HOUR_MS
    ahead_ms = time.time_ns() // 1_000_000 + HOUR_MS
    session = throttled(gateway, clock, ahead_ms)
    until_ms = session.throttled_until_ms
    nobody: Any = Nobody()
    link = Link(session, ReadBuffer(), nobody, lambda *_: None, lambda *_: None)
    link.client.transport = nobody
    clock.skew_ms = 0
    link._wake(until_ms)
    assert session.throttled_until_ms == until_ms
    clock.skew_ms = ahead_ms - until_ms  # as if it had lasted
    link._wake(until_ms)
    assert session.throttled_until_ms == 0


def test_a_smooth_fetch_waits_no_longer_because_the_clock_is_set_back(
    gateway: Callable[..., Any],
) -> None:
    smooth = {"headgate.pacing": "smooth"}
    skew_ms = 0
    rules = gateway(SLOW_FETCH, smooth, skew=lambda: skew_ms).rules
    first, second = (
        Session(rules, StillIdentity("alice"), build_plans(), StillFace()) for _ in range(2)
    )
    for session in (first, second):
        session.upstream_ready(START_MS)
    first.client_data(memoryview(bytearray(fetch())), START_MS)
    first.broker_data(memoryview(bytearray(fetched(40_000))), START_MS)
    asks = struct.pack(">iiiibii", -1, 500, 1, 52_428_800, 0, 0, -1) + struct.pack(">i", 1)
    asks += string("t") + struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1_048_576)
    asks = request(1, 11, 1, asks + struct.pack(">i", 0) + string(""))
    second.client_data(memoryview(bytearray(asks)), START_MS + 1)
    assert not second.to_broker
    skew_ms = -HOUR_MS
    back_ms = START_MS + 2 - HOUR_MS
    looked_ms = back_ms
    for _ in range(10):
        second.wake(looked_ms)
        if second.to_broker:
            break
        assert second.hold is not None
        looked_ms = second.hold.wake_ms
    assert second.to_broker
    assert looked_ms - back_ms < 4_000  # the debt of some three seconds, and no hour
