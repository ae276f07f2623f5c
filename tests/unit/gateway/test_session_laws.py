"""Laws of a session, for any bytes in any pieces."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.requests import HELD_BYTES
from headgate.gateway.session.session import Session
from headgate.gateway.session.waits import Waits
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable
from kit.playbook import START_MS

from .conftest import (
    StillFace,
    StillIdentity,
    beaten,
    fetch,
    fetched,
    heartbeat,
    produce,
    produced,
)

PROPERTIES = {
    "headgate.upstream": "127.0.0.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}
SETTINGS = Settings.from_properties(PROPERTIES)
SMOOTH = Settings.from_properties(
    PROPERTIES | {"headgate.pacing": "smooth", "headgate.pacing.burst.seconds": "9"}
)
PLANS = build_plans()


def session(quotas: Any = None, settings: Settings = SETTINGS, **options: Any) -> Session:
    rules = Enforcement(settings, 1, lambda: START_MS)
    rules.load(QuotaTable.of(quotas or {}), START_MS)
    made = Session(rules, StillIdentity("alice"), PLANS, StillFace(), **options)
    made.upstream_ready(START_MS)
    return made


def take(out: list[Any]) -> bytes:
    said = b"".join(out)
    out.clear()
    return said


KINDS = st.sampled_from(["heartbeat", "produce", "acks0", "fetch"])


def exchange(kind: str, number: int, size: int) -> tuple[bytes, bytes]:
    if kind == "heartbeat":
        return heartbeat(number), beaten(number)
    if kind == "produce":
        return produce(60 + size, number), produced(number)
    if kind == "acks0":
        return produce(60 + size, number, acks=0), b""
    return fetch(number), fetched(size, number)


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 5_000)), min_size=1, max_size=20),
    st.lists(st.integers(1, 700), min_size=1, max_size=10),
)
def test_without_quotas_every_byte_passes_as_it_came(
    turns: list[tuple[str, int]], cuts: list[int]
) -> None:
    pairs = [exchange(kind, n, size) for n, (kind, size) in enumerate(turns)]
    asked, told = b"".join(p[0] for p in pairs), b"".join(p[1] for p in pairs)
    made = session()
    at, passed = 0, b""
    for turn in range(len(asked)):
        step = cuts[turn % len(cuts)]
        made.client_data(memoryview(bytearray(asked[at : at + step])), START_MS)
        passed += take(made.to_broker)
        at += step
        if at >= len(asked):
            break
    assert passed == asked
    at, back = 0, b""
    while at < len(told):
        step = cuts[at % len(cuts)]
        made.broker_data(memoryview(bytearray(told[at : at + step])), START_MS)
        back += take(made.to_client)
        at += step
    assert back == told
    assert made.at_rest
    assert made.closed is None


@given(st.binary(max_size=2_000), st.integers(1, 100))
def test_no_bytes_of_a_client_do_more_than_close_it(data: bytes, cut: int) -> None:
    made = session({QuotaEntity.of(user="alice"): {PRODUCER: 1.0}}, max_request_bytes=10_000)
    for at in range(0, len(data), cut):
        made.client_data(memoryview(bytearray(data[at : at + cut])), START_MS)
    assert made.held_bytes <= HELD_BYTES + cut
    assert made.retained() <= 40_000


FRAMES = st.builds(
    lambda key, version, body, client: (
        struct.pack(">ihhih", 10 + len(client) + len(body), key, version, 1, len(client))
        + client
        + body
    ),
    st.integers(0, 90),
    st.integers(0, 15),
    st.binary(max_size=300),
    st.binary(max_size=10),
)


@given(st.lists(FRAMES, min_size=1, max_size=5), st.binary(max_size=300))
def test_no_request_of_whatever_api_and_no_answer_does_more_than_close(
    frames: list[bytes], answer: bytes
) -> None:
    quotas = {QuotaEntity.of(user="alice"): {PRODUCER: 1.0, CONSUMER: 1.0, REQUEST: 1.0}}
    for limits in ({}, quotas):
        made = session(limits)
        for frame in frames:
            made.client_data(memoryview(bytearray(frame)), START_MS)
        take(made.to_broker)
        told = struct.pack(">ii", 4 + len(answer), 1) + answer
        made.broker_data(memoryview(bytearray(told)), START_MS)
        made.broker_data(memoryview(bytearray(answer)), START_MS)
        made.wake(START_MS + 10**9)


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 9_000)), min_size=1, max_size=30),
    st.integers(1, 20_000),
    st.booleans(),
)
def test_under_a_quota_no_request_is_lost(
    turns: list[tuple[str, int]], bound: int, by_time: bool
) -> None:
    pairs = [exchange(kind, n, size) for n, (kind, size) in enumerate(turns)]
    quotas = {PRODUCER: float(bound), CONSUMER: float(bound)}
    if by_time:
        quotas[REQUEST] = 0.01
    made = session({QuotaEntity.of(user="alice"): quotas})
    now = START_MS
    for asked, _ in pairs:
        made.client_data(memoryview(bytearray(asked)), now)
    passed = take(made.to_broker)
    for asked, told in pairs:
        if not passed:
            assert made.throttled_until_ms > now
            now = made.throttled_until_ms
            made.wake(now)
            passed += take(made.to_broker)
        assert passed[:12] == asked[:12]
        assert len(passed) >= len(asked)
        passed = passed[len(asked) :]
        if told:
            if by_time:
                assert made.in_flight == 1
                assert not passed
            made.broker_data(memoryview(bytearray(told)), now)
            assert take(made.to_client)[4:8] == told[4:8]
            passed += take(made.to_broker)
            if made.throttled_until_ms > now:
                assert made.in_flight == 0
    assert made.in_flight == 0
    assert made.held_bytes == 0
    assert made.waits in (Waits(0), Waits.THROTTLE)


def throttle_in(told: bytes) -> int:
    """What a Produce v7 answer tells."""
    told_ms: int = struct.unpack(">i", told[-4:])[0]
    return told_ms


SIZES = st.one_of(st.integers(60, 900), st.integers(60, 30_000))


@given(
    st.lists(st.tuples(SIZES, st.booleans(), st.integers(0, 1_200)), min_size=1, max_size=60),
    st.integers(50, 5_000),
    st.sampled_from([SETTINGS, SMOOTH]),
)
def test_going_early_changes_no_decision(
    turns: list[tuple[int, bool, int]], bound: int, pacing: Settings
) -> None:
    """Alone in flight or not: every request is told the same, at the same time."""

    def decisions(quotas: dict[Any, float]) -> list[tuple[int, int, int]]:
        made = session({QuotaEntity.of(user="alice"): quotas}, pacing)
        now, found = START_MS, []
        for number, (size, _, _) in enumerate(turns):
            made.client_data(memoryview(bytearray(produce(size, number))), now)
        for number, (_, wait, step) in enumerate(turns):
            if made.throttled_until_ms:
                now = max(now, made.throttled_until_ms)
                made.wake(now)
            assert made.in_flight
            now += step * wait
            made.broker_data(memoryview(bytearray(produced(number))), now)
            found.append((number, throttle_in(take(made.to_client)), now))
        return found

    assert decisions({PRODUCER: float(bound)}) == decisions({PRODUCER: float(bound), REQUEST: 0.01})


CROWDED = st.one_of(st.integers(500, 4_000), SIZES)


class Crowd(RuleBasedStateMachine):
    """Connections of one quota-id, answered in whatever order on a clock that may step back."""

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.rules = Enforcement(self.settings, 1, lambda: START_MS)
        quotas = {QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}}
        self.rules.load(QuotaTable.of(quotas), START_MS)
        self.now = START_MS
        self.number = 0
        self.sessions = [
            Session(self.rules, StillIdentity("alice"), PLANS, StillFace()) for _ in range(3)
        ]
        self.asked: dict[Session, list[int]] = {made: [] for made in self.sessions}
        for made in self.sessions:
            made.upstream_ready(self.now)

    def passed(self) -> None:
        for made in self.sessions:
            said = take(made.to_broker)
            while said:
                size, _, correlation = struct.unpack_from(">iIi", said)
                made_acks = struct.unpack_from(">h", said, 19)[0]
                if made_acks:
                    self.asked[made].append(correlation)
                said = said[4 + size :]
            made.commands.clear()
            assert not made.held_bytes or made.waits, "held, and nothing is waited for"

    @rule(which=st.integers(0, 2), size=CROWDED, acks=st.sampled_from([0, -1, -1, -1]))
    def ask(self, which: int, size: int, acks: int) -> None:
        self.number += 1
        made = self.sessions[which]
        made.client_data(memoryview(bytearray(produce(size, self.number, acks))), self.now)
        self.passed()

    @rule(which=st.integers(0, 2))
    def tell(self, which: int) -> None:
        made = self.sessions[which]
        if self.asked[made]:
            correlation = self.asked[made].pop(0)
            made.broker_data(memoryview(bytearray(produced(correlation))), self.now)
            if throttle_in(take(made.to_client)):
                assert made.in_flight == 0
            self.passed()

    @rule(step=st.one_of(st.integers(-1_500, 1_500), st.integers(0, 30_000)))
    def go_on(self, step: int) -> None:
        self.now += step
        for made in self.sessions:
            made.wake(self.now)
        self.passed()

    @rule(which=st.integers(0, 2))
    def hang_up(self, which: int) -> None:
        old = self.sessions[which]
        old.close("client-gone", "", self.now)
        made = Session(self.rules, StillIdentity("alice"), PLANS, StillFace())
        made.upstream_ready(self.now)
        self.sessions[which] = made
        del self.asked[old]
        self.asked[made] = []

    def teardown(self) -> None:
        """All that was asked is answered at last, and nothing stays reserved."""
        for _ in range(10_000):
            waiting = [made for made in self.sessions if self.asked[made] or made.held_bytes]
            if not waiting:
                break
            for which in range(3):
                self.tell(which)
            self.go_on(1_000)
        assert not any(made.held_bytes or made.in_flight for made in self.sessions)
        headroom = self.sessions[0].rules.context("alice", "app").headroom
        assert headroom is not None
        assert not any(one.claimed for one in headroom.all)


TestCrowd = Crowd.TestCase
TestCrowd.settings = hypothesis_settings(max_examples=60, stateful_step_count=60, deadline=None)


class PacedCrowd(Crowd):
    """The same under smooth pacing."""

    settings = SMOOTH


TestPacedCrowd = PacedCrowd.TestCase
TestPacedCrowd.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=60, deadline=None
)
