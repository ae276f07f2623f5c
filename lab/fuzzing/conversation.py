"""One client and one broker, in any pieces and order: served, or closed with a reason."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

from fuzzing.real_messages import BOOK, CASES, real
from fuzzing.target import Target
from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL
from headgate.gateway.charging.plans import RAW_TOKEN, build_plans
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import SaslObserver
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, REQUEST
from headgate.quota.table import QuotaTable
from headgate.wire import header
from headgate.wire.header import build_request, build_response

PLANS = build_plans()
START_MS = 1_700_000_000_000
SETTINGS = Settings.from_properties(
    {
        "headgate.upstream": "127.0.0.1:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
    }
)
_TABLES = (
    QuotaTable.of({}),
    QuotaTable.of({QuotaEntity.of(client_id="app"): {PRODUCER: 100.0}}),
    QuotaTable.of({QuotaEntity.of(client_id="app"): {REQUEST: 0.5, PRODUCER: 1e6}}),
)
MAX_HELD = 4 * 1024 * 1024


class Face:
    addresses = BOOK

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        return None


def _steps(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Cut bytes into (action, number, payload)."""
    at = 0
    while at + 4 <= len(data):
        action, number, size = struct.unpack_from(">BBH", data, at)
        payload = data[at + 4 : at + 4 + size % 600]
        at += 4 + len(payload)
        yield action, number, payload


def conversation(data: bytes) -> None:
    """Any client and any broker, in any pieces and order: served or closed with a reason."""
    if len(data) < 2:
        return
    rules = Enforcement(SETTINGS, 1, lambda: START_MS, NO_JOURNAL)
    rules.load(_TABLES[data[0] % len(_TABLES)], START_MS)
    context = AuthenticationContext("L", "SASL_PLAINTEXT" if data[1] & 1 else "PLAINTEXT", "::1")
    owners = {"t": "owner"}
    observer = SaslObserver(owner_of=owners.get) if data[1] & 1 else None
    session = Session(
        rules,
        Identity(DefaultPrincipalBuilder(), context, observer),
        PLANS,
        Face(),
        max_request_bytes=100_000,
    )
    now = START_MS
    session.upstream_ready(now)
    given = taken = 0
    for action, number, payload in itertools.islice(_steps(data[2:]), 60):
        closed = session.closed
        before = len(session.to_client), len(session.to_broker)
        kind = action % 6
        if kind == 0:
            session.client_data(memoryview(bytearray(payload)), now)
            given += len(payload)
        elif kind == 1:
            key, version = CASES[number * 256 % len(CASES)]
            raw = header.build_request(key, version, number, "app", payload)
            session.client_data(memoryview(bytearray(raw)), now)
            given += len(raw)
        elif kind == 2:
            session.broker_data(memoryview(bytearray(payload)), now)
        elif kind == 3 and session.unanswered:
            correlation_id, plan = session.unanswered[0][:2]
            if plan is RAW_TOKEN:
                raw = struct.pack(">i", len(payload)) + payload
            else:
                raw = header.build_response(plan.key, plan.version, correlation_id, payload)
            cut = number % len(raw)
            for piece in (raw[:cut], raw[cut:]):
                if piece:
                    session.broker_data(memoryview(bytearray(piece)), now)
        elif kind == 4:
            now += number * 100
            session.wake(now)
        elif session.question is not None:
            ask = session.question
            if ask.token_id is not None:
                session.resume(ask, now)
            elif number & 1:
                session.forward(ask, ask.frame, None, now)
            else:
                # Our own answers are never malformed.
                raw = header.build_response(
                    ask.plan.key, ask.plan.version, ask.correlation_id, bytes(64)
                )
                session.answer(ask, raw, now)
        assert session.held_bytes <= MAX_HELD
        if closed is not None:
            assert (len(session.to_client), len(session.to_broker)) == before
        taken += sum(len(piece) for piece in session.to_broker)
        session.to_broker.clear()
        session.to_client.clear()
        session.commands.clear()
        assert taken <= given
    if session.closed is not None:
        assert session.closed.reason


def _conversations() -> list[bytes]:
    def step(action: int, payload: bytes, number: int = 0) -> bytes:
        return struct.pack(">BBH", action, number, min(len(payload), 599)) + payload[:599]

    out = []
    for table in range(3):
        for key, version, body in real(response=False):
            raw = build_request(key, version, 5, "app", body)
            if len(raw) < 590:
                out.append(
                    bytes((table, 0)) + step(0, raw) + step(3, b"\0" * 20) + step(4, b"", 50)
                )
    for key, version, body in real(response=True):
        raw = build_response(key, version, 1, body)
        request = build_request(key, version, 1, "app", b"\0" * 30)
        if len(raw) < 590:
            out.append(b"\0\0" + step(0, request) + step(2, raw))
    return out


TARGETS = {
    "conversation": Target(
        conversation,
        _conversations,
    ),
}
