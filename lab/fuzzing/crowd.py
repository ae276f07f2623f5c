"""
Several connections of a few quota-ids at one broker: split, hang up, come again, in any order.

An input is a script. Its first byte chooses the quotas; then each step has four bytes (what to do,
which connection, a number, where to split) and needs no other. Frames are whole and real, so that
scripts get deep; what is broken within a frame is the business of ``conversation``.
"""

from __future__ import annotations

import struct

from fuzzing.conversation import PLANS, SETTINGS, START_MS, Face
from fuzzing.target import Target
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL
from headgate.gateway.charging.plans import RAW_TOKEN
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import SaslObserver
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable, table_delta
from headgate.wire import header
from kit.simulated_clients import fetch_answer, fetch_request, produce_answer, produce_request

CONNECTIONS = 5
MOST_STEPS = 120
MOST_HELD = 1 << 20
_APP, _ALICE = QuotaEntity.of(client_id="app"), QuotaEntity.of(user="alice")
_TABLES = (
    QuotaTable.of({_APP: {PRODUCER: 1_000.0, CONSUMER: 1_000.0}}),
    QuotaTable.of({_APP: {PRODUCER: 100.0, REQUEST: 0.01}, _ALICE: {CONSUMER: 50.0}}),
    QuotaTable.of({_ALICE: {CONSUMER: 10.0, PRODUCER: 1e9, MUTATION: 1.0}}),
    QuotaTable.of({}),
)
_NAMES = ("app", "app", "other")


class _Wire:
    """One connection: its session, and what either side has still to say."""

    def __init__(self, rules: Enforcement, sasl: bool, now_ms: int) -> None:
        protocol = "SASL_PLAINTEXT" if sasl else "PLAINTEXT"
        context = AuthenticationContext("L", protocol, "::1")
        self.session = Session(
            rules,
            Identity(DefaultPrincipalBuilder(), context, SaslObserver() if sasl else None),
            PLANS,
            Face(),
            max_request_bytes=100_000,
        )
        self.given = self.passed = 0
        self.correlation = 0
        self.rest = b""  # of a frame that the client has begun
        self.session.upstream_ready(now_ms)
        if sasl:
            self._sign_in(now_ms)

    def _sign_in(self, now_ms: int) -> None:
        handshake = header.build_request(17, 1, 1, "app", b"\0\5PLAIN")
        token = header.build_request(36, 1, 2, "app", struct.pack(">i", 9) + b"\0alice\0pw")
        self.send(handshake, len(handshake), now_ms)
        self.answer(struct.pack(">hi", 0, 0), 3, now_ms)
        self.send(token, len(token), now_ms)
        yes = struct.pack(">hhiq", 0, -1, 0, 0)
        self.answer(yes, 7, now_ms)
        assert self.session.known

    def send(self, raw: bytes, cut: int, now_ms: int) -> None:
        """The client goes on with its frame, or sends the first ``cut`` bytes of a new one."""
        raw = self.rest or raw
        self.rest = raw[cut:] if 0 < cut < len(raw) else b""
        piece = raw[: len(raw) - len(self.rest)]
        self.given += len(piece)
        self.session.client_data(memoryview(bytearray(piece)), now_ms)

    def answer(self, body: bytes | None, cut: int, now_ms: int) -> None:
        """The broker answers the oldest request; None: as the request wants it."""
        waiting = self.session.unanswered
        if not waiting:
            return
        correlation, plan = waiting[0][:2]
        if plan is RAW_TOKEN:
            raw = struct.pack(">i", 0)
        elif body is not None:
            raw = header.build_response(plan.key, plan.version, correlation, body)
        elif plan.key == 0:
            raw = produce_answer(correlation)
        elif plan.key == 1:
            raw = fetch_answer(correlation, cut * 16)
        else:
            raw = header.build_response(plan.key, plan.version, correlation, bytes(40))
        at = cut % len(raw)
        for piece in (raw[:at], raw[at:]):
            if piece:
                self.session.broker_data(memoryview(bytearray(piece)), now_ms)

    def ask(self, number: int, now_ms: int) -> None:
        """The shell deals with a question."""
        question = self.session.question
        if question is None:
            return
        if question.token_id is not None:
            self.session.resume(question, now_ms)
        elif number & 1:
            self.session.forward(question, question.frame, None, now_ms)
        else:
            raw = header.build_response(
                question.plan.key, question.plan.version, question.correlation_id, bytes(64)
            )
            self.session.answer(question, raw, now_ms)

    def leave(self, how: int, now_ms: int) -> None:
        """The client hangs up, or the broker does."""
        if how & 1 or not self.session.client_gone(now_ms):
            self.session.close("client-gone", "", now_ms)

    def check(self) -> None:
        """Take what is to be sent, and hold it against what came in."""
        session = self.session
        self.passed += sum(len(piece) for piece in session.to_broker)
        session.to_broker.clear()
        session.to_client.clear()
        session.commands.clear()
        assert session.held_bytes <= MOST_HELD
        assert self.passed <= self.given, "the broker got bytes that no client sent"
        if session.closed is not None:
            assert session.closed.reason
        elif session.at_rest and not session.held_bytes and not self.rest:
            asked = session.question is not None
            assert asked or session.retained() == 0, "at rest, and something is held"


class _Crowd:
    def __init__(self, first: int) -> None:
        self.now_ms = START_MS
        self.rules = Enforcement(SETTINGS, 1, lambda: self.now_ms, NO_JOURNAL)
        self.table = _TABLES[first % len(_TABLES)]
        self.rules.load(self.table, self.now_ms)
        self.sasl = bool(first & 4)
        self.wires: dict[int, _Wire] = {}

    def step(self, action: int, who: int, number: int, cut: int) -> None:
        wire = self.wires.get(who)
        if wire is None:
            wire = self.wires[who] = _Wire(self.rules, self.sasl, self.now_ms)
        name = _NAMES[who % len(_NAMES)]
        wire.correlation += 1
        number_of = wire.correlation
        kind = action % 12
        if kind <= 1:
            raw = produce_request(number_of, 60 + number * 8, name, acks=-(action >> 7) or 0)
            wire.send(raw, cut, self.now_ms)
        elif kind == 2:
            wire.send(fetch_request(number_of, name, number * 4), cut, self.now_ms)
        elif kind == 3:
            key, version = ((3, 8), (18, 3), (22, 1), (19, 5), (20, 4), (12, 2))[number % 6]
            raw = header.build_request(key, version, number_of, name, bytes(24))
            wire.send(raw, cut, self.now_ms)
        elif kind <= 5:
            wire.answer(None, cut, self.now_ms)
        elif kind == 6:
            wire.ask(number, self.now_ms)
        elif kind == 7:
            wire.leave(number, self.now_ms)
        elif kind == 9:
            table = _TABLES[number % len(_TABLES)]
            self.rules.update(table_delta(self.table, table), self.now_ms)
            self.table = table
        else:
            # The clock may be set back a little, as a machine's is.
            self.now_ms += number * 25 if kind == 10 else -min(number, 50)
            for each in self.wires.values():
                each.session.wake(self.now_ms)
        for each in list(self.wires.values()):
            each.check()
        if wire.session.closed is not None:
            del self.wires[who]  # the next step of it connects again

    def all_leave(self) -> None:
        """Everybody hangs up; an hour later nothing is left of them."""
        for wire in self.wires.values():
            wire.session.close("client-gone", "", self.now_ms)
            wire.check()
            assert not wire.session.unanswered
        self.now_ms += 24 * 3_600_000
        for _ in self.rules.gates.tidying(lambda: self.now_ms):
            pass
        assert not len(self.rules.gates), "a gate that nobody waits at"
        assert not self.rules.gates.kept_bytes, "answers that nobody waits for"
        wire = _Wire(self.rules, self.sasl, self.now_ms)
        raw = produce_request(1, 60, "app")
        wire.send(raw, 0, self.now_ms)
        wire.check()
        assert wire.passed == wire.given, "a newcomer waits a day after all have left"
        wire.session.close("client-gone", "", self.now_ms)


def crowd(data: bytes) -> None:
    """Any script."""
    if not data:
        return
    play = _Crowd(data[0])
    for at in range(1, min(len(data), 4 * MOST_STEPS) - 3, 4):
        action, who, number, cut = data[at : at + 4]
        play.step(action, who % CONNECTIONS, number, cut)
    play.all_leave()


def _scripts() -> list[bytes]:
    def play(first: int, *steps: tuple[int, int, int, int]) -> bytes:
        return bytes([first]) + b"".join(bytes(step) for step in steps)

    produce, fetch, answer, leave, wait = 0, 2, 4, 7, 10
    scripts = []
    for first in range(8):
        scripts += [
            play(first, (produce, 0, 200, 0), (answer, 0, 0, 9), (wait, 0, 4, 0)),
            play(
                first,
                (produce, 0, 255, 0),
                (answer, 0, 0, 0),
                (leave, 0, 0, 0),
                (produce, 0, 255, 0),
                (wait, 0, 255, 0),
                (answer, 0, 0, 0),
            ),
            play(
                first,
                (fetch, 0, 0, 0),
                (answer, 0, 0, 200),
                (fetch, 1, 0, 0),
                (leave, 1, 0, 0),
                (fetch, 0, 0, 0),
                (wait, 0, 99, 0),
                (answer, 0, 0, 3),
            ),
            play(first, (produce, 0, 255, 50), (produce, 1, 255, 90), (leave, 0, 1, 0)),
            play(first, *((3, n % 3, n, 0) for n in range(6)), *((6, n, n, 0) for n in range(3))),
            play(first, (produce, 0, 99, 0), (8, 0, 1, 0), (9, 0, 3, 0), (answer, 0, 0, 0)),
        ]
    return scripts


TARGETS = {
    "crowd": Target(
        crowd,
        _scripts,
        tuple(bytes([n, who]) for n in (0, 2, 4, 7, 10) for who in (0, 1)),
    ),
}
