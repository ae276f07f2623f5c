"""Who has its turn at a gate, and can't take it, keeps nobody else waiting."""

from __future__ import annotations

import struct
from collections.abc import Callable

from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.commands import WakeAt
from headgate.gateway.session.session import Session
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.quota.table import QuotaTable
from kit.playbook import START_MS

from .conftest import (
    Quotas,
    Setup,
    StillFace,
    StillIdentity,
    beaten,
    fetch,
    fetched,
    heartbeat,
    produce,
    request,
    string,
)

Make = Callable[..., Setup]
APP = QuotaEntity.of(client_id="app")
QUOTA = 100_000
BIG = 4_500_000
"""45 s worth: once it has passed the gate is closed for 34 s."""
OPENS_MS = START_MS + 34_000


class Loop:
    """A clock with the timers and the calls of many sessions, as the shell has them."""

    def __init__(self, rules: Enforcement) -> None:
        self.rules = rules
        self.now_ms = START_MS
        self.due: list[tuple[int, int, Session]] = []
        self.called: list[Session] = []
        self.sessions: list[Session] = []
        self.passed: dict[int, list[int]] = {}

    def connect(self, principal: str) -> Session:
        session = Session(self.rules, StillIdentity(principal), build_plans(), StillFace())
        session.nudge = lambda: self.called.append(session)
        session.upstream_ready(self.now_ms)
        self.sessions.append(session)
        self.settle(session)
        return session

    def says(self, session: Session, data: bytes) -> Session:
        session.client_data(memoryview(bytearray(data)), self.now_ms)
        self.settle(session)
        return session

    def hears(self, session: Session, data: bytes) -> None:
        session.broker_data(memoryview(bytearray(data)), self.now_ms)
        self.settle(session)

    def settle(self, session: Session) -> None:
        for command in session.commands:
            if isinstance(command, WakeAt):
                self.due.append((command.t_ms, len(self.due), session))
        if session.to_broker:
            self.passed.setdefault(id(session), []).append(self.now_ms)
        for done in (session.commands, session.to_broker, session.to_client):
            done.clear()

    def run(self, until_ms: int) -> None:
        """Have time pass: what is due is done, each in its order."""
        while True:
            while self.called:
                session = self.called.pop(0)
                session.nudged(self.now_ms)
                self.settle(session)
            first = min(self.due, default=None, key=lambda timer: timer[:2])
            if first is None or first[0] > until_ms:
                break
            self.due.remove(first)
            self.now_ms = max(self.now_ms, first[0])
            first[2].wake(self.now_ms, first[0])
            self.settle(first[2])
        self.now_ms = until_ms

    def passes(self, session: Session) -> list[int]:
        """When something of it was passed on, in seconds."""
        return [(at - START_MS) // 1000 for at in self.passed.get(id(session), [])]


def owing(make: Make, more: Quotas | None = None) -> Loop:
    """A client-id owes 44 s worth of its quota; its gate opens after 34 s."""
    loop = Loop(make({APP: {PRODUCER_BPS: float(QUOTA)}, **(more or {})}).rules)
    loop.says(loop.connect("mallory"), produce(BIG))
    return loop


def test_a_brokers_throttle(gateway: Make) -> None:
    """The first in turn has a request in flight, whose answer tells a throttle of the broker's."""
    loop = owing(gateway)
    first = loop.connect("alice")
    loop.says(first, heartbeat(0) + produce(500))
    other = loop.says(loop.connect("bob"), produce(500))
    loop.hears(first, beaten(0, 600_000))
    loop.run(START_MS + 40_000)
    assert loop.passes(other) == [34]


ALICE = QuotaEntity.of(user="alice")


def long_fetch(loop: Loop, session: Session) -> None:
    """A Fetch in two pieces."""
    body = struct.pack(">iiiibii", -1, 500, 1, 50_000, 0, 0, -1) + struct.pack(">ii", 0, 0)
    asks = request(1, 11, 0, body + string("r" * 200))
    loop.says(session, asks[:-1])
    loop.says(session, asks[-1:])


def test_what_a_closed_connection_left(gateway: Make) -> None:
    """A quota is set, under which the first in turn takes what another left, and is muted."""
    table = QuotaTable.of({APP: {PRODUCER_BPS: float(QUOTA)}, ALICE: {PRODUCER: 1_000.0}})
    loop = Loop(gateway(table.entities).rules)
    leaves = loop.says(loop.connect("alice"), produce(60_000))
    leaves.close("client-gone", "", loop.now_ms)
    assert leaves.throttled_until_ms == START_MS + 50_000
    loop.says(loop.connect("mallory"), produce(BIG))
    table, delta = table.apply([QuotaAlteration(ALICE, (Op(PRODUCER, None),))])
    loop.rules.update(delta, loop.now_ms)
    first = loop.says(loop.connect("alice"), produce(500))
    other = loop.says(loop.connect("bob"), produce(500))
    assert first.waits_turn and other.waits_turn
    loop.rules.update(table.apply([QuotaAlteration(ALICE, (Op(PRODUCER, 1e3),))])[1], loop.now_ms)
    loop.run(START_MS + 60_000)
    assert loop.passes(first) == [50]
    assert loop.passes(other) == [34]


def test_answers_that_come_late(gateway: Make) -> None:
    """The first in turn has one in flight when a quota of time is set: the next goes alone."""
    table = QuotaTable.of({APP: {PRODUCER_BPS: float(QUOTA)}})
    loop = Loop(gateway(table.entities, {"headgate.request.time": "upstream"}).rules)
    loop.says(loop.connect("mallory"), produce(BIG))
    first = loop.says(loop.connect("alice"), heartbeat(0) + produce(500))
    other = loop.says(loop.connect("bob"), produce(500))
    assert first.waits_turn and other.waits_turn
    loop.rules.update(table.apply([QuotaAlteration(ALICE, (Op(REQUEST, 9.0),))])[1], loop.now_ms)
    loop.run(START_MS + 40_000)
    assert loop.passes(other) == [34]


def test_an_answer_that_waits(gateway: Make) -> None:
    """The first in turn has a fetch's answer that waits, and its Produce is looked at as well."""
    loop = owing(gateway)
    first = loop.connect("alice")
    dave = loop.connect("dave")
    loop.run(OPENS_MS - 2_000)
    loop.says(first, fetch(0))
    loop.says(first, produce(500))
    table = QuotaTable.of({APP: {PRODUCER_BPS: float(QUOTA)}})
    _, delta = table.apply([QuotaAlteration(APP, (Op(CONSUMER, 1e4),))])
    loop.rules.update(delta, loop.now_ms)
    loop.says(dave, fetch(1))
    loop.hears(dave, fetched(2_000_000, 1))
    loop.hears(first, fetched(500, 0))
    other = loop.says(loop.connect("bob"), produce(500))
    assert first.holds and first.waits and other.waits_turn
    loop.run(START_MS + 40_000)
    assert loop.passes(other) == [34]


def test_behind_a_fetch_in_two_pieces_nothing_goes_before_its_answer(gateway: Make) -> None:
    """Under a quota a fetch goes alone, in however many pieces it comes."""
    loop = Loop(gateway({APP: {CONSUMER: 1e6}}).rules)
    client = loop.connect("alice")
    long_fetch(loop, client)
    loop.says(client, produce(500))
    assert client.held_bytes
    loop.hears(client, fetched(500, 0))
    assert not client.held_bytes
