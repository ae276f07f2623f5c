"""Frames and sessions for the gateway's unit tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.answered_here.support import AnswerSupport
from headgate.gateway.background import Threads, TimeSlices
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL, Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.commands import Continue
from headgate.gateway.session.rewrite import AddressBook
from headgate.gateway.session.session import Session
from headgate.gateway.store_link.in_force import InForceNow
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable
from kit.playbook import START_MS, Playbook


def support_of(store: Any, settings: Any = None, table: QuotaTable | None = None) -> AnswerSupport:
    """What a gateway's own answers need, without a gateway."""
    in_force = InForceNow(settings, table or QuotaTable(), store)
    threads = Threads(2, "headgate-store")
    return AnswerSupport(in_force, TimeSlices(), threads, lambda: None)


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else struct.pack(">h", len(text)) + text.encode()


def request(key: int, version: int, correlation: int, body: bytes, client: str = "app") -> bytes:
    return frame(struct.pack(">hhi", key, version, correlation), string(client), body)


def answer(correlation: int, body: bytes) -> bytes:
    return frame(struct.pack(">i", correlation), body)


def produce(
    size: int, correlation: int = 1, acks: int = -1, client: str = "app", version: int = 7
) -> bytes:
    """A Produce request of exactly ``size`` bytes as Kafka counts them (header and body)."""

    def made(filler: int) -> bytes:
        body = string(None) + struct.pack(">hi", acks, 1000) + struct.pack(">i", 1) + string("t")
        body += struct.pack(">ii", 1, 0) + struct.pack(">i", filler) + bytes(filler)
        return request(0, version, correlation, body, client)

    least = len(made(0)) - 4
    assert size >= least, f"a produce has at least {least} bytes"
    return made(size - least)


def produced(correlation: int = 1, throttle_ms: int = 0) -> bytes:
    """The answer to ``produce`` (version 7)."""
    body = struct.pack(">i", 1) + string("t") + struct.pack(">i", 1)
    body += struct.pack(">ihqqq", 0, 0, 0, -1, 0) + struct.pack(">i", throttle_ms)
    return answer(correlation, body)


def fetch(correlation: int = 1, max_bytes: int = 52_428_800, min_bytes: int = 1) -> bytes:
    """A Fetch v11 with a replica id of -1."""
    body = struct.pack(">iiiibii", -1, 500, min_bytes, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 0) + struct.pack(">i", 0) + string("")
    return request(1, 11, correlation, body)


def fetched(records: int, correlation: int = 1, throttle_ms: int = 0) -> bytes:
    """A Fetch v11 answer with some bytes of records."""
    body = struct.pack(">ihi", throttle_ms, 0, 0) + struct.pack(">i", 1) + string("t")
    body += struct.pack(">i", 1) + struct.pack(">ihqqqii", 0, 0, 0, 0, 0, -1, -1)
    body += struct.pack(">i", records) + bytes(records)
    return answer(correlation, body)


def heartbeat(correlation: int = 1, client: str = "app") -> bytes:
    """A Heartbeat v3: nothing about it is special."""
    body = string("g") + struct.pack(">i", 1) + string("m") + string(None)
    return request(12, 3, correlation, body, client)


def beaten(correlation: int = 1, throttle_ms: int = 0) -> bytes:
    """Its answer."""
    return answer(correlation, struct.pack(">ih", throttle_ms, 0))


def gone_on(session: Session) -> int:
    """Have a session go on as long as it asks for later callbacks; return how many it took."""
    callbacks = 0
    while any(isinstance(command, Continue) for command in session.commands):
        session.commands.clear()
        session.go_on(START_MS)
        callbacks += 1
    return callbacks


@dataclass
class StillIdentity:
    """An identity that was known from the start."""

    principal: str = "ANONYMOUS"
    authenticated: bool = True
    close_reason: str | None = None
    close_text: str = ""
    raw: bool = False

    def unknown_token(self, key: int, version: int, frame: bytes, body: int) -> str | None:
        return None

    def raw_request(self, frame: bytes) -> None:
        return None

    def raw_response(self, frame: bytes) -> None:
        return None

    def request(self, key: int, version: int, frame: bytes, body: int) -> bytes | None:
        return None

    def response(self, key: int, version: int, frame: bytes) -> None:
        return None


class Nobody:
    """A transport, or a watch, for which nothing matters."""

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


@dataclass
class StillFace:
    """A listener with fixed addresses."""

    addresses: AddressBook = field(default_factory=lambda: {1: ("gate", 19092)})

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        return None


@dataclass
class Setup:
    """A session, its rules and its playbook."""

    rules: Enforcement
    session: Session
    play: Playbook
    settings: Settings


Quotas = Mapping[QuotaEntity, Mapping[QuotaKey, float]]


@pytest.fixture
def gateway() -> Callable[..., Setup]:
    """``gateway(quotas, properties={}, principal=…)``: a ready session under these quotas."""

    def make(
        quotas: Quotas | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        principal: str = "alice",
        journal: Journal = NO_JOURNAL,
        identity: Any = None,
        skew: Callable[[], int] = lambda: 0,
        **options: Any,
    ) -> Setup:
        settings = Settings.from_properties(
            {
                "headgate.upstream": "127.0.0.1:9092",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                **(properties or {}),
            }
        )
        rules = Enforcement(settings, 1, lambda: START_MS, journal, skew=skew)
        rules.load(QuotaTable.of(quotas or {}), START_MS)
        session = Session(
            rules,
            identity or StillIdentity(principal),
            build_plans(pass_unknown=settings.unknown_apis == "pass"),
            StillFace(),
            pass_unknown=settings.unknown_apis == "pass",
            **options,
        )
        return Setup(rules, session, Playbook(session), settings)

    return make
